package mcp

import (
	"crypto/rand"
	"log/slog"

	"github.com/mark3labs/mcp-go/server"
)

// Edge carries one mcp-go server over our transports: stdio, streamable HTTP
// and SSE. It is safe for concurrent use.
type Edge struct {
	mcp *server.MCPServer
	log *slog.Logger
	// gone is told when a peer will not come back.
	gone func(peer string)
}

// NewEdge returns an edge for m, to which it adds what makes notifications
// arrive over HTTP before the answer.
func NewEdge(m *server.MCPServer, log *slog.Logger) *Edge {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m.Use(flush)
	return &Edge{mcp: m, log: log, gone: func(string) {}}
}

func (e *Edge) newPeer(kind string) string { return kind + "_" + rand.Text() }
