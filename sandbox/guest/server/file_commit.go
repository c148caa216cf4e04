//go:build linux

package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

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
