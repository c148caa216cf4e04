//go:build linux

package guest_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
	"pinfold.dev/pinfold/tools"
)

// call makes a tool's call as the edge does, on a real guest, and holds what
// every result must keep to.
func call(t testing.TB, g *guesttest.Guest, name string, args map[string]any) (tools.Result, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	for _, tool := range tools.All() {
		if tool.Name != name {
			continue
		}
		_, rest, bad := tool.Check(raw)
		if bad != nil {
			return tools.Result{}, bad
		}
		s := &tools.Session{ID: "ses_test", Received: time.Now(), Sandbox: g.Client, Progress: func(string) {}}
		r, err := tool.Run(within(t), s, rest)
		assert.LessOrEqual(t, len([]rune(r.Text)), 30_000, "%s: text", name)
		size := len(r.Text)
		for _, i := range r.Images {
			size += len(i.Data) * 4 / 3
		}
		b, merr := json.Marshal(r.Structured)
		require.NoError(t, merr)
		assert.LessOrEqual(t, size+len(b), 900_000, "%s: in all", name)
		return r, err
	}
	t.Fatalf("no tool %s", name)
	return tools.Result{}, nil
}

func text(t testing.TB, g *guesttest.Guest, name string, args map[string]any) string {
	t.Helper()
	r, err := call(t, g, name, args)
	require.NoError(t, err, "%s", name)
	return r.Text
}

func refusal(t testing.TB, g *guesttest.Guest, name string, args map[string]any) *tools.Error {
	t.Helper()
	_, err := call(t, g, name, args)
	require.Error(t, err)
	return tools.AsError(err, "call_1")
}

func TestFileTools(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	assert.Regexp(t, `^Created notes/a.txt: 14 bytes, mode 0644, sha256:`, text(t, g, "file_write", map[string]any{"path": "notes/a.txt", "content": "one\ntwo\nthree\n"}))
	assert.Equal(t, "one\ntwo\nthree\n", text(t, g, "file_read", map[string]any{"path": "notes/a.txt"}), "the text itself and nothing else")
	assert.Equal(t, "2\ttwo\n3\tthree\n", text(t, g, "file_read", map[string]any{"path": "notes/a.txt", "numbers": true, "lines": []int{2, 3}}))
	assert.Contains(t, text(t, g, "file_edit", map[string]any{"path": "notes/a.txt", "edits": []any{map[string]any{"old": "two", "new": "2"}}}), "-two\n+2\n")
	assert.Equal(t, "sha256:", text(t, g, "file_write", map[string]any{"path": "notes/a.txt", "content": "x", "append": true})[len("Appended to notes/a.txt: 1 bytes, mode 0644, "):][:7])
	assert.Contains(t, text(t, g, "file_list", map[string]any{"path": "notes"}), " a.txt\n")
	assert.Equal(t, "notes/a.txt\n2:2\n", text(t, g, "file_search", map[string]any{"query": `^\d$`}))
	assert.Contains(t, text(t, g, "file_search", map[string]any{"query": "nowhere"}), `No match for "nowhere" in 1 files.`)
	assert.Contains(t, text(t, g, "file_read", map[string]any{"path": "notes"}), "is a folder")

	raw := []byte{0, 1, 2, 255}
	text(t, g, "file_write", map[string]any{"path": "bin", "base64": base64.StdEncoding.EncodeToString(raw)})
	assert.Contains(t, text(t, g, "file_read", map[string]any{"path": "bin"}), "binary data, 4 bytes")
	assert.Equal(t, base64.StdEncoding.EncodeToString(raw)+"\n", text(t, g, "file_read", map[string]any{"path": "bin", "as": "base64"}))

	for name, tt := range map[string]struct {
		tool string
		args map[string]any
		code sandbox.Code
	}{
		"two contents":    {"file_write", map[string]any{"path": "x", "content": "a", "base64": "YQ=="}, sandbox.InvalidArgument},
		"no content":      {"file_write", map[string]any{"path": "x"}, sandbox.InvalidArgument},
		"no base64":       {"file_write", map[string]any{"path": "x", "base64": "%%%"}, sandbox.InvalidArgument},
		"one line number": {"file_read", map[string]any{"path": "bin", "lines": []int{1}}, sandbox.InvalidArgument},
		"too many bytes":  {"file_read", map[string]any{"path": "bin", "max_bytes": 1 << 30}, sandbox.InvalidArgument},
		"unknown field":   {"file_read", map[string]any{"path": "bin", "offset": 3}, sandbox.InvalidArgument},
		"NUL":             {"file_read", map[string]any{"path": "a\x00b"}, sandbox.InvalidArgument},
		"missing":         {"file_read", map[string]any{"path": "notes/b.txt"}, sandbox.NotFound},
		"bad mode":        {"file_write", map[string]any{"path": "x", "content": "", "mode": "rwx"}, sandbox.InvalidArgument},
		"no folder":       {"file_write", map[string]any{"path": "no/x", "content": "", "create_dirs": false}, sandbox.NotFound},
		"limit":           {"file_list", map[string]any{"limit": 5000}, sandbox.InvalidArgument},
		"expression":      {"file_search", map[string]any{"query": "("}, sandbox.InvalidArgument},
	} {
		e := refusal(t, g, tt.tool, tt.args)
		assert.Equal(t, tt.code, e.Code, "%s: %v", name, e)
		assert.NotEmpty(t, e.Hint, name)
	}
	assert.Contains(t, refusal(t, g, "file_read", map[string]any{"path": "notes/b.txt"}).Hint, "a.txt")
}

