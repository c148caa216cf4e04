package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

// call is the one path of every tool call, top to bottom: check, find the
// session, decide, journal the intent, run, journal the outcome, render.
// Whatever happens, the client gets a result.
func (s *Server) call(ctx context.Context, t *tools.Tool, req mcp.CallToolRequest) (res *mcp.CallToolResult) {
	o := originFrom(ctx)
	c := &call{id: "call_" + strings.ToLower(rand.Text()[:16]), tool: t, origin: o, client: clientName(ctx, o), raw: req.Params.RawArguments, server: s}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The deadline counts from receipt: time spent in a queue is the caller's too.
	ctx, stop := context.WithDeadlineCause(ctx, o.received.Add(t.Timeout), context.DeadlineExceeded)
	defer stop()
	var out outcome
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a call panicked", "call", c.id, "tool", t.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out = outcome{err: fmt.Errorf("panic: %v", p)}
			res = c.settle(ctx, out)
		}
	}()

	handle, args, bad := t.Check(c.raw)
	err := s.place(ctx, c, handle, bad != nil)
	switch {
	case err != nil:
		out.err = err
	case bad != nil:
		out.err = bad
	default:
		c.decide(args)
	}
	if err := c.intent(ctx); err != nil {
		out.err = journalError(err) // nothing runs unrecorded
		return c.render(out)
	}
	if out.err == nil {
		out.err = c.refusal()
	}
	if out.err == nil {
		out = c.run(ctx, cancel, args)
	}
	return c.settle(ctx, out)
}

// call is one call on its way.
type call struct {
	id       string
	tool     *tools.Tool
	server   *Server
	origin   *origin
	client   string
	raw      json.RawMessage // arguments as received
	handle   string          // what session_open is to resume
	session  *session        // nil when the call belongs to none
	minted   bool            // the session was made for this call
	journal  *audit.Journal
	resource string
	decision policies.Decision
	recorded bool                      // the intent stands in the journal
	after    func(ctx context.Context) // what has to wait for the outcome's record
}

// outcome is what came of it.
type outcome struct {
	result tools.Result
	err    error
}

func (c *call) sessionID() string {
	if c.session == nil {
		return ""
	}
	return c.session.id
}

// decide asks the policy. An act whose resource cannot be named is refused.
func (c *call) decide(args json.RawMessage) {
	resource, err := c.tool.Resource(args)
	if err != nil {
		c.decision = policies.Decision{Effect: policies.Deny, Rule: "unreadable", Reason: "what the call is about could not be read"}
		return
	}
	c.resource = resource
	template := c.server.template(c.session)
	c.decision = c.server.policy(template).Decide(policies.Request{Principal: c.server.opt.Principal, Session: c.sessionID(), Template: template.Name,
		Tool: c.tool.Name, Permission: c.tool.Permission, Resource: resource, Args: args})
}

// refusal is the error of a decision that is not to allow.
func (c *call) refusal() error {
	d := c.decision
	switch d.Effect {
	case policies.Allow:
		return nil
	case policies.Ask:
		return &tools.Error{Code: sandbox.PermissionDenied, Reason: "approval_unavailable",
			Message: fmt.Sprintf("%s needs a human's approval (rule %q: %s), and there is no way to ask for it here", c.tool.Name, d.Rule, d.Reason),
			Hint:    "Do without it, or ask the user to change the policy. Do not try another spelling.", Details: map[string]any{"rule": d.Rule}}
	}
	hint := d.Hint
	if hint == "" {
		hint = "Do without it, or ask the user to change the policy. Do not try another spelling."
	}
	return &tools.Error{Code: sandbox.PermissionDenied, Reason: "policy", Message: fmt.Sprintf("%s is refused by rule %q: %s", c.tool.Name, d.Rule, d.Reason),
		Hint: hint, Details: map[string]any{"rule": d.Rule}}
}

func (c *call) event(kind audit.Kind) audit.Event {
	return audit.Event{Kind: kind, Session: c.sessionID(), Principal: c.server.opt.Principal.Name, Client: c.client, Call: c.id, Tool: c.tool.Name,
		Permission: string(c.tool.Permission), Effect: string(c.decision.Effect), Rule: c.decision.Rule}
}

func (c *call) intent(ctx context.Context) error {
	e := c.event(audit.Intent)
	sum := sha256.Sum256(c.raw)
	e.Resource, e.ArgsBytes, e.ArgsDigest, e.Reason = c.resource, len(c.raw), "sha256:"+hex.EncodeToString(sum[:]), c.decision.Reason
	if c.journal == nil {
		return errors.New("no journal could be opened")
	}
	if err := c.journal.Append(ctx, e); err != nil {
		return err
	}
	c.recorded = true
	return nil
}

