// Command pinfold-conformance serves what the official conformance suite of MCP
// asks of a server, over Pinfold's own transports: so the suite tests them. It
// is for tests only and no part of the product.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"pinfold.dev/pinfold/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pinfold-conformance:", err)
		os.Exit(1)
	}
}

// run serves stdio without arguments, or HTTP on the address that is given.
func run(ctx context.Context, args []string) error {
	m := server.NewMCPServer("pinfold-conformance", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true), server.WithCompletions(), server.WithLogging(), server.WithElicitation())
	m.EnableSampling()
	addTools(m)
	addInputTools(m)
	addResources(m)
	addPrompts(m)
	edge := mcp.NewEdge(m, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if len(args) == 0 {
		return edge.ServeStdio(ctx, os.Stdin, os.Stdout)
	}
	lis, err := mcp.Listen(ctx, args[0])
	if err != nil {
		return err
	}
	h, err := edge.Handler(mcp.HTTPOptions{NoAuth: true, SSE: true})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "serving http://%s/mcp\n", lis.Addr())
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = s.Close()
	}()
	if err := s.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
