package mcp

import (
	"context"
	"errors"
	"strings"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
)

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
