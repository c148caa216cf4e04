package mcp

import (
	"context"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

// Decider judges acts; *policies.Policy is one.
type Decider interface {
	Decide(r policies.Request) policies.Decision
}

// Launcher makes sandboxes for sessions. It is safe for concurrent use.
type Launcher interface {
	// Launch starts the sandbox of spec and connects to its guest. With
	// spec.Resume, which then is the spec's own Session, the workspace that an
	// earlier stop kept goes on. When the image is absent or being prepared it
	// answers at once with a typed error that says so. When ctx ends, nothing
	// is left.
	Launch(ctx context.Context, spec sandbox.Spec) (*Box, error)
	// Discard removes all that is left of a session's sandbox, kept workspace
	// included; sandboxID is what Info().ID said. Discarding what is gone is no
	// error.
	Discard(ctx context.Context, session, sandboxID string) error
}

// Box is a sandbox and the connection to its guest.
type Box struct {
	Sandbox sandbox.Sandbox
	Guest   Guest
}

// Guest is what the edge needs of the connected guest; *guest.Client has it.
type Guest interface {
	tools.Sandbox
	// Transfer hands a file over between the agent's and the browser's uid.
	Transfer(ctx context.Context, r sandbox.TransferRequest) (sandbox.TransferResult, error)
	// KillUID ends every process of a uid.
	KillUID(ctx context.Context, uid int) error
	// Done is closed once the link is lost or closed.
	Done() <-chan struct{}
	// Close ends the link.
	Close() error
}

// changer is a sandbox whose engine can tell whether its workspace differs from
// the start, for workspaces whose layer the guest cannot see.
type changer interface {
	Changed(ctx context.Context) (bool, error)
}
