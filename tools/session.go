package tools

import (
	"context"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Sandbox is what handlers need of a session's sandbox; sandbox/guest's client
// has it.
type Sandbox interface {
	Exec(ctx context.Context, r sandbox.ExecRequest, progress func(sandbox.ExecProgress)) (sandbox.ExecResult, error)
	Output(ctx context.Context, r sandbox.OutputRequest) (sandbox.OutputResult, error)
	Input(ctx context.Context, r sandbox.InputRequest) (sandbox.OutputResult, error)
	Kill(ctx context.Context, r sandbox.KillRequest) (sandbox.KillResult, error)

	ReadFile(ctx context.Context, r sandbox.ReadRequest) (sandbox.ReadResult, error)
	WriteFile(ctx context.Context, r sandbox.WriteRequest) (sandbox.WriteResult, error)
	EditFile(ctx context.Context, r sandbox.EditRequest) (sandbox.EditResult, error)
	List(ctx context.Context, r sandbox.ListRequest) (sandbox.ListResult, error)
	Search(ctx context.Context, r sandbox.SearchRequest) (sandbox.SearchResult, error)

	RunCode(ctx context.Context, r sandbox.CodeRequest, progress func(sandbox.CodeProgress)) (sandbox.CodeResult, error)
	Status(ctx context.Context) (sandbox.GuestStatus, error)
}

// Session is what one call works on.
type Session struct {
	ID       string
	Call     string    // call id, for logs
	Received time.Time // when the call came in: soft limits count from here
	Sandbox  Sandbox   // nil for tools that need none
	// Browser returns the session's browser, started on first use.
	Browser func(ctx context.Context) (Browser, error)
	// Control opens, describes and closes sessions; used by the session family only.
	Control Control
	// Progress tells the waiting client; never nil, rate-capped by the caller's side.
	Progress func(message string)
}

// Remaining returns what is left of a soft limit of ms milliseconds that counts
// from receipt, at least 1 ms.
func (s *Session) Remaining(ms int64) int64 {
	return max(1, ms-time.Since(s.Received).Milliseconds())
}

// Image is a picture of a result; PNG or JPEG of at most 1568 pixels a side.
type Image struct {
	MediaType string
	Data      []byte
}

// Result is what a handler gave, before rendering.
type Result struct {
	Structured any // an Out struct of the tool; its JSON is an object
	Text       string
	Images     []Image
	Facts      Facts
}

// Facts are what the journal keeps of an outcome, beside code and duration.
type Facts struct {
	ExitCode *int
	Bytes    int64
	Digest   string
}