// TestResultsStayBounded asks for as much as each tool can give; call holds the
// bounds, and the text must say how to go on.
func TestResultsStayBounded(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	ok(t, g, `python3 - <<'END'
import os
open("short", "w").write("x\n" * 200000)
open("wide", "w").write(("é" * 5000 + "\n") * 50)
open("one", "w").write("y" * 3000000)
open("esc", "wb").write(b"text " + b"\xff" * 20 + b" more text to go with it\n" * 5000)
os.mkdir("names")
for i in range(1500):
    open("names/%04d-" % i + "n" * 200, "w").write("needle " * 200)
open("bin", "wb").write(os.urandom(3000000))
END`)
	for _, c := range []struct {
		tool string
		args map[string]any
		says string
	}{
		{"file_read", map[string]any{"path": "short", "numbers": true}, "go on with lines ["},
		{"file_read", map[string]any{"path": "short", "numbers": true, "max_bytes": 28000}, "go on with lines ["},
		{"file_read", map[string]any{"path": "wide", "max_bytes": 28000}, "go on with lines ["},
		{"file_read", map[string]any{"path": "one", "max_bytes": 28000}, "longer than the answer"},
		{"file_read", map[string]any{"path": "esc", "max_bytes": 28000}, "go on with lines ["},
		{"file_read", map[string]any{"path": "bin", "as": "hex", "max_bytes": 28000}, "go on with lines ["},
		{"file_read", map[string]any{"path": "bin", "as": "base64", "max_bytes": 28000}, "go on with lines ["},
		{"file_read", map[string]any{"path": "bin"}, "binary data"},
		{"file_list", map[string]any{"path": "names", "limit": 1000}, "Next page: cursor "},
		{"file_list", map[string]any{"glob": "**/*", "limit": 1000, "sort": "size"}, "Next page: cursor "},
		{"file_search", map[string]any{"query": "needle", "limit": 1000}, "Next page: cursor "},
		{"file_search", map[string]any{"query": "x", "path": "short", "limit": 1000, "context": 20}, "Next page: cursor "},
		{"file_search", map[string]any{"query": "needle", "files_only": true, "limit": 1000}, "Next page: cursor "},
		{"file_edit", map[string]any{"path": "short", "edits": []any{map[string]any{"old": "x\n", "new": "yy\n", "count": 200000}}}, "Replaced 200000"},
	} {
		assert.Contains(t, text(t, g, c.tool, c.args), c.says, "%s %v", c.tool, c.args)
	}
	e := refusal(t, g, "file_edit", map[string]any{"path": "short", "edits": []any{map[string]any{"old": "y", "new": "z"}}})
	assert.Less(t, len(e.Message), 10_000)
	e = refusal(t, g, "file_edit", map[string]any{"path": "one", "edits": []any{map[string]any{"old": strings.Repeat("y", 900_000) + "z", "new": "z"}}})
	assert.Less(t, len(e.Message), 10_000)
}

func TestCodeTool(t *testing.T) {
	if !hostHasKernel() {
		t.Skip("no ipykernel here; the tests on Podman run it in the full image")
	}
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	assert.Equal(t, "hello\n[result]\n3\n", text(t, g, "code_run", map[string]any{"code": "print('hello')\n1 + 2"}))
	assert.Equal(t, "Done, without output.\n", text(t, g, "code_run", map[string]any{"code": "x = 1"}))
	assert.Contains(t, text(t, g, "code_run", map[string]any{"code": "1/0"}), "ZeroDivisionError: division by zero", "an exception is a result")
	for i := range 3 { // many outputs, each of them long
		text(t, g, "code_run", map[string]any{"code": fmt.Sprintf("for i in range(300):\n    display('é' * %d)\n    print(i)", 200+i*3000)})
	}
	r, err := call(t, g, "code_run", map[string]any{"code": "import time\nprint('in', flush=True)\ntime.sleep(1)\nprint('out')", "wait_ms": 400})
	require.NoError(t, err)
	assert.Contains(t, r.Text, "still running")
	var got struct{ Run, Status string }
	b, err := json.Marshal(r.Structured)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &got))
	assert.Equal(t, "running", got.Status)
	assert.Equal(t, "out\n", text(t, g, "code_run", map[string]any{"run": got.Run}))

	r, err = call(t, g, "code_run", map[string]any{"code": "print('kept')\ntime.sleep(60)", "timeout_ms": 300})
	require.Error(t, err)
	assert.Equal(t, sandbox.DeadlineExceeded, tools.AsError(err, "").Code)
	assert.Contains(t, r.Text, "kept", "what was printed is kept")
	for _, args := range []map[string]any{{}, {"code": " "}, {"code": "1", "run": "run_1"}, {"code": "1", "language": "ruby"}, {"code": "1", "context": "../x"}, {"code": "1", "timeout_ms": -1}, {"run": "run_999"}} {
		_, err := call(t, g, "code_run", args)
		var e *tools.Error
		if !errors.As(err, &e) {
			e = tools.AsError(err, "")
		}
		assert.Contains(t, []sandbox.Code{sandbox.InvalidArgument, sandbox.NotFound}, e.Code, "%v: %v", args, e)
	}
}
