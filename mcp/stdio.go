package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sys/unix"
)

// maxLine bounds one message on stdio; the official Go client sends no longer ones.
const maxLine = 16 << 20

// drainTime is how long calls may go on after stdin ended, so that piped input
// gets its answers. Hosts send SIGTERM two seconds after they close stdin.
const drainTime = 1500 * time.Millisecond

// errGone is the cause of calls that end because their client went away.
var errGone = fmt.Errorf("the client went away: %w", context.Canceled)

// ServeStdio serves one client until in ends, out breaks or ctx ends. Calls in
// flight get drainTime after in ended, then they are cancelled; it returns once
// all have ended. A client that went away in order is no error.
func (e *Edge) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// A notified SIGPIPE does not kill: a dead client shows as EPIPE, and what
	// runs can be ended in order. Ignoring it instead would be inherited by
	// every child.
	sigpipe := make(chan os.Signal, 1)
	signal.Notify(sigpipe, syscall.SIGPIPE)
	defer signal.Stop(sigpipe)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &lineWriter{w: out, broken: func(err error) { cancel(fmt.Errorf("writing to the client: %w", err)) }}
	c := newConn(e.mcp, e.log, e.newPeer("stdio"), peerStdio, w.writeLine)
	defer e.gone(c.peer)
	if err := e.mcp.RegisterSession(ctx, c.ses); err != nil {
		return fmt.Errorf("registering the client: %w", err)
	}
	defer e.mcp.UnregisterSession(context.WithoutCancel(ctx), c.ses.id)

	var side sync.WaitGroup
	defer side.Wait()
	done := make(chan struct{})
	defer close(done)
	forwardCtx, stopForward := context.WithCancel(context.WithoutCancel(ctx))
	defer stopForward()
	side.Go(func() { c.forward(forwardCtx) })
	if f, ok := out.(*os.File); ok {
		side.Go(func() {
			watchBroken(f, done, func() { cancel(fmt.Errorf("writing to the client: %w", syscall.EPIPE)) })
		})
	}

	// The reader may block for ever in Read when ctx ends first: then it is left
	// behind, with a process that is about to end.
	eof := make(chan error, 1)
	go func() { eof <- readLines(ctx, in, c) }()
	var err error
	select {
	case err = <-eof:
		c.drain(drainTime, ctx.Done())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.cancelAll(errGone)
	c.wg.Wait()
	if errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}

// drain waits for the calls in flight, for at most d.
func (c *conn) drain(d time.Duration, stop <-chan struct{}) {
	idle := make(chan struct{})
	go func() { c.wg.Wait(); close(idle) }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-stop:
	}
}

// readLines hands every line to the connection. A line that is too long is
// answered and skipped; blank ones are ignored.
func readLines(ctx context.Context, in io.Reader, c *conn) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	skipping := false
	for ctx.Err() == nil {
		part, err := r.ReadSlice('\n')
		if !skipping && len(line)+len(part) > maxLine {
			skipping = true
			line = nil
			c.write((&rpcError{code: mcp.INVALID_REQUEST, msg: fmt.Sprintf("the message is longer than %d bytes", maxLine)}).bytes())
		}
		if !skipping {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil || (errors.Is(err, io.EOF) && len(line) > 0):
			if !skipping && len(bytes.TrimSpace(line)) > 0 {
				c.handle(ctx, line)
			}
			line, skipping = nil, false
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the client: %w", err)
		}
	}
	return nil
}

// lineWriter writes whole lines. After the first error it takes nothing more.
type lineWriter struct {
	broken func(error)

	mu  sync.Mutex
	w   io.Writer
	err error
}

func (w *lineWriter) writeLine(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	_, err := w.w.Write(append(b, '\n'))
	if err != nil {
		w.err = err
		w.broken(err)
	}
	return err
}

// watchBroken calls broken once the reader of a pipe or socket is gone, which
// otherwise would show only at the next write.
func watchBroken(f *os.File, done <-chan struct{}, broken func()) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
		}
		gone := false
		err := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor fits
			n, err := unix.Poll(p, 0)
			gone = err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
		})
		if err != nil || gone {
			broken()
			return
		}
	}
}
