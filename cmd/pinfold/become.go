package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Nothing of Pinfold runs as root: started as root, the program goes on as a
// plain user in the same process, before it reads anything.
const (
	plainUser    = "pinfold"
	plainUserVar = "PINFOLD_USER"
	// plainUID is the lowest uid of people; below live services.
	plainUID = 1000
	// binCache holds copies of the program for when it lies where only root
	// can go. Root owns it: a file the plain user could change must never be
	// what root executes next.
	binCache = "/var/cache/pinfold"
	// binCacheAge is how long the copy of an earlier build stays.
	binCacheAge = 24 * time.Hour
)

// becomePlainUser returns at once for a plain user. For root it replaces the
// process by itself as the plain user, with a fresh environment, and returns
// only when that cannot be done.
func becomePlainUser() error {
	if os.Geteuid() != 0 && os.Getuid() != 0 {
		return nil
	}
	who, err := findPlainUser(os.Getenv(plainUserVar))
	if err != nil {
		return err
	}
	// Before anything is made for that user: some, such as nobody, have no home.
	if st, err := os.Stat(who.home); err != nil || !st.IsDir() {
		return becomeFault(err, "the home folder %s of user %s is not there", who.home, who.name)
	}
	run, err := who.runtimeFolder("/run/user")
	if err != nil {
		return err
	}
	program, err := who.reachableProgram(binCache)
	if err != nil {
		return err
	}
	env := who.environment(os.Environ(), run)
	if err := who.take(); err != nil {
		return err
	}
	if err := os.Chdir(who.home); err != nil {
		return becomeFault(err, "the home folder %s of user %s cannot be entered", who.home, who.name)
	}
	fmt.Fprintf(os.Stderr, "pinfold: started as root, going on as %s (uid %d)\n", who.name, who.uid)
	err = syscall.Exec(program, os.Args, env)
	return becomeFault(err, "%s cannot be run as user %s", program, who.name)
}

// plain is the user to become.
type plain struct {
	name     string
	home     string
	uid, gid int
	groups   []int
}

func findPlainUser(name string) (plain, error) {
	if name == "" {
		name = plainUser
	}
	u, err := user.Lookup(name)
	if err != nil {
		return plain{}, becomeFault(err, "Pinfold never runs as root, and there is no user %q to become", name)
	}
	p := plain{name: u.Username, home: u.HomeDir}
	p.uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		p.gid, err = strconv.Atoi(u.Gid)
	}
	if err != nil || p.uid < plainUID || p.gid == 0 {
		return plain{}, becomeFault(err, "user %s has uid %s and group %s; Pinfold takes only a plain user, of uid %d or above", name, u.Uid, u.Gid, plainUID)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return plain{}, becomeFault(err, "the groups of user %s cannot be read", name)
	}
	for _, id := range ids {
		g, err := strconv.Atoi(id)
		if err != nil || g == 0 {
			return plain{}, becomeFault(err, "user %s is in group %s, which is root's", name, id)
		}
		p.groups = append(p.groups, g)
	}
	return p, nil
}

// runtimeFolder returns the user's folder for sockets, made if it is missing.
func (p plain) runtimeFolder(base string) (string, error) {
	dir := filepath.Join(base, strconv.Itoa(p.uid))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", becomeFault(err, "the runtime folder %s cannot be made", dir)
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Lchown(dir, p.uid, p.gid)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", becomeFault(err, "the runtime folder %s cannot be made", dir)
	}
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() || st.Sys().(*syscall.Stat_t).Uid != uint32(p.uid) {
		return "", becomeFault(err, "%s is not a folder of user %s", dir, p.name)
	}
	return dir, nil
}

// environment is made anew: of root's own, only what is meant for Pinfold and
// the kind of terminal go on.
func (p plain) environment(root []string, run string) []string {
	env := []string{
		"HOME=" + p.home, "USER=" + p.name, "LOGNAME=" + p.name,
		"PATH=" + standardPath, "LANG=C.UTF-8", "XDG_RUNTIME_DIR=" + run,
	}
	for _, kv := range root {
		name, _, _ := strings.Cut(kv, "=")
		if name == "TERM" || name == "NO_COLOR" || strings.HasPrefix(name, "PINFOLD_") {
			env = append(env, kv)
		}
	}
	return env
}

