//go:build linux

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

func (f *files) paths(t testing.TB, r sandbox.ListRequest) []string {
	t.Helper()
	var out []string
	for n := 0; ; n++ {
		require.Less(t, n, 10_000)
		res, err := f.list(context.Background(), r)
		require.NoError(t, err)
		for _, e := range res.Entries {
			out = append(out, e.Path)
		}
		if r.Cursor = res.Cursor; r.Cursor == "" {
			return out
		}
		require.NotEmpty(t, res.Entries)
	}
}

func TestList(t *testing.T) {
	f, dir := testFiles(t)
	for _, p := range []string{"b.go", "a.go", "sub/c.go", "sub/deep/d.ts", "sub.txt", ".hidden/x.go", ".env", "node_modules/m/i.js", "log.log"} {
		put(t, dir, p, strings.Repeat("x", len(p)))
	}
	put(t, dir, ".gitignore", "node_modules/\n*.log\n")
	require.NoError(t, os.Symlink("a.go", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "out")))
	tests := map[string]struct {
		r    sandbox.ListRequest
		want []string
	}{
		"folder":          {sandbox.ListRequest{}, []string{"a.go", "b.go", "link", "out", "sub", "sub.txt"}},
		"hidden":          {sandbox.ListRequest{Hidden: true}, []string{".env", ".gitignore", ".hidden", "a.go", "b.go", "link", "out", "sub", "sub.txt"}},
		"not ignored":     {sandbox.ListRequest{Ignore: "none"}, []string{"a.go", "b.go", "link", "log.log", "node_modules", "out", "sub", "sub.txt"}},
		"glob by name":    {sandbox.ListRequest{Glob: "*.go"}, []string{"a.go", "b.go", "sub/c.go"}},
		"glob by path":    {sandbox.ListRequest{Glob: "sub/**/*.{ts,go}"}, []string{"sub/c.go", "sub/deep/d.ts"}},
		"glob, one level": {sandbox.ListRequest{Glob: "sub/*"}, []string{"sub/c.go", "sub/deep"}},
		"glob for hidden": {sandbox.ListRequest{Glob: ".hidden/*"}, []string{".hidden/x.go"}},
		"depth":           {sandbox.ListRequest{Depth: 2, Path: "sub"}, []string{"c.go", "deep", "deep/d.ts"}},
		"all, in order":   {sandbox.ListRequest{Depth: 9}, []string{"a.go", "b.go", "link", "out", "sub", "sub/c.go", "sub/deep", "sub/deep/d.ts", "sub.txt"}},
		"by size":         {sandbox.ListRequest{Sort: "size", Glob: "*.{go,ts}"}, []string{"sub/deep/d.ts", "sub/c.go", "a.go", "b.go"}},
	}
	for name, tt := range tests {
		for _, limit := range []int{0, 1, 2} {
			tt.r.Limit = limit
			t.Run(fmt.Sprint(name, " by ", limit), func(t *testing.T) { assert.Equal(t, tt.want, f.paths(t, tt.r)) })
		}
	}
	res, err := f.list(context.Background(), sandbox.ListRequest{Glob: "link"})
	require.NoError(t, err)
	assert.Equal(t, "symlink", res.Entries[0].Type, "A6: told as a link")
	assert.Equal(t, "a.go", res.Entries[0].Target)
	_, err = f.list(context.Background(), sandbox.ListRequest{Path: "a.go"})
	assert.Equal(t, sandbox.FailedPrecondition, code(t, err))
	_, err = f.list(context.Background(), sandbox.ListRequest{Path: "sup"})
	assert.Contains(t, err.(*sandbox.Error).Hint, "sub")
	_, err = f.list(context.Background(), sandbox.ListRequest{Cursor: "nonsense"})
	assert.Equal(t, sandbox.InvalidArgument, code(t, err))
}

