package podman

import (
	"context"

	"pinfold.dev/pinfold/sandbox"
)

func (e *Engine) Probe(ctx context.Context) (sandbox.Report, error) { return sandbox.Report{}, nil }
