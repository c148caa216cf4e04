package podman

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	guestbin "pinfold.dev/pinfold/sandbox/guest/embed"
)

// Files that every sandbox mounts read-only. They are constant, so that the
// host's own names and servers never stand in a sandbox.
const (
	hostsFile   = "127.0.0.1 localhost pinfold\n::1 localhost\n"
	nameFile    = "pinfold\n"
	resolveFile = "# Names are answered inside the sandbox only.\nnameserver 127.0.0.53\noptions timeout:1 attempts:1\n"
)

// files are the paths on the host of what sandboxes need from us.
type files struct {
	guest   string
	seccomp string
	hosts   string
	name    string
	resolve string
	mark    string // empty; Podman's own would be writable
}

// unpacker writes them once, named by content, into a cache folder.
type unpacker struct {
	dir   string
	guest string // a binary given by the operator

	once  sync.Once
	files files
	err   error
}

func (u *unpacker) get() (files, error) {
	u.once.Do(func() { u.files, u.err = u.unpack() })
	return u.files, u.err
}

func (u *unpacker) unpack() (files, error) {
	var f files
	profile, err := containerProfile()
	if err != nil {
		return f, err
	}
	var guest []byte
	if u.guest != "" {
		guest, err = os.ReadFile(u.guest)
	} else {
		guest, err = guestbin.Binary()
	}
	if err != nil {
		return f, fmt.Errorf("reading the guest: %w", err)
	}
	dir := filepath.Join(u.dir, "sandbox")
	for _, w := range []struct {
		path *string
		name string
		data []byte
		mode os.FileMode
	}{
		{&f.guest, "guest", guest, 0o755},
		{&f.seccomp, "seccomp.json", profile, 0o644},
		{&f.hosts, "hosts", []byte(hostsFile), 0o644},
		{&f.name, "hostname", []byte(nameFile), 0o644},
		{&f.mark, "containerenv", nil, 0o644},
		{&f.resolve, "resolv.conf", []byte(resolveFile), 0o644},
	} {
		if *w.path, err = cacheFile(dir, w.name, w.data, w.mode); err != nil {
			return f, err
		}
	}
	pruneCache(dir)
	return f, nil
}

// cacheAge is how long a file that no server unpacked again is kept: those of
// earlier builds, which a server that still runs may want.
const cacheAge = 30 * 24 * time.Hour

func pruneCache(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); older(path, cacheAge) {
			_ = os.Remove(path)
		}
	}
}

// cacheFile makes sure that dir holds data under a name made of its hash, and
// returns the path. What lies there already is compared, not trusted.
func cacheFile(dir, name string, data []byte, mode os.FileMode) (string, error) {
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, hex.EncodeToString(sum[:8])+"-"+name)
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm() == mode && st.Size() == int64(len(data)) {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
			now := time.Now()
			return path, os.Chtimes(path, now, now)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making cache folder: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", fmt.Errorf("writing cache: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return "", fmt.Errorf("writing cache: %w", err)
	}
	return path, nil
}

// quote makes s one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
