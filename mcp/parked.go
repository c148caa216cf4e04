package mcp

import (
	"context"

	"pinfold.dev/pinfold/policies"
)

// Parked lists the parked sessions of a principal, oldest first, without a
// server: for the command line when none runs.
func Parked(ctx context.Context, stateDir string, p policies.Principal) ([]SessionInfo, error) {
	return (&Server{opt: Options{StateDir: stateDir, Principal: p}}).Sessions(ctx)
}