func TestListOfVeryMany(t *testing.T) { // A24
	n := 30_000
	if os.Getenv("PINFOLD_TEST_LONG") != "" {
		n = 1_000_000
	}
	f, dir := testFiles(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "many"), 0o755))
	for i := range n {
		fd, err := unix.Open(fmt.Sprintf("%s/many/file-%07d", dir, i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		require.NoError(t, err)
		unix.Close(fd)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t.Logf("%d files made", n)
	began := time.Now()
	res, err := f.list(context.Background(), sandbox.ListRequest{Path: "many", Limit: 10})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	assert.Equal(t, n, res.Total)
	assert.Equal(t, "file-0000009", res.Entries[9].Path)
	assert.NotEmpty(t, res.Cursor)
	assert.Less(t, int64(after.HeapSys)-int64(before.HeapSys), int64(16<<20), "memory stays flat")
	t.Logf("%d entries in %v", n, time.Since(began))
	s, err := f.search(context.Background(), sandbox.SearchRequest{Query: "x", Path: "many"})
	require.NoError(t, err)
	assert.Zero(t, s.Matches)
	t.Logf("%d searched in %v", s.Scanned, time.Since(began))
}

func TestDeepTree(t *testing.T) { // A24: 10,000 folders in each other
	f, dir := testFiles(t)
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range 10_000 {
		require.NoError(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	t.Cleanup(func() { _ = exec.Command("rm", "-rf", dir).Run() })
	res, err := f.list(context.Background(), sandbox.ListRequest{Glob: "**/nothing", Depth: 100})
	require.NoError(t, err)
	assert.Contains(t, strings.Join(res.Notes, ";"), "too deep")
	_, err = f.search(context.Background(), sandbox.SearchRequest{Query: "x"})
	require.NoError(t, err)
}

func (f *files) lines(t testing.TB, r sandbox.SearchRequest) []string {
	t.Helper()
	var out []string
	for n := 0; ; n++ {
		require.Less(t, n, 10_000)
		res, err := f.search(context.Background(), r)
		require.NoError(t, err)
		for _, m := range res.Files {
			if r.FilesOnly {
				out = append(out, m.Path)
			}
			for _, l := range m.Lines {
				if !l.Context {
					out = append(out, fmt.Sprintf("%s:%d:%s", m.Path, l.Line, l.Text))
				}
			}
		}
		if r.Cursor = res.Cursor; r.Cursor == "" {
			return out
		}
	}
}

func TestSearch(t *testing.T) {
	f, dir := testFiles(t)
	put(t, dir, "a.txt", "one\ntwo two\nthree\n")
	put(t, dir, "b/c.go", "func two() {\n\treturn\n}\n// two")
	put(t, dir, ".hidden", "two")
	put(t, dir, ".git/config", "two")
	put(t, dir, "bin", "two\x00two")
	put(t, dir, "crlf", "two\r\n2\r\n")
	put(t, dir, "wide", "\xff\xfet\x00w\x00o\x00")
	put(t, dir, "ignored/x", "two")
	put(t, dir, ".gitignore", "/ignored\n")
	put(t, dir, "regex", "a(b)c.d\n")
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	tests := map[string]struct {
		r    sandbox.SearchRequest
		want []string
	}{
		"word":             {sandbox.SearchRequest{Query: "two"}, []string{"a.txt:2:two two", "b/c.go:1:func two() {", "b/c.go:4:// two", "crlf:1:two", "wide:1:two"}},
		"expression":       {sandbox.SearchRequest{Query: `^t\w+$`}, []string{"a.txt:3:three", "crlf:1:two", "wide:1:two"}},
		"without case":     {sandbox.SearchRequest{Query: `(?i)TWO\(`}, []string{"b/c.go:1:func two() {"}},
		"folded":           {sandbox.SearchRequest{Query: `(?i)F[a-z]+ TWO`}, []string{"b/c.go:1:func two() {"}},
		"folded, in part":  {sandbox.SearchRequest{Query: `(?i:TW)o two`}, []string{"a.txt:2:two two"}},
		"literal":          {sandbox.SearchRequest{Query: "(b)c.", Literal: true}, []string{"regex:1:a(b)c.d"}},
		"does not run on":  {sandbox.SearchRequest{Query: `two[^x]*three`}, nil},
		"across lines":     {sandbox.SearchRequest{Query: `two[^x]*three`, Multiline: true}, []string{"a.txt:2:two two", "a.txt:3:three"}},
		"names":            {sandbox.SearchRequest{Query: "two", FilesOnly: true}, []string{"a.txt", "b/c.go", "crlf", "wide"}},
		"glob":             {sandbox.SearchRequest{Query: "two", Glob: "*.go"}, []string{"b/c.go:1:func two() {", "b/c.go:4:// two"}},
		"glob for hidden":  {sandbox.SearchRequest{Query: "two", Glob: ".h*"}, []string{".hidden:1:two"}},
		"one file":         {sandbox.SearchRequest{Query: "t", Path: "a.txt"}, []string{"a.txt:2:two two", "a.txt:3:three"}},
		"nothing":          {sandbox.SearchRequest{Query: "zwei"}, nil},
		"empty matches":    {sandbox.SearchRequest{Query: "x*", Path: "a.txt"}, []string{"a.txt:1:one", "a.txt:2:two two", "a.txt:3:three"}},
		"end of last line": {sandbox.SearchRequest{Query: "two$", Glob: "c.go"}, []string{"b/c.go:4:// two"}},
	}
	for name, tt := range tests {
		for _, limit := range []int{0, 1, 2} {
			tt.r.Limit = limit
			if limit > 0 && name == "across lines" {
				continue // a limit counts matches, and this one has two lines
			}
			t.Run(fmt.Sprint(name, " by ", limit), func(t *testing.T) { assert.Equal(t, tt.want, f.lines(t, tt.r)) })
		}
	}
	res, err := f.search(context.Background(), sandbox.SearchRequest{Query: "two", Context: 1})
	require.NoError(t, err)
	assert.Equal(t, []sandbox.MatchLine{{Line: 1, Text: "one", Context: true}, {Line: 2, Text: "two two"}, {Line: 3, Text: "three", Context: true}}, res.Files[0].Lines)
	notes := strings.Join(res.Notes, "; ")
	for _, n := range []string{"1 ignored by .gitignore", "1 binary files skipped", "1 pipes", "hidden skipped"} {
		assert.Contains(t, notes, n)
	}
}

func TestSearchIsBounded(t *testing.T) { // A21 A44
	f, dir := testFiles(t)
	put(t, dir, "long", strings.Repeat("a", 1<<20)+"!")
	put(t, dir, "lines", strings.Repeat("needle in a line\n", 300_000))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<42))
	require.NoError(t, sparse.Close())
	for _, q := range []string{`(a+)+$`, `(a|a)*b`, `(.*)*x`, `a{900}a{90}`, "needle"} {
		began := time.Now()
		res, err := f.search(context.Background(), sandbox.SearchRequest{Query: q})
		require.NoError(t, err, q)
		assert.Less(t, time.Since(began), 10*time.Second, q)
		size := 0
		for _, m := range res.Files {
			for _, l := range m.Lines {
				size += len(l.Text)
				assert.LessOrEqual(t, len(l.Text), maxLine+10)
			}
		}
		assert.Less(t, size, 30_000)
	}
	for _, q := range []string{"a{1000}{1000}", "(", "", strings.Repeat("x", 5000), `(?=x)`, `\1`} {
		_, err := f.search(context.Background(), sandbox.SearchRequest{Query: q})
		assert.Equal(t, sandbox.InvalidArgument, code(t, err), short(q))
	}
	n := 0
	r := sandbox.SearchRequest{Query: "needle", Path: "lines", Limit: 1000}
	for pages := 0; pages < 3; pages++ {
		res, err := f.search(context.Background(), r)
		require.NoError(t, err)
		require.NotEmpty(t, res.Cursor)
		for _, l := range res.Files[0].Lines {
			n++
			assert.EqualValues(t, n, l.Line, "pages follow on each other")
		}
		r.Cursor = res.Cursor
	}
	read, err := f.read(context.Background(), sandbox.ReadRequest{Path: "sparse"})
	require.NoError(t, err)
	assert.EqualValues(t, 1<<42, read.Size)
	assert.Empty(t, read.Hash)
	_, err = f.read(context.Background(), sandbox.ReadRequest{Path: "sparse", As: "text", From: -3})
	require.NoError(t, err)
}

func TestSearchOfLargeFiles(t *testing.T) {
	f, dir := testFiles(t)
	var b strings.Builder
	var want []string
	for i := range 400_000 {
		if i%50_021 == 0 {
			b.WriteString("here is the needle\n")
			want = append(want, fmt.Sprintf("large:%d:here is the needle", i+1))
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	put(t, dir, "large", b.String())
	assert.Equal(t, want, f.lines(t, sandbox.SearchRequest{Query: "needle"}))
	res, err := f.search(context.Background(), sandbox.SearchRequest{Query: "needle", Context: 2})
	require.NoError(t, err)
	assert.Len(t, res.Files[0].Lines, 5*len(want)-2, "context at block ends too")
	put(t, dir, "oneline", strings.Repeat("x", 5<<20-3)+"needle"+strings.Repeat("y", 1<<20)) // across two blocks
	got := f.lines(t, sandbox.SearchRequest{Query: "needle", Path: "oneline"})
	require.Len(t, got, 1)
	assert.Contains(t, got[0], "xneedley")
}

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"*.go", []string{"a.go", "x/y/a.go"}, []string{"a.gox", "go"}},
		{"src/*.go", []string{"src/a.go"}, []string{"src/x/a.go", "a.go"}},
		{"src/**", []string{"src/a", "src/a/b"}, []string{"other/a"}},
		{"**/test/**/*.py", []string{"test/a.py", "x/test/y/z/a.py"}, []string{"a.py", "test/a.go"}},
		{"**/**/**/**/x", []string{"x", "a/b/c/x"}, []string{"a/b/c"}}, // A44
		{"a[bc-e!]f", []string{"abf", "adf", "a!f"}, []string{"aff", "a/f"}},
		{"a[!b]c", []string{"axc", "aéc"}, []string{"abc"}},
		{"a?c", []string{"aéc", "abc"}, []string{"ac", "a/c"}},
		{`a\*c`, []string{"a*c"}, []string{"abc"}},
		{"{a,b{c,d}}.x", []string{"a.x", "bc.x", "bd.x"}, []string{"b.x", "c.x"}},
		{"a[", []string{"a["}, []string{"a"}},
		{"{a", []string{"{a"}, []string{"a"}},
		{"/workspace/a/*", []string{"a/b"}, []string{"workspace/a/b"}},
	}
	for _, tt := range tests {
		g, err := parseGlob(tt.pattern)
		require.NoError(t, err)
		for _, p := range tt.yes {
			assert.True(t, g.match(strings.Split(p, "/")), "%s matches %s", tt.pattern, p)
		}
		for _, p := range tt.no {
			assert.False(t, g.match(strings.Split(p, "/")), "%s matches %s", tt.pattern, p)
		}
	}
	began := time.Now()
	g, err := parseGlob(strings.Repeat("*a", 200) + "/" + strings.Repeat("**/a/", 100) + "b")
	require.NoError(t, err)
	long := slices.Repeat([]string{strings.Repeat("a", 255)}, 100)
	g.match(long)
	assert.Less(t, time.Since(began), 200*time.Millisecond, "A44")
	_, err = parseGlob(strings.Repeat("{a,b}", 20))
	assert.Equal(t, sandbox.InvalidArgument, code(t, err))
	_, err = parseGlob(strings.Repeat("{a,", 300))
	require.NoError(t, err)
}

// TestIgnoreAsGitDoes holds the matcher against git itself.
func TestIgnoreAsGitDoes(t *testing.T) {
	git, err := exec.LookPath("git")
	require.NoError(t, err, "git is part of what builds Pinfold")
	f, dir := testFiles(t)
	rules := map[string]string{
		".gitignore":     "# comment\n*.log\n!keep.log\n/root.txt\nbuild/\ndoc/*.txt\n**/tmp\nfoo/**/bar\n\\#hash\nspace\\ \n*.tmp  \na[0-9].x\n/only/dir/\nq/**\n!q/in\nup/*\n!up/stay\n",
		"sub/.gitignore": "*.txt\n!root.txt\n/here\n",
	}
	names := []string{"a.log", "keep.log", "root.txt", "sub/root.txt", "sub/x.txt", "sub/here", "sub/deep/here", "build/x", "x/build/y", "doc/a.txt", "doc/b/a.txt", "tmp/x", "a/tmp/y",
		"foo/bar", "foo/x/y/bar", "#hash", "space ", "t.tmp", "a1.x", "ab.x", "only/dir/x", "x/only/dir/y", "q/in", "q/out/x", "up/go", "up/stay", "sub/a.log", "sub/keep.log", "plain", "buildx/y", "sub/build"}
	for name, text := range rules {
		put(t, dir, name, text)
	}
	for _, n := range names {
		put(t, dir, n, "x")
	}
	run := func(args ...string) string {
		c := exec.Command(git, args...)
		c.Dir = dir
		c.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1"}
		out, err := c.Output()
		require.NoError(t, err)
		return string(out)
	}
	run("init", "-q")
	want := strings.Split(strings.Trim(run("-c", "core.quotepath=off", "ls-files", "-o", "--exclude-standard", "-z"), "\x00"), "\x00")
	slices.Sort(want)
	var got []string
	for _, p := range f.paths(t, sandbox.ListRequest{Depth: 20, Hidden: true}) {
		st, err := os.Lstat(filepath.Join(dir, p))
		require.NoError(t, err)
		if !st.IsDir() {
			got = append(got, p)
		}
	}
	got = slices.DeleteFunc(got, func(p string) bool { return strings.HasPrefix(p, ".git/") })
	slices.Sort(got)
	assert.Equal(t, want, got)
	// From a folder below, the rules above it hold too.
	for _, p := range f.paths(t, sandbox.ListRequest{Path: "sub", Depth: 20}) {
		assert.NotContains(t, []string{"a.log", "x.txt", "here"}, p)
	}
}

func TestNamesSurvive(t *testing.T) { // A25
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, 1+r.IntN(12))
		for i := range b {
			b[i] = `\x5c41ffab`[r.IntN(10)]
			if r.IntN(3) == 0 {
				b[i] = byte(1 + r.IntN(255))
			}
		}
		name := string(b)
		enc := encodeName(name)
		require.Equal(t, name, decodeName(enc), "%q as %q", name, enc)
		require.NotContains(t, enc, "\n")
	}
	assert.Equal(t, `日本 "x" \d`, encodeName(`日本 "x" \d`), "plain names stay as they are")
}
