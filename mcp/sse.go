package mcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// serveSSE is the stream of the HTTP+SSE transport of 2024-11-05: it tells
// where to post, and carries every answer. When it ends, its client is gone.
func (f *front) serveSSE(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "this is the stream; messages are posted where it says")
		return
	}
	id := rand.Text()
	e := &eventWriter{w: w, c: http.NewResponseController(w)}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	c := newConn(f.edge.mcp, f.edge.log, "sse_"+id, peerHTTP, func(b []byte) error { return e.event("message", b) })
	c.ctx = ctx
	f.mu.Lock()
	full := len(f.sse) >= maxHTTPPeers
	if !full {
		f.sse[id] = c
	}
	f.mu.Unlock()
	if full {
		refuse(w, http.StatusTooManyRequests, "too many streams are open")
		return
	}
	defer func() {
		f.mu.Lock()
		delete(f.sse, id)
		f.mu.Unlock()
		// A dropped stream is no cancel in this revision: what runs goes on to its
		// end, and only then is the client's session put away.
		c.left.Store(true)
		c.leave()
		c.wg.Wait()
		f.edge.gone(c.peer)
	}()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if e.event("endpoint", []byte("/message?sessionId="+id)) != nil {
		return
	}
	var side sync.WaitGroup
	defer side.Wait()
	sideCtx, stop := context.WithCancel(ctx)
	defer stop()
	side.Go(func() { c.forward(sideCtx) })
	t := time.NewTicker(f.silence)
	defer t.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-t.C:
			if e.raw([]byte(": keep-alive\n\n")) != nil {
				return
			}
		}
	}
}

// postSSE takes one message for a stream.
func (f *front) postSSE(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "messages are posted here")
		return
	}
	f.mu.Lock()
	c := f.sse[r.URL.Query().Get("sessionId")]
	f.mu.Unlock()
	if c == nil {
		refuse(w, http.StatusNotFound, "this stream is not known here; open /sse again")
		return
	}
	raw, ok := f.body(w, r)
	if !ok {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	c.handle(c.ctx, raw)
}

// eventWriter writes whole events.
type eventWriter struct {
	mu sync.Mutex
	w  http.ResponseWriter
	c  *http.ResponseController
}

func (e *eventWriter) event(name string, data []byte) error {
	return e.raw(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
}

func (e *eventWriter) raw(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.c.Flush()
}
