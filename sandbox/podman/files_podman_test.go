//go:build podman

package podman

import (
	"bytes"
	"context"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/templates"
)

func startGuest(ctx context.Context, t *testing.T, e *Engine, spec sandbox.Spec) *guest.Client {
	t.Helper()
	spec.Session = newSession()
	box, err := e.Start(ctx, spec)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, box.Remove(ctx))
	})
	conn, err := box.Dial(ctx)
	require.NoError(t, err)
	c, err := guest.Connect(ctx, conn, guest.Expect{Token: box.Token(), Isolation: box.Info().Isolation})
	require.NoError(t, err)
	return c
}

// TestFilesAndCodeInTheImage runs what depends on the image and on the kernel
// below: files as uid 1000, /proc, and code_run with pandas and matplotlib. An
// image without them fails the test.
func TestFilesAndCodeInTheImage(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.GuestPath = "" })
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	warm, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, e.Warm(warm))
	for _, isolation := range []sandbox.Isolation{sandbox.IsolationContainer, sandbox.IsolationGVisor} {
		t.Run(string(isolation), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			c := startGuest(ctx, t, e, sandbox.Spec{Image: recipe.Reference(), Isolation: isolation})
			fileWork(ctx, t, c)
			codeWork(ctx, t, c, isolation)
		})
	}
}

// TestFilesAndCodeOnTheHostsImage: the host's own Python has a kernel or has
// none; both are answered in kind.
func TestFilesAndCodeOnTheHostsImage(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.GuestPath = "" })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, e.Warm(ctx))
	c := startGuest(ctx, t, e, sandbox.Spec{Image: sandbox.ImageHost})
	fileWork(ctx, t, c)
	r, err := c.RunCode(ctx, sandbox.CodeRequest{Code: "6 * 7", WaitMS: 60_000}, nil)
	if err == nil {
		require.Equal(t, "ok", r.Status, "%+v", r)
		assert.Equal(t, "42", r.Outputs[0].Text)
		return
	}
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "image_lacks", typed.Reason)
	assert.Contains(t, []any{"ipykernel", "python3"}, typed.Details["image_lacks"])
}

func fileWork(ctx context.Context, t *testing.T, c *guest.Client) {
	t.Helper()
	body := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	w, err := c.WriteFile(ctx, sandbox.WriteRequest{Path: "a/b/f", Content: body, CreateDirs: true})
	require.NoError(t, err)
	assert.Equal(t, "0644", w.Mode)
	r, err := c.ReadFile(ctx, sandbox.ReadRequest{Path: "a/b/f", From: -2})
	require.NoError(t, err)
	assert.Equal(t, w.Hash, r.Hash)
	assert.EqualValues(t, 1<<16, r.Lines)
	assert.Equal(t, "0123456789abcde\n0123456789abcde\n", r.Text)
	out, err := c.Exec(ctx, sandbox.ExecRequest{Command: "stat -c '%u:%g' a/b/f; ln -s b/f a/l; ln -s /proc/self/environ e; mkfifo p", WaitMS: 10_000}, nil)
	require.NoError(t, err)
	assert.Equal(t, "1000:1000\n", out.Stdout.Text, out.Stderr.Text)
	ed, err := c.EditFile(ctx, sandbox.EditRequest{Path: "a/l", Edits: []sandbox.Edit{{Old: "0123456789abcde\n", New: "x\n", Count: 1 << 16}}})
	require.NoError(t, err)
	assert.Equal(t, 1<<16, ed.Replaced)
	l, err := c.List(ctx, sandbox.ListRequest{Depth: 3})
	require.NoError(t, err)
	types := map[string]string{}
	for _, x := range l.Entries {
		types[x.Path] = x.Type
	}
	assert.Equal(t, map[string]string{"a": "directory", "a/b": "directory", "a/b/f": "file", "a/l": "symlink", "e": "symlink", "p": "fifo"}, types)
	for _, p := range []string{"/proc/self/environ", "/proc/1/environ", "/proc/1/maps", "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/proc/thread-self/status", "/dev/stdin", "e", "p", "/dev/zero", "/dev/tty"} {
		began := time.Now()
		r, err := c.ReadFile(ctx, sandbox.ReadRequest{Path: p})
		require.Error(t, err, "%s gave %q", p, r.Text)
		assert.NotEqual(t, sandbox.Internal, sandbox.CodeOf(err), "%s: %v", p, err)
		assert.Less(t, time.Since(began), 2*time.Second, p)
	}
	_, err = c.WriteFile(ctx, sandbox.WriteRequest{Path: "/etc/passwd", Content: []byte("x")})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), "%v", err)
	x, err := c.Transfer(ctx, sandbox.TransferRequest{From: "a/b/f", To: "up", Export: true})
	require.NoError(t, err)
	_, err = c.ReadFile(ctx, sandbox.ReadRequest{Path: x.Path})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), "the browser's folder is closed to the agent: %v", err)
	back, err := c.Transfer(ctx, sandbox.TransferRequest{From: x.Path, To: "downloads/back"})
	require.NoError(t, err)
	assert.Equal(t, x.Hash, back.Hash)
}

func codeWork(ctx context.Context, t *testing.T, c *guest.Client, isolation sandbox.Isolation) {
	t.Helper()
	began := time.Now()
	run := func(code string) sandbox.CodeResult {
		t.Helper()
		r, err := c.RunCode(ctx, sandbox.CodeRequest{Code: code, WaitMS: 120_000}, nil)
		require.NoError(t, err)
		require.Equal(t, "ok", r.Status, "%+v", r)
		return r
	}
	run("x = 1")
	first := time.Since(began)
	began = time.Now()
	run("x")
	t.Logf("%s: first answer after %v, the next after %v", isolation, first, time.Since(began))
	r := run("import pandas as pd\npd.DataFrame({'a': range(500)})")
	require.Len(t, r.Outputs, 1)
	assert.Equal(t, 500, r.Outputs[0].Rows)
	csv, err := c.ReadFile(ctx, sandbox.ReadRequest{Path: r.Outputs[0].Path})
	require.NoError(t, err)
	assert.EqualValues(t, 501, csv.Lines)
	r = run("import matplotlib.pyplot as plt\nplt.figure(figsize=(40, 20))\nplt.plot([1, 3, 2])\nplt.title('Bäcker 漢字')\nplt.show()")
	var data []byte
	for _, o := range r.Outputs {
		data = append(data, o.Data...)
	}
	p, err := png.DecodeConfig(bytes.NewReader(data))
	require.NoError(t, err, "%+v", r)
	assert.Equal(t, 1568, p.Width)
	out, err := c.RunCode(ctx, sandbox.CodeRequest{Code: "import os, time\ntime.sleep(.1)\nos.kill(os.getpid(), 11)"}, nil)
	require.NoError(t, err)
	assert.Equal(t, "kernel_died", out.Status)
	assert.Contains(t, strings.Join(out.Notes, " "), "signal 11")
}
