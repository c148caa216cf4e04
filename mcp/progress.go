package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const (
	progressEvery   = 250 * time.Millisecond // at most one message per call and interval
	progressMessage = 200                    // characters; clients cut there
)

// progress tells a waiting client how a call goes on. Messages that come too
// fast are merged: the last one wins. It is safe for concurrent use.
type progress struct {
	token    json.RawMessage
	received time.Time
	send     func(params map[string]any) error

	mu      sync.Mutex
	last    time.Time // of the last message
	value   float64
	pending string
	timer   *time.Timer
	closed  bool
}

func newProgress(ctx context.Context, m *server.MCPServer, o *origin) *progress {
	p := &progress{token: o.token, received: o.received}
	p.send = func(params map[string]any) error {
		return Notify(ctx, m, string(mcp.MethodNotificationProgress), params)
	}
	return p
}

// Notify sends a notification to the client of the call of ctx. On every
// transport it arrives on the call's own stream, and before its answer.
func Notify(ctx context.Context, m *server.MCPServer, method string, params map[string]any) error {
	o := originFrom(ctx)
	if o.notify != nil {
		return o.notify(method, params)
	}
	o.sent.Store(true) // flush then waits for it
	return m.SendNotificationToClient(ctx, method, params)
}

// tell sends message, at once or merged with what follows. Without a token it
// does nothing.
func (p *progress) tell(message string) {
	if p.token == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	message = strings.ToValidUTF8(message, "\uFFFD")
	if r := []rune(message); len(r) > progressMessage {
		message = string(r[:progressMessage-1]) + "…"
	}
	p.pending = message
	if p.timer != nil {
		return // one is due
	}
	if wait := progressEvery - time.Since(p.last); !p.last.IsZero() && wait > 0 {
		p.timer = time.AfterFunc(wait, p.due)
		return
	}
	p.flush()
}

func (p *progress) due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.closed {
		p.flush()
	}
}

// flush sends what is pending. The number is elapsed seconds, and always more
// than the one before. The caller holds mu.
func (p *progress) flush() {
	p.last = time.Now()
	p.value = max(p.value+0.001, float64(time.Since(p.received).Milliseconds())/1000)
	_ = p.send(map[string]any{"progressToken": p.token, "progress": p.value, "message": p.pending})
}

// close drops what is pending: nothing follows the answer.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// flush, as middleware, keeps a handler's last notifications: over HTTP the
// library reads them from a channel beside the answer, and may hold one outside
// it when the answer is written.
func flush(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := next(ctx, r)
		o := originFrom(ctx)
		ses := server.ClientSessionFromContext(ctx)
		if ses == nil || o.notify != nil {
			return res, err
		}
		ch := ses.NotificationChannel()
		if !o.sent.Load() && len(ch) == 0 {
			return res, err
		}
		for i := 0; len(ch) > 0 && i < 1000 && ctx.Err() == nil; i++ {
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(2 * time.Millisecond)
		return res, err
	}
}
