//go:build linux

// Package guesttest starts the real guest binary in namespaces of its own, for
// tests that need no container engine: as pid 1, with the capabilities, the
// identities and the folders that an engine would give it. It needs root.
package guesttest

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// FirstUID is the host's uid of root inside.
const FirstUID = 200000

// Guest is one running guest.
type Guest struct {
	*guest.Client
	Token string
	Cmd   *exec.Cmd
	Conn  net.Conn // the raw link, to cut it

	// Ready is the time from the start of the guest's program to its greeting;
	// it holds the making of the namespaces too.
	Ready time.Duration

	exited   chan struct{}
	stderr   *lockedBuffer
	listener net.Listener
}

// Options change what Start starts.
type Options struct {
	Config guest.Config // Version, Token and Isolation are filled in
	Env    []string     // of pid 1, as an image would set it
	// Uncontained leaves out the stand-in for the container's own system-call
	// filter.
	Uncontained bool
	ReadOnly    bool // read-only root
}

// Start starts a guest and greets it. It ends with the test.
func Start(t testing.TB, o Options) *Guest {
	t.Helper()
	g, err := start(t, o)
	require.NoError(t, err, "guest's log: %s", logOf(g))
	return g
}

// TryStart is Start for guests that are to be refused.
func TryStart(t testing.TB, o Options) (*Guest, error) {
	t.Helper()
	return start(t, o)
}

func logOf(g *Guest) string {
	if g == nil {
		return ""
	}
	return g.stderr.String()
}

func start(t testing.TB, o Options) (*Guest, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make namespaces; `make test` runs it so")
	}
	cfg := o.Config
	cfg.Version, cfg.Token, cfg.Isolation = guest.Version, rand.Text(), sandbox.IsolationContainer
	if cfg.Link == "" {
		cfg.Link = sandbox.LinkUnix
	}
	// Not t.TempDir, whose parent is closed to the uid of root inside.
	dir, err := os.MkdirTemp("", "pinfold-guesttest-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "root"), 0o755))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(link, 0o700))
	require.NoError(t, os.Chown(link, FirstUID, FirstUID))

	g := &Guest{Token: cfg.Token, exited: make(chan struct{}), stderr: &lockedBuffer{}}
	cmd := exec.Command("/proc/self/exe")
	args := []string{initArg, Binary(t), dir}
	if o.Uncontained {
		args = append(args, "uncontained")
	}
	if o.ReadOnly {
		args = append(args, "readonly")
	}
	cmd.Args = args
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, o.Env...)
	cmd.Stderr = g.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: FirstUID, Size: 65536}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: FirstUID, Size: 65536}},
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: 0, Gid: 0},
		Pdeathsig:                  syscall.SIGKILL,
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	g.Cmd = cmd

	var l net.Listener
	if cfg.Link == sandbox.LinkUnix {
		sock := filepath.Join(link, filepath.Base(sandbox.LinkSocket))
		l, err = net.Listen("unix", sock)
		require.NoError(t, err)
		require.NoError(t, os.Chown(sock, FirstUID, FirstUID))
		t.Cleanup(func() { _ = l.Close() })
	}
	began := time.Now()
	require.NoError(t, cmd.Start())
	go func() {
		// Not Wait: it would close the pipes under the link.
		_, _ = cmd.Process.Wait()
		close(g.exited)
		if l != nil {
			_ = l.Close()
		}
	}()
	t.Cleanup(func() {
		if g.Client != nil {
			_ = g.Close()
		}
		_ = cmd.Process.Kill()
		<-g.exited
		_ = stdin.Close()
		_ = stdout.Close()
	})
	if err := guest.WriteConfig(stdin, cfg); err != nil {
		return g, err
	}
	if l != nil {
		conn, err := l.Accept()
		if err != nil {
			return g, err
		}
		if cfg.KeepMS > 0 {
			g.listener = l
		} else {
			_ = l.Close()
		}
		g.Conn = conn
	} else {
		g.Conn = &pipeConn{Reader: stdout, Writer: stdin, close: func() { _ = stdin.Close(); _ = stdout.Close() }}
	}
	g.Client, err = g.connect()
	g.Ready = time.Since(began)
	return g, err
}

func (g *Guest) connect() (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return guest.Connect(ctx, g.Conn, guest.Expect{Token: g.Token, Isolation: sandbox.IsolationContainer})
}

// Redial waits for a guest that is to be kept to dial again.
func (g *Guest) Redial(t testing.TB) {
	t.Helper()
	_ = g.Close()
	conn, err := g.listener.Accept()
	require.NoError(t, err)
	_ = g.listener.Close() // once only
	g.Conn = conn
	g.Client, err = g.connect()
	require.NoError(t, err)
}

// Exited is closed once pid 1 ended, and with it everything inside.
func (g *Guest) Exited() <-chan struct{} { return g.exited }

// Log returns what the guest wrote to stderr.
func (g *Guest) Log() string { return g.stderr.String() }

// Binary builds the guest once for a test binary and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pinfold-guest-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "pinfold.dev/pinfold/cmd/pinfold-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", err
	}
	return path, os.Chmod(dir, 0o755)
})

var builtIn string

// Main is TestMain of packages that start guests: the test binary is also the
// program that prepares the namespaces.
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[0] == initArg {
		initMain(os.Args[1], os.Args[2], os.Args[3:])
	}
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pipeConn is the attach stream of pid 1's stdio.
type pipeConn struct {
	io.Reader
	io.Writer
	close func()
}

func (c *pipeConn) Close() error                     { c.close(); return nil }
func (c *pipeConn) LocalAddr() net.Addr              { return addr{} }
func (c *pipeConn) RemoteAddr() net.Addr             { return addr{} }
func (c *pipeConn) SetDeadline(time.Time) error      { return nil }
func (c *pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *pipeConn) SetWriteDeadline(time.Time) error { return nil }

type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "pipe" }
