package podman

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"

	"pinfold.dev/pinfold/sandbox"
)

// serviceStart bounds the start of our own service. A cold one takes 0.2 s, but
// it waits for whoever holds the storage: the import of a big image, say.
const serviceStart = 2 * time.Minute

// ctxMutex is a lock that a caller stops waiting for when its context ends.
// The zero value is unlocked.
type ctxMutex struct {
	once sync.Once
	c    chan struct{}
}

func (m *ctxMutex) lock(ctx context.Context) error {
	m.once.Do(func() { m.c = make(chan struct{}, 1) })
	select {
	case m.c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *ctxMutex) unlock() { <-m.c }

// service is the way to Podman: a service that someone runs, or a child of
// ours that is started when first needed and again when it died.
type service struct {
	podman  string // program; may be empty with a foreign service
	missing error  // why there is none, when it is needed
	host    string // address of a foreign service
	socket  string // path of the socket
	env     []string
	log     *slog.Logger

	creating ctxMutex // one container is made at a time, see alone

	mu     ctxMutex
	conn   context.Context // carries the bindings' connection
	exited chan struct{}   // closed when the child ended; nil with a foreign service
	proc   *os.Process
	closed bool
}

// alone runs one f at a time, whichever callers there are. Podman looks up the
// user's subordinate ids for each container it makes, with a C library that is
// not made for threads: of ten containers made at once some were refused with
// "nomap requires additional UIDs or GIDs".
func (s *service) alone(ctx context.Context, f func() error) error {
	if err := s.creating.lock(ctx); err != nil {
		return fromContext(err)
	}
	defer s.creating.unlock()
	return f()
}

// call returns a context for one call of the bindings: ctx with a connection
// to a service that was alive a moment ago.
func (s *service) call(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, fromContext(err)
	}
	if err := s.mu.lock(ctx); err != nil {
		return nil, fromContext(err)
	}
	defer s.mu.unlock()
	if s.closed {
		return nil, sandbox.Errorf(sandbox.Unavailable, "Start the server again.", "the engine is closed")
	}
	if s.conn != nil && s.exited != nil {
		select {
		case <-s.exited:
			s.log.Warn("podman service ended; starting it again", "socket", s.socket)
			s.drop()
		default:
		}
	}
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	return connected{ctx, s.conn}, nil
}

// connected is a caller's context that also carries the connection.
type connected struct {
	context.Context
	conn context.Context
}

func (c connected) Value(key any) any {
	if v := c.conn.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// connect starts the service if it is ours, and says hello.
func (s *service) connect(ctx context.Context) error {
	if s.host == "" {
		if err := s.spawn(ctx); err != nil {
			return err
		}
	}
	conn, err := bindings.NewConnection(context.WithoutCancel(ctx), "unix://"+s.socket)
	if err != nil {
		s.drop()
		return s.gone(err)
	}
	s.conn = conn
	return nil
}

// gone is the error of a call whose service is not there.
func (s *service) gone(cause error) *sandbox.Error {
	hint := "Call again: the service is started anew. If it keeps failing, run `pinfold doctor`."
	if s.host != "" {
		hint = "Start it again (`systemctl --user start podman.socket`), or unset CONTAINER_HOST so that a service of our own is used; then call again."
	}
	e := sandbox.Errorf(sandbox.Unavailable, hint, "the Podman service at %s does not answer", s.socket)
	e.Reason, e.Cause = "podman_gone", cause
	return e
}

// drop forgets the connection, so that the next call makes a new one.
func (s *service) drop() {
	if s.conn != nil {
		if c, err := bindings.GetClient(s.conn); err == nil {
			if t, ok := c.Client.Transport.(*http.Transport); ok {
				t.CloseIdleConnections()
			}
		}
	}
	s.conn = nil
}

// lost drops the connection when err says that the service is gone.
func (s *service) lost(err error) bool {
	if !unreachable(err) {
		return false
	}
	_ = s.mu.lock(context.Background())
	defer s.mu.unlock()
	s.drop()
	return true
}

// dial opens a raw stream to the service.
func (s *service) dial(ctx context.Context) (*net.UnixConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return nil, s.gone(err)
	}
	return c.(*net.UnixConn), nil
}

