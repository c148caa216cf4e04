//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// stream is one stream of the link, as a handler sees it: the body of its
// request, its events and the body of its answer. Its methods are for the
// handler's goroutine, Event for any.
type stream struct {
	conn net.Conn
	r    *bufio.Reader

	mu     sync.Mutex // guards writes of whole frames
	body   bool       // the request's body was not read to its end yet
	bodyOK chan struct{}
	taken  bool        // the stream has become a plain connection
	keep   func() bool // the end of the stream is no cancel
}

// maxRequest bounds one request of the host, maxDrain a body that no one wants.
const (
	maxRequest = guest.MaxMessage
	maxDrain   = 1 << 30
)

// serve answers the requests of one stream, one after the other, until the
// host closes it. While a handler runs it watches for a cancel, or for the end
// of the stream, which is the same.
func (s *Server) serve(conn net.Conn, lost func() bool) {
	defer conn.Close()
	st := &stream{conn: conn, r: bufio.NewReaderSize(conn, 4096)}
	// When the link is lost but the session is to be kept, calls go on.
	st.keep = func() bool { return s.cfg.KeepMS > 0 && lost() && s.ctx.Err() == nil }
	for s.serveOne(st) {
	}
}

// serveOne answers one request and reports whether the stream can take another.
func (s *Server) serveOne(st *stream) bool {
	t, b, err := guest.ReadFrame(st.r, maxRequest)
	if err != nil {
		return false
	}
	if t == guest.FrameCancel {
		return true // came after the answer went out
	}
	var r guest.Request
	if t != guest.FrameRequest || guest.Decode(b, &r) != nil {
		st.fail(sandbox.Errorf(sandbox.InvalidArgument, "", "expected a request"))
		return false
	}
	h := s.handlers[r.Op]
	if h == nil {
		st.fail(sandbox.Errorf(sandbox.FailedPrecondition, "Open a new session: this one runs an older guest.", "this sandbox's guest does not know %q", r.Op))
		return !r.Body
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	st.body, st.bodyOK, st.taken = r.Body, make(chan struct{}), false
	if r.Op == opForward { // becomes a byte stream: no one else may read it
		st.answer(h(ctx, s, r.Args, st))
		return false
	}
	ended := make(chan struct{})
	s.wg.Go(func() {
		defer close(ended)
		st.answer(s.protect(h, ctx, r.Args, st))
	})
	return st.watch(cancel, ended)
}

// protect turns a panic of a handler into an error: it is our fault, and no
// reason to end the session.
func (s *Server) protect(h handler, ctx context.Context, args json.RawMessage, st *stream) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log("panic in a handler: %v", p)
			v, err = nil, sandbox.Errorf(sandbox.Internal, "", "the guest failed to do this")
		}
	}()
	return h(ctx, s, args, st)
}

// watch reads on while a handler runs. The host sends nothing but a cancel
// until it has the answer, so the next request is left to serveOne: watch
// peeks, and takes only what belongs to this call.
func (st *stream) watch(cancel context.CancelFunc, ended chan struct{}) bool {
	if st.body {
		select {
		case <-st.bodyOK: // the handler reads the body itself
		case <-ended:
			if st.body { // and did not: take what is on its way, so that the host gets to the answer
				if _, err := io.Copy(io.Discard, st.Body(maxDrain)); err != nil {
					return false
				}
			}
		}
	}
	for {
		head, err := st.r.Peek(1)
		if err != nil {
			if !st.keep() {
				cancel()
			}
			<-ended
			return false
		}
		if guest.FrameType(head[0]) != guest.FrameCancel {
			<-ended
			return true
		}
		if _, _, err := guest.ReadFrame(st.r, 0); err != nil {
			cancel()
			<-ended
			return false
		}
		cancel()
	}
}

// Body returns the body of the request, of at most limit bytes. It must be read
// to its end, or the stream is given up after the answer.
func (st *stream) Body(limit int64) io.Reader { return &bodyReader{st: st, left: limit} }

type bodyReader struct {
	st   *stream
	left int64
	cur  []byte
}

func (b *bodyReader) Read(p []byte) (int, error) {
	for len(b.cur) == 0 {
		if !b.st.body {
			return 0, io.EOF
		}
		t, data, err := guest.ReadFrame(b.st.r, guest.MaxData)
		switch {
		case err != nil:
			return 0, fmt.Errorf("reading the body: %w", err)
		case t == guest.FrameCancel:
			return 0, sandbox.Errorf(sandbox.Canceled, "", "the call was cancelled while its body came in")
		case t == guest.FrameEnd:
			b.st.body = false
			close(b.st.bodyOK)
			return 0, io.EOF
		case t != guest.FrameData:
			return 0, fmt.Errorf("%w: %q in a body", guest.ErrFrame, t)
		}
		if b.left -= int64(len(data)); b.left < 0 {
			return 0, sandbox.Errorf(sandbox.ResourceExhausted, "Send it in parts.", "the body is larger than this call takes")
		}
		b.cur = data
	}
	n := copy(p, b.cur)
	b.cur = b.cur[n:]
	return n, nil
}

// Write sends a piece of the answer's body; before the result.
func (st *stream) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		m := min(len(p)-n, guest.MaxData)
		st.mu.Lock()
		err := guest.WriteFrame(st.conn, guest.FrameData, p[n:n+m])
		st.mu.Unlock()
		if err != nil {
			return n, err
		}
		n += m
	}
	return len(p), nil
}

// Event sends v to the waiting host.
func (st *stream) Event(v any) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return guest.WriteMessage(st.conn, guest.FrameEvent, v)
}

func (st *stream) answer(v any, err error) {
	if err != nil {
		st.fail(err)
		return
	}
	if st.taken {
		return
	}
	if v == nil {
		v = struct{}{}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := guest.WriteMessage(st.conn, guest.FrameResult, v); errors.Is(err, guest.ErrFrame) {
		_ = guest.WriteMessage(st.conn, guest.FrameError, sandbox.Errorf(sandbox.ResourceExhausted, "Ask for less at a time.", "the answer is larger than the link takes"))
	}
}

// fail sends err; what has no type of ours keeps its text, which stays between
// guest and host's log.
func (st *stream) fail(err error) {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		switch {
		case errors.Is(err, context.Canceled):
			e = sandbox.Errorf(sandbox.Canceled, "", "the call was cancelled")
		default:
			e = sandbox.Errorf(sandbox.Internal, "", "the guest failed: %v", err)
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = guest.WriteMessage(st.conn, guest.FrameError, e)
}
