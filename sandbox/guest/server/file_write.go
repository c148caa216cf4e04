//go:build linux

package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxWrite   = 4 << 30 // one body; the disk's own limit comes first
	tempPrefix = ".pinfold-tmp-"
	keepBack   = 8 << 20 // an old content up to this is put back when writing in place fails
)

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
