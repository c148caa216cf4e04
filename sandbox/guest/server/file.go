//go:build linux

package server

import (
	"context"
	"encoding/json"

	"pinfold.dev/pinfold/sandbox"
)

// fileHandlers answers the file operations; the work is in file_*.go.
func fileHandlers() map[string]handler {
	f := newFiles()
	return map[string]handler{
		"file_read": func(ctx context.Context, _ *Server, args json.RawMessage, _ *stream) (any, error) {
			return answer(ctx, args, f.read)
		},
		"file_write": func(ctx context.Context, _ *Server, args json.RawMessage, st *stream) (any, error) {
			return answer(ctx, args, func(ctx context.Context, r sandbox.WriteRequest) (sandbox.WriteResult, error) {
				return f.write(ctx, r, st.Body(maxWrite))
			})
		},
		"file_edit": func(ctx context.Context, _ *Server, args json.RawMessage, _ *stream) (any, error) {
			return answer(ctx, args, f.edit)
		},
		"file_list": func(ctx context.Context, _ *Server, args json.RawMessage, _ *stream) (any, error) {
			return answer(ctx, args, f.list)
		},
		"file_search": func(ctx context.Context, _ *Server, args json.RawMessage, _ *stream) (any, error) {
			return answer(ctx, args, f.search)
		},
		"transfer": func(ctx context.Context, _ *Server, args json.RawMessage, _ *stream) (any, error) {
			return answer(ctx, args, f.transfer)
		},
	}
}

func newFiles() *files {
	return &files{
		dir: sandbox.WorkspaceDir, browser: sandbox.BrowserDir, walks: make(chan struct{}, maxWalks),
		as: func(uid int, fn func() error) error { return asUser(uid, uid, fn) },
	}
}

// answer decodes the arguments of one operation and calls it.
func answer[In, Out any](ctx context.Context, args json.RawMessage, do func(context.Context, In) (Out, error)) (any, error) {
	in, err := decode[In](args)
	if err != nil {
		return nil, err
	}
	out, err := do(ctx, in)
	if err != nil {
		return nil, err
	}
	return out, nil
}