// run acquires what the tool needs and calls its handler.
func (c *call) run(ctx context.Context, cancel context.CancelCauseFunc, args json.RawMessage) (out outcome) {
	ses := c.session
	if ses != nil {
		if err := ses.begin(c.id, &running{tool: c.tool.Name, detail: clip(c.resource, 120), since: c.origin.received, cancel: cancel}); err != nil {
			return outcome{err: err}
		}
	}
	p := newProgress(ctx, c.server.mcp, c.origin)
	defer p.close() // none follows the answer
	ts := &tools.Session{ID: c.sessionID(), Call: c.id, Received: c.origin.received, Progress: p.tell}
	if c.tool.Needs == tools.NeedsSandbox {
		g, err := ses.guest(ctx, c.origin.received)
		if err != nil {
			return outcome{err: err}
		}
		if !c.tool.Hints.ReadOnly {
			ses.touch()
		}
		ts.Sandbox = g
		ts.Browser = func(ctx context.Context) (tools.Browser, error) { return c.server.browser(ctx, ses) }
	} else {
		ts.Control = &control{server: c.server, call: c}
	}
	out.result, out.err = c.tool.Run(ctx, ts, args)
	if out.err != nil && ctx.Err() != nil {
		// Why the context ended says more than what the handler made of it.
		if cause := context.Cause(ctx); errors.As(cause, new(*sandbox.Error)) || errors.Is(cause, context.DeadlineExceeded) {
			out.err = cause
		}
	}
	return out
}

// settle records the outcome, writes the one log line and renders.
func (c *call) settle(ctx context.Context, out outcome) *mcp.CallToolResult {
	typed := tools.AsError(out.err, c.id)
	code, state := "ok", ""
	if typed != nil {
		code = string(typed.Code)
	}
	if errors.Is(context.Cause(ctx), errCancelled) {
		state = "canceled"
	} else if c.origin.dropped() || errors.Is(context.Cause(ctx), errGone) {
		state = "dropped"
	}
	if c.session != nil {
		c.session.finish(c.id, state)
		if typed != nil && (typed.Code == sandbox.PermissionDenied || typed.Code == sandbox.InvalidArgument) {
			c.session.refuse()
		}
	}
	took := time.Since(c.origin.received)
	if c.recorded {
		e := c.event(audit.Outcome)
		e.Code, e.DurMS, e.ExitCode, e.Bytes, e.Digest = code, took.Milliseconds(), out.result.Facts.ExitCode, out.result.Facts.Bytes, out.result.Facts.Digest
		if typed != nil {
			e.Message, e.Reason = typed.Message, typed.Reason
		}
		if err := c.journal.Append(context.WithoutCancel(ctx), e); err != nil {
			c.server.log.Error("an outcome could not be journaled", "session", c.sessionID(), "call", c.id, "err", err)
		}
	}
	if c.after != nil {
		c.after(context.WithoutCancel(ctx))
	}
	if c.minted && c.origin.kind == peerStateless && c.session.unused() {
		// A refused call of a client without a session leaves none behind.
		ses := c.session
		c.session = nil
		_, _ = c.server.end(ctx, ses, sandbox.KeepNothing, "its only call did not run", "")
	}
	level := slog.LevelInfo
	attrs := []any{"session", c.sessionID(), "call", c.id, "tool", c.tool.Name, "rule", c.decision.Rule, "code", code, "dur_ms", took.Milliseconds()}
	switch {
	case typed == nil:
	case typed.Code == sandbox.Internal:
		level = slog.LevelError
		attrs = append(attrs, "err", out.err)
	case typed.Code == sandbox.Unavailable: // its cause is for the log alone
		attrs = append(attrs, "err", out.err)
	}
	c.server.log.Log(ctx, level, "call", attrs...)
	return c.render(out)
}

// journalError is the answer when the journal cannot be written. Why is said
// without the host's path.
func journalError(err error) error {
	why := "it cannot be opened"
	var path *fs.PathError
	if errors.As(err, &path) {
		why = path.Err.Error()
	}
	return &sandbox.Error{Code: sandbox.Unavailable, Reason: "journal", Retry: true, Cause: err,
		Message: "nothing was run, because the journal cannot be written: " + why,
		Hint:    "Ask the user to look at the disk of Pinfold's state folder."}
}

func clientName(ctx context.Context, o *origin) string {
	if o.client != "" {
		return o.client
	}
	if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.Modern {
		if info.ClientInfo == nil {
			return ""
		}
		return strings.TrimSpace(info.ClientInfo.Name + " " + info.ClientInfo.Version)
	}
	if s, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo); ok {
		i := s.GetClientInfo()
		return strings.TrimSpace(i.Name + " " + i.Version)
	}
	return ""
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