// take changes groups and ids for good, and checks that it took.
func (p plain) take() error {
	err := syscall.Setgroups(p.groups)
	if err == nil {
		err = syscall.Setgid(p.gid)
	}
	if err == nil {
		err = syscall.Setuid(p.uid)
	}
	if err != nil {
		return becomeFault(err, "the process could not become user %s", p.name)
	}
	groups, err := os.Getgroups()
	if err != nil {
		return becomeFault(err, "the groups could not be read back")
	}
	r, e, s := unix.Getresuid()
	if r != p.uid || e != p.uid || s != p.uid || os.Getegid() != p.gid || slices.Contains(groups, 0) {
		return becomeFault(nil, "the process did not become user %s", p.name)
	}
	if caps := effectiveCaps(); strings.Trim(caps, "0") != "" {
		return becomeFault(nil, "the process kept capabilities (%s) as user %s", caps, p.name)
	}
	return nil
}

func effectiveCaps() string {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// reachableProgram returns the path of this program for the user: its own, or
// where that lies in a closed folder, that of a copy.
func (p plain) reachableProgram(cache string) (string, error) {
	if path, err := os.Executable(); err == nil && p.canRun(path) {
		return path, nil
	}
	path, err := copyProgram(cache)
	if err != nil {
		return "", becomeFault(err, "user %s cannot reach this program, and it could not be copied to %s", p.name, cache)
	}
	return path, nil
}

// canRun reports whether the mode bits let the user run path. Where an access
// list would let it, the copy does no harm.
func (p plain) canRun(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil || !p.may(st) {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

func (p plain) may(st fs.FileInfo) bool {
	own, mode := st.Sys().(*syscall.Stat_t), st.Mode().Perm()
	switch {
	case int(own.Uid) == p.uid:
		return mode&0o100 != 0
	case int(own.Gid) == p.gid || slices.Contains(p.groups, int(own.Gid)):
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

// copyProgram puts this program into a folder that only root can change,
// under its hash, and returns the path.
func copyProgram(cache string) (string, error) {
	self, err := os.Open("/proc/self/exe") // right even when the file was replaced since
	if err != nil {
		return "", err
	}
	defer self.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, self); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	st, err := os.Lstat(cache)
	if err != nil || !st.IsDir() || st.Sys().(*syscall.Stat_t).Uid != 0 || st.Mode().Perm()&0o022 != 0 {
		return "", errors.Join(err, errors.New("the folder is not root's alone"))
	}
	path := filepath.Join(cache, "pinfold-"+hex.EncodeToString(sum.Sum(nil)[:12]))
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm() == 0o755 {
		now := time.Now()
		return path, os.Chtimes(path, now, now)
	}
	if _, err := self.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(cache, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(tmp, self)
	if err = errors.Join(err, tmp.Chmod(0o755), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return "", err
	}
	removeOldCopies(cache, path)
	return path, nil
}

// removeOldCopies removes the copies of earlier builds. A process that runs
// one keeps it.
func removeOldCopies(cache, keep string) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		path := filepath.Join(cache, e.Name())
		st, err := e.Info()
		if err == nil && path != keep && time.Since(st.ModTime()) > binCacheAge &&
			(strings.HasPrefix(e.Name(), "pinfold-") || strings.HasPrefix(e.Name(), ".new-")) {
			_ = os.Remove(path)
		}
	}
}

func becomeFault(cause error, format string, args ...any) error {
	e := sandbox.Errorf(sandbox.FailedPrecondition,
		"Run `make setup` as root, which makes the user "+plainUser+" with all it needs; or name another plain user in "+plainUserVar+"; or start Pinfold as a plain user.",
		format, args...)
	e.Reason, e.Cause = "root", cause
	return e
}
