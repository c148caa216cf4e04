//go:build linux

package server

import (
	"context"
	"encoding/json"

	"pinfold.dev/pinfold/sandbox"
)

// backlogMost is how far a lossless stream runs ahead of its reader before the
// command has to wait. The ring and what the pipe holds beyond it never
// overflow, so no byte is lost.
const backlogMost = tailMax / 2

// handleFollow sends the bytes of one stream as they are, from its beginning,
// until the command has ended and all was sent.
func handleFollow(ctx context.Context, s *Server, args json.RawMessage, st *stream) (any, error) {
	r, err := decode[sandbox.FollowRequest](args)
	if err != nil {
		return nil, err
	}
	p, err := s.procs.get(r.Process)
	if err != nil {
		return nil, err
	}
	which, err := streamOf(r.Stream)
	if err != nil {
		return nil, err
	}
	if which == both {
		return nil, field("stream", "stdout or stderr.", "one stream is followed at a time")
	}
	buf := make([]byte, 0, 64<<10)
	var out sandbox.FollowResult
	for ctx.Err() == nil {
		p.mu.Lock()
		b, from := p.out.rings[which].read(buf[:0], out.Bytes+out.Dropped, cap(buf))
		out.Dropped = from - out.Bytes
		p.taken[which] = from + int64(len(b))
		p.wakeTakenLocked()
		over, wake := p.status != sandbox.Running, p.changedLocked()
		out.Status, out.ExitCode, out.Signal = p.status, p.code, p.signal
		p.mu.Unlock()
		switch {
		case len(b) > 0:
			if _, err := st.Write(b); err != nil {
				return nil, err
			}
			out.Bytes += int64(len(b))
		case over:
			return out, nil
		default:
			select {
			case <-wake:
			case <-ctx.Done():
			}
		}
	}
	return nil, ctx.Err()
}

// throttle holds the reader of a lossless stream back until its follower has
// caught up. Once the leader has ended, what the pipe still holds fits.
func (p *process) throttle(stream uint8) {
	for {
		p.mu.Lock()
		if p.out.rings[stream].total-p.taken[stream] < backlogMost {
			p.mu.Unlock()
			return
		}
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-p.child.done:
			return
		}
	}
}

// wakeTakenLocked tells waiting readers that a follower took something. The
// caller holds mu.
func (p *process) wakeTakenLocked() {
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
}
