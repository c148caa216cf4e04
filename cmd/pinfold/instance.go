package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// instance is one running Pinfold as others on this machine see it: a folder
// of its own with a lock that it holds as long as it lives, and for a server
// a control socket and a token.
type instance struct {
	id   string // the sandbox.Spec.Owner of what it starts
	dir  string
	lock *os.File
}

var instanceForm = regexp.MustCompile(`^srv-([0-9a-f]{6})-[0-9a-f]{8}$`)

// newInstance makes the folder and takes the lock. Close ends it.
func newInstance() (*instance, error) {
	root, err := runtimeDir()
	if err != nil {
		return nil, err
	}
	// A sweep must not find the folder before its lock is held.
	guard, err := guardLock(root)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	i := &instance{id: "srv-" + runtimeID(root) + "-" + hex.EncodeToString(random[:])}
	i.dir = filepath.Join(root, i.id)
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the server's folder: %w", err)
	}
	i.lock, err = lockFile(filepath.Join(i.dir, "lock"), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		os.RemoveAll(i.dir)
		return nil, fmt.Errorf("taking the server's lock: %w", err)
	}
	return i, nil
}

// Close removes the folder and lets the lock go.
func (i *instance) Close() error {
	err := os.RemoveAll(i.dir)
	return errors.Join(err, i.lock.Close())
}

func (i *instance) socket() string { return filepath.Join(i.dir, "control.sock") }

// token makes the bearer token of an HTTP server, readable by this user alone.
func (i *instance) token() (token, path string, err error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", "", err
	}
	token, path = hex.EncodeToString(b[:]), filepath.Join(i.dir, "token")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", "", fmt.Errorf("writing the token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	return token, path, errors.Join(err, f.Close())
}

// alive reports whether the owner of a sandbox still runs. An owner whose lock
// would lie in a folder we do not look at counts as alive: what we cannot
// judge we leave alone.
func alive(owner string) bool {
	m := instanceForm.FindStringSubmatch(owner)
	if m == nil {
		return true
	}
	for _, root := range runtimeDirs() {
		if runtimeID(root) == m[1] {
			return held(filepath.Join(root, owner, "lock"))
		}
	}
	return true
}

// held reports whether another process holds the lock; a missing one is free,
// one that cannot be read is not.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// instances lists the ids of the living servers, with their folders.
func instances() map[string]string {
	found := map[string]string{}
	for _, root := range runtimeDirs() {
		entries, err := os.ReadDir(root)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if dir := filepath.Join(root, e.Name()); instanceForm.MatchString(e.Name()) && held(filepath.Join(dir, "lock")) {
				found[e.Name()] = dir
			}
		}
	}
	return found
}

// sweep removes the folders of servers that no longer live.
func sweep() error {
	for _, root := range runtimeDirs() {
		if !ownFolder(root) {
			continue
		}
		if err := sweepIn(root); err != nil {
			return err
		}
	}
	return nil
}

func sweepIn(root string) error {
	guard, err := guardLock(root)
	if err != nil {
		return err
	}
	defer guard.Close()
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "srv-"+runtimeID(root)) || held(filepath.Join(dir, "lock")) {
			continue
		}
		// Other parts keep folders of sandboxes here too; those are the engine's to end first.
		for _, own := range []string{"control.sock", "token", "lock"} {
			if err := os.Remove(filepath.Join(dir, own)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		_ = os.Remove(dir)
	}
	return nil
}

func guardLock(root string) (*os.File, error) {
	return lockFile(filepath.Join(root, ".lock"), unix.LOCK_EX)
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
