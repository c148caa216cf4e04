package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox"
)

// The control socket is how the verbs of the same user reach a running server.
// A connection carries one request; all messages are frames of a type byte, a
// length and a body.

const (
	frameRequest = 'q' // controlRequest
	frameReply   = 'a' // controlReply, the last frame but for attach
	frameData    = 'd' // terminal bytes, both ways
	frameSize    = 'r' // sandbox.TermSize, from the terminal
	frameEnd     = 'e' // attachEnd, the last frame of an attach

	maxFrame        = 1 << 20          // a list of sessions is a few kilobytes
	controlPatience = 10 * time.Second // for a request to arrive and a short answer to leave
	maxControl      = 32               // connections at a time
)

type controlRequest struct {
	Op      string           `json:"op"` // sessions, attach, close
	Session string           `json:"session,omitempty"`
	Size    sandbox.TermSize `json:"size,omitzero"`
	Keep    sandbox.Keep     `json:"keep,omitempty"`
}

type controlReply struct {
	Server   serverInfo        `json:"server"`
	Sessions []mcp.SessionInfo `json:"sessions,omitempty"`
	Error    *controlError     `json:"error,omitempty"`
}

// serverInfo is what a server says of itself.
type serverInfo struct {
	ID        string    `json:"id"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Transport string    `json:"transport"` // stdio or the address
	Started   time.Time `json:"started"`
}

type controlError struct {
	Code    sandbox.Code `json:"code"`
	Message string       `json:"message"`
	Hint    string       `json:"hint,omitempty"`
}

type attachEnd struct {
	ExitCode int           `json:"exit_code"`
	Error    *controlError `json:"error,omitempty"`
}

func toControlError(err error) *controlError {
	if err == nil {
		return nil
	}
	what, next := explain(err)
	return &controlError{Code: codeOf(err), Message: what, Hint: next}
}

func (e *controlError) failure() error {
	if e == nil {
		return nil
	}
	return &failure{what: e.Message, next: e.Hint, code: exitFailure, cause: &sandbox.Error{Code: e.Code, Message: e.Message, Hint: e.Hint}}
}

// controlled is what the socket gives access to; *mcp.Server has it.
type controlled interface {
	Sessions(ctx context.Context) ([]mcp.SessionInfo, error)
	Attach(ctx context.Context, session string, size sandbox.TermSize, resize <-chan sandbox.TermSize, stream io.ReadWriter) (int, error)
	CloseSession(ctx context.Context, session string, keep sandbox.Keep) error
}

// control serves the socket of one server until Close.
type control struct {
	info   serverInfo
	target controlled
	log    *slog.Logger
	lis    *net.UnixListener
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}
}

func listenControl(path string, info serverInfo, target controlled, log *slog.Logger) (*control, error) {
	// The folder is 0700; the mode of the socket is set before anyone can dial.
	old := unix.Umask(0o177)
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &control{info: info, target: target, log: log, lis: lis, cancel: cancel, slots: make(chan struct{}, maxControl)}
	c.wg.Go(func() { c.accept(ctx) })
	return c, nil
}

// Close ends all connections and waits for them.
func (c *control) Close() {
	c.cancel()
	c.lis.Close()
	c.wg.Wait()
}

func (c *control) accept(ctx context.Context) {
	for {
		conn, err := c.lis.AcceptUnix()
		if err != nil {
			return
		}
		if err := samePeer(conn); err != nil {
			c.log.Warn("control connection refused", "why", err)
			conn.Close()
			continue
		}
		select {
		case c.slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		c.wg.Go(func() {
			defer func() { <-c.slots }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			if err := c.serve(ctx, conn); err != nil {
				c.log.Debug("control connection", "err", err)
			}
		})
	}
}

func (c *control) serve(ctx context.Context, conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(controlPatience))
	var q controlRequest
	if err := readMessage(conn, frameRequest, &q); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reply := controlReply{Server: c.info}
	var err error
	switch q.Op {
	case "sessions":
		reply.Sessions, err = c.target.Sessions(ctx)
	case "close":
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if err = c.target.CloseSession(ctx, q.Session, q.Keep); err == nil {
			// What is listed still is parked.
			reply.Sessions, err = c.target.Sessions(ctx)
		}
	case "attach":
		return c.attach(ctx, conn, q)
	default:
		err = sandbox.Errorf(sandbox.InvalidArgument, "Use the verbs of the same version of Pinfold as the server's.", "the server knows no request %q", q.Op)
	}
	reply.Error = toControlError(err)
	return writeMessage(conn, frameReply, reply)
}

// attach runs the session's terminal over the connection.
func (c *control) attach(ctx context.Context, conn net.Conn, q controlRequest) error {
	_ = conn.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, feed := io.Pipe()
	sizes := make(chan sandbox.TermSize, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		// The terminal's end is the end of the attach.
		defer cancel()
		defer feed.Close()
		for {
			t, body, err := readFrame(conn)
			if err != nil {
				return
			}
			switch t {
			case frameData:
				if _, err := feed.Write(body); err != nil {
					return
				}
			case frameSize:
				var s sandbox.TermSize
				if json.Unmarshal(body, &s) == nil {
					latest(sizes, s)
				}
			}
		}
	})
	out := &frameWriter{w: conn}
	code, err := c.target.Attach(ctx, q.Session, q.Size, sizes, struct {
		io.Reader
		io.Writer
	}{in, out})
	err = errors.Join(writeEnd(out, attachEnd{ExitCode: code, Error: toControlError(err)}))
	in.Close()
	_ = conn.SetReadDeadline(time.Now())
	wg.Wait()
	return err
}

// latest puts a size in a channel of one, over an older one.
func latest(c chan sandbox.TermSize, s sandbox.TermSize) {
	for {
		select {
		case c <- s:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

func writeEnd(w *frameWriter, e attachEnd) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return w.frame(frameEnd, b)
}

// samePeer refuses a connection whose other end is not this user.
func samePeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	return checkPeer(cred, os.Getuid())
}

func checkPeer(cred *unix.Ucred, uid int) error {
	if int(cred.Uid) != uid {
		return fmt.Errorf("the peer is uid %d, not %d", cred.Uid, uid)
	}
	return nil
}
