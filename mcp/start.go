package mcp

import (
	"context"
	"errors"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/sandbox"
)

// startTry is one attempt to start the sandbox, shared by all who wait for it.
type startTry struct {
	cancel context.CancelFunc
	done   chan struct{}
	box    *Box
	err    error
}

// guest returns the connected guest, starting the sandbox when there is none. A
// start that failed is tried again by the next call.
func (s *session) guest(ctx context.Context, received time.Time) (Guest, error) {
	s.mu.Lock()
	switch {
	case s.state == "closing":
		s.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.NotFound, "Call session_open for a new session.", "session %s is closed", s.id)
	case s.state == "lost":
		err := s.lostError()
		s.mu.Unlock()
		return nil, err
	case s.box != nil:
		g := s.box.Guest
		s.mu.Unlock()
		return g, nil
	case s.try == nil:
		s.state = "creating"
		s.try = s.start()
	}
	try := s.try
	s.mu.Unlock()
	wait := time.NewTimer(max(0, softLimit-time.Since(received)))
	defer wait.Stop()
	select {
	case <-try.done:
		if try.err != nil {
			return nil, try.err
		}
		return try.box.Guest, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-wait.C:
		return nil, &sandbox.Error{Code: sandbox.Unavailable, Reason: "sandbox_starting", Retry: true,
			Message: "the sandbox is still starting", Hint: "Call again in a few seconds; the start goes on."}
	}
}

// start begins an attempt. The caller holds mu.
func (s *session) start() *startTry {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.base), startTimeout)
	try := &startTry{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(try.done)
		begun := time.Now()
		try.box, try.err = s.launch(ctx)
		e := audit.Event{Kind: audit.SandboxStart, Code: "ok", DurMS: time.Since(begun).Milliseconds()}
		if try.err != nil {
			e.Code, e.Message = string(sandbox.CodeOf(try.err)), try.err.Error()
		} else {
			e.Detail = audit.DetailOf(try.box.Sandbox.Info())
		}
		if err := s.journal.Append(ctx, e); err != nil && try.err == nil {
			// A sandbox that cannot be recorded does not run.
			try.err = journalError(err)
			remove(ctx, try.box)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.try = nil
		switch {
		case try.err != nil:
			s.why = try.err.Error()
			if s.state == "creating" {
				s.state = "new"
			}
		case s.state == "closing":
			s.box, s.info = try.box, try.box.Sandbox.Info() // whoever closes takes it from here
		default:
			s.state, s.box, s.why, s.info = "running", try.box, "", try.box.Sandbox.Info()
			go s.watch(try.box)
		}
	}()
	return try
}

func (s *session) launch(ctx context.Context) (*Box, error) {
	s.mu.Lock()
	spec := s.spec
	s.mu.Unlock()
	box, err := s.launcher.Launch(ctx, spec)
	if err == nil || errors.As(err, new(*sandbox.Error)) {
		return box, err
	}
	e := sandbox.Errorf(sandbox.Unavailable, "Ask the user to run `pinfold doctor`, which says what is wrong.", "the sandbox could not be started")
	e.Reason, e.Cause = "start_failed", err
	return nil, e
}

// watch ends what runs as soon as the sandbox is gone, so that no call waits
// for an answer that cannot come.
func (s *session) watch(box *Box) {
	select {
	case <-box.Sandbox.Done():
	case <-box.Guest.Done():
	}
	s.mu.Lock()
	if s.box != box || s.state != "running" {
		s.mu.Unlock()
		return
	}
	s.state, s.why, s.box = "lost", "the sandbox ended on its own", nil
	err := s.lostError()
	for _, c := range s.calls {
		c.cancel(err)
	}
	touched := s.touched
	browser := s.browser.take()
	settled := make(chan struct{})
	s.settled = settled
	s.mu.Unlock()
	s.background(func(ctx context.Context) {
		defer close(settled)
		_ = s.journal.Append(ctx, audit.Event{Kind: audit.SandboxLost, Message: "the sandbox ended on its own"})
		if browser != nil {
			_ = browser.Close()
		}
		_ = box.Guest.Close()
		if !touched {
			_ = box.Sandbox.Remove(ctx)
			return
		}
		// The workspace outlives its sandbox until someone closes the session.
		_ = box.Sandbox.Stop(ctx, sandbox.KeepWorkspace)
	})
}

// lostError is the answer of every call after the sandbox was lost. The caller
// holds mu.
func (s *session) lostError() *sandbox.Error {
	e := sandbox.Lost(nil)
	if s.touched {
		e.Hint = "Call session_open with session " + s.id + " to go on with its workspace in a fresh sandbox, or without it for a new session."
	}
	return e
}

// remove ends a box that no one has.
func remove(ctx context.Context, box *Box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = box.Guest.Close()
	_ = box.Sandbox.Remove(ctx)
}
