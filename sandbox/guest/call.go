package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of calls on the host.
const (
	maxIdle     = 16              // streams kept for the next call
	cancelGrace = 4 * time.Second // for the guest to end a cancelled call's processes and say so
	maxEvents   = 100_000         // of one call
)

// callStream is one stream with its reader, used by one call at a time.
type callStream struct {
	*yamux.Stream
	r  *bufio.Reader
	mu sync.Mutex // guards whole frames: the cancel is written beside the body
}

// callOptions are the parts of a call beside its arguments and result.
type callOptions struct {
	body    io.Reader                   // sent after the request; nil for none
	event   func(json.RawMessage) error // each event; nil drops them
	sink    io.Writer                   // takes the answer's body; nil refuses one; an error of it ends the link
	maxBody int64                       // bound of the answer's body
}

// call makes one call: args out, the result into result (nil for none). When
// ctx ends, the guest is told and has cancelGrace to answer; a result that it
// gives then is decoded too, and the error is of ctx.
func (c *Client) call(ctx context.Context, op string, args, result any, o callOptions) error {
	if err := ctx.Err(); err != nil {
		return canceled(ctx)
	}
	s, err := c.stream()
	if err != nil {
		return sandbox.Lost(err)
	}
	clean := false
	defer func() { c.release(s, clean) }()

	raw, err := json.Marshal(args)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "", "writing the request: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { s.cancel() })
	err = c.exchange(s, Request{Op: op, Args: raw, Body: o.body != nil}, result, o)
	undisturbed := stop()
	var e *sandbox.Error
	answered := err == nil || errors.As(err, &e)
	clean = undisturbed && answered
	switch {
	case !undisturbed: // ctx ended first
		return canceled(ctx)
	case answered:
		return err
	default:
		// The guest broke the protocol, or the link is gone: either way this
		// sandbox is of no more use.
		if !c.link.IsClosed() && !errors.Is(err, yamux.ErrStreamClosed) && !errors.Is(err, yamux.ErrConnectionReset) {
			_ = c.link.Close()
		}
		return sandbox.Lost(fmt.Errorf("calling %s: %w", op, err))
	}
}

func (c *Client) exchange(s *callStream, r Request, result any, o callOptions) error {
	if err := s.write(FrameRequest, r); err != nil {
		return err
	}
	var sent error
	if o.body != nil {
		sent = s.sendBody(o.body)
	}
	events, left := 0, o.maxBody
	for {
		t, b, err := ReadFrame(s.r, MaxMessage)
		if err != nil {
			return err
		}
		switch t {
		case FrameEvent:
			if events++; events > maxEvents {
				return fmt.Errorf("%w: more than %d events", ErrFrame, maxEvents)
			}
			if o.event == nil {
				continue
			}
			if err := o.event(b); err != nil {
				return fmt.Errorf("%w: event: %w", ErrFrame, err)
			}
		case FrameData:
			if left -= int64(len(b)); left < 0 || o.sink == nil {
				return fmt.Errorf("%w: more data than was asked for", ErrFrame)
			}
			if _, err := o.sink.Write(b); err != nil {
				return err
			}
		case FrameResult:
			if sent != nil {
				return sandbox.Errorf(sandbox.Internal, "", "reading what was to be sent: %v", sent)
			}
			if result == nil {
				return nil
			}
			if err := Decode(b, result); err != nil {
				return fmt.Errorf("%w: result: %w", ErrFrame, err)
			}
			return nil
		case FrameError:
			return decodeError(b)
		default:
			return fmt.Errorf("%w: %q from the guest", ErrFrame, t)
		}
	}
}

// decodeError reads the guest's error. Its texts reach a model, so they are cut.
func decodeError(b []byte) error {
	e := &sandbox.Error{}
	if err := Decode(b, e); err != nil || e.Code == "" {
		return fmt.Errorf("%w: error: %w", ErrFrame, err)
	}
	const most = 8 << 10
	e.Message, e.Hint, e.Reason = cut(e.Message, most), cut(e.Hint, most), cut(e.Reason, 100)
	return e
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

func (s *callStream) write(t FrameType, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return WriteMessage(s.Stream, t, v)
}

// sendBody sends r whole. What it returns is the reader's error, after which
// the guest sees a body cut short; a link error shows when the answer is read.
func (s *callStream) sendBody(r io.Reader) error {
	buf := make([]byte, MaxData)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			s.mu.Lock()
			werr := WriteFrame(s.Stream, FrameData, buf[:n])
			s.mu.Unlock()
			if werr != nil {
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			s.mu.Lock()
			_ = WriteFrame(s.Stream, FrameEnd, nil)
			s.mu.Unlock()
			return nil
		case err != nil:
			s.cancel()
			return err
		}
	}
}

// cancel tells the guest to give up and bounds the wait for what it answers.
func (s *callStream) cancel() {
	deadline := time.Now().Add(cancelGrace)
	_ = s.SetDeadline(deadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = WriteFrame(s.Stream, FrameCancel, nil)
}

// stream takes an idle stream or opens one.
func (c *Client) stream() (*callStream, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return s, nil
	}
	c.mu.Unlock()
	s, err := c.link.OpenStream()
	if err != nil {
		return nil, err
	}
	return &callStream{Stream: s, r: bufio.NewReaderSize(s, 4096)}, nil
}

// release keeps a stream on which a call ended cleanly, and closes others.
func (c *Client) release(s *callStream, clean bool) {
	if clean && !c.link.IsClosed() {
		c.mu.Lock()
		if len(c.idle) < maxIdle {
			c.idle = append(c.idle, s)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
	_ = s.Close()
}

// canceled words the end of ctx.
func canceled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &sandbox.Error{Code: sandbox.DeadlineExceeded, Retry: true, Cause: ctx.Err(),
			Message: "the call did not end in its time", Hint: "Run it in the background, or raise timeout_ms."}
	}
	return &sandbox.Error{Code: sandbox.Canceled, Retry: true, Cause: ctx.Err(), Message: "the call was cancelled"}
}
