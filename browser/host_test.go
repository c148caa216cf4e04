package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// localHost runs Chromium on this machine as a plain user, so that its own
// sandbox is on as in the real place.
type localHost struct {
	dir   string
	uid   int
	mu    sync.Mutex
	procs []*localProcess
	sids  map[string]bool // sessions of all that was started
	ports []int
	// argv0 replaces the launch script's PATH search in fault tests.
	env []string
}

type localProcess struct {
	io.Reader
	io.Writer
	cmd    *exec.Cmd
	stderr lockedTail
	close  []io.Closer
	once   sync.Once
	done   chan struct{}
}

type lockedTail struct {
	mu sync.Mutex
	b  []byte
}

func (l *lockedTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if len(l.b) > 4096 {
		l.b = l.b[len(l.b)-4096:]
	}
	return len(p), nil
}

func (p *localProcess) Stderr() string {
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	return string(p.stderr.b)
}

func (p *localProcess) Close() error {
	p.once.Do(func() {
		for _, c := range p.close {
			c.Close()
		}
	})
	return nil
}

func newLocalHost(t testing.TB) *localHost {
	if _, err := exec.LookPath("chromium-headless-shell"); err != nil {
		if _, err := exec.LookPath("chromium"); err != nil {
			t.Skip("no Chromium on this machine: make setup installs it")
		}
	}
	dir, err := os.MkdirTemp("", "pinfold-browser")
	require.NoError(t, err)
	h := &localHost{dir: dir, uid: os.Getuid()}
	if h.uid == 0 {
		h.uid = 65534 // as root Chromium would ask for its sandbox to be off
	}
	for _, d := range []string{"home", "workspace", "workspace/downloads", "session"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(dir, "home"), h.uid, h.uid))
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	return h
}

func (h *localHost) options() Options {
	return Options{Home: filepath.Join(h.dir, "home"), Workspace: filepath.Join(h.dir, "workspace")}
}

func (h *localHost) Launch(_ context.Context, argv, env []string) (Process, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	if h.env != nil {
		cmd.Env = h.env
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.uid)}
	}
	p := &localProcess{Reader: outR, Writer: inW, cmd: cmd, close: []io.Closer{inW, outR}, done: make(chan struct{})}
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	inR.Close()
	outW.Close()
	go func() { _ = cmd.Wait(); close(p.done) }()
	h.mu.Lock()
	h.procs = append(h.procs, p)
	if h.sids == nil {
		h.sids = map[string]bool{}
	}
	h.sids[strconv.Itoa(cmd.Process.Pid)] = true
	h.mu.Unlock()
	return p, nil
}

// Kill ends the process groups that this host started.
func (h *localHost) Kill(ctx context.Context) error {
	h.mu.Lock()
	procs := h.procs
	h.procs = nil
	h.mu.Unlock()
	for _, p := range procs {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (h *localHost) Import(_ context.Context, from, name string) (string, int64, error) {
	for i := range 100 {
		to := filepath.Join("downloads", name)
		if i > 0 {
			ext := filepath.Ext(name)
			to = filepath.Join("downloads", fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), i, ext))
		}
		full := filepath.Join(h.dir, "workspace", to)
		if _, err := os.Lstat(full); err == nil {
			continue
		}
		if err := os.Rename(from, full); err != nil {
			return "", 0, err
		}
		st, err := os.Stat(full)
		return to, st.Size(), err
	}
	return "", 0, errors.New("no free name")
}

func (h *localHost) Export(_ context.Context, name string) (string, int64, error) {
	root, err := os.OpenRoot(filepath.Join(h.dir, "workspace"))
	if err != nil {
		return "", 0, err
	}
	defer root.Close()
	st, err := root.Stat(name)
	if err != nil || !st.Mode().IsRegular() {
		return "", 0, fail("file_missing", "Look with file_list.", "%s is no file in the workspace", name)
	}
	full := filepath.Join(h.dir, "workspace", name)
	return full, st.Size(), os.Chmod(full, 0o644)
}

func (h *localHost) Save(_ context.Context, name string, data []byte) (string, error) {
	full := filepath.Join(h.dir, "session", name)
	return full, os.WriteFile(full, data, 0o644)
}

func (h *localHost) Listening(context.Context) ([]int, error) { return h.ports, nil }

// processes lists what runs in the sessions that this host started.
func (h *localHost) processes(t testing.TB) []string {
	out, err := exec.Command("ps", "-eo", "pid,sid,stat,args").Output()
	require.NoError(t, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	var mine []string
	for l := range strings.Lines(string(out)) {
		f := strings.Fields(l)
		if len(f) > 3 && h.sids[f[1]] && !strings.HasPrefix(f[2], "Z") {
			mine = append(mine, strings.TrimSpace(cut(l, 100)))
		}
	}
	return mine
}

// gone proves that no process is left; the kernel takes a moment to end one
// that was killed.
func (h *localHost) gone(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return len(h.processes(t)) == 0 }, 5*time.Second, 10*time.Millisecond, "processes of the browser are left")
}

// shared is one browser for all tests that leave it whole.
var shared struct {
	once sync.Once
	b    *Browser
	h    *localHost
	mu   sync.Mutex
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.b != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := shared.b.Close(ctx); err != nil {
			fmt.Println("closing the shared browser:", err)
			code = 1
		}
		cancel()
		os.RemoveAll(shared.h.dir)
	}
	fixtures.close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// use gives the test the shared browser for itself, in a new tab.
func use(t *testing.T) (*Browser, *localHost) {
	t.Helper()
	shared.mu.Lock()
	t.Cleanup(shared.mu.Unlock)
	shared.once.Do(func() {
		shared.h = newLocalHost(t)
		shared.b = New(shared.h, shared.h.options())
	})
	if shared.b == nil {
		t.Skip("no Chromium on this machine: make setup installs it")
	}
	return shared.b, shared.h
}

// fresh gives the test a browser of its own and proves that nothing is left.
func fresh(t *testing.T) (*Browser, *localHost) {
	t.Helper()
	h := newLocalHost(t)
	b := New(h, h.options())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, b.Close(ctx))
		h.gone(t)
		require.NoError(t, os.RemoveAll(h.dir))
	})
	return b, h
}

// ctx is the context of one call, as long as a call may last.
func callCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, b *Browser, url string) NavigateResult {
	t.Helper()
	r, err := b.Navigate(callCtx(t), NavigateRequest{URL: url})
	require.NoError(t, err)
	return r
}
