//go:build linux

package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxTransfer = 1 << 30
	maxNumbers  = 1000 // names tried: "a (1).csv" …
)

// transfer hands a regular file over between the two users of a sandbox. Each
// side's thread opens its own file by descriptor, following no link; the bytes
// are copied between descriptors, so neither user ever gets at the other's
// names.
func (f *files) transfer(ctx context.Context, r sandbox.TransferRequest) (sandbox.TransferResult, error) {
	var res sandbox.TransferResult
	reader, writer := sandbox.BrowserUID, sandbox.AgentUID
	from, to := f.browserPath(r.From), r.To
	if r.Export {
		reader, writer = sandbox.AgentUID, sandbox.BrowserUID
		from, to = r.From, f.browserPath(r.To)
	}
	from, err := f.locate(from)
	if err == nil {
		to, err = f.locate(to)
	}
	if err != nil {
		return res, err
	}
	limit := int64(maxTransfer)
	if r.MaxBytes > 0 {
		limit = min(limit, r.MaxBytes)
	}
	var src *os.File
	err = f.as(reader, func() error {
		fd, err := f.openPlain(from, unix.O_RDONLY)
		if err != nil {
			return fileError("read", r.From, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			unix.Close(fd)
			return notRegular(r.From, st.Mode)
		}
		if st.Size > limit {
			unix.Close(fd)
			return tooLarge(r.From, limit)
		}
		src = os.NewFile(uintptr(fd), from)
		return nil
	})
	if err != nil {
		return res, err
	}
	defer src.Close()
	dir, name := path.Split(to)
	temp := tempPrefix + rand.Text()[:12]
	var dst *os.File
	folder := -1
	err = f.as(writer, func() error {
		if err := f.mkdirs(dir); err != nil {
			return fileError("write", r.To, err)
		}
		if folder, err = f.openPlain(dir, unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return fileError("write", r.To, err)
		}
		fd, err := unix.Openat(folder, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return fileError("write", r.To, err)
		}
		dst = os.NewFile(uintptr(fd), to)
		return nil
	})
	if folder >= 0 {
		defer unix.Close(folder)
	}
	if err != nil {
		return res, err
	}
	defer dst.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, sum), contextReader{ctx, io.LimitReader(src, limit+1)})
	if err == nil && n > limit {
		err = tooLarge(r.From, limit)
	}
	return res, f.as(writer, func() error {
		defer func() { _ = unix.Unlinkat(folder, temp, 0) }()
		if err != nil {
			return fileError("write", r.To, err)
		}
		taken, err := linkUnique(folder, temp, name)
		if err != nil {
			return fileError("write", r.To, err)
		}
		res = sandbox.TransferResult{Path: encodeName(path.Join(dir, taken)), Bytes: n, Hash: "sha256:" + hex.EncodeToString(sum.Sum(nil))}
		return nil
	})
}

func tooLarge(name string, limit int64) error {
	e := sandbox.Errorf(sandbox.ResourceExhausted, "Fetch less, or fetch it with a command.", "%s is larger than the %d bytes that are handed over", name, limit)
	e.Reason = "too_large"
	return e
}

// browserPath keeps the browser's side within its own folder.
func (f *files) browserPath(p string) string {
	return path.Join(f.browser, path.Join("/", strings.TrimPrefix(p, f.browser+"/")))
}

// openPlain opens a path in which nothing is a link. It must run inside as.
func (f *files) openPlain(p string, flags int) (int, error) {
	flags = carefully(flags) | unix.O_NOFOLLOW
	if !f.noOpenat2.Load() {
		fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err == nil {
			return f.guardProc(fd)
		}
		if !errors.Is(err, unix.ENOSYS) {
			return -1, err
		}
		f.noOpenat2.Store(true)
	}
	names := split(p)
	cur, err := openDir(unix.AT_FDCWD, "/")
	for i, name := range names {
		if err != nil {
			return -1, err
		}
		var next int
		if i == len(names)-1 {
			next, err = unix.Openat(cur, name, flags, 0)
		} else {
			next, err = openDir(cur, name)
		}
		unix.Close(cur)
		cur = next
	}
	if err != nil {
		return -1, err
	}
	return f.guardProc(cur)
}

// linkUnique gives the file its name, or the name with a number when it is
// taken; it never replaces what is there.
func linkUnique(folder int, temp, name string) (string, error) {
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	try := name
	for i := 1; i <= maxNumbers; i++ {
		err := unix.Renameat2(folder, temp, folder, try, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			err = unix.Linkat(folder, temp, folder, try, 0)
		}
		if !errors.Is(err, unix.EEXIST) {
			return try, err
		}
		try = stem + " (" + strconv.Itoa(i) + ")" + ext
	}
	return "", unix.EEXIST
}
