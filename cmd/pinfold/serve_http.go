package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"pinfold.dev/pinfold/mcp"
)

// endHTTP bounds the orderly end of an HTTP server, which no host hurries.
const endHTTP = 10 * time.Second

func serveHTTP(ctx context.Context, a *app, s settings) error {
	lis, err := mcp.Listen(ctx, s.HTTP)
	if err != nil {
		return listenFailure(s.HTTP, err)
	}
	defer lis.Close()
	base := "http://" + lis.Addr().String()
	v, err := open(a, s, base)
	if err != nil {
		return err
	}
	bound := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), endHTTP)
	}
	o := mcp.HTTPOptions{NoAuth: s.NoAuth, SSE: s.SSE}
	var tokenPath string
	if !s.NoAuth {
		if o.Token, tokenPath, err = v.instance.token(); err != nil {
			return errors.Join(err, v.close(bound))
		}
	}
	handler, err := v.server.Handler(o)
	if err != nil {
		return errors.Join(err, v.close(bound))
	}
	a.announce(base, tokenPath, s.SSE)
	// Only the time for headers is bounded: a call may stream for as long as its tool runs.
	h := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := bound()
		defer cancel()
		if err := h.Shutdown(end); err != nil {
			h.Close()
		}
	})
	defer stop()
	err = h.Serve(lis)
	v.log.Info("server ends", "why", why(ctx, err))
	return errors.Join(ended(ctx, err), v.close(bound), h.Close())
}

// announce tells the person who started the server how clients reach it. The
// token itself is shown to nobody: stderr ends up in logs.
func (a *app) announce(base, tokenPath string, sse bool) {
	fmt.Fprintf(a.stderr, "Serving MCP at %s/mcp\n", base)
	if sse {
		fmt.Fprintf(a.stderr, "Serving the older SSE transport at %s/sse\n", base)
	}
	if tokenPath == "" {
		fmt.Fprintln(a.stderr, "No token is asked for: every program on this machine may call.")
		return
	}
	fmt.Fprintf(a.stderr, "Clients send the bearer token in %s\n", tokenPath)
}

func listenFailure(addr string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return fail("Choose another port, or 0 for a free one.", "http: %s cannot be listened on (%v)", addr, op.Err)
	}
	return err
}
