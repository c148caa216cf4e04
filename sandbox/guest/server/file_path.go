//go:build linux

package server

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// files does the work on files. Every name is looked up inside as, which runs
// its function on a thread that acts as the given user; descriptors opened
// there are used anywhere afterwards.
type files struct {
	dir     string // where relative paths start
	browser string // the browser's folder
	as      func(uid int, fn func() error) error
	// noOpenat2 is set once the kernel (some sandboxes') turned out to lack openat2.
	noOpenat2 atomic.Bool
	writing   sync.Mutex    // one change at a time, so that if_hash means something
	walks     chan struct{} // bounds the threads that walk trees, for which others would wait
}

// maxWalks is how many listings and searches go on at one time.
const maxWalks = 4

// walking waits for its turn to walk a tree; done gives it back.
func (f *files) walking(ctx context.Context) (done func(), err error) {
	if f.walks == nil {
		return func() {}, nil
	}
	select {
	case f.walks <- struct{}{}:
		return func() { <-f.walks }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const (
	maxPath  = 4095 // PATH_MAX without the NUL
	maxName  = 255
	maxLinks = 40 // the kernel's own bound
)

// errMagic is the refusal of a link of /proc that leads into a process.
var errMagic = errors.New("magic link")

// locate turns a path of a request into an absolute one, without resolving it.
func (f *files) locate(p string) (string, error) {
	p = decodeName(p)
	if strings.IndexByte(p, 0) >= 0 {
		return "", sandbox.Errorf(sandbox.InvalidArgument, "Take the NUL byte out.", "the path holds a NUL byte")
	}
	if !strings.HasPrefix(p, "/") {
		p = f.dir + "/" + p
	}
	if len(p) > maxPath {
		return "", tooLong(p)
	}
	for c := range strings.SplitSeq(p, "/") {
		if len(c) > maxName {
			return "", tooLong(p)
		}
	}
	return p, nil
}

func tooLong(p string) error {
	e := sandbox.Errorf(sandbox.InvalidArgument, "Use a shorter path.", "the path is too long: %d bytes (at most %d, and %d for one name)", len(p), maxPath, maxName)
	e.Reason = "name_too_long"
	return e
}

// open opens a path, following links but never a magic one of /proc. It never
// blocks on what it opens. It must run inside as.
func (f *files) open(path string, flags int, mode uint32) (int, error) {
	flags = carefully(flags)
	if !f.noOpenat2.Load() {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case err == nil:
			return f.guardProc(fd)
		case errors.Is(err, unix.ENOSYS):
			f.noOpenat2.Store(true)
		case !errors.Is(err, unix.ELOOP):
			return -1, err
		}
		// ELOOP is a loop or a magic link; the walk tells which.
	}
	at, err := f.resolve(path, flags&unix.O_NOFOLLOW == 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at.dir)
	fd, err := unix.Openat(at.dir, at.name, flags|unix.O_NOFOLLOW, mode)
	if err != nil {
		return -1, err
	}
	return f.guardProc(fd)
}

// carefully adds what keeps an open from blocking or from taking a terminal.
// O_PATH goes with neither, nor blocks.
func carefully(flags int) int {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	return flags | unix.O_CLOEXEC
}

// place is a name in an open folder, with the links before it resolved.
type place struct {
	dir  int    // O_PATH; the holder closes it
	name string // never a link when it was followed; "." for the folder itself
	link string // where the first link at the path's end pointed, if there was one
}

// resolve walks a path name by name. With follow a link at its end is followed
// too; what it names need not exist. It must run inside as.
func (f *files) resolve(path string, follow bool) (place, error) {
	cur, err := openDir(unix.AT_FDCWD, "/")
	if err != nil {
		return place{}, err
	}
	enter := func(name string) error {
		next, err := openDir(cur, name)
		if err == nil {
			unix.Close(cur)
			cur = next
		}
		return err
	}
	fail := func(err error) (place, error) {
		unix.Close(cur)
		return place{}, err
	}
	at := place{}
	rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		last := len(rest) == 1
		if name == ".." {
			if err := enter(".."); err != nil {
				return fail(err)
			}
			rest = rest[1:]
			continue
		}
		if last && !follow {
			break
		}
		target, err := readLink(cur, name)
		if err != nil && !(last && errors.Is(err, unix.ENOENT)) {
			return fail(err)
		}
		if target == "" {
			if last {
				break
			}
			if err := enter(name); err != nil {
				return fail(err)
			}
			rest = rest[1:]
			continue
		}
		if links++; links > maxLinks {
			return fail(unix.ELOOP)
		}
		if last && at.link == "" {
			at.link = target
		}
		if strings.HasPrefix(target, "/") {
			if err := enter("/"); err != nil {
				return fail(err)
			}
		}
		rest = append(split(target), rest[1:]...)
	}
	at.dir, at.name = cur, "."
	if len(rest) == 1 {
		at.name = rest[0]
	}
	return at, nil
}

func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// split cuts a path into its names; "." and empty ones go. A trailing slash is
// kept as a last ".", hence gone: it asks for no more than the name does.
func split(path string) []string {
	var out []string
	for c := range strings.SplitSeq(path, "/") {
		if c != "" && c != "." {
			out = append(out, c)
		}
	}
	return out
}

// readLink returns where a link points, or nothing for what is no link. The
// links of /proc that lead into a process are refused: their text is for show,
// following them means following the kernel.
func readLink(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	proc := onProc(fd)
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		if proc && errors.Is(err, unix.EACCES) {
			return "", errMagic
		}
		return "", err
	}
	target := string(buf[:n])
	// The plain links of /proc (self, thread-self, mounts, net) are relative.
	if proc && (strings.HasPrefix(target, "/") || strings.ContainsAny(target, ":[(")) {
		return "", errMagic
	}
	if target == "" {
		return "", unix.ENOENT
	}
	return target, nil
}

func onProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || fs.Type == unix.PROC_SUPER_MAGIC
}

// guardProc refuses what /proc shows of the guest itself: the kernel lets every
// thread read its own process, whatever user it acts as. It takes over fd.
func (f *files) guardProc(fd int) (int, error) {
	if !onProc(fd) {
		return fd, nil
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || ownProcess(name) {
		unix.Close(fd)
		return -1, errMagic
	}
	return fd, nil
}

// ownProcess tells whether a real path of /proc belongs to this process. What
// is not understood does.
func ownProcess(name string) bool {
	rest, ok := strings.CutPrefix(name, "/proc")
	if !ok || (rest != "" && rest[0] != '/') {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return first == "self" || first == "thread-self"
	}
	if pid == os.Getpid() {
		return true
	}
	// Threads answer under their own number too, though no listing shows them.
	_, err = os.Stat("/proc/self/task/" + strconv.Itoa(pid))
	return !errors.Is(err, os.ErrNotExist)
}
