//go:build linux

package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxWrite   = 4 << 30 // one body; the disk's own limit comes first
	tempPrefix = ".pinfold-tmp-"
	keepBack   = 8 << 20 // an old content up to this is put back when writing in place fails
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

// write answers a WriteRequest; body is the content.
func (f *files) write(ctx context.Context, r sandbox.WriteRequest, body io.Reader) (sandbox.WriteResult, error) {
	res := sandbox.WriteResult{Path: r.Path}
	path, err := f.locate(r.Path)
	if err != nil {
		return res, err
	}
	mode, err := parseMode(r.Mode)
	if err != nil {
		return res, err
	}
	var t *target
	var s *spool
	err = f.as(sandbox.AgentUID, func() error {
		if t, err = f.target(r.Path, path, r.CreateDirs); err != nil {
			return err
		}
		s, err = f.spool(t)
		return err
	})
	if t != nil {
		defer t.close()
	}
	if err != nil {
		return res, err
	}
	defer f.drop(t, s)
	sum := sha256.New()
	size, err := io.Copy(s.file, io.TeeReader(contextReader{ctx, body}, sum))
	if err != nil {
		return res, fileError("write", r.Path, err)
	}
	if err := s.verify(ctx, size, sum); err != nil {
		return res, fileError("write", r.Path, err)
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	err = f.as(sandbox.AgentUID, func() error {
		if err := t.look(); err != nil {
			return err
		}
		if err := t.unchanged(ctx, r.IfHash); err != nil {
			return err
		}
		res.Created = !t.exists
		if err := t.writable(); err != nil {
			return err
		}
		if r.Append && t.exists {
			return f.appendTo(t, s, size, mode)
		}
		return f.commit(t, s, size, mode)
	})
	if err != nil {
		return res, fileError("write", r.Path, err)
	}
	res.Bytes, res.Mode = size, modeText(t.st.Mode)
	res.Hash = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if r.Append && !res.Created {
		res.Hash, err = t.hash(ctx, f)
	}
	return res, err
}

func parseMode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	m, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || m > 0o7777 || m == 0 {
		return 0, sandbox.Errorf(sandbox.InvalidArgument, `Give an octal mode such as "0644" or "0755".`, "mode: %q is no file mode", short(s))
	}
	return uint32(m), nil
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

// spool holds the new content before it takes its place. name is empty for one
// that lies elsewhere and has no name.
type spool struct {
	file *os.File
	name string
}

// spool makes a file next to the target, so that a rename puts it there. Where
// the folder is closed but the file itself is not, it is made elsewhere. It
// must run inside as.
func (f *files) spool(t *target) (*spool, error) {
	name := tempPrefix + rand.Text()[:12]
	fd, err := unix.Openat(t.at.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &spool{os.NewFile(uintptr(fd), name), name}, nil
	}
	if !t.exists || unix.Faccessat(t.at.dir, t.at.name, unix.W_OK, unix.AT_EACCESS) != nil {
		return nil, fileError("write", t.asked, err)
	}
	for _, dir := range []string{sandbox.SessionDir, "/tmp"} {
		path := dir + "/" + name
		fd, e := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if e == nil {
			_ = unix.Unlink(path)
			return &spool{os.NewFile(uintptr(fd), name), ""}, nil
		}
	}
	return nil, fileError("write", t.asked, err)
}

// drop closes a spool and removes what is left of it.
func (f *files) drop(t *target, s *spool) {
	s.file.Close()
	if s.name != "" {
		_ = f.as(sandbox.AgentUID, func() error { return unix.Unlinkat(t.at.dir, s.name, 0) })
	}
}

// verify reads back what was written: success is said of bytes that are there.
func (s *spool) verify(ctx context.Context, size int64, sum hash.Hash) error {
	h := sha256.New()
	if err := pieces(ctx, s.file, 0, size+1, func(b []byte) { h.Write(b) }); err != nil {
		return err
	}
	st, err := s.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() != size || string(h.Sum(nil)) != string(sum.Sum(nil)) {
		return unix.EIO
	}
	return nil
}

// commit puts the spool in the target's place: by rename, or into the old file
// where a rename would cut a hard link or lose the owner. It must run inside
// as, with writing locked.
func (f *files) commit(t *target, s *spool, size int64, mode uint32) error {
	if mode == 0 {
		mode = 0o644
		if t.exists {
			mode = t.st.Mode & 0o7777
		}
	}
	var own unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &own); err != nil {
		return err
	}
	if s.name == "" || (t.exists && (t.st.Nlink > 1 || t.st.Uid != own.Uid || t.st.Gid != own.Gid || f.attributes(t))) {
		return t.inPlace(s, size, mode)
	}
	if err := unix.Fchmod(int(s.file.Fd()), mode); err != nil {
		return err
	}
	if err := unix.Renameat(t.at.dir, s.name, t.at.dir, t.at.name); err != nil {
		return err
	}
	s.name = ""
	return unix.Fstat(int(s.file.Fd()), &t.st)
}

// attributes tells whether the file has attributes (access lists, say) that a
// new file would not have.
func (f *files) attributes(t *target) bool {
	fd, err := unix.Openat(t.at.dir, t.at.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Flistxattr(fd, buf)
	if err != nil {
		return errors.Is(err, unix.ERANGE)
	}
	for a := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if a != "" && a != "security.selinux" {
			return true
		}
	}
	return false
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

func (t *target) inPlace(s *spool, size int64, mode uint32) (err error) {
	dst, err := t.openSame(unix.O_RDWR)
	if errors.Is(err, unix.EACCES) {
		dst, err = t.openSame(unix.O_WRONLY)
	}
	if err != nil {
		return err
	}
	defer dst.Close()
	old := t.st.Size
	if size > old {
		// Room first: the old content must not be gone when the new one does not fit.
		if err := unix.Fallocate(int(dst.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		}
	}
	var back []byte
	if old <= keepBack {
		back, _ = io.ReadAll(io.NewSectionReader(dst, 0, old))
	}
	defer func() {
		if err != nil && int64(len(back)) == old {
			_, _ = dst.WriteAt(back, 0)
			_ = dst.Truncate(old)
		}
	}()
	if _, err := io.Copy(io.NewOffsetWriter(dst, 0), io.NewSectionReader(s.file, 0, size)); err != nil {
		return err
	}
	if err := dst.Truncate(size); err != nil {
		return err
	}
	if mode != t.st.Mode&0o7777 {
		if err := unix.Fchmod(int(dst.Fd()), mode); err != nil {
			return err
		}
	}
	return unix.Fstat(int(dst.Fd()), &t.st)
}

func (f *files) appendTo(t *target, s *spool, size int64, mode uint32) error {
	dst, err := t.openSame(unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer dst.Close()
	old := t.st.Size
	if _, err := io.Copy(io.NewOffsetWriter(dst, old), io.NewSectionReader(s.file, 0, size)); err != nil {
		_ = dst.Truncate(old)
		return err
	}
	if mode != 0 {
		if err := unix.Fchmod(int(dst.Fd()), mode); err != nil {
			return err
		}
	}
	if err := unix.Fstat(int(dst.Fd()), &t.st); err != nil {
		return err
	}
	if t.st.Size != old+size {
		return unix.EBUSY
	}
	return nil
}

// contextReader ends with its context, between two reads.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
