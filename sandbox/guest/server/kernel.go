//go:build linux

package server

import (
	"context"
	"encoding/json"

	"pinfold.dev/pinfold/sandbox"
)

// codeHandlers answers code_run; the work is in kernel_*.go.
func codeHandlers() map[string]handler {
	return map[string]handler{
		"code": func(ctx context.Context, s *Server, args json.RawMessage, st *stream) (any, error) {
			return answer(ctx, args, func(ctx context.Context, r sandbox.CodeRequest) (sandbox.CodeResult, error) {
				return s.runCode(ctx, r, func(p sandbox.CodeProgress) { _ = st.Event(p) })
			})
		},
	}
}

// kernelsOf lists the living kernels.
func kernelsOf(s *Server) []sandbox.KernelInfo { return s.kernels.list() }
