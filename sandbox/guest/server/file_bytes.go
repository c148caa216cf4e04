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

	"pinfold.dev/pinfold/sandbox"
)

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
