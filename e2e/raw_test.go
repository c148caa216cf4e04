//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// raw speaks JSON-RPC by hand, for what a client library would not send.
type raw struct {
	in io.Writer

	mu    sync.Mutex
	lines []message
	more  chan struct{} // closed and replaced at each line
	junk  []string      // lines on stdout that are no message
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func newRaw(s *server) *raw {
	r := &raw{in: s.in, more: make(chan struct{})}
	go func() {
		sc := bufio.NewScanner(s.out)
		sc.Buffer(nil, 32<<20)
		for sc.Scan() {
			var m message
			err := json.Unmarshal(sc.Bytes(), &m)
			r.mu.Lock()
			if err != nil || m.JSONRPC != "2.0" {
				r.junk = append(r.junk, sc.Text())
			} else {
				r.lines = append(r.lines, m)
			}
			close(r.more)
			r.more = make(chan struct{})
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *raw) send(t testing.TB, line string) {
	t.Helper()
	_, err := fmt.Fprintln(r.in, line)
	require.NoError(t, err)
}

func (r *raw) callTool(t testing.TB, id, tool, args string) {
	t.Helper()
	r.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"p%s"}}}`, id, tool, args, id))
}

func (r *raw) initialize(t testing.TB) message {
	t.Helper()
	r.send(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	m := r.answer(t, `"init"`)
	r.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

// find waits for a line that ok takes.
func (r *raw) find(t testing.TB, what string, most time.Duration, ok func(message) bool) message {
	t.Helper()
	end := time.After(most)
	seen := 0
	for {
		r.mu.Lock()
		for ; seen < len(r.lines); seen++ {
			if ok(r.lines[seen]) {
				m := r.lines[seen]
				r.mu.Unlock()
				return m
			}
		}
		more := r.more
		r.mu.Unlock()
		select {
		case <-more:
		case <-end:
			require.Fail(t, "no "+what, "within %v", most)
		}
	}
}

func (r *raw) answer(t testing.TB, id string) message {
	t.Helper()
	return r.find(t, "answer to "+id, patience, func(m message) bool { return m.Method == "" && string(m.ID) == id })
}

// has reports whether a matching line has come so far.
func (r *raw) has(ok func(message) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.lines {
		if ok(m) {
			return true
		}
	}
	return false
}

// all returns the lines so far.
func (r *raw) all() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *raw) stray() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.junk
}

// toolResult is the part of a tool's answer that tests look at.
type toolResult struct {
	IsError    bool           `json:"isError"`
	Structured map[string]any `json:"structuredContent"`
	Content    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}
