//go:build linux

package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// target is a file to be written: its folder is open, the links before it are
// resolved. Close it.
type target struct {
	asked  string // as the caller named it
	at     place
	exists bool
	st     unix.Stat_t
}

func (t *target) close() { unix.Close(t.at.dir) }

// target finds what a path names for writing. It must run inside as.
func (f *files) target(asked, path string, createDirs bool) (*target, error) {
	if strings.HasSuffix(path, "/") {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Take the slash off the end.", "%s names a folder, not a file", asked)
	}
	at, err := f.resolve(path, true)
	if errors.Is(err, unix.ENOENT) && createDirs {
		if err = f.mkdirs(path[:strings.LastIndexByte(path, '/')+1]); err == nil {
			at, err = f.resolve(path, true)
		}
	}
	if err != nil {
		err = fileError("write", asked, err)
		var e *sandbox.Error
		if errors.As(err, &e) && e.Code == sandbox.NotFound && !createDirs {
			e.Message, e.Hint = asked+": its folder does not exist", "Set create_dirs, or make the folder."
		}
		return nil, err
	}
	t := &target{asked: asked, at: at}
	if err := t.look(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// look reads what is there now. It must run inside as.
func (t *target) look() error {
	if onProc(t.at.dir) {
		return fileError("write", t.asked, errMagic)
	}
	err := unix.Fstatat(t.at.dir, t.at.name, &t.st, unix.AT_SYMLINK_NOFOLLOW)
	t.exists = err == nil
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fileError("write", t.asked, err)
	case t.st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular(t.asked, t.st.Mode)
	}
	return nil
}

func (f *files) mkdirs(path string) error {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return nil
	}
	fd, err := f.open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := f.mkdirs(path[:strings.LastIndexByte(path, '/')+1]); err != nil {
		return err
	}
	at, err := f.resolve(path, true)
	if err != nil {
		return err
	}
	defer unix.Close(at.dir)
	if err := unix.Mkdirat(at.dir, at.name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// unchanged holds if_hash against what is there. It must run inside as.
func (t *target) unchanged(ctx context.Context, want string) error {
	if want == "" {
		return nil
	}
	conflict := func(reason, hint, message string) error {
		return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: reason, Message: t.asked + " " + message, Hint: hint}
	}
	if want == "absent" {
		if t.exists {
			return &sandbox.Error{Code: sandbox.AlreadyExists, Message: t.asked + " exists", Hint: "Leave if_hash out to replace it."}
		}
		return nil
	}
	if !t.exists {
		return conflict("changed", "Read the folder again with file_list.", "does not exist any more")
	}
	fd, err := unix.Openat(t.at.dir, t.at.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fileError("read", t.asked, err)
	}
	file := os.NewFile(uintptr(fd), t.asked)
	defer file.Close()
	h := sha256.New()
	if err := pieces(ctx, file, 0, t.st.Size, func(b []byte) { h.Write(b) }); err != nil {
		return fileError("read", t.asked, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != strings.TrimPrefix(want, "sha256:") {
		e := conflict("changed", "Read it again and make the change on what is there now.", "was changed since it was read")
		e.(*sandbox.Error).Details = map[string]any{"hash": "sha256:" + got}
		return e
	}
	return nil
}

// writable refuses a file whose own mode is closed, which a rename would get
// around. It must run inside as.
func (t *target) writable() error {
	if t.exists && unix.Faccessat(t.at.dir, t.at.name, unix.W_OK, unix.AT_EACCESS) != nil {
		return fileError("write", t.asked, unix.EACCES)
	}
	return nil
}

func (t *target) hash(ctx context.Context, f *files) (string, error) {
	h := sha256.New()
	err := f.as(sandbox.AgentUID, func() error {
		fd, err := unix.Openat(t.at.dir, t.at.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), t.asked)
		defer file.Close()
		return pieces(ctx, file, 0, maxHashed, func(b []byte) { h.Write(b) })
	})
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), fileError("read", t.asked, err)
}

// openSame opens the target for writing if it is still the file that was seen.
func (t *target) openSame(flags int) (*os.File, error) {
	fd, err := unix.Openat(t.at.dir, t.at.name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Ino != t.st.Ino || now.Dev != t.st.Dev {
		unix.Close(fd)
		return nil, unix.EBUSY
	}
	return os.NewFile(uintptr(fd), t.asked), nil
}
