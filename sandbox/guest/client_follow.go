package guest

import (
	"context"
	"encoding/json"
	"io"
	"math"

	"pinfold.dev/pinfold/sandbox"
)

// Follow writes the bytes of one stream of a process to w as they are, from the
// first one on, and returns once the process has ended and all was written.
// With ExecRequest.Lossless a slow w holds the process back; without it, what a
// slow w misses is counted as dropped. An error of w is returned as it is.
func (c *Client) Follow(ctx context.Context, r sandbox.FollowRequest, w io.Writer) (sandbox.FollowResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var out sandbox.FollowResult
	sink := &followSink{w: w, broken: cancel}
	var raw json.RawMessage
	err := c.call(ctx, "follow", r, &raw, callOptions{sink: sink, maxBody: math.MaxInt64})
	if sink.err != nil {
		return out, sink.err
	}
	if err != nil {
		return out, err
	}
	return out, Decode(raw, &out)
}

// followSink ends the call when its writer fails, rather than the link.
type followSink struct {
	w      io.Writer
	broken context.CancelCauseFunc
	err    error
}

func (s *followSink) Write(p []byte) (int, error) {
	if s.err == nil {
		if _, s.err = s.w.Write(p); s.err != nil {
			s.broken(s.err)
		}
	}
	return len(p), nil
}
