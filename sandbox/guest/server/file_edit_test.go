//go:build linux

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

func edits(pairs ...string) []sandbox.Edit {
	var out []sandbox.Edit
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, sandbox.Edit{Old: pairs[i], New: pairs[i+1]})
	}
	return out
}

func TestEditKeepsEveryOtherByte(t *testing.T) {
	long := strings.Repeat("x", 100_000) + " word " + strings.Repeat("y", 100_000)
	tests := map[string]struct{ before, old, new, after string }{
		"CRLF with one bare LF (C65)":        {"a\r\nb\nc\r\nd\r\n", "c", "C", "a\r\nb\nC\r\nd\r\n"},
		"old of two lines in a CRLF file":    {"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"},
		"bare LF within a CRLF file":         {"a\r\nb\nc\r\n", "a\nb\nc", "A\nB\nC", "A\r\nB\r\nC\r\n"},
		"old with CRLF in an LF file":        {"a\nb\n", "a\r\nb", "x", "x\n"},
		"byte-order mark":                    {"\xef\xbb\xbfone\ntwo\n", "one", "1", "\xef\xbb\xbf1\ntwo\n"},
		"no newline at the end":              {"a\nb", "b", "c", "a\nc"},
		"a line of 200,000 characters (A43)": {long, "word", "WORD", strings.Replace(long, "word", "WORD", 1)},
		"bytes that are not UTF-8":           {"caf\xe9 \xff one\n", "one", "two", "caf\xe9 \xff two\n"},
		"UTF-16 with its mark":               {"\xff\xfea\x00b\x00\n\x00", "b", "ö", "\xff\xfea\x00\xf6\x00\n\x00"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, dir := testFiles(t)
			path := put(t, dir, "f", tt.before)
			r, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: edits(tt.old, tt.new)})
			require.NoError(t, err)
			assert.Equal(t, tt.after, get(t, path))
			assert.True(t, r.Changed)
			assert.Equal(t, digest([]byte(tt.after)), r.Hash)
			assert.Less(t, len(r.Diff), 30_000)
		})
	}
}

func TestEditRefusals(t *testing.T) {
	text := "alpha\nbeta\nalpha\ngamma  \n\tdelta = 1\n"
	tests := map[string]struct {
		edits  []sandbox.Edit
		code   sandbox.Code
		reason string
		says   []string
	}{
		"twice (C141)":              {edits("alpha", "x"), sandbox.FailedPrecondition, "count", []string{"2 times, 1 expected", "line 1: alpha", "line 3: alpha", "count to 2"}},
		"no match (C66)":            {edits("nothing of the sort", "x"), sandbox.FailedPrecondition, "no_match", []string{"does not occur", "Nothing was changed"}},
		"trailing space (C64)":      {edits("gamma \n", "x"), sandbox.FailedPrecondition, "no_match", []string{"Only white space differs", "line 4", "- gamma·", "+ gamma··"}},
		"tab for spaces":            {edits("    delta = 1", "x"), sandbox.FailedPrecondition, "no_match", []string{"line 5", "+ →delta·=·1"}},
		"another word":              {edits("delta = 12", "x"), sandbox.FailedPrecondition, "no_match", []string{"line 5", "- delta = 12"}},
		"old equals new (C66)":      {edits("beta", "beta"), sandbox.InvalidArgument, "same_text", []string{"are the same", "occurs 1 times"}},
		"empty old":                 {edits("", "x"), sandbox.InvalidArgument, "empty_old", nil},
		"second of two: all undone": {edits("beta", "B", "zeta zeta", "x"), sandbox.FailedPrecondition, "no_match", []string{"edits[1]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, dir := testFiles(t)
			path := put(t, dir, "f", text)
			_, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: tt.edits})
			assert.Equal(t, tt.code, code(t, err))
			var e *sandbox.Error
			require.True(t, errors.As(err, &e))
			assert.Equal(t, tt.reason, e.Reason)
			for _, s := range tt.says {
				assert.Contains(t, e.Message+e.Hint, s)
			}
			assert.Equal(t, text, get(t, path), "nothing changed")
		})
	}
}

func TestEditCount(t *testing.T) {
	f, dir := testFiles(t)
	path := put(t, dir, "f", "a b a b a")
	r, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: []sandbox.Edit{{Old: "a", New: "c", Count: 3}}})
	require.NoError(t, err)
	assert.Equal(t, 3, r.Replaced)
	assert.Equal(t, "c b c b c", get(t, path))
}

func TestEditKeepsModeAndLinks(t *testing.T) { // C142
	f, dir := testFiles(t)
	path := put(t, dir, "real.sh", "#!/bin/sh\necho one\n")
	require.NoError(t, os.Chmod(path, 0o755))
	require.NoError(t, os.Symlink("real.sh", filepath.Join(dir, "link.sh")))
	_, err := f.edit(context.Background(), sandbox.EditRequest{Path: "link.sh", Edits: edits("one", "two")})
	require.NoError(t, err)
	out, err := exec.Command(path).Output()
	require.NoError(t, err)
	assert.Equal(t, "two\n", string(out))
	st, err := os.Lstat(filepath.Join(dir, "link.sh"))
	require.NoError(t, err)
	assert.NotZero(t, st.Mode()&os.ModeSymlink)
}

