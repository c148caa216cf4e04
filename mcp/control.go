package mcp

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// control is the session family's view of the registry, bound to one call.
type control struct {
	server *Server
	call   *call
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// OpenSession makes a session and starts it, or resumes a parked or lost one.
// It becomes the client's own when the client has none that works.
func (c *control) OpenSession(ctx context.Context, r tools.SessionRequest) (tools.SessionOpened, error) {
	s, o := c.server, c.call.origin
	if r.Name != "" && !nameForm.MatchString(r.Name) {
		return tools.SessionOpened{}, sandbox.Errorf(sandbox.InvalidArgument, "Use letters, digits, dots, dashes and underscores, at most 64.", "name: %s is no name", short(r.Name))
	}
	ses, resumed, err := c.pick(ctx, r)
	if err != nil {
		return tools.SessionOpened{}, err
	}
	c.call.session = ses // the result names it
	if err := ses.begin(c.call.id, &running{tool: c.call.tool.Name, since: o.received, cancel: func(error) {}}); err != nil {
		return tools.SessionOpened{}, err
	}
	if _, err := ses.guest(ctx, o.received); err != nil {
		var e *sandbox.Error
		if !resumed && !(errors.As(err, &e) && e.Reason == "sandbox_starting") {
			ses.finish(c.call.id, "")
			c.call.session = nil
			_, _ = s.end(ctx, ses, sandbox.KeepNothing, "its sandbox could not be started", "")
		}
		return tools.SessionOpened{}, err
	}
	s.adoptDefault(o, ses)
	opened := s.describe(ses)
	opened.Resumed = resumed
	return opened, nil
}

// pick finds what to resume, or makes a new session.
func (c *control) pick(ctx context.Context, r tools.SessionRequest) (ses *session, resumed bool, err error) {
	s := c.server
	if h := c.call.handle; h != "" {
		if r.Template != "" || r.Workspace.Mode != "" || r.Isolation != "" || r.Name != "" {
			return nil, false, sandbox.Errorf(sandbox.InvalidArgument, "Give session alone to resume one, or leave it out to open another.", "session: a session that is resumed keeps its template, workspace, isolation and name")
		}
		ses, err := s.find(ctx, h, c.call.origin)
		if err == nil {
			ses.revive()
		}
		return ses, true, err
	}
	if r.Name != "" {
		if p := s.parkedByName(r.Name); p != nil {
			if (r.Template != "" && r.Template != p.Template) || (r.Workspace.Mode != "" && r.Workspace != p.Spec.Workspace) {
				return nil, false, sandbox.Errorf(sandbox.FailedPrecondition, "Give the name alone to resume it, or choose another name.", "name: a parked session %q has another template or workspace", r.Name)
			}
			ses, err := s.resume(ctx, p, c.call.origin)
			return ses, true, err
		}
	}
	ses, err = s.open(ctx, c.call.origin, r)
	return ses, false, err
}

// open makes a session of a request.
func (s *Server) open(ctx context.Context, o *origin, r tools.SessionRequest) (*session, error) {
	name := r.Template
	if name == "" {
		name = s.opt.Template
	}
	t := s.opt.Templates[name]
	if t == nil {
		names := make([]string, 0, len(s.opt.Templates))
		for n := range s.opt.Templates {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, sandbox.Errorf(sandbox.NotFound, "Name one of: "+strings.Join(names, ", ")+".", "template: there is none named %s", short(name))
	}
	ws := r.Workspace
	if ws == (sandbox.Workspace{}) && r.Template == "" {
		ws = s.opt.Workspace
	}
	spec, err := s.spec(t, templates.Choice{Workspace: ws, Isolation: r.Isolation})
	if err != nil {
		return nil, err
	}
	if err := s.allowed(spec.Workspace); err != nil {
		return nil, err
	}
	return s.mint(ctx, o, t, spec, r.Name, false)
}

// allowed holds a host folder against the operator's roots.
func (s *Server) allowed(w sandbox.Workspace) error {
	if w.Path == "" {
		return nil
	}
	roots := s.opt.Roots
	if s.opt.Workspace.Path != "" {
		roots = append(slices.Clone(roots), s.opt.Workspace.Path)
	}
	for _, root := range roots {
		real, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(real, w.Path); err == nil && filepath.IsLocal(rel) {
			return nil
		}
	}
	e := sandbox.Errorf(sandbox.PermissionDenied, "Use mode volume, or ask the user to start Pinfold with --workspace on this folder.", "workspace.path: %s is in no folder that the operator opened", short(w.Path))
	e.Reason = "outside_roots"
	return e
}

// revive lets a lost session start again over what is left of its workspace.
func (s *session) revive() {
	s.mu.Lock()
	settled, lost := s.settled, s.state == "lost"
	s.mu.Unlock()
	if !lost {
		return
	}
	<-settled
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == "lost" {
		s.state, s.why = "new", ""
		s.spec.Epoch++
		if s.resumed = s.touched; s.resumed {
			s.spec.Resume = s.id
		}
	}
}

// adoptDefault makes a session the client's own when it has none that works.
func (s *Server) adoptDefault(o *origin, ses *session) {
	if o.kind == peerStateless {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.sessions[s.defaults[o.peer]]
	if own != nil {
		if state, _, _, _ := own.view(); state != "lost" {
			return
		}
	}
	s.defaults[o.peer] = ses.id
}

// describe says what a session is, as read back from its sandbox.
func (s *Server) describe(ses *session) tools.SessionOpened {
	ses.mu.Lock()
	spec, info := ses.spec, ses.info
	ses.mu.Unlock()
	d := tools.SessionOpened{ID: ses.id, Name: ses.name, Template: ses.template.Name, Spec: spec, Info: info,
		Deadline: ses.deadline().UTC().Format(time.RFC3339), Journal: ses.journal.Path()}
	d.Policy, d.Asks, d.Refuses = s.policyWords(ses)
	return d
}

// policyWords puts the policy in plain words, by asking it.
func (s *Server) policyWords(ses *session) (words, asks, refuses []string) {
	p := s.policy(ses.template)
	ask := func(perm policies.Permission, tool string) policies.Decision {
		return p.Decide(policies.Request{Principal: s.opt.Principal, Session: ses.id, Template: ses.template.Name, Tool: tool, Permission: perm, Args: []byte("{}")})
	}
	for _, t := range s.opt.Tools {
		switch d := ask(t.Permission, t.Name); d.Effect {
		case policies.Allow:
		case policies.Ask:
			asks = append(asks, t.Name)
		default:
			refuses = append(refuses, t.Name)
		}
	}
	if len(s.opt.PolicyText) > 0 {
		return s.opt.PolicyText, asks, refuses
	}
	switch d := ask(policies.NetConnect, ""); d.Effect {
	case policies.Allow:
		words = append(words, "the network may be used")
	default:
		words = append(words, "no network: "+d.Reason)
	}
	if len(asks)+len(refuses) == 0 {
		words = append(words, "everything inside the sandbox is allowed")
	}
	return words, asks, refuses
}

// SessionStatus describes the session of the call.
func (c *control) SessionStatus(ctx context.Context, all bool) (tools.SessionReport, error) {
	s, ses := c.server, c.call.session
	r := tools.SessionReport{SessionOpened: s.describe(ses)}
	var box *Box
	r.State, r.Why, box, _ = ses.view()
	if box != nil {
		st, err := box.Guest.Status(ctx)
		if err != nil {
			return r, err
		}
		r.Guest = &st
	}
	now := time.Now()
	ses.mu.Lock()
	r.Served, r.Refused = ses.served, ses.refused
	for id, call := range ses.calls {
		if id != c.call.id {
			r.Calls = append(r.Calls, tools.CallInfo{Call: id, Tool: call.tool, State: "running", AgeMS: now.Sub(call.since).Milliseconds(), Detail: call.detail})
		}
	}
	for _, call := range slices.Backward(ses.recent) {
		call.AgeMS = now.UnixMilli() - call.AgeMS
		r.Calls = append(r.Calls, call)
	}
	if ses.kind != peerStdio && len(ses.calls) <= 1 {
		r.IdleDeadline = ses.lastUsed.Add(s.opt.Idle).UTC().Format(time.RFC3339)
	}
	b := ses.browser.peek()
	ses.mu.Unlock()
	r.ChromiumSandbox = "not started"
	if b != nil {
		r.Tabs, r.ChromiumSandbox = browserWords(b, r.Guest)
	}
	if all {
		infos, err := s.Sessions(ctx)
		if err != nil {
			return r, err
		}
		for _, i := range slices.Backward(infos) {
			r.All = append(r.All, tools.SessionLine{Session: i.ID, Name: i.Name, State: i.State, Template: i.Template,
				Workspace: string(i.Workspace.Mode) + " " + i.Workspace.Path, LastUsed: i.LastUsed.UTC().Format(time.RFC3339)})
		}
	}
	return r, nil
}

// CloseSession ends the session of the call; its journal is sealed after the
// call's outcome.
func (c *control) CloseSession(ctx context.Context, keep sandbox.Keep) (tools.SessionClosed, error) {
	const why = "session_close"
	sum, err := c.server.end(ctx, c.call.session, keep, why, c.call.id)
	if sum.ID != "" {
		ses := c.call.session
		c.call.after = func(ctx context.Context) { ses.seal(ctx, why, sum) }
	}
	return sum, err
}
