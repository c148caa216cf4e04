package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// Options is what a [Server] is made of. Tools, Policy, Launcher, Templates and
// StateDir are required.
type Options struct {
	Version   string // of the product, told to clients
	Owner     string // this server's id, the sandbox.Spec.Owner; default a random one
	Principal policies.Principal
	Tools     []*tools.Tool

	Policy       Decider
	PolicyName   string   // "default", for session_open's summary
	PolicyDigest string   // sha256:… of the loaded policy, for the journal
	PolicyText   []string // the policy in plain words, one sentence each

	Templates map[string]*templates.Template
	Template  string // name of the one that sessions start from; default "default"
	Image     func(template *templates.Template) string

	// Workspace of sessions that do not choose; zero takes the template's mode.
	Workspace sandbox.Workspace
	// Roots are the host folders under which session_open may place an overlay;
	// Workspace.Path is always one.
	Roots []string

	Launcher Launcher
	// OpenBrowser opens the browser of a session; nil refuses browser tools.
	OpenBrowser func(ctx context.Context, host BrowserHost) (Browser, error)

	StateDir    string        // journals and parked sessions; made 0700
	MaxSessions int           // living sessions; default 32
	Idle        time.Duration // an unused session of a client without a connection is parked after this; default 1 h
	Log         *slog.Logger
}

// Server is the product at the protocol edge. It is safe for concurrent use.
type Server struct {
	opt Options
}

// New returns a server. It touches no engine and starts no sandbox.
func New(o Options) (*Server, error) { return &Server{opt: o}, nil }

// ServeStdio serves one client until in ends, out breaks or ctx ends, then
// drains. It returns nil when the client went away in order. The caller calls
// Close after it.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return errors.ErrUnsupported
}

// HTTPOptions configure [Server.Handler].
type HTTPOptions struct {
	Token   string   // bearer token; required unless NoAuth
	NoAuth  bool     // loopback only
	SSE     bool     // serve /sse and /message too
	Origins []string // browser origins that may call, beside the server's own; default none
	Hosts   []string // Host header values beside loopback names; default none
}

// Handler serves /mcp (streamable HTTP) and, with SSE, /sse and /message.
func (s *Server) Handler(o HTTPOptions) (http.Handler, error) { return nil, errors.ErrUnsupported }

// Listen opens a TCP listener, on a loopback address only.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

// Close ends all sessions: untouched workspaces are removed, changed ones
// parked. It waits until all is done or ctx ends.
func (s *Server) Close(ctx context.Context) error { return nil }

// SessionInfo describes one session, for the command line and session_status.
type SessionInfo struct {
	ID        string            `json:"id"`
	Name      string            `json:"name,omitempty"`
	Template  string            `json:"template"`
	State     string            `json:"state"` // new, creating, running, lost, parked, closed
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
func (s *Server) Sessions(ctx context.Context) ([]SessionInfo, error) {
	return nil, errors.ErrUnsupported
}

// Attach runs an interactive shell of the session's sandbox on stream, until
// the shell ends, the stream does, or ctx. Sizes arrive on resize, which may be
// nil. It is journaled like a call.
func (s *Server) Attach(ctx context.Context, session string, size sandbox.TermSize, resize <-chan sandbox.TermSize, stream io.ReadWriter) (exitCode int, err error) {
	return 0, errors.ErrUnsupported
}

// CloseSession ends a session as session_close does.
func (s *Server) CloseSession(ctx context.Context, session string, keep sandbox.Keep) error {
	return errors.ErrUnsupported
}
