package mcp

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

const (
	// startTimeout bounds a sandbox start, which goes on when the call that
	// caused it gives up.
	startTimeout = 2 * time.Minute
	// softLimit is when a call that waits for a start answers, counted from
	// receipt; clients give up at 60 s.
	softLimit = 45 * time.Second
	// endTimeout bounds the end of a session.
	endTimeout = 20 * time.Second
)

// session is our unit of work: one sandbox, at most one browser, one journal,
// bound to a principal. The sandbox starts behind the first call that needs it.
type session struct {
	id         string
	name       string
	peer       string // that it ends with
	kind       peerKind
	principal  policies.Principal
	template   *templates.Template
	spec       sandbox.Spec
	created    time.Time
	resumed    bool
	journal    *audit.Journal
	launcher   Launcher
	base       context.Context // the server's
	background func(func(ctx context.Context))

	mu       sync.Mutex
	state    string // new, creating, running, lost, closing
	why      string // of lost, or of a start that failed
	box      *Box
	try      *startTry
	info     sandbox.Info // of the last sandbox
	calls    map[string]*running
	recent   []tools.CallInfo // whose answers no client took
	served   int64
	refused  int64
	lastUsed time.Time
	touched  bool // a call that may have written ran
	browser  browserSlot
	drained  chan struct{} // told when a call ends
	settled  chan struct{} // closed once what a loss left behind is put in order
	ended    chan struct{} // closed when its end is complete; made when it begins
}

// running is a call in flight.
type running struct {
	tool   string
	detail string
	since  time.Time
	cancel context.CancelCauseFunc
}

// maxRecent bounds the list of calls without a taker.
const maxRecent = 20

func newSessionID() string { return "ses_" + strings.ToLower(rand.Text()) }

// begin registers a call. It is refused once the session closes.
func (s *session) begin(call string, r *running) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == "closing" {
		return sandbox.Errorf(sandbox.NotFound, "Call session_open for a new session.", "session %s is closed", s.id)
	}
	s.calls[call] = r
	s.served++
	s.lastUsed = time.Now()
	return nil
}

// finish takes a call off the list; one whose client did not wait is remembered.
func (s *session) finish(call, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.calls[call]
	if r == nil {
		return
	}
	delete(s.calls, call)
	select {
	case s.drained <- struct{}{}:
	default:
	}
	s.lastUsed = time.Now()
	if state != "" {
		s.recent = append(s.recent, tools.CallInfo{Call: call, Tool: r.tool, State: state, Detail: r.detail, AgeMS: r.since.UnixMilli()})
		s.recent = s.recent[max(0, len(s.recent)-maxRecent):]
	}
}

// refuse counts a call that the policy or the decoder did not let through.
func (s *session) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
}

// unused reports whether nothing of the session ever started.
func (s *session) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == "new" && s.box == nil && s.try == nil && len(s.calls) == 0
}

func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = true
}

// deadline is when the session is closed at the latest.
func (s *session) deadline() time.Time { return s.created.Add(s.template.Lifetimes().Max) }

// idleSince is how long no one has used the session. A command that runs is use.
func (s *session) idleSince(ctx context.Context, now time.Time) time.Duration {
	s.mu.Lock()
	busy, last, box := len(s.calls) > 0 || s.try != nil, s.lastUsed, s.box
	s.mu.Unlock()
	if busy {
		return 0
	}
	if box != nil && now.Sub(last) > time.Minute {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if st, err := box.Guest.Status(ctx); err == nil {
			for _, p := range st.Processes {
				if p.Status == sandbox.Running {
					return 0
				}
			}
		}
	}
	return now.Sub(last)
}

// view is the current sandbox, nil when none runs.
func (s *session) view() (state, why string, box *Box, info sandbox.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.why, s.box, s.info
}
