//go:build linux

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	defaultRead = 64 << 10  // bytes of an answer when the request names none
	maxRead     = 256 << 10 // and at most; the rest is read on by line
	inMemory    = 1 << 20   // files up to this are read once, whole
	maxPseudo   = 4 << 20   // of files that name no size (/proc, /sys)
	maxHashed   = 1 << 30   // larger files (sparse ones, say) are not read through
	maxForward  = 256 << 20 // how far lines of a larger file are counted
	tailWindow  = 16 << 20  // where lines from its end are looked for
	maxWide     = 16 << 20  // UTF-16 is turned into UTF-8 whole
	pseudoWait  = 2 * time.Second
	hexHead     = 256 // bytes shown of a binary file
	base64Row   = 57  // bytes of a base64 line: 76 characters, whole groups
	hexRow      = 16
)

// read answers a ReadRequest. Memory is bounded whatever the file's size.
func (f *files) read(ctx context.Context, r sandbox.ReadRequest) (sandbox.ReadResult, error) {
	res := sandbox.ReadResult{Path: r.Path}
	path, err := f.locate(r.Path)
	if err != nil {
		return res, err
	}
	switch r.As {
	case "", "auto", "text", "base64", "image", "hex":
	default:
		return res, sandbox.Errorf(sandbox.InvalidArgument, "Use auto, text, base64, image or hex.", "as: %q is not known", short(r.As))
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = defaultRead
	}
	r.MaxBytes = min(r.MaxBytes, maxRead)
	var file *os.File
	var st unix.Stat_t
	err = f.as(sandbox.AgentUID, func() error {
		fd, err := f.open(path, unix.O_RDONLY, 0)
		if err != nil {
			return f.suggest(fileError("read", r.Path, err), path)
		}
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return fileError("read", r.Path, err)
		}
		if m := st.Mode & unix.S_IFMT; m != unix.S_IFREG {
			unix.Close(fd)
			if m == unix.S_IFDIR {
				return nil
			}
			return notRegular(r.Path, st.Mode)
		}
		file = os.NewFile(uintptr(fd), path)
		buf := make([]byte, maxPath)
		if n, err := unix.Readlink(strings.TrimRight(path, "/"), buf); err == nil {
			res.Symlink = encodeName(string(buf[:n]))
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	res.Size, res.Mode = st.Size, modeText(st.Mode)
	if file == nil {
		res.Kind, res.Suggestion = "directory", "List it with file_list."
		return res, nil
	}
	defer file.Close()
	src, n, err := source(ctx, file, st.Size)
	if err != nil {
		return res, fileError("read", r.Path, err)
	}
	if st.Size == 0 {
		res.Size = n
	}
	return res, f.describe(ctx, &res, r, src, n)
}

func (f *files) describe(ctx context.Context, res *sandbox.ReadResult, r sandbox.ReadRequest, src io.ReaderAt, n int64) error {
	head := make([]byte, min(n, sniffBytes))
	if k, err := src.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fileError("read", r.Path, err)
	} else {
		head = head[:k]
	}
	enc := sniff(head, int64(len(head)) == n)
	res.MediaType = mediaType(head)
	picture := decodable(res.MediaType)
	switch {
	case r.As == "image" && !picture:
		return sandbox.Errorf(sandbox.InvalidArgument, "Leave as out, or use as=hex.", "%s is no PNG, JPEG, GIF or WebP image", r.Path)
	case picture && (r.As == "image" || r.As == "" || r.As == "auto"):
		if err := hashOnly(ctx, res, src, n); err != nil {
			return err
		}
		return readImage(res, src, n)
	case r.As == "hex" || r.As == "base64":
		if err := hashOnly(ctx, res, src, n); err != nil {
			return err
		}
		return readRaw(res, r, src, n)
	case (enc == encUTF16LE || enc == encUTF16BE) && n <= maxWide:
		raw := make([]byte, n)
		k, err := src.ReadAt(raw, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return fileError("read", r.Path, err)
		}
		text, _, _ := decodeUTF16(raw[:k], enc)
		res.Encoding = enc
		if err := readText(ctx, res, r, bytes.NewReader(text), int64(len(text))); err != nil {
			return err
		}
		res.Hash = digest(raw[:k])
		return nil
	case enc == encBinary && r.As != "text":
		if err := hashOnly(ctx, res, src, n); err != nil {
			return err
		}
		res.Kind, res.Text = "binary", hexDump(head[:min(len(head), hexHead)], 0)
		res.Suggestion = "This is not text. as=hex or base64 with lines gives parts of it; work on it with shell_run or code_run."
		return nil
	}
	res.Encoding = enc
	return readText(ctx, res, r, src, n)
}

func modeText(mode uint32) string { return fmt.Sprintf("%04o", mode&0o7777) }
