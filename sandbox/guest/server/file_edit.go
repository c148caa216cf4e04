//go:build linux

package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxEdit   = 32 << 20 // larger files are for sed
	maxPlaces = 20       // places named in a refusal
	maxEdits  = 500
)

// edit answers an EditRequest: all edits or none, each on the result of the one
// before it.
func (f *files) edit(ctx context.Context, r sandbox.EditRequest) (sandbox.EditResult, error) {
	res := sandbox.EditResult{Path: r.Path}
	path, err := f.locate(r.Path)
	if err != nil {
		return res, err
	}
	if len(r.Edits) == 0 || len(r.Edits) > maxEdits {
		return res, sandbox.Errorf(sandbox.InvalidArgument, `Give edits as [{"old": …, "new": …}].`, "edits: %d given, 1 to %d are taken", len(r.Edits), maxEdits)
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	var t *target
	var raw []byte
	err = f.as(sandbox.AgentUID, func() error {
		if t, err = f.target(r.Path, path, false); err != nil {
			return f.suggest(err, path)
		}
		if !t.exists {
			return f.suggest(fileError("edit", r.Path, unix.ENOENT), path)
		}
		raw, err = t.content()
		return err
	})
	if t != nil {
		defer t.close()
	}
	if err != nil {
		return res, err
	}
	if r.IfHash != "" && strings.TrimPrefix(r.IfHash, "sha256:") != strings.TrimPrefix(digest(raw), "sha256:") {
		return res, &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "changed", Message: r.Path + " was changed since it was read",
			Hint: "Read it again and make the edit on what is there now.", Details: map[string]any{"hash": digest(raw)}}
	}
	d, err := openText(raw, r.Path)
	if err != nil {
		return res, err
	}
	before := d.text
	for i, e := range r.Edits {
		n, err := d.replace(e)
		if err != nil {
			return res, inEdit(err, r, i)
		}
		res.Replaced += n
	}
	out := d.bytes()
	res.Hash = digest(out)
	res.Changed = !bytes.Equal(out, raw)
	if !res.Changed {
		return res, nil
	}
	res.Diff = unifiedDiff(before, d.text, r.Path)
	if r.DryRun {
		return res, nil
	}
	return res, f.replaceContent(ctx, t, out)
}

// content reads the whole file. It must run inside as.
func (t *target) content() ([]byte, error) {
	if t.st.Size > maxEdit {
		e := sandbox.Errorf(sandbox.FailedPrecondition, "Use shell_run with sed, or code_run.", "%s has %d bytes; edits take files of at most %d", t.asked, t.st.Size, maxEdit)
		e.Reason = "too_large"
		return nil, e
	}
	fd, err := unix.Openat(t.at.dir, t.at.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fileError("read", t.asked, err)
	}
	file := os.NewFile(uintptr(fd), t.asked)
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, notRegular(t.asked, st.Mode)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxEdit))
	return b, fileError("read", t.asked, err)
}

// replaceContent writes b in place of the target's content, with writing locked.
func (f *files) replaceContent(ctx context.Context, t *target, b []byte) error {
	var s *spool
	err := f.as(sandbox.AgentUID, func() (err error) {
		if err := t.writable(); err != nil {
			return err
		}
		s, err = f.spool(t)
		return err
	})
	if err != nil {
		return err
	}
	defer f.drop(t, s)
	if _, err := s.file.Write(b); err != nil {
		return fileError("write", t.asked, err)
	}
	sum := sha256.New()
	sum.Write(b)
	if err := s.verify(ctx, int64(len(b)), sum); err != nil {
		return fileError("write", t.asked, err)
	}
	err = f.as(sandbox.AgentUID, func() error { return f.commit(t, s, int64(len(b)), 0) })
	return fileError("write", t.asked, err)
}

func inEdit(err error, r sandbox.EditRequest, i int) error {
	m, ok := err.(*mismatch)
	if !ok {
		return err
	}
	at := r.Path
	if len(r.Edits) > 1 {
		at = fmt.Sprintf("%s, edits[%d]", r.Path, i)
	}
	code := sandbox.FailedPrecondition
	if m.reason == "empty_old" || m.reason == "same_text" {
		code = sandbox.InvalidArgument
	}
	m.details["edit"] = i
	return &sandbox.Error{Code: code, Reason: m.reason, Message: at + ": " + m.message + " Nothing was changed.", Hint: m.hint, Details: m.details}
}
