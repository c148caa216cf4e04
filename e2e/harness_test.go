//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// patience bounds every wait of a test; what takes so long has failed.
const patience = 60 * time.Second

// binary is the pinfold under test, built once by the Makefile.
func binary(t testing.TB) string {
	t.Helper()
	b := os.Getenv("PINFOLD_BIN")
	require.NotEmpty(t, b, "PINFOLD_BIN names the binary; make test sets it")
	return b
}

// world is one user's folders, apart from those of other tests.
type world struct {
	env []string
	dir string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	require.NotZero(t, os.Geteuid(), "end-to-end tests run as a plain user; make test arranges it")
	dir := t.TempDir()
	env := []string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"),
		"XDG_STATE_HOME=" + filepath.Join(dir, "state"), "XDG_CONFIG_HOME=" + filepath.Join(dir, "config")}
	return &world{env: env, dir: dir}
}

// server is one running pinfold.
type server struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr *buffer
	gone   chan struct{}
	err    error
}

// start runs a verb of the binary with pipes; the test's end ends it.
func (w *world) start(t testing.TB, args ...string) *server {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = w.env
	return run(t, cmd)
}

func run(t testing.TB, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{cmd: cmd, stderr: &buffer{}, gone: make(chan struct{})}
	var err error
	s.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	// Not cmd.StdoutPipe: Wait would close it under the reader.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	s.out, cmd.Stdout, cmd.Stderr = r, w, s.stderr
	require.NoError(t, cmd.Start())
	w.Close()
	go func() { s.err = cmd.Wait(); close(s.gone) }()
	t.Cleanup(func() {
		s.in.Close()
		if slices.Contains(cmd.Args, "--http") { // a server for many clients does not end with its stdin
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case <-s.gone:
		case <-time.After(5 * time.Second):
			t.Errorf("pinfold %v did not end within 5 s of being told to", cmd.Args[1:])
			_ = cmd.Process.Kill()
			<-s.gone
		}
		r.Close()
		if t.Failed() {
			t.Logf("stderr of pinfold %v:\n%s", cmd.Args[1:], tail(s.stderr.String(), 6000))
		}
	})
	return s
}

// stdio is a client (mcp-go's) of a fresh stdio server.
func (w *world) stdio(t testing.TB, args ...string) (story.Client, *server) {
	t.Helper()
	s := w.start(t, append([]string{"serve", "--tools", "all"}, args...)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := story.DialMCPGo(ctx, transport.NewIO(s.out, s.in, io.NopCloser(strings.NewReader(""))))
	require.NoError(t, err, "stderr: %s", s.stderr)
	return c, s
}

// http starts a server on a free loopback port and returns its base address and token.
func (w *world) http(t testing.TB, args ...string) (base, token string, s *server) {
	t.Helper()
	s = w.start(t, append([]string{"serve", "--tools", "all", "--http", "127.0.0.1:0"}, args...)...)
	base, token = address(t, s)
	return base, token, s
}

// address waits until a server for HTTP has told where it is and its token.
func address(t testing.TB, s *server) (base, token string) {
	t.Helper()
	form := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	tokenFile := regexp.MustCompile(`\S+/token\b`)
	require.Eventually(t, func() bool {
		text := s.stderr.String()
		base = form.FindString(text)
		f := tokenFile.FindString(text)
		if base == "" || f == "" {
			return false
		}
		b, err := os.ReadFile(strings.TrimLeft(f, `"=(`))
		token = strings.TrimSpace(string(b))
		return err == nil && token != ""
	}, patience, 10*time.Millisecond, "stderr: %s", s.stderr)
	return base, token
}

// call requires that the tool did its job.
func call(t testing.TB, c story.Client, tool string, args map[string]any) *story.Reply {
	t.Helper()
	r := try(t, c, tool, args)
	require.False(t, r.IsError, "%s %v: %s", tool, args, r.Text)
	return r
}

// try requires only that the protocol held.
func try(t testing.TB, c story.Client, tool string, args map[string]any) *story.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.Call(ctx, tool, args)
	require.NoError(t, err, "%s %v", tool, args)
	return r
}

// sh runs a shell line in the sandbox and returns stdout; it must exit 0.
func sh(t testing.TB, c story.Client, line string) string {
	t.Helper()
	r := call(t, c, "shell_run", map[string]any{"command": line})
	require.Equal(t, "0", r.Str("exit_code"), "%s: %s", line, r.Text)
	return r.Str("stdout.text")
}

// requireError requires a typed failure that names the next step.
func requireError(t testing.TB, r *story.Reply, code string) {
	t.Helper()
	require.True(t, r.IsError, "expected %s, got: %s", code, r.Text)
	require.Equal(t, code, r.Str("error.code"), r.Text)
	require.NotEmpty(t, r.Str("error.message"))
	if code != "internal" && code != "canceled" {
		assert.NotEmpty(t, r.Str("error.hint"), "%s has no next step: %s", code, r.Str("error.message"))
	}
	assert.Contains(t, r.Text, r.Str("error.message"), "the text form suffices alone")
}

// podman runs the engine's own command as this user.
func podman(t testing.TB, args ...string) string {
	t.Helper()
	out, err := tryPodman(args...)
	require.NoError(t, err)
	return out
}

func tryPodman(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "podman", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("podman %v: %w: %s", args, err, errs.String())
	}
	return string(out), nil
}

// requireNothingLeft requires that no container, volume, process, socket or
// runtime file carries the session's name.
func requireNothingLeft(t testing.TB, session string) {
	t.Helper()
	require.NotEmpty(t, session)
	var left string
	require.Eventually(t, func() bool {
		left = leftOf(t, session)
		return left == ""
	}, 15*time.Second, 100*time.Millisecond, "left of %s", session)
	require.Empty(t, left)
}

func leftOf(t testing.TB, session string) string {
	t.Helper()
	var left strings.Builder
	for kind, args := range map[string][]string{"container": {"ps", "-aq"}, "volume": {"volume", "ls", "-q"}} {
		out, err := tryPodman(append(args, "--filter", "label=pinfold.session="+session)...)
		if err != nil { // what it lists is going away under its eyes
			fmt.Fprintln(&left, err)
		}
		for _, id := range strings.Fields(out) {
			fmt.Fprintln(&left, kind, id)
		}
	}
	for pid, line := range processes(t) {
		if strings.Contains(line, session) {
			fmt.Fprintln(&left, "process", pid, line)
		}
	}
	_ = filepath.WalkDir(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "pinfold"), func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(filepath.Base(path), session) {
			fmt.Fprintln(&left, "file", path)
		}
		return nil // what went away while we looked is not left
	})
	return left.String()
}

// processes returns the command lines of all processes of this machine that we may read.
func processes(t testing.TB) map[int]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	all := map[int]string{}
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err == nil && len(b) > 0 && pid != os.Getpid() {
			all[pid] = strings.ReplaceAll(string(b), "\x00", " ")
		}
	}
	return all
}

// ended waits until the server is gone and requires that it took no longer than most.
func (s *server) ended(t testing.TB, most time.Duration) {
	t.Helper()
	select {
	case <-s.gone:
	case <-time.After(most):
		require.Fail(t, "still running", "after %v; stderr: %s", most, tail(s.stderr.String(), 3000))
	}
}

func (s *server) kill(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
}

// buffer is a bytes.Buffer for one writer and many readers.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func decode[T any](t testing.TB, s string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(s), &v), s)
	return v
}
