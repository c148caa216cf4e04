package mcp

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/sandbox"
)

// SessionInfo describes one session, for the command line and session_status.
type SessionInfo struct {
	ID        string            `json:"id"`
	Name      string            `json:"name,omitempty"`
	Template  string            `json:"template"`
	State     string            `json:"state"` // new, creating, running, lost, parked
	Workspace sandbox.Workspace `json:"workspace"`
	Isolation sandbox.Isolation `json:"isolation"`
	Sandbox   string            `json:"sandbox,omitempty"` // the engine's id
	Created   time.Time         `json:"created"`
	LastUsed  time.Time         `json:"last_used"`
	Running   int               `json:"calls_running"`
	Calls     int64             `json:"calls"`
	Journal   string            `json:"journal"`
}

// Sessions lists the living and the parked sessions of the server's principal,
// oldest first.
func (s *Server) Sessions(_ context.Context) ([]SessionInfo, error) {
	s.mu.Lock()
	living := make([]*session, 0, len(s.sessions))
	for _, ses := range s.sessions {
		living = append(living, ses)
	}
	s.mu.Unlock()
	var all []SessionInfo
	for _, ses := range living {
		ses.mu.Lock()
		all = append(all, SessionInfo{ID: ses.id, Name: ses.name, Template: ses.template.Name, State: ses.state, Workspace: ses.spec.Workspace,
			Isolation: ses.spec.Isolation, Sandbox: ses.info.ID, Created: ses.created, LastUsed: ses.lastUsed, Running: len(ses.calls),
			Calls: ses.served, Journal: ses.journal.Path()})
		ses.mu.Unlock()
	}
	for _, p := range s.parkedAll() {
		if slices.ContainsFunc(living, func(ses *session) bool { return ses.id == p.ID }) {
			continue
		}
		all = append(all, SessionInfo{ID: p.ID, Name: p.Name, Template: p.Template, State: "parked", Workspace: p.Spec.Workspace,
			Isolation: p.Spec.Isolation, Sandbox: p.Info.ID, Created: p.Created, LastUsed: p.LastUsed, Journal: s.journalDir() + "/" + p.ID + ".jsonl"})
	}
	slices.SortFunc(all, func(a, b SessionInfo) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// CloseSession ends a session as session_close does. KeepWorkspace keeps a
// workspace that holds changes; with KeepNothing that of a parked session is
// removed too.
func (s *Server) CloseSession(ctx context.Context, id string, keep sandbox.Keep) error {
	ses, err := s.find(ctx, id, &origin{peer: "operator", kind: peerStateless, received: time.Now()})
	if err != nil {
		return err
	}
	if keep == sandbox.KeepWorkspace {
		keep = keepIfChanged
	}
	_, err = s.end(ctx, ses, keep, "the operator closed it", "")
	return err
}

// attachPoll is how long one read of a terminal waits for output.
const attachPoll = 20 * time.Second

// Attach runs an interactive shell of the session's sandbox on stream, until
// the shell ends, the stream does, or ctx. Sizes arrive on resize, which may be
// nil. It is journaled, and refused when it cannot be. The caller closes the
// stream after it; a Read on it may last until then.
func (s *Server) Attach(ctx context.Context, id string, size sandbox.TermSize, resize <-chan sandbox.TermSize, stream io.ReadWriter) (exitCode int, err error) {
	ses, err := s.find(ctx, id, &origin{peer: "operator", kind: peerHTTP, received: time.Now()})
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := ses.journal.Append(ctx, audit.Event{Kind: audit.Attach, Principal: s.opt.Principal.Name, Message: "a terminal is attached"}); err != nil {
		return 0, journalError(err)
	}
	defer func() {
		e := audit.Event{Kind: audit.Attach, Principal: s.opt.Principal.Name, Message: "the terminal is detached", Code: "ok", ExitCode: &exitCode, DurMS: time.Since(begun).Milliseconds()}
		if err != nil {
			e.Code, e.Message, e.ExitCode = string(sandbox.CodeOf(err)), err.Error(), nil
			if errors.Is(err, context.Canceled) { // the person left, and the shell with them
				e.Code, e.Message = "ok", "the terminal is detached"
			}
		}
		_ = ses.journal.Append(context.WithoutCancel(ctx), e)
	}()
	call := "attach_" + newSessionID()[4:]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := ses.begin(call, &running{tool: "attach", since: begun, cancel: cancel}); err != nil {
		return 0, err
	}
	defer ses.finish(call, "")
	ses.touch()
	g, err := ses.guest(ctx, begun)
	if err != nil {
		return 0, err
	}
	// -l after sh works where there is no bash, too.
	r, err := g.Exec(ctx, sandbox.ExecRequest{Command: "exec ${SHELL:-/bin/sh} -l", TTY: &size, OpenStdin: true, Background: true}, nil)
	if err != nil {
		return 0, err
	}
	end := context.WithoutCancel(ctx)
	defer func() {
		if ctx.Err() != nil || err != nil {
			_, _ = g.Kill(end, sandbox.KillRequest{Process: r.Process, Signal: "HUP", GraceMS: 500})
		}
	}()
	go typeInto(ctx, cancel, g, r.Process, stream)
	go func() {
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				_, _ = g.Input(ctx, sandbox.InputRequest{Process: r.Process, Resize: &size})
			case <-ctx.Done():
				return
			}
		}
	}()
	next := int64(0)
	for {
		out, err := g.Output(ctx, sandbox.OutputRequest{Process: r.Process, Since: &next, WaitMS: attachPoll.Milliseconds(), Match: "(?s).", MaxOutput: 64 << 10})
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, io.EOF) {
				return 0, nil // the person hung up
			} else if cause != nil {
				err = cause
			}
			return 0, err
		}
		next = out.Next
		if _, err := io.WriteString(stream, out.Text); err != nil {
			return 0, err
		}
		if out.Status != sandbox.Running && !out.More {
			if out.ExitCode != nil {
				return *out.ExitCode, nil
			}
			return 128, nil
		}
	}
}

// typeInto carries what a person types, until the stream ends.
func typeInto(ctx context.Context, cancel context.CancelCauseFunc, g Guest, process string, stream io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := stream.Read(buf)
		if n > 0 {
			if _, err := g.Input(ctx, sandbox.InputRequest{Process: process, Data: slices.Clone(buf[:n])}); err != nil {
				cancel(err)
				return
			}
		}
		if err != nil {
			cancel(io.EOF)
			return
		}
	}
}
