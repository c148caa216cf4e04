//go:build linux

package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

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

// source gives what is to be read and its length. Small files and those without
// a size come out of memory, so that all of an answer is of one moment.
func source(ctx context.Context, file *os.File, size int64) (io.ReaderAt, int64, error) {
	if size > inMemory {
		return file, size, nil
	}
	limit := size
	if size == 0 {
		limit = maxPseudo
	}
	type got struct {
		b   []byte
		err error
	}
	done := make(chan got, 1)
	work := func() {
		b, err := io.ReadAll(io.LimitReader(file, limit))
		done <- got{b, err}
	}
	if size > 0 {
		work()
	} else {
		go work() // a file of /proc or /sys may block: then it is left behind, with its descriptor
	}
	select {
	case g := <-done:
		if g.err != nil && !errors.Is(g.err, io.EOF) {
			return nil, 0, g.err
		}
		return bytes.NewReader(g.b), int64(len(g.b)), nil
	case <-time.After(pseudoWait):
		return nil, 0, sandbox.Errorf(sandbox.DeadlineExceeded, "Read it with shell_run and a timeout.", "%s gave nothing for %v", file.Name(), pseudoWait)
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
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

// readText gives lines of UTF-8 text.
func readText(ctx context.Context, res *sandbox.ReadResult, r sandbox.ReadRequest, src io.ReaderAt, n int64) error {
	res.Kind, res.MediaType = "text", ""
	if res.Encoding == "" || res.Encoding == encBinary {
		res.Encoding = encOther
	}
	var base int64 // where lines start to count
	if n > maxHashed {
		if r.From < 0 || r.To < 0 {
			base = n - tailWindow
		} else {
			n = maxForward
		}
		res.Truncated = true
	}
	if res.Encoding == encUTF8BOM {
		base = max(base, int64(len(utf8BOM)))
	}
	ix, err := index(ctx, src, base, n, !res.Truncated)
	if err != nil {
		return fileError("read", r.Path, err)
	}
	total := ix.ends.lines()
	res.Ending = ix.ends.name()
	from, to, err := lineRange(r.From, r.To, total)
	if err != nil {
		return err
	}
	if res.Truncated {
		res.Suggestion = fmt.Sprintf("The file is larger than %d bytes: lines were counted in a part of it only. Use shell_run with sed, head or tail.", maxHashed)
	} else {
		res.Lines, res.Hash = total, ix.hash
	}
	if total == 0 {
		return nil
	}
	if from > total {
		res.Suggestion = fmt.Sprintf("The file has %d lines.", total)
		return nil
	}
	raw, last, whole, err := ix.lines(ctx, src, from, to, r.MaxBytes)
	if err != nil {
		return fileError("read", r.Path, err)
	}
	text, bad := validText(raw)
	for limit := r.MaxBytes; len(text) > r.MaxBytes; {
		limit /= 2
		if raw, last, whole, err = ix.lines(ctx, src, from, to, limit); err != nil {
			return fileError("read", r.Path, err)
		}
		text, bad = validText(raw)
	}
	if bad > 0 {
		res.Encoding = encOther
	}
	res.Text, res.From, res.To = text, from, last
	if base == n-tailWindow {
		res.From, res.To = 0, 0 // of which number these lines are, nobody counted
	}
	if !whole {
		res.Truncated = true
		if res.Suggestion == "" {
			res.Suggestion = fmt.Sprintf("Line %d is longer than the answer may be; cut it with shell_run, or read with as=base64.", last)
		}
	}
	if last < to {
		res.Truncated, res.NextLine = true, last+1
	}
	return nil
}

// lineRange makes the first and last line absolute.
func lineRange(from, to, total int64) (int64, int64, error) {
	a, b := from, to
	if a < 0 {
		a = max(1, total+1+a)
	}
	if b < 0 {
		b = total + 1 + b
	}
	if to == 0 || b > total {
		b = total
	}
	a = max(a, 1)
	if (to != 0 && b < a && a <= total) || (from > 0 && to > 0 && to < from) {
		return 0, 0, sandbox.Errorf(sandbox.InvalidArgument, "Give [first, last], counted from 1; negative numbers count from the end.", "lines: [%d, %d] is empty in a file of %d lines", from, to, total)
	}
	return a, b, nil
}

// lineIndex knows where every stride-th line starts.
type lineIndex struct {
	ends   endings
	hash   string
	start  int64
	end    int64
	stride int64
	at     []int64
}

// index reads through the source once, from base to n; hashed adds the digest
// of the whole.
func index(ctx context.Context, src io.ReaderAt, base, n int64, hashed bool) (*lineIndex, error) {
	const marks = 1 << 14 // bounds the index; the stride doubles past it
	ix := &lineIndex{start: base, end: n, stride: 256, at: []int64{base}}
	h := sha256.New()
	if hashed && base > 0 {
		skipped := make([]byte, base)
		if _, err := src.ReadAt(skipped, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		h.Write(skipped)
	}
	var line int64
	pos := base
	err := pieces(ctx, src, base, n, func(b []byte) {
		if hashed {
			h.Write(b)
		}
		ix.ends.add(b)
		for off := 0; ; {
			i := bytes.IndexByte(b[off:], '\n')
			if i < 0 {
				break
			}
			off += i + 1
			if line++; line%ix.stride == 0 {
				ix.at = append(ix.at, pos+int64(off))
				if len(ix.at) > marks {
					for i := range (len(ix.at) + 1) / 2 {
						ix.at[i] = ix.at[2*i]
					}
					ix.at = ix.at[:(len(ix.at)+1)/2]
					ix.stride *= 2
				}
			}
		}
		pos += int64(len(b))
	})
	ix.end = pos // a file that shrank meanwhile is shorter
	if hashed {
		ix.hash = "sha256:" + hex.EncodeToString(h.Sum(nil))
	}
	return ix, err
}

// lines reads from one line to another, at most limit bytes: whole lines where
// one fits, and whole says so. It returns the last line it gave.
func (ix *lineIndex) lines(ctx context.Context, src io.ReaderAt, from, to int64, limit int) (raw []byte, last int64, whole bool, err error) {
	mark := min((from-1)/ix.stride, int64(len(ix.at)-1))
	line, pos := mark*ix.stride+1, ix.at[mark]
	last = from - 1
	full := false
	stop := errors.New("enough")
	err = piecesUntil(ctx, src, pos, ix.end, func(b []byte) error {
		for len(b) > 0 {
			i := bytes.IndexByte(b, '\n')
			piece, ended := b, false
			if i >= 0 {
				piece, ended = b[:i+1], true
			}
			if line >= from {
				room := limit - len(raw)
				if len(piece) > room {
					full = true
					raw = append(raw, piece[:max(room, 0)]...)
					return stop
				}
				raw = append(raw, piece...)
			}
			b = b[len(piece):]
			if ended {
				if line >= from {
					last = line
				}
				if line++; line > to {
					return stop
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return nil, 0, false, err
	}
	if !full {
		return raw, to, true, nil
	}
	if i := bytes.LastIndexByte(raw, '\n'); i >= 0 {
		return raw[:i+1], last, true, nil
	}
	for len(raw) > 0 && !utf8.RuneStart(raw[len(raw)-1]) { // not in the middle of a character
		raw = raw[:len(raw)-1]
	}
	if len(raw) > 0 && raw[len(raw)-1] >= 0xc0 {
		raw = raw[:len(raw)-1]
	}
	return raw, from, false, nil
}

// readRaw gives bytes as hex or base64; lines are rows of the answer.
func readRaw(res *sandbox.ReadResult, r sandbox.ReadRequest, src io.ReaderAt, n int64) error {
	row, wide := int64(base64Row), 77
	if r.As == "hex" {
		row, wide = hexRow, 68
	}
	res.Kind = r.As
	total := (n + row - 1) / row
	res.Lines = total
	from, to, err := lineRange(r.From, r.To, total)
	if err != nil || from > total {
		return err
	}
	last := min(to, from-1+max(1, int64(r.MaxBytes/wide)))
	b := make([]byte, min(last*row, n)-(from-1)*row)
	k, err := src.ReadAt(b, (from-1)*row)
	if err != nil && !errors.Is(err, io.EOF) {
		return fileError("read", r.Path, err)
	}
	b = b[:k]
	res.From, res.To = from, last
	if r.As == "hex" {
		res.Text = hexDump(b, (from-1)*row)
	} else {
		var out strings.Builder
		for len(b) > 0 {
			p := b[:min(len(b), base64Row)]
			out.WriteString(base64.StdEncoding.EncodeToString(p))
			out.WriteByte('\n')
			b = b[len(p):]
		}
		res.Text = out.String()
	}
	if last < to {
		res.Truncated, res.NextLine = true, last+1
		res.Suggestion = fmt.Sprintf("lines counts rows of %d bytes here.", row)
	}
	return nil
}

// pieces calls fn with the bytes from pos to end, a piece at a time; a file
// that is shorter by now ends early.
func pieces(ctx context.Context, src io.ReaderAt, pos, end int64, fn func(b []byte)) error {
	return piecesUntil(ctx, src, pos, end, func(b []byte) error { fn(b); return nil })
}

func piecesUntil(ctx context.Context, src io.ReaderAt, pos, end int64, fn func(b []byte) error) error {
	if end <= pos {
		return nil
	}
	buf := make([]byte, min(end-pos, 256<<10))
	for pos < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		k, err := src.ReadAt(buf[:min(int64(len(buf)), end-pos)], pos)
		if k > 0 {
			if err := fn(buf[:k]); err != nil {
				return err
			}
			pos += int64(k)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hashOnly(ctx context.Context, res *sandbox.ReadResult, src io.ReaderAt, n int64) error {
	if n > maxHashed {
		return nil
	}
	h := sha256.New()
	err := pieces(ctx, src, 0, n, func(b []byte) { h.Write(b) })
	res.Hash = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func modeText(mode uint32) string { return fmt.Sprintf("%04o", mode&0o7777) }
