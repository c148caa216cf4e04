//go:build linux

package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of a walk. What lies past one is said in the notes.
const (
	maxWalkDepth   = 100       // folders in folders; each holds a descriptor
	defaultDepth   = 32        // where a pattern with ** names none
	maxWalkEntries = 3_000_000 // names looked at
	maxSorted      = 200_000   // names of one folder that are put in order
	maxWalkTime    = 25 * time.Second
)

// errStop ends a walk early without being a failure.
var errStop = errors.New("stop")

// walk visits what lies below a folder. Links are never followed, /proc and
// /sys not entered.
type walk struct {
	ctx    context.Context
	depth  int
	hidden bool
	ignore string // name of ignore files, "" for none
	sorted bool   // in the order of comparePaths
	glob   glob   // nil for everything
	// skip tells of a folder that need not be entered, by its path.
	skip func(path []byte) bool
	// visit gets each name that is not hidden, ignored or unmatched. path is valid
	// during the call only.
	visit func(dir int, name string, kind uint8, path []byte) error

	until   time.Time
	entries int
	names   []string // prefix, then the names down to here
	prefix  int      // names above the root, for the ignore files there
	path    []byte
	skipped struct{ hidden, ignored, denied, deep, foreign int }
	stopped string
}

// run walks below an open folder. It must run inside as.
func (w *walk) run(root int) error {
	w.until = time.Now().Add(maxWalkTime)
	if w.depth <= 0 || w.depth > maxWalkDepth {
		w.depth = maxWalkDepth
	}
	rules := w.above(root)
	err := w.folder(root, 1, rules)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// above reads the ignore files between the repository's root and the folder.
func (w *walk) above(root int) *ignores {
	if w.ignore == "" {
		return nil
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(root))
	if err != nil || !strings.HasPrefix(real, "/") {
		return nil
	}
	names := split(real)
	var dirs []int
	defer func() {
		for _, d := range dirs {
			unix.Close(d)
		}
	}()
	for at, up := root, 0; up <= len(names) && up < maxWalkDepth; up++ {
		if unix.Faccessat(at, ".git", unix.F_OK, 0) == nil {
			w.names = slices.Clone(names[len(names)-up:])
			w.prefix = up
			var g *ignores
			for i := up - 1; i >= 0; i-- { // dirs[i] is i+1 folders above the root
				g = g.enter(dirs[i], w.ignore, up-1-i)
			}
			return g
		}
		next, err := openDir(at, "..")
		if err != nil {
			return nil
		}
		dirs = append(dirs, next)
		at = next
	}
	return nil
}

func (w *walk) folder(dir, depth int, rules *ignores) error {
	rules = rules.enter(dir, w.ignore, len(w.names))
	list := func(name string, kind uint8) error { return w.entry(dir, name, kind, depth, rules) }
	if !w.sorted {
		var failed error
		err := readDir(dir, func(name string, kind uint8) bool {
			failed = list(name, kind)
			return failed == nil
		})
		return errors.Join(failed, w.denied(err, depth))
	}
	type item struct {
		name string
		kind uint8
	}
	var items []item
	err := readDir(dir, func(name string, kind uint8) bool {
		items = append(items, item{name, kind})
		return len(items) < maxSorted
	})
	if err := w.denied(err, depth); err != nil {
		return err
	}
	if len(items) >= maxSorted {
		w.stopped = "a folder of more than " + strconv.Itoa(maxSorted) + " names was looked through in part"
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.name, b.name) })
	for _, it := range items {
		if err := list(it.name, it.kind); err != nil {
			return err
		}
	}
	return nil
}

// denied counts a folder below the root that cannot be read, and goes on.
func (w *walk) denied(err error, depth int) error {
	if err == nil || depth == 1 {
		return err
	}
	w.skipped.denied++
	return nil
}

func (w *walk) entry(dir int, name string, kind uint8, depth int, rules *ignores) error {
	if w.entries++; w.entries&255 == 0 {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if w.entries > maxWalkEntries || time.Now().After(w.until) {
			w.stopped = "stopped after " + strconv.Itoa(w.entries) + " names; name a deeper folder"
			return errStop
		}
	}
	if strings.HasPrefix(name, tempPrefix) {
		return nil // a write under way
	}
	if !w.hidden && name[0] == '.' {
		w.skipped.hidden++
		return nil
	}
	if kind == unix.DT_UNKNOWN {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return nil
		}
		kind = uint8(st.Mode & unix.S_IFMT >> 12) // DT_* are the bits of the mode
	}
	w.names = append(w.names, name)
	length := len(w.path)
	if length > 0 {
		w.path = append(w.path, '/')
	}
	w.path = append(w.path, name...)
	defer func() {
		w.names = w.names[:len(w.names)-1]
		w.path = w.path[:length]
	}()
	folder := kind == unix.DT_DIR
	if rules.ignored(w.names, folder) {
		w.skipped.ignored++
		return nil
	}
	if w.glob == nil || w.glob.match(w.names[w.prefix:]) {
		if err := w.visit(dir, name, kind, w.path); err != nil {
			return err
		}
	}
	if !folder || (w.ignore != "" && name == ".git") {
		return nil
	}
	if depth >= w.depth {
		if depth >= maxWalkDepth {
			w.skipped.deep++
		}
		return nil
	}
	if w.skip != nil && w.skip(w.path) {
		return nil
	}
	return w.enter(dir, name, depth, rules)
}

func (w *walk) enter(dir int, name string, depth int, rules *ignores) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return err
		}
		w.skipped.denied++
		return nil
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && (fs.Type == unix.PROC_SUPER_MAGIC || fs.Type == unix.SYSFS_MAGIC) {
		w.skipped.foreign++
		return nil
	}
	return w.folder(fd, depth+1, rules)
}

// notes say what was left out.
func (w *walk) notes() []string {
	var out []string
	add := func(n int, what string) {
		if n > 0 {
			out = append(out, strconv.Itoa(n)+" "+what)
		}
	}
	add(w.skipped.ignored, "ignored by "+w.ignore)
	add(w.skipped.hidden, "hidden skipped")
	add(w.skipped.denied, "folders could not be read")
	add(w.skipped.deep, "folders too deep")
	add(w.skipped.foreign, "kernel file systems (/proc, /sys) not entered")
	if w.stopped != "" {
		out = append(out, w.stopped)
	}
	return out
}

// openRoot opens the folder of a request. It must run inside as.
func (f *files) openRoot(asked, path string) (int, error) {
	fd, err := f.open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		e := sandbox.Errorf(sandbox.FailedPrecondition, "Read it with file_read, or name a folder.", "%s is not a folder", asked)
		e.Reason = "not_a_directory"
		return -1, e
	}
	if err != nil {
		return -1, f.suggest(fileError("list", asked, err), path)
	}
	return fd, nil
}

// readDir calls fn with each name of an open folder and its DT_ type, without
// holding more than one buffer of them, until fn returns false.
func readDir(fd int, fn func(name string, kind uint8) bool) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) >= 19; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size < 19 || size > len(b) {
				return unix.EIO
			}
			name := b[19:size]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			kind := b[18]
			b = b[size:]
			if s := string(name); s != "" && s != "." && s != ".." && !fn(s, kind) {
				return nil
			}
		}
	}
}

// comparePaths orders paths name by name: a folder stands before what follows
// its name with another character.
func comparePaths[A, B string | []byte](a A, b B) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		switch {
		case x == '/':
			return -1
		case y == '/':
			return 1
		case x < y:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
