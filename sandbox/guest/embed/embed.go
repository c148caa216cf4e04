// Package guestbin carries the guest binary inside the server.
package guestbin

import (
	"embed"
	"errors"
	"io/fs"
	"runtime"

	"pinfold.dev/pinfold/sandbox"
)

// The pattern takes in whatever binaries were built, so that a clean clone
// compiles without them.
//
//go:embed *
var files embed.FS

// Binary returns the guest for this machine's architecture. A server built
// without it answers failed_precondition with reason guest_missing.
func Binary() ([]byte, error) {
	b, err := files.ReadFile("pinfold-guest-" + runtime.GOARCH)
	if errors.Is(err, fs.ErrNotExist) {
		e := sandbox.Errorf(sandbox.FailedPrecondition,
			"Run `make build`, which builds the guest first and the server with it.",
			"this server was built without the guest binary for %s", runtime.GOARCH)
		e.Reason = "guest_missing"
		return nil, e
	}
	return b, err
}
