package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// maxParallel bounds the tool calls of one connection that run at a time; more
// wait, and can be cancelled while they do.
const maxParallel = 64

// maxWaiting bounds the requests of one connection that run or wait.
const maxWaiting = 1024

// errCancelled is the cause of a context whose client cancelled the request.
var errCancelled = fmt.Errorf("the client cancelled the request: %w", context.Canceled)

// origin says where a message came from; it travels in the context because the
// library carries nothing else through to a handler.
type origin struct {
	peer     string // key of the peer, unique in the process
	kind     peerKind
	received time.Time
	token    json.RawMessage                       // progress token
	client   string                                // name and version, where the library does not keep them
	notify   func(method string, params any) error // ordered with the answer; nil = the library's channel
	sent     atomic.Bool                           // a notification went to the library's channel
	away     atomic.Bool                           // the client no longer waits, but the work goes on
	left     *atomic.Bool                          // the same of a whole connection
}

// dropped reports whether the client left before the answer.
func (o *origin) dropped() bool { return o.away.Load() || (o.left != nil && o.left.Load()) }

// peerKind is how long a peer lives.
type peerKind int

const (
	peerStdio     peerKind = iota // as long as the process's stdin
	peerHTTP                      // an MCP session of the older revisions
	peerStateless                 // one request
)

type originKey struct{}

func withOrigin(ctx context.Context, o *origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

func originFrom(ctx context.Context) *origin {
	o, _ := ctx.Value(originKey{}).(*origin)
	if o == nil {
		o = &origin{peer: "unknown", kind: peerStateless, received: time.Now()}
	}
	return o
}

// conn is one client on a two-way stream of messages: stdio, or SSE. Every
// request runs on its own goroutine; wait ends when all have.
type conn struct {
	mcp  *server.MCPServer
	log  *slog.Logger
	peer string
	kind peerKind
	ctx  context.Context            // of an SSE stream, whose messages come by other requests
	left atomic.Bool                // the client is gone, but its calls go on
	send func(message []byte) error // one whole message; safe for concurrent use
	ses  *connSession
	sem  chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  map[string]*inflight
}

type inflight struct {
	cancel    context.CancelCauseFunc
	cancelled bool
}

func newConn(m *server.MCPServer, log *slog.Logger, peer string, kind peerKind, send func([]byte) error) *conn {
	return &conn{mcp: m, log: log, peer: peer, kind: kind, send: send, ses: newConnSession(peer),
		sem: make(chan struct{}, maxParallel), calls: map[string]*inflight{}}
}

// handle takes one message in the order of arrival. It returns at once but for
// initialize, which is answered in order.
func (c *conn) handle(ctx context.Context, raw []byte) {
	o := &origin{peer: c.peer, kind: c.kind, received: time.Now(), notify: c.notify, left: &c.left}
	env, fault := parseEnvelope(raw)
	if fault != nil {
		c.write(fault.bytes())
		return
	}
	o.token = env.token
	ctx = c.mcp.WithContext(withOrigin(ctx, o), c.ses)
	switch {
	case env.response:
	case env.id == nil && env.method == string(mcp.MethodNotificationCancelled):
		c.cancel(env.cancels)
	case env.id == nil:
		c.mcp.HandleMessage(ctx, raw)
	default:
		c.request(ctx, env, raw)
	}
}

func (c *conn) request(ctx context.Context, env envelope, raw []byte) {
	ctx, cancel := context.WithCancelCause(ctx)
	call := &inflight{cancel: cancel}
	if fault := c.put(env, call); fault != nil {
		cancel(nil)
		c.write(fault.bytes())
		return
	}
	run := func() {
		defer c.wg.Done()
		defer cancel(nil)
		if env.tool != "" {
			select {
			case c.sem <- struct{}{}:
				defer func() { <-c.sem }()
			case <-ctx.Done():
				c.drop(env.key, call)
				return
			}
		}
		answer := c.mcp.HandleMessage(ctx, raw)
		if cancelled := c.drop(env.key, call); cancelled || answer == nil {
			return // nothing may follow a cancel
		}
		b, err := restamp(env.id, answer)
		if err != nil {
			c.log.Error("encoding an answer", "err", err)
			b = (&rpcError{id: env.id, code: mcp.INTERNAL_ERROR, msg: "the answer could not be encoded"}).bytes()
		}
		c.write(b)
	}
	if env.method == string(mcp.MethodInitialize) {
		run()
		return
	}
	go run()
}

func (c *conn) put(env envelope, call *inflight) *rpcError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[env.key] != nil {
		return &rpcError{id: env.id, code: mcp.INVALID_REQUEST, msg: "id: a request with this id is still running"}
	}
	if len(c.calls) >= maxWaiting {
		return &rpcError{id: env.id, code: mcp.INTERNAL_ERROR, msg: "too many requests are running; wait for answers"}
	}
	if c.closed {
		return &rpcError{id: env.id, code: mcp.INTERNAL_ERROR, msg: "the connection is ending"}
	}
	c.calls[env.key] = call
	c.wg.Add(1) // here, so that none is added once cancelAll was called
	return nil
}

func (c *conn) drop(key string, call *inflight) (cancelled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[key] == call {
		delete(c.calls, key)
	}
	return call.cancelled
}

func (c *conn) cancel(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.calls[key]; call != nil {
		call.cancelled = true
		call.cancel(errCancelled)
	}
}

// leave takes no more requests; what runs goes on.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// cancelAll ends what runs because the client is gone.
func (c *conn) cancelAll(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, call := range c.calls {
		call.cancelled = true
		call.cancel(cause)
	}
}

func (c *conn) write(b []byte) {
	if err := c.send(b); err != nil {
		c.log.Debug("writing to the client", "err", err)
	}
}

// notify sends a notification before anything the caller sends after it.
func (c *conn) notify(method string, params any) error {
	b, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{mcp.JSONRPC_VERSION, method, params})
	if err != nil {
		return err
	}
	return c.send(b)
}

// forward writes what the library itself notifies, until ctx ends.
func (c *conn) forward(ctx context.Context) {
	for {
		select {
		case n := <-c.ses.notes:
			if b, err := json.Marshal(n); err == nil {
				c.write(b)
			}
		case <-ctx.Done():
			return
		}
	}
}

var _ server.SessionWithClientInfo = (*connSession)(nil)
