package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// Options is what a [Server] is made of. Principal, Tools, Templates, Launcher
// and StateDir are required.
type Options struct {
	Version   string // of the product, told to clients
	Owner     string // this server's id, the sandbox.Spec.Owner; default a random one
	Principal policies.Principal
	Tools     []*tools.Tool

	// Policy judges every call; nil takes the policy of the session's template.
	Policy       Decider
	PolicyName   string   // for session_open's summary
	PolicyDigest string   // sha256:… of the loaded policy, for the journal
	PolicyText   []string // the policy in plain words, one sentence each

	Templates map[string]*templates.Template
	Template  string                             // that sessions start from; default templates.Default
	Image     func(t *templates.Template) string // names a template's image; nil leaves the empty one to the engine
	Workspace sandbox.Workspace                  // of sessions that do not choose; zero takes the template's
	Roots     []string                           // host folders in which session_open may place an overlay, beside Workspace.Path

	Launcher Launcher
	// OpenBrowser opens the browser of a session on first use; nil says that
	// there is none.
	OpenBrowser func(ctx context.Context, host BrowserHost) (Browser, error)

	StateDir    string        // journals and the list of parked sessions; made 0700
	MaxSessions int           // living sessions; default 32
	Idle        time.Duration // a session no one uses is parked after this, unless its client is on stdio; default 1 h
	Log         *slog.Logger
}

// Limits of a server.
const (
	defaultMaxSessions = 32
	defaultIdle        = time.Hour
)

// Server is the product at the protocol edge. It is safe for concurrent use.
type Server struct {
	*Edge
	opt  Options
	log  *slog.Logger
	base context.Context // of what outlives a call; ended by Close
	stop context.CancelFunc
	wg   sync.WaitGroup // what runs on base

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	defaults map[string]string // peer → its own session
	own      *audit.Journal    // of calls that belong to no session; opened when needed
}

// instructions is what clients put before the model: what it needs to know
// before the first call.
const instructions = `Pinfold gives you a sandbox of your own: a shell, files, code and a browser, all in one machine without a network, with one workspace at /workspace.
Paths are relative to the workspace. State of files and processes lasts between calls; working directory and variables are per call.
A command that takes long answers with status "running" and a process handle: read on with shell_output. Errors say what to do next in "hint".
Results name their session; leave "session" out to use your own.`

// New returns a server. It touches no engine and starts no sandbox.
func New(o Options) (*Server, error) {
	switch {
	case o.Launcher == nil || o.StateDir == "" || o.Principal.Name == "":
		return nil, errors.New("making the server: launcher, state folder and principal are required")
	case o.Template == "":
		o.Template = templates.Default
	}
	if o.Templates[o.Template] == nil {
		return nil, fmt.Errorf("making the server: there is no template %q", o.Template)
	}
	if o.Owner == "" {
		o.Owner = "srv_" + strings.ToLower(rand.Text())
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.Idle == 0 {
		o.Idle = defaultIdle
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	m := server.NewMCPServer("pinfold", o.Version, server.WithTitle("Pinfold"), server.WithInstructions(instructions),
		server.WithToolCapabilities(false), server.WithCacheHints(int64(time.Hour/time.Millisecond), mcp.CacheScopePrivate))
	s := &Server{opt: o, log: o.Log, sessions: map[string]*session{}, defaults: map[string]string{}}
	s.base, s.stop = context.WithCancel(context.Background())
	s.Edge = NewEdge(m, o.Log)
	s.Edge.gone = s.peerGone
	for _, t := range o.Tools {
		m.AddTool(definition(t), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.call(ctx, t, r), nil
		})
	}
	s.wg.Go(s.reap)
	return s, nil
}

// definition is a tool as clients see it.
func definition(t *tools.Tool) mcp.Tool {
	return mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description, RawInputSchema: t.InputSchema, RawOutputSchema: t.OutputSchema,
		Annotations: mcp.ToolAnnotation{ReadOnlyHint: &t.Hints.ReadOnly, DestructiveHint: &t.Hints.Destructive,
			IdempotentHint: &t.Hints.Idempotent, OpenWorldHint: &t.Hints.OpenWorld},
	}
}

// ServeStdio serves one client until in ends, out breaks or ctx ends. A client
// that went away in order is no error. The caller calls Close after it.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return s.Edge.ServeStdio(ctx, in, out)
}

// Close ends all sessions: untouched workspaces are removed, changed ones
// parked. It waits until all is done or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var all []*session
	for _, ses := range s.sessions {
		all = append(all, ses)
	}
	s.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		var wg sync.WaitGroup
		errs := make([]error, len(all))
		for i, ses := range all {
			wg.Go(func() {
				if _, err := s.end(ctx, ses, keepIfChanged, "the server ends", ""); !errors.Is(err, errEnded) {
					errs[i] = err
				}
			})
		}
		wg.Wait()
		s.stop()
		s.wg.Wait()
		done <- errors.Join(append(errs, s.closeOwn())...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err() // what is left is removed by the next server
	}
}

func (s *Server) closeOwn() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	err := s.own.Close()
	s.own = nil
	return err
}

// ownJournal is the journal of calls that belong to no session.
func (s *Server) ownJournal() (*audit.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		j, err := audit.Open(s.journalDir(), s.opt.Owner)
		if err != nil {
			return nil, err
		}
		s.own = j
	}
	return s.own, nil
}

func (s *Server) journalDir() string { return filepath.Join(s.opt.StateDir, "journals") }

// policy is what judges the calls of a template's sessions.
func (s *Server) policy(t *templates.Template) Decider {
	if s.opt.Policy != nil {
		return s.opt.Policy
	}
	return t.Rules()
}
