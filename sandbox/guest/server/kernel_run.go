//go:build linux

package server

import (
	"context"

	"pinfold.dev/pinfold/sandbox"
)

type kernels struct{}

func (k *kernels) list() []sandbox.KernelInfo { return []sandbox.KernelInfo{} }

func (s *Server) runCode(ctx context.Context, r sandbox.CodeRequest, progress func(sandbox.CodeProgress)) (sandbox.CodeResult, error) {
	return sandbox.CodeResult{}, sandbox.Errorf(sandbox.FailedPrecondition, "", "no kernel")
}
