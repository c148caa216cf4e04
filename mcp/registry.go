package mcp

import (
	"context"
	"errors"
	"strings"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// keepIfChanged keeps the workspace only when something was written to it.
const keepIfChanged sandbox.Keep = "if_changed"

// errEnded is the cause when a session was ended by another beside.
var errEnded = errors.New("ended before")

// drainCalls bounds how long the end of a session waits for its calls.
const drainCalls = 2 * time.Second

// place finds the session of a call and the journal it is recorded in. A call
// that cannot run opens no session.
func (s *Server) place(ctx context.Context, c *call, handle string, malformed bool) error {
	own := func() error {
		if ses := s.defaultOf(c.origin.peer); ses != nil {
			c.journal = ses.journal
			return nil
		}
		var err error
		c.journal, err = s.ownJournal()
		return err
	}
	switch {
	case c.tool.Name == "session_open": // handle names what to resume; the call itself belongs to no session
		c.handle = handle
		return own()
	case handle != "":
		ses, err := s.find(ctx, handle, c.origin)
		if err != nil {
			return errors.Join(err, own())
		}
		c.session, c.journal = ses, ses.journal
		return nil
	}
	if ses := s.defaultOf(c.origin.peer); ses != nil {
		c.session, c.journal = ses, ses.journal
		return nil
	}
	if malformed {
		return own()
	}
	if c.tool.Name == "session_close" {
		return errors.Join(sandbox.Errorf(sandbox.NotFound, "There is nothing to do.", "no session is open here"), own())
	}
	spec, err := s.spec(s.opt.Templates[s.opt.Template], templates.Choice{Workspace: s.opt.Workspace})
	if err != nil {
		return errors.Join(err, own())
	}
	ses, err := s.mint(ctx, c.origin, s.opt.Templates[s.opt.Template], spec, "", true)
	if err != nil {
		return errors.Join(err, own())
	}
	c.session, c.journal, c.minted = ses, ses.journal, true
	return nil
}

// spec is what a template and a choice ask for, under a new session id.
func (s *Server) spec(t *templates.Template, c templates.Choice) (sandbox.Spec, error) {
	spec, err := t.Spec(newSessionID(), s.opt.Owner, c)
	if err == nil && s.opt.Image != nil {
		spec.Image = s.opt.Image(t)
	}
	return spec, err
}

func (s *Server) defaultOf(peer string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[s.defaults[peer]]
}

// template of a session; the server's own for none.
func (s *Server) template(ses *session) *templates.Template {
	if ses != nil {
		return ses.template
	}
	return s.opt.Templates[s.opt.Template]
}

// mint makes a session; nothing of it runs yet. With asDefault it becomes the
// client's own, unless a call beside this one was first: then that one is
// returned.
func (s *Server) mint(ctx context.Context, o *origin, t *templates.Template, spec sandbox.Spec, name string, asDefault bool) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, sandbox.Errorf(sandbox.Unavailable, "Try again when the server is back.", "the server is ending")
	case asDefault && s.sessions[s.defaults[o.peer]] != nil:
		return s.sessions[s.defaults[o.peer]], nil
	case len(s.sessions) >= s.opt.MaxSessions:
		e := sandbox.Errorf(sandbox.ResourceExhausted, "Go on in a session you have (session_status with all lists them), or end one with session_close.",
			"there are %d sessions, and no more are allowed", len(s.sessions))
		e.Reason = "too_many_sessions"
		return nil, e
	}
	if name != "" {
		for _, other := range s.sessions {
			if other.name == name {
				return nil, sandbox.Errorf(sandbox.AlreadyExists, "Use it by its handle "+other.id+", or choose another name.", "name: a session %q is open", name)
			}
		}
	}
	j, err := audit.Open(s.journalDir(), spec.Session)
	if errors.Is(err, audit.ErrLocked) {
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Use another session.", "session %s is in use by another Pinfold", spec.Session)
	}
	if err != nil {
		return nil, journalError(err)
	}
	ses := &session{id: spec.Session, name: name, peer: o.peer, kind: o.kind, principal: s.opt.Principal, template: t, spec: spec,
		created: time.Now(), lastUsed: time.Now(), journal: j, launcher: s.opt.Launcher, base: s.base, background: s.background,
		state: "new", calls: map[string]*running{}, drained: make(chan struct{}, 1), settled: closedChan()}
	detail := struct {
		Template string       `json:"template"`
		Name     string       `json:"name,omitempty"`
		Policy   string       `json:"policy_digest"`
		Spec     sandbox.Spec `json:"spec"`
		Server   string       `json:"server"`
		Version  string       `json:"version"`
	}{t.Name, name, s.policyDigest(t), spec, s.opt.Owner, s.opt.Version}
	if err := j.Append(ctx, audit.Event{Kind: audit.SessionStart, Principal: s.opt.Principal.Name, Detail: audit.DetailOf(detail)}); err != nil {
		_ = j.Close()
		return nil, journalError(err)
	}
	s.sessions[ses.id] = ses
	if asDefault && o.kind != peerStateless {
		s.defaults[o.peer] = ses.id
	}
	s.log.Info("session opened", "session", ses.id, "template", t.Name)
	return ses, nil
}

func (s *Server) policyDigest(t *templates.Template) string {
	if s.opt.PolicyDigest != "" {
		return s.opt.PolicyDigest
	}
	if p, ok := s.policy(t).(interface{ Digest() string }); ok {
		return "sha256:" + p.Digest()
	}
	return ""
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// find returns the session of a handle, resuming a parked one. Handles of other
// principals are as unknown as made-up ones.
func (s *Server) find(ctx context.Context, handle string, o *origin) (*session, error) {
	s.mu.Lock()
	ses := s.sessions[handle]
	s.mu.Unlock()
	if ses != nil && ses.principal == s.opt.Principal {
		return ses, nil
	}
	if rec, err := s.parkedByID(handle); err == nil {
		return s.resume(ctx, rec, o)
	}
	return nil, s.unknown(handle)
}

// unknown is the error of a handle that names nothing; it says what does.
func (s *Server) unknown(handle string) error {
	e := sandbox.Errorf(sandbox.NotFound, "Leave session out to use your own, or call session_status with all to list them.", "session: there is no session %s", short(handle))
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.sessions {
		if strings.EqualFold(id, strings.TrimSpace(handle)) || (len(handle) >= 8 && strings.HasPrefix(id, handle)) {
			e.Message += "; did you mean " + id + "?"
			e.Details = map[string]any{"closest": id}
		}
	}
	return e
}

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
	want := keep == sandbox.KeepWorkspace
	switch {
	case box == nil && lost && touched:
		if want = keep != sandbox.KeepNothing; !want {
			return nil, s.opt.Launcher.Discard(ctx, ses.id, info.ID)
		}
	case box == nil && resumed && keep != sandbox.KeepNothing:
		want = true // parked before, and not started since
	case box == nil:
		if resumed {
			return nil, s.opt.Launcher.Discard(ctx, ses.id, info.ID)
		}
		return nil, nil
	default:
		if keep == keepIfChanged {
			want = touched && changed(ctx, box, mode)
		}
		_ = box.Guest.Close()
		if !want {
			return nil, box.Sandbox.Remove(ctx)
		}
		if err := box.Sandbox.Stop(ctx, sandbox.KeepWorkspace); err != nil {
			return nil, err
		}
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
