//go:build linux

package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// Exit statuses of the guest.
const (
	exitEnded  = 0 // the host ended the session, or is gone
	exitConfig = 64
	exitLink   = 69
)

// redial is the pause between attempts to reach a host that is to come back.
const redial = 200 * time.Millisecond

// Main is the guest's whole life; it returns the exit status. build is the
// version of the binary.
func Main(build string) int {
	if os.Getpid() != 1 {
		// It ends every process that it sees when the host is lost.
		return fail(exitConfig, errors.New("this is the first process of a Pinfold sandbox and nothing else"))
	}
	// Few threads and little garbage: a session that idles should be small. Two
	// at least, since a start holds one until its program runs.
	runtime.GOMAXPROCS(min(4, max(2, runtime.NumCPU())))
	debug.SetGCPercent(50)
	report := Look(build)
	cfg, err := guest.ReadConfig(os.Stdin)
	if err != nil {
		return fail(exitConfig, err)
	}
	dial, err := transport(cfg)
	if err != nil {
		return fail(exitConfig, err)
	}
	if err := Setup(cfg, &report); err != nil {
		return fail(exitBroken, err)
	}
	s := New(cfg, report, os.Stderr)
	code := s.live(dial)
	s.End()
	return code
}

func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "pinfold-guest:", err)
	return code
}

// live serves the host until it is gone for good.
func (s *Server) live(dial func() (net.Conn, error)) int {
	keep := time.Duration(s.cfg.KeepMS) * time.Millisecond
	served := false
	var lost time.Time
	for {
		conn, err := dial()
		if err == nil {
			err = s.Serve(conn)
			served, lost = true, time.Now()
		}
		switch {
		case s.ctx.Err() != nil: // Shutdown
			return exitEnded
		case !served:
			s.log("%v", err)
			return exitLink
		case time.Since(lost) >= keep:
			return exitEnded
		}
		time.Sleep(redial)
	}
}

// transport is how the host is reached. With the stdio link the process's own
// stdin and stdout are taken away from everything else.
func transport(cfg guest.Config) (func() (net.Conn, error), error) {
	switch cfg.Link {
	case sandbox.LinkUnix:
		if err := nullStdio(); err != nil {
			return nil, err
		}
		return func() (net.Conn, error) { return net.Dial("unix", sandbox.LinkSocket) }, nil
	case sandbox.LinkStdio:
		if cfg.KeepMS > 0 {
			return nil, errors.New("keep_ms needs the socket: there is no second stdin to dial")
		}
		in, err := moveFD(0)
		if err != nil {
			return nil, err
		}
		out, err := moveFD(1)
		if err != nil {
			return nil, err
		}
		if err := nullStdio(); err != nil {
			return nil, err
		}
		conn := &stdioConn{r: in, w: out}
		used := false
		return func() (net.Conn, error) {
			if used {
				return nil, io.EOF
			}
			used = true
			return conn, nil
		}, nil
	}
	return nil, fmt.Errorf("the configuration names no transport of this guest: %q", cfg.Link)
}

// moveFD moves a descriptor out of the way of children, to one that works with
// deadlines.
func moveFD(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keeping the link: %w", err)
	}
	if err := unix.SetNonblock(n, true); err != nil {
		return nil, fmt.Errorf("keeping the link: %w", err)
	}
	return os.NewFile(uintptr(n), "link"), nil
}

// nullStdio puts /dev/null at stdin and stdout: nothing stands there for a
// child to find, and no later file gets their numbers.
func nullStdio() error {
	n, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/null: %w", err)
	}
	defer unix.Close(n)
	for fd := range 2 {
		if err := unix.Dup3(n, fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("closing stdin and stdout: %w", err)
		}
	}
	return nil
}

// stdioConn is the link over pid 1's own stdin and stdout.
type stdioConn struct{ r, w *os.File }

func (c *stdioConn) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c *stdioConn) Write(p []byte) (int, error) { return c.w.Write(p) }

func (c *stdioConn) Close() error {
	err := c.r.Close()
	if werr := c.w.Close(); err == nil {
		err = werr
	}
	return err
}

func (c *stdioConn) LocalAddr() net.Addr  { return stdioAddr{} }
func (c *stdioConn) RemoteAddr() net.Addr { return stdioAddr{} }

func (c *stdioConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
func (c *stdioConn) SetReadDeadline(t time.Time) error  { return c.r.SetReadDeadline(t) }
func (c *stdioConn) SetWriteDeadline(t time.Time) error { return c.w.SetWriteDeadline(t) }

type stdioAddr struct{}

func (stdioAddr) Network() string { return "stdio" }
func (stdioAddr) String() string  { return "stdio" }

// noStartTimer is set where the kernel does not clear timers at execve.
var noStartTimer bool
