package mcp

import (
	"context"
	"time"
)

// peerGone ends the sessions of a client that will not come back.
func (s *Server) peerGone(peer string) {
	s.mu.Lock()
	delete(s.defaults, peer)
	var mine []*session
	for _, ses := range s.sessions {
		if ses.peer == peer {
			mine = append(mine, ses)
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return // Close does it
	}
	for _, ses := range mine {
		s.background(func(ctx context.Context) { _, _ = s.end(ctx, ses, keepIfChanged, "the client went away", "") })
	}
}

// background runs f beside the calls; Close waits for it.
func (s *Server) background(f func(ctx context.Context)) {
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.base), endTimeout)
		defer cancel()
		f(ctx)
	})
}

// reapEvery is how often idle and old sessions are looked for.
const reapEvery = 30 * time.Second

func (s *Server) reap() {
	t := time.NewTicker(reapEvery)
	defer t.Stop()
	for {
		select {
		case <-s.base.Done():
			return
		case <-t.C:
			s.reapOnce(s.base, time.Now())
		}
	}
}

// reapOnce ends what is too old or unused.
func (s *Server) reapOnce(ctx context.Context, now time.Time) {
	s.mu.Lock()
	var all []*session
	for _, ses := range s.sessions {
		all = append(all, ses)
	}
	s.mu.Unlock()
	for _, ses := range all {
		if now.After(ses.deadline()) {
			_, _ = s.end(ctx, ses, keepIfChanged, "its longest lifetime is over", "")
		} else if ses.kind != peerStdio && ses.idleSince(ctx, now) > s.opt.Idle {
			_, _ = s.end(ctx, ses, keepIfChanged, "no one used it", "")
		}
	}
	s.expireParked(ctx, now)
}
