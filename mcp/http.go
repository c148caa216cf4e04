package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"pinfold.dev/pinfold/sandbox"
)

// HTTPOptions configure [Edge.Handler].
type HTTPOptions struct {
	Token   string   // bearer token; required unless NoAuth
	NoAuth  bool     // connections on loopback addresses need no token; others are refused
	SSE     bool     // serve /sse and /message too
	Origins []string // browser origins that may call, beside the server's own; default none
	Hosts   []string // Host header values beside loopback names; default none
}

// Limits of the HTTP side.
const (
	maxBody      = 16 << 20
	bodyTimeout  = 30 * time.Second // for a whole body
	writeTimeout = 30 * time.Second // for one write to a client that does not read
	maxRequests  = 256              // requests in flight
	maxHTTPPeers = 1024             // MCP sessions of the older revisions
	keepAlive    = 8 * time.Second  // silence after which a comment is sent; proxies cut at 15 s and less
)

const headerSession = "Mcp-Session-Id"

// front stands before the library's handler: it lets in who may, bounds what
// comes, and gives clients of both eras the ends of calls that are promised.
type front struct {
	edge    *Edge
	o       HTTPOptions
	next    http.Handler
	token   [sha256.Size]byte
	sem     chan struct{}
	bodyFor time.Duration
	silence time.Duration
	idle    time.Duration

	mu    sync.Mutex
	peers map[string]*httpPeer
	sse   map[string]*conn
	swept time.Time
}

// Handler serves /mcp (streamable HTTP) and, with SSE, /sse and /message.
func (e *Edge) Handler(o HTTPOptions) (http.Handler, error) {
	f, err := e.newFront(o)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (e *Edge) newFront(o HTTPOptions) (*front, error) {
	if o.Token == "" && !o.NoAuth {
		return nil, errors.New("serving HTTP: a token is required, or NoAuth on loopback")
	}
	if o.Token != "" && len(o.Token) < 16 {
		return nil, errors.New("serving HTTP: the token is too short")
	}
	f := &front{edge: e, o: o, token: sha256.Sum256([]byte(o.Token)), sem: make(chan struct{}, maxRequests), bodyFor: bodyTimeout,
		silence: keepAlive, idle: defaultIdle, peers: map[string]*httpPeer{}, sse: map[string]*conn{}, swept: time.Now()}
	f.next = server.NewStreamableHTTPServer(e.mcp, server.WithStateLess(true), server.WithDisableStreaming(true),
		server.WithStreamableHTTPLogger(e.log), server.WithDisableLocalhostProtection(true)) // ours is stricter
	return f, nil
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if why := f.strange(r); why != "" {
		refuse(w, http.StatusForbidden, why)
		return
	}
	if !f.authorized(r) {
		h.Set("WWW-Authenticate", `Bearer realm="pinfold"`)
		refuse(w, http.StatusUnauthorized, "a bearer token is required; it stands in the file that the server named when it started")
		return
	}
	r.Header.Del("Authorization") // no handler, log or sandbox may see it
	f.sweep(time.Now())
	switch {
	case r.URL.Path == "/mcp":
		f.streamable(w, r)
	case r.URL.Path == "/sse" && f.o.SSE:
		f.serveSSE(w, r)
	case r.URL.Path == "/message" && f.o.SSE:
		f.postSSE(w, r)
	default:
		refuse(w, http.StatusNotFound, "there is /mcp here")
	}
}

// streamable serves /mcp.
func (f *front) streamable(w http.ResponseWriter, r *http.Request) {
	modernHeader := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
	switch {
	case r.Method == http.MethodDelete && !modernHeader:
		f.deletePeer(w, r)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST, DELETE")
		if modernHeader {
			w.Header().Set("Allow", "POST")
		}
		refuse(w, http.StatusMethodNotAllowed, "messages are posted here; there is no stream to get")
		return
	}
	received := time.Now()
	raw, ok := f.body(w, r)
	if !ok {
		return
	}
	env, fault := parseEnvelope(raw)
	if fault != nil {
		answer(w, http.StatusBadRequest, fault)
		return
	}
	for _, name := range []string{mcp.HeaderProtocolVersion, "Mcp-Method", "Mcp-Name", headerSession} {
		if len(r.Header.Values(name)) > 1 {
			answer(w, http.StatusBadRequest, &rpcError{id: env.id, code: mcp.HEADER_MISMATCH, msg: name + " is given twice"})
			return
		}
	}
	select {
	case f.sem <- struct{}{}:
		defer func() { <-f.sem }()
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "too many requests are running; wait for answers")
		return
	}
	if modernHeader || mcp.IsModernProtocol(env.version) {
		f.stateless(w, r, env, raw, received)
		return
	}
	f.legacy(w, r, env, raw, received)
}

// stateless serves a message of the stateless revision. Closing the stream is
// the cancellation; a posted one is dropped, since ids are no secret and the
// library would let any client end any other's call.
func (f *front) stateless(w http.ResponseWriter, r *http.Request, env envelope, raw []byte, received time.Time) {
	r.Header.Del(headerSession)
	if env.id == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	o := &origin{peer: f.edge.newPeer("request"), kind: peerStateless, received: received, token: env.token}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	stop := context.AfterFunc(r.Context(), func() { cancel(errCancelled) })
	defer stop()
	f.serve(w, r.WithContext(withOrigin(ctx, o)), env, raw)
}

// serve hands a request to the library behind a writer that keeps the
// connection alive and gives the id back as it came.
func (f *front) serve(w http.ResponseWriter, r *http.Request, env envelope, raw []byte) {
	sw := newStreamWriter(w, f.silence)
	if n, err := strconv.ParseInt(string(env.id), 10, 64); env.key[0] == 'n' && (err != nil || n > 1<<53 || n < -1<<53) {
		// The library carries numbers through float64; a name survives.
		raw = sw.hideID(env.id, raw)
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	r.ContentLength = int64(len(raw))
	defer sw.finish()
	f.next.ServeHTTP(sw, r)
}

// hideID puts a name of ours in the place of an id until the answer.
func (s *streamWriter) hideID(id json.RawMessage, raw []byte) []byte {
	s.realID = id
	s.fakeID, _ = json.Marshal("id-" + rand.Text())
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return raw
	}
	m["id"] = s.fakeID
	b, err := json.Marshal(m)
	if err != nil {
		return raw
	}
	return b
}

// Listen opens a TCP listener, on a loopback address only: there is no
// authentication yet that would do for a network.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Write it as 127.0.0.1:PORT; port 0 takes a free one.", "%s is no address to listen on", short(addr))
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Listen on 127.0.0.1 or [::1], and use a tunnel to reach it from elsewhere.",
			"%s is not a loopback address; serving a network is not available yet", short(addr))
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return l, nil
}