// spawn starts our own service and waits until its socket answers.
func (s *service) spawn(ctx context.Context) error {
	if s.missing != nil {
		return s.missing
	}
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	// With a pause process in place the service is one process; without it,
	// Podman forks into its namespace and the signal of our death reaches only
	// the outer half.
	if err := s.run(ctx, "unshare", "true"); err != nil {
		return err
	}
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing stale socket: %w", err)
	}
	logs := &tail{max: 16 << 10}
	cmd := exec.Command(s.podman, "system", "service", "--time", "0", "unix://"+s.socket)
	cmd.Env, cmd.Stderr, cmd.Dir = s.env, logs, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The signal follows the thread that forked, not the process: it stays
		// locked to this goroutine for as long as the service lives.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return podmanMissing(s.podman, err)
	}
	s.proc, s.exited = cmd.Process, exited
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", s.socket); err == nil {
			c.Close()
			return nil
		}
		select {
		case <-exited:
			return hostError(errors.New(lastLine(logs.String())), s.gone(errors.New(logs.String())))
		case <-ctx.Done():
			s.kill()
			return s.gone(fmt.Errorf("starting: %w: %s", ctx.Err(), logs.String()))
		case <-tick.C:
		}
	}
}

// run runs one podman command of ours and waits for it.
func (s *service) run(ctx context.Context, args ...string) error {
	var out tail
	out.max = 16 << 10
	cmd := exec.CommandContext(ctx, s.podman, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = s.env, &out, &out, "/"
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fromContext(ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return podmanMissing(s.podman, err)
	}
	e := sandbox.Errorf(sandbox.FailedPrecondition, "Run that command by hand, which says more; `pinfold doctor` tries its parts.", "`podman %s` does not work here: %s", strings.Join(args, " "), lastLine(out.String()))
	e.Reason, e.Cause = "podman_broken", errors.New(out.String())
	return hostError(errors.New(out.String()), e)
}

// kill ends our own service and waits for its end.
func (s *service) kill() {
	if s.exited == nil {
		return
	}
	select {
	case <-s.exited:
		return
	default:
	}
	_ = s.proc.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(2 * time.Second):
		_ = s.proc.Kill()
		<-s.exited
	}
}

// close ends the connection, and the service when it is ours.
func (s *service) close() {
	_ = s.mu.lock(context.Background())
	defer s.mu.unlock()
	s.closed = true
	s.drop()
	s.kill()
	if s.host == "" {
		_ = os.Remove(s.socket)
	}
}

// serviceEnv is the whole environment of Podman's processes: what it needs to
// find its storage and nothing that could be a credential.
func serviceEnv(conf string) []string {
	home, _ := os.UserHomeDir()
	env := []string{
		"HOME=" + home,
		"PATH=" + searchPath(),
		"LANG=C.UTF-8",
		"CONTAINERS_CONF=" + conf,
	}
	for _, name := range []string{
		"USER", "LOGNAME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TMPDIR",
		"CONTAINERS_STORAGE_CONF", "STORAGE_DRIVER", "STORAGE_OPTS", "DBUS_SESSION_BUS_ADDRESS",
		"CONTAINERS_REGISTRIES_CONF",
	} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if driver := storageDriver(); driver != "" {
		env = append(env, "STORAGE_DRIVER="+driver)
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run == "" {
		// Programs started by a desktop get no such variable, though the folder is there.
		if d := fmt.Sprintf("/run/user/%d", os.Getuid()); isDir(d) {
			run = d
		}
	}
	if run != "" {
		env = append(env, "XDG_RUNTIME_DIR="+run)
		if bus := filepath.Join(run, "bus"); os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" && exists(bus) {
			env = append(env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+bus)
		}
	}
	return env
}

// searchPath is PATH with the folders of system programs, where Debian keeps
// runc and which a plain user's PATH lacks.
func searchPath() string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			path += ":" + dir
		}
	}
	return path
}
