package mcp

import (
	"context"
	"errors"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

// keepIfChanged keeps the workspace only when something was written to it.
const keepIfChanged sandbox.Keep = "if_changed"

// errEnded is the cause when a session was ended by another beside.
var errEnded = errors.New("ended before")

// drainCalls bounds how long the end of a session waits for its calls.
const drainCalls = 2 * time.Second

// end ends a session: calls, browser, sandbox. except is the call that asked
// for it; then the journal is left open for its outcome, and the caller seals
// it.
func (s *Server) end(ctx context.Context, ses *session, keep sandbox.Keep, why, except string) (tools.SessionClosed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	ses.mu.Lock()
	if ses.state == "closing" {
		ended := ses.ended
		ses.mu.Unlock()
		select {
		case <-ended:
			e := sandbox.Errorf(sandbox.NotFound, "There is nothing to do.", "session %s is closed", ses.id)
			e.Cause = errEnded
			return tools.SessionClosed{}, e
		case <-ctx.Done():
			return tools.SessionClosed{}, ctx.Err()
		}
	}
	lost := ses.state == "lost"
	ses.state, ses.ended = "closing", make(chan struct{})
	defer close(ses.ended)
	cause := &sandbox.Error{Code: sandbox.Canceled, Reason: "session_closed", Message: "the session was closed: " + why, Hint: "Call session_open for a new session."}
	for id, c := range ses.calls {
		if id != except {
			c.cancel(cause)
		}
	}
	try, browser, settled := ses.try, ses.browser.take(), ses.settled
	ses.mu.Unlock()
	if try != nil {
		try.cancel()
		<-try.done
	}
	<-settled
	ses.waitCalls(ctx, except)
	if browser != nil {
		// Its profile is never kept, so nothing is worth Chromium's orderly end.
		if _, _, box, _ := ses.view(); box != nil {
			_ = box.Guest.KillUID(ctx, sandbox.BrowserUID)
		}
		if err := browser.Close(); err != nil {
			s.log.Debug("closing the browser", "session", ses.id, "err", err)
		}
	}
	kept, err := s.endBox(ctx, ses, keep, lost)
	if kept == nil && err == nil {
		s.unpark(ses.id)
	}
	s.mu.Lock()
	delete(s.sessions, ses.id)
	for peer, id := range s.defaults {
		if id == ses.id {
			delete(s.defaults, peer)
		}
	}
	s.mu.Unlock()
	ses.mu.Lock()
	sum := tools.SessionClosed{ID: ses.id, Kept: sandbox.KeepNothing, Calls: ses.served, Refusals: ses.refused, Journal: ses.journal.Path(),
		Seconds: int64(time.Since(ses.created).Seconds())}
	ses.mu.Unlock()
	if kept != nil {
		sum.Kept, sum.Until = sandbox.KeepWorkspace, kept.Until.UTC().Format(time.RFC3339)
	}
	s.log.Info("session closed", "session", ses.id, "kept", sum.Kept, "why", why, "err", err)
	if except == "" {
		ses.seal(ctx, why, sum)
	}
	return sum, err
}

// endBox stops or removes the sandbox and writes the record of a kept one.
func (s *Server) endBox(ctx context.Context, ses *session, keep sandbox.Keep, lost bool) (*parked, error) {
	ses.mu.Lock()
	box, touched, info, resumed, mode := ses.box, ses.touched, ses.info, ses.resumed, ses.spec.Workspace.Mode
	ses.box = nil
	ses.mu.Unlock()
	if box == nil {
		// A workspace is left of what was lost, and of what was parked before and
		// not started since.
		if left := resumed || (lost && touched); !left {
			return nil, nil
		}
		if keep == sandbox.KeepNothing {
			return nil, s.opt.Launcher.Discard(ctx, ses.id, info.ID)
		}
		return s.park(ses, info)
	}
	want := keep == sandbox.KeepWorkspace || (keep == keepIfChanged && touched && changed(ctx, box, mode))
	_ = box.Guest.Close()
	if !want {
		return nil, box.Sandbox.Remove(ctx)
	}
	if err := box.Sandbox.Stop(ctx, sandbox.KeepWorkspace); err != nil {
		return nil, err
	}
	return s.park(ses, info)
}

// changed decides cheaply whether a workspace holds anything that its start did
// not. In doubt it does.
func changed(ctx context.Context, box *Box, mode sandbox.WorkspaceMode) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if c, ok := box.Sandbox.(changer); ok {
		if yes, err := c.Changed(ctx); err == nil {
			return yes
		}
	}
	if mode != sandbox.WorkspaceVolume {
		return true
	}
	l, err := box.Guest.List(ctx, sandbox.ListRequest{Path: sandbox.WorkspaceDir, Depth: 1, Hidden: true, Ignore: "none", Limit: 1})
	return err != nil || len(l.Entries) > 0
}

// seal writes the last record and gives the journal up.
func (s *session) seal(ctx context.Context, why string, sum tools.SessionClosed) {
	_ = s.journal.Append(ctx, audit.Event{Kind: audit.SessionEnd, Message: why, Detail: audit.DetailOf(sum)})
	_ = s.journal.Close()
}

// waitCalls waits until no call but except runs.
func (s *session) waitCalls(ctx context.Context, except string) {
	t := time.NewTimer(drainCalls)
	defer t.Stop()
	for {
		s.mu.Lock()
		n := len(s.calls)
		if s.calls[except] != nil {
			n--
		}
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-s.drained:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
