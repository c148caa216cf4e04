package mcp

import (
	"context"
	"strings"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

// Browser is an open browser of a session.
type Browser interface {
	tools.Browser
	Close() error
}

// BrowserHost is what a browser needs of its sandbox.
type BrowserHost interface {
	// Launch starts a program as the browser's uid beside the guest.
	Launch(ctx context.Context, argv, env []string) (sandbox.Stream, error)
	// Transfer hands a file over between the agent's and the browser's uid.
	Transfer(ctx context.Context, r sandbox.TransferRequest) (sandbox.TransferResult, error)
	// KillUID ends every process of a uid.
	KillUID(ctx context.Context, uid int) error
	// WriteFile writes a file as the agent: what the browser saves for it.
	WriteFile(ctx context.Context, r sandbox.WriteRequest) (sandbox.WriteResult, error)
	// Status names the ports that listen inside.
	Status(ctx context.Context) (sandbox.GuestStatus, error)
	// Info tells the isolation, by which Chromium's switches differ.
	Info() sandbox.Info
}

// browserSlot holds the browser of a session, opened once by whoever comes
// first. The session's mu guards it.
type browserSlot struct {
	open Browser
	try  *browserTry
}

type browserTry struct {
	done chan struct{}
	b    Browser
	err  error
}

func (b *browserSlot) peek() Browser { return b.open }

// take empties the slot.
func (b *browserSlot) take() Browser {
	open := b.open
	b.open = nil
	return open
}

// browserHost is the sandbox as a browser sees it.
type browserHost struct {
	Guest
	box sandbox.Sandbox
}

func (h browserHost) Launch(ctx context.Context, argv, env []string) (sandbox.Stream, error) {
	return h.box.Exec(ctx, sandbox.ExecSpec{Argv: argv, UID: sandbox.BrowserUID, GID: sandbox.BrowserGID, Dir: sandbox.BrowserDir, Env: env})
}

func (h browserHost) Info() sandbox.Info { return h.box.Info() }

// browser returns the session's browser, opening it on first use. The opening
// goes on when the call that caused it gives up.
func (s *Server) browser(ctx context.Context, ses *session) (tools.Browser, error) {
	ses.mu.Lock()
	switch {
	case ses.browser.open != nil:
		b := ses.browser.open
		ses.mu.Unlock()
		return b, nil
	case s.opt.OpenBrowser == nil:
		ses.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Use shell_run or code_run instead.", "this server has no browser")
	case ses.box == nil:
		err := ses.lostError()
		ses.mu.Unlock()
		return nil, err
	case ses.browser.try == nil:
		try := &browserTry{done: make(chan struct{})}
		ses.browser.try = try
		go s.openBrowser(ses, ses.box, try)
	}
	try := ses.browser.try
	ses.mu.Unlock()
	select {
	case <-try.done:
		if try.err != nil {
			return nil, try.err
		}
		return try.b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Server) openBrowser(ses *session, box *Box, try *browserTry) {
	defer close(try.done)
	ctx, cancel := context.WithTimeout(s.base, startTimeout)
	defer cancel()
	try.b, try.err = s.opt.OpenBrowser(ctx, browserHost{box.Guest, box.Sandbox})
	ses.mu.Lock()
	ses.browser.try = nil
	orphan := try.err == nil && ses.box != box
	if try.err == nil && !orphan {
		ses.browser.open = try.b
	}
	ses.mu.Unlock()
	if orphan {
		_ = try.b.Close()
		try.b, try.err = nil, sandbox.Lost(nil)
	}
}

// browserWords describes a browser's pages, and whether Chromium's own sandbox
// is on: it does not start when it cannot build one, unless it was told to do
// without.
func browserWords(b Browser, st *sandbox.GuestStatus) (tabs []string, own string) {
	for _, t := range b.Tabs() {
		mark := ""
		if t.Current {
			mark = " (current)"
		}
		tabs = append(tabs, clip(t.ID+mark+": "+t.Title+" "+t.URL, 300))
	}
	own = "not started"
	if st == nil {
		return tabs, own
	}
	for _, p := range st.Table {
		if p.UID == sandbox.BrowserUID {
			own = "on"
			if strings.Contains(p.Command, "--no-sandbox") {
				return tabs, "off: process " + clip(p.Command, 100)
			}
		}
	}
	return tabs, own
}
