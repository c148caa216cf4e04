package mcp

import (
	"context"

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
