package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// httpPeer is one MCP session of the older revisions. Its id is random and is
// never used again.
type httpPeer struct {
	id     string
	client string

	mu    sync.Mutex
	calls map[*inflight]string // request → its id; a client may use an id again before we know that it read the answer
	last  time.Time
	gone  bool
}

// legacy serves a message of the older revisions. A dropped connection does not
// end the work; notifications/cancelled and DELETE do.
func (f *front) legacy(w http.ResponseWriter, r *http.Request, env envelope, raw []byte, received time.Time) {
	var p *httpPeer
	if env.method == string(mcp.MethodInitialize) && env.id != nil {
		if p = f.mint(clientOf(raw)); p == nil {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusTooManyRequests, "too many MCP sessions are open")
			return
		}
		w.Header().Set(headerSession, p.id)
		r.Header.Set(headerSession, p.id)
	} else {
		id := r.Header.Get(headerSession)
		if id == "" {
			answer(w, http.StatusBadRequest, &rpcError{id: env.id, code: mcp.INVALID_REQUEST, msg: headerSession + " is missing: send initialize first"})
			return
		}
		if p = f.peer(id); p == nil {
			answer(w, http.StatusNotFound, &rpcError{id: env.id, code: mcp.INVALID_REQUEST, msg: "this MCP session is not known here; send initialize for a new one"})
			return
		}
	}
	switch {
	case env.response:
		f.serveOther(w, r, env, raw)
		return
	case env.id == nil:
		if env.method == string(mcp.MethodNotificationCancelled) {
			p.cancel(env.cancels)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	o := &origin{peer: "http_" + p.id, kind: peerHTTP, received: received, token: env.token, client: p.client}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	call := &inflight{cancel: cancel}
	if fault, status := p.put(env, call); fault != nil {
		answer(w, status, fault)
		return
	}
	defer p.drop(call)
	stop := context.AfterFunc(r.Context(), func() { o.away.Store(true) })
	defer stop()
	f.serve(w, r.WithContext(withOrigin(ctx, o)), env, raw)
}

// serveOther hands an answer to a question of ours to the library.
func (f *front) serveOther(w http.ResponseWriter, r *http.Request, env envelope, raw []byte) {
	env.key = "s"
	f.serve(w, r, env, raw)
}

func clientOf(raw []byte) string {
	var m struct {
		Params struct {
			ClientInfo struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"clientInfo"`
		} `json:"params"`
	}
	_ = json.Unmarshal(raw, &m)
	return clip(m.Params.ClientInfo.Name+" "+m.Params.ClientInfo.Version, 200)
}

// mint makes an MCP session; nil when there are too many.
func (f *front) mint(client string) *httpPeer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.peers) >= maxHTTPPeers {
		return nil
	}
	p := &httpPeer{id: rand.Text(), client: client, calls: map[*inflight]string{}, last: time.Now()}
	f.peers[p.id] = p
	return p
}

func (f *front) peer(id string) *httpPeer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers[id]
}

// deletePeer ends an MCP session and its calls.
func (f *front) deletePeer(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	f.mu.Lock()
	p := f.peers[id]
	delete(f.peers, id)
	f.mu.Unlock()
	if p == nil {
		refuse(w, http.StatusNotFound, "this MCP session is not known here")
		return
	}
	p.end()
	f.edge.gone("http_" + p.id)
	w.WriteHeader(http.StatusNoContent)
}

// sweep ends MCP sessions that no one used for a while; running calls are use.
func (f *front) sweep(now time.Time) {
	f.mu.Lock()
	if now.Sub(f.swept) < time.Minute {
		f.mu.Unlock()
		return
	}
	f.swept = now
	var old []*httpPeer
	for id, p := range f.peers {
		if p.idleSince(now) > f.idle {
			delete(f.peers, id)
			old = append(old, p)
		}
	}
	f.mu.Unlock()
	for _, p := range old {
		p.end()
		f.edge.gone("http_" + p.id)
	}
}

func (p *httpPeer) idleSince(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) > 0 {
		return 0
	}
	return now.Sub(p.last)
}

func (p *httpPeer) put(env envelope, call *inflight) (*rpcError, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone:
		return &rpcError{id: env.id, code: mcp.INVALID_REQUEST, msg: "this MCP session was ended"}, http.StatusNotFound
	case len(p.calls) >= maxParallel:
		return &rpcError{id: env.id, code: mcp.INTERNAL_ERROR, msg: "too many requests are running in this MCP session; wait for answers"}, http.StatusTooManyRequests
	}
	p.calls[call] = env.key
	p.last = time.Now()
	return nil, 0
}

func (p *httpPeer) drop(call *inflight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, call)
	p.last = time.Now()
}

func (p *httpPeer) cancel(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	for call, k := range p.calls {
		if k == key {
			call.cancel(errCancelled)
		}
	}
}

// end cancels all calls and takes no more.
func (p *httpPeer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for call := range p.calls {
		call.cancel(errGone)
	}
}
