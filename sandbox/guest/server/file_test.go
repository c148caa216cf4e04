//go:build linux

package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

// testFiles works on a folder of the test, as the user that runs it.
func testFiles(t testing.TB) (*files, string) {
	t.Helper()
	dir := t.TempDir()
	return &files{dir: dir, browser: filepath.Join(dir, "browser"), as: func(_ int, fn func() error) error { return fn() }}, dir
}

func put(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func get(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func (f *files) put(r sandbox.WriteRequest, content string) (sandbox.WriteResult, error) {
	return f.write(context.Background(), r, strings.NewReader(content))
}

func code(t testing.TB, err error) sandbox.Code {
	t.Helper()
	require.Error(t, err)
	return sandbox.CodeOf(err)
}

func TestReadLines(t *testing.T) {
	f, dir := testFiles(t)
	put(t, dir, "three", "one\ntwo\nthree")
	put(t, dir, "empty", "")
	tests := map[string]struct {
		from, to int64
		want     string
	}{
		"all":                        {0, 0, "one\ntwo\nthree"},
		"to the end (C68)":           {1, 3, "one\ntwo\nthree"},
		"the last, from the end":     {-1, 0, "three"},
		"the last two":               {-2, -1, "two\nthree"},
		"one in the middle":          {2, 2, "two\n"},
		"past the end is cut":        {2, 99, "two\nthree"},
		"before the start is cut":    {-99, 1, "one\n"},
		"all but the last":           {1, -2, "one\ntwo\n"},
		"wholly past the end: empty": {9, 12, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "three", From: tt.from, To: tt.to})
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.Text)
			assert.EqualValues(t, 3, r.Lines)
			assert.Equal(t, digest([]byte("one\ntwo\nthree")), r.Hash)
			assert.False(t, r.Truncated)
		})
	}
	_, err := f.read(context.Background(), sandbox.ReadRequest{Path: "three", From: 3, To: 2})
	assert.Equal(t, sandbox.InvalidArgument, code(t, err))
	r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "empty"})
	require.NoError(t, err)
	assert.Equal(t, "text", r.Kind)
	assert.Zero(t, r.Lines)
	assert.Equal(t, "none", r.Ending)
}

func TestReadGoesOnByLine(t *testing.T) {
	f, dir := testFiles(t)
	var b strings.Builder
	for i := range 5000 {
		b.WriteString(strings.Repeat("x", i%97))
		b.WriteString("\n")
	}
	put(t, dir, "long", b.String())
	var got strings.Builder
	for line, n := int64(1), 0; line > 0; n++ {
		require.Less(t, n, 1000)
		r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "long", From: line, MaxBytes: 3000})
		require.NoError(t, err)
		assert.LessOrEqual(t, len(r.Text), 3000)
		assert.Equal(t, r.NextLine != 0, r.Truncated)
		got.WriteString(r.Text)
		line = r.NextLine
	}
	assert.Equal(t, b.String(), got.String())
}

func TestReadKinds(t *testing.T) {
	f, dir := testFiles(t)
	put(t, dir, "crlf", "a\r\nb\r\n")
	put(t, dir, "mixed", "a\r\nb\n")
	put(t, dir, "bom", "\xef\xbb\xbfx\n")
	put(t, dir, "utf16", "\xff\xfeh\x00\xe4\x00\n\x00")
	put(t, dir, "latin1", "Gr\xfc\xdfe aus der alten Zeit\n")
	put(t, dir, "pdf", "%PDF-1.7\n"+strings.Repeat("x", 1<<20))
	put(t, dir, "bin", "\x00\x01\x02\x03")
	put(t, dir, "utf8", "Bäcker → ✓ 漢字\n")
	tests := map[string]sandbox.ReadResult{
		"crlf":   {Kind: "text", Encoding: "utf-8", Ending: "crlf", Text: "a\r\nb\r\n"},
		"mixed":  {Kind: "text", Encoding: "utf-8", Ending: "mixed", Text: "a\r\nb\n"},
		"bom":    {Kind: "text", Encoding: "utf-8-bom", Ending: "lf", Text: "x\n"},
		"utf16":  {Kind: "text", Encoding: "utf-16le", Ending: "lf", Text: "hä\n"},
		"latin1": {Kind: "text", Encoding: "unknown-8bit", Ending: "lf", Text: `Gr\xfc\xdfe aus der alten Zeit` + "\n"},
		"pdf":    {Kind: "binary", MediaType: "application/pdf"},
		"bin":    {Kind: "binary", Text: "00000000: 0001 0203                                ....\n"},
		"utf8":   {Kind: "text", Encoding: "utf-8", Ending: "lf", Text: "Bäcker → ✓ 漢字\n"}, // C57
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := f.read(context.Background(), sandbox.ReadRequest{Path: name})
			require.NoError(t, err)
			assert.Equal(t, want.Kind, r.Kind)
			assert.Equal(t, want.Encoding, r.Encoding)
			assert.Equal(t, want.Ending, r.Ending)
			assert.Equal(t, want.MediaType, r.MediaType)
			if want.Text != "" {
				assert.Equal(t, want.Text, r.Text)
			}
			assert.Less(t, len(r.Text), 2000, "a binary file is described, not dumped (C60)")
			raw, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, digest(raw), r.Hash)
		})
	}
}

