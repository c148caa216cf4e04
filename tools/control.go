package tools

import (
	"context"

	"pinfold.dev/pinfold/sandbox"
)

// Control is what the session family needs; the registry in mcp has it, bound
// to the client that calls and to the session the call names.
type Control interface {
	// OpenSession makes a session and starts its sandbox, or resumes a parked
	// one by handle or name.
	OpenSession(ctx context.Context, r SessionRequest) (SessionOpened, error)
	// SessionStatus describes the session of the call, and with all, in short,
	// every session of the principal.
	SessionStatus(ctx context.Context, all bool) (SessionReport, error)
	// CloseSession ends the session of the call.
	CloseSession(ctx context.Context, keep sandbox.Keep) (SessionClosed, error)
}

// SessionRequest is what session_open asks for; zero fields take the
// template's.
type SessionRequest struct {
	Template  string
	Name      string
	Workspace sandbox.Workspace
	Isolation sandbox.Isolation
}

// SessionOpened is a session as it truly is.
type SessionOpened struct {
	ID       string
	Name     string
	Template string
	Resumed  bool
	Spec     sandbox.Spec
	Info     sandbox.Info
	Policy   []string // in plain words
	Asks     []string // tools that ask a human first
	Refuses  []string // tools that are refused
	Deadline string   // RFC 3339, when it is closed at the latest
	Journal  string
}

// SessionReport is what is known of a session now. Guest is nil while no
// sandbox runs.
type SessionReport struct {
	SessionOpened
	State           string // new, creating, running, lost, parked
	Guest           *sandbox.GuestStatus
	Tabs            []string // title and address of the browser's pages
	ChromiumSandbox string   // "on", "not started" or what is wrong
	Calls           []CallInfo
	Served, Refused int64
	IdleDeadline    string // RFC 3339; empty while the client is connected or work runs
	Why             string // of a lost or failed sandbox
	All             []SessionLine
}

// CallInfo is a call that runs, or whose answer no client took.
type CallInfo struct {
	Call   string `json:"call"`
	Tool   string `json:"tool"`
	State  string `json:"state"` // running, canceled, dropped
	AgeMS  int64  `json:"age_ms"`
	Detail string `json:"detail,omitempty"` // what it works on, cut
}

// SessionLine is a session in a list.
type SessionLine struct {
	Session   string `json:"session"`
	Name      string `json:"name,omitempty"`
	State     string `json:"state"`
	Template  string `json:"template"`
	Workspace string `json:"workspace"`
	LastUsed  string `json:"last_used"`
}

// SessionClosed is the sum of a session.
type SessionClosed struct {
	ID       string       `json:"session"`
	Kept     sandbox.Keep `json:"kept"`
	Calls    int64        `json:"calls"`
	Refusals int64        `json:"refusals"`
	Journal  string       `json:"journal"`
	Seconds  int64        `json:"seconds"`
	Until    string       `json:"until,omitempty"` // RFC 3339, until when a kept workspace is kept
}
