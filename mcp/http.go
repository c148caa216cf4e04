package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// HTTPOptions configure [Edge.Handler].
type HTTPOptions struct {
	Token   string   // bearer token; required unless NoAuth
	NoAuth  bool     // loopback only
	SSE     bool     // serve /sse and /message too
	Origins []string // browser origins that may call; default none
	Hosts   []string // Host header values beside loopback names; default none
}

// Handler serves /mcp (streamable HTTP) and, with SSE, /sse and /message.
func (e *Edge) Handler(o HTTPOptions) (http.Handler, error) { return nil, errors.ErrUnsupported }

// Listen opens a TCP listener, on a loopback address only.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}