func TestEditConflict(t *testing.T) { // A38
	f, dir := testFiles(t)
	path := put(t, dir, "f", "base")
	hash := digest([]byte("base"))
	results := make(chan error, 2)
	for _, to := range []string{"one", "two"} {
		go func() {
			_, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: edits("base", to+" base"), IfHash: hash})
			results <- err
		}()
	}
	a, b := <-results, <-results
	assert.True(t, (a == nil) != (b == nil), "exactly one of two edits on the same base is made: %v, %v", a, b)
	assert.Len(t, get(t, path), len("one base"))
}

func TestDryRunWritesNothing(t *testing.T) {
	f, dir := testFiles(t)
	path := put(t, dir, "f", "a\n")
	r, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: edits("a", "b"), DryRun: true})
	require.NoError(t, err)
	assert.Contains(t, r.Diff, "-a\n+b\n")
	assert.Equal(t, "a\n", get(t, path))
}

func TestNearestIsQuick(t *testing.T) { // C64
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "\tline number %d does something with value %d\n", i, i*i)
	}
	huge := strings.Repeat("lorem ipsum dolor sit amet, consectetur adipiscing elit\n", 400_000)
	for name, tt := range map[string]struct{ text, old, says string }{
		"300 lines": {b.String(), "\tline number 200 does something with value 40000 \n", "line 201"},
		"20 MB":     {huge, "quite another thing that stands nowhere in there", "does not occur"},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := testFiles(t)
			put(t, dir, "f", tt.text)
			began := time.Now()
			_, err := f.edit(context.Background(), sandbox.EditRequest{Path: "f", Edits: edits(tt.old, "x")})
			took := time.Since(began)
			require.Error(t, err)
			assert.Contains(t, err.Error(), tt.says)
			limit := 100 * time.Millisecond
			if len(tt.text) > 1<<20 {
				limit = 2 * time.Second // reading and hashing 20 MB on a busy machine
			}
			assert.Less(t, took, limit)
		})
	}
}

// TestDiffApplies holds the diff against the program that everyone reads diffs for.
func TestDiffApplies(t *testing.T) {
	patch, err := exec.LookPath("patch")
	if err != nil {
		patch = ""
	}
	tests := map[string][2]string{
		"change":          {"a\nb\nc\n", "a\nB\nc\n"},
		"no last newline": {"a\nb", "a\nc"},
		"gains newline":   {"a\nb", "a\nb\n"},
		"from nothing":    {"", "a\n"},
		"to nothing":      {"a\n", ""},
		"two hunks":       {numbered(40, nil), numbered(40, map[int]string{3: "three\n", 30: ""})},
		"insertions":      {numbered(20, nil), numbered(20, map[int]string{0: "zero\nline 0\n", 19: "line 19\nmore\nand more\n"})},
		"all of it":       {numbered(3000, nil), strings.ReplaceAll(numbered(3000, nil), "line", "row")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := unifiedDiff([]byte(tt[0]), []byte(tt[1]), "f")
			assert.Less(t, len(d), 30_000)
			if len(tt[0]) > 10_000 || patch == "" {
				return // shown in part
			}
			dir := t.TempDir()
			path := put(t, dir, "f", tt[0])
			c := exec.Command(patch, "-s", "-p1")
			c.Dir, c.Stdin = dir, strings.NewReader(d)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s\n%s", out, d)
			assert.Equal(t, tt[1], get(t, path))
		})
	}
}

func numbered(n int, other map[int]string) string {
	var b strings.Builder
	for i := range n {
		if s, ok := other[i]; ok {
			b.WriteString(s)
			continue
		}
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func FuzzReplace(f *testing.F) {
	f.Add([]byte("a\r\nb\n"), "a\nb", "c\nd", 1)
	f.Add([]byte("\xff\xfea\x00"), "a", "b", 1)
	f.Add([]byte("aaa\r\r\n\n"), "\n", "\r\n", 2)
	f.Fuzz(func(t *testing.T, raw []byte, old, new string, count int) {
		d, err := openText(raw, "f")
		if err != nil {
			return
		}
		if !bytes.Equal(d.bytes(), raw) {
			t.Fatalf("opened and written without an edit, %q became %q", raw, d.bytes())
		}
		before := bytes.Clone(d.text)
		n, err := d.replace(sandbox.Edit{Old: old, New: new, Count: count})
		if err != nil {
			if !bytes.Equal(d.text, before) {
				t.Fatal("a refused edit changed the text")
			}
			return
		}
		if n != max(count, 1) {
			t.Fatalf("%d replaced, %d asked for", n, count)
		}
		// Without carriage returns it is what the standard library does.
		if !strings.Contains(old+new, "\r") && !bytes.Contains(raw, []byte("\r")) {
			if want := strings.ReplaceAll(string(before), old, new); string(d.text) != want {
				t.Fatalf("%q, want %q", d.text, want)
			}
		}
		unifiedDiff(before, d.text, "f")
	})
}
