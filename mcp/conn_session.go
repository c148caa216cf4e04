package mcp

import (
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// connSession is what the library wants to know of a connection.
type connSession struct {
	id    string
	notes chan mcp.JSONRPCNotification

	mu    sync.Mutex
	ready bool
	info  mcp.Implementation
	caps  mcp.ClientCapabilities
}

func newConnSession(id string) *connSession {
	return &connSession{id: id, notes: make(chan mcp.JSONRPCNotification, 128)}
}

func (s *connSession) SessionID() string { return s.id }
func (s *connSession) NotificationChannel() chan<- mcp.JSONRPCNotification {
	return s.notes
}

func (s *connSession) Initialize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
}

// Initialized is always true: the stateless revision has no handshake.
func (s *connSession) Initialized() bool { return true }

func (s *connSession) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

func (s *connSession) SetClientInfo(i mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = i
}

func (s *connSession) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps
}

func (s *connSession) SetClientCapabilities(c mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caps = c
}
