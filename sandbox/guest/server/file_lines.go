//go:build linux

package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"pinfold.dev/pinfold/sandbox"
)

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