func TestWrite(t *testing.T) {
	f, dir := testFiles(t)
	r, err := f.put(sandbox.WriteRequest{Path: "a/b/c.txt", CreateDirs: true}, "hello")
	require.NoError(t, err)
	assert.True(t, r.Created)
	assert.Equal(t, "0644", r.Mode, "C144")
	assert.Equal(t, digest([]byte("hello")), r.Hash)

	_, err = f.put(sandbox.WriteRequest{Path: "no/such/x"}, "hello")
	assert.Equal(t, sandbox.NotFound, code(t, err))

	path := filepath.Join(dir, "a/b/c.txt")
	require.NoError(t, os.Chmod(path, 0o755))
	r, err = f.put(sandbox.WriteRequest{Path: "a/b/c.txt", IfHash: r.Hash}, "more")
	require.NoError(t, err)
	assert.False(t, r.Created)
	assert.Equal(t, "0755", r.Mode, "the mode is kept")

	_, err = f.put(sandbox.WriteRequest{Path: "a/b/c.txt", IfHash: digest([]byte("hello"))}, "lost")
	assert.Equal(t, sandbox.FailedPrecondition, code(t, err), "A38")
	_, err = f.put(sandbox.WriteRequest{Path: "a/b/c.txt", IfHash: "absent"}, "lost")
	assert.Equal(t, sandbox.AlreadyExists, code(t, err))
	assert.Equal(t, "more", get(t, path))

	r, err = f.put(sandbox.WriteRequest{Path: "a/b/c.txt", Append: true}, "+")
	require.NoError(t, err)
	assert.Equal(t, "more+", get(t, path))
	assert.Equal(t, digest([]byte("more+")), r.Hash)
	left, err := filepath.Glob(filepath.Join(dir, "a/b/.*"))
	require.NoError(t, err)
	assert.Empty(t, left, "no temporary file is left")
}

func TestWriteKeepsLinks(t *testing.T) {
	f, dir := testFiles(t)
	put(t, dir, "real/target", "old")
	require.NoError(t, os.Symlink("real/target", filepath.Join(dir, "soft")))
	require.NoError(t, os.Link(filepath.Join(dir, "real/target"), filepath.Join(dir, "hard")))

	_, err := f.put(sandbox.WriteRequest{Path: "soft"}, "through the link")
	require.NoError(t, err)
	to, err := os.Readlink(filepath.Join(dir, "soft"))
	require.NoError(t, err)
	assert.Equal(t, "real/target", to)
	assert.Equal(t, "through the link", get(t, filepath.Join(dir, "real/target")))
	assert.Equal(t, "through the link", get(t, filepath.Join(dir, "hard")), "hard links stay")

	_, err = f.put(sandbox.WriteRequest{Path: "hard"}, "x")
	require.NoError(t, err)
	assert.Equal(t, "x", get(t, filepath.Join(dir, "real/target")))
}

func TestWriteSizes(t *testing.T) {
	f, dir := testFiles(t)
	for _, n := range []int{0, 20_000, 1 << 20, 64 << 20} { // C53
		body := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
		r, err := f.write(context.Background(), sandbox.WriteRequest{Path: "big"}, bytes.NewReader(body))
		require.NoError(t, err)
		assert.EqualValues(t, n, r.Bytes)
		st, err := os.Stat(filepath.Join(dir, "big"))
		require.NoError(t, err)
		assert.EqualValues(t, n, st.Size())
		assert.Equal(t, digest(body), r.Hash)
	}
}
