package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*Server
	launcher *fakeLauncher
	state    string
	log      *syncBuffer
}

// newWorld is a server over sandboxes that are folders of this machine.
func newWorld(t testing.TB, change func(*Options)) *world {
	t.Helper()
	set, err := templates.Load(templates.Folders{})
	require.NoError(t, err)
	w := &world{launcher: newFakeLauncher(t.TempDir()), state: t.TempDir(), log: &syncBuffer{}}
	o := Options{Version: "test", Principal: policies.Principal{Kind: "local", Name: "uid:1"}, Tools: tools.Of(tools.Full), Templates: set.All(),
		Launcher: w.launcher, StateDir: w.state, Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&o)
	}
	w.state = o.StateDir
	w.Server, err = New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.Close(ctx))
	})
	return w
}

// kept reports whether a session's workspace is kept.
func (w *world) kept(session string) bool {
	_, err := w.parkedByID(session)
	return err == nil
}

// events are the records of a journal, which must be sound.
func (w *world) events(t testing.TB, session string) []audit.Event {
	t.Helper()
	var all []audit.Event
	require.NoError(t, audit.Read(filepath.Join(w.state, "journals", session+".jsonl"), func(_ int, e audit.Event) error {
		all = append(all, e)
		return nil
	}))
	return all
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wire is a client that speaks bytes over real pipes.
type wire struct {
	t    testing.TB
	in   *os.File
	out  *os.File
	done chan error
	stop context.CancelFunc

	mu    sync.Mutex
	lines []json.RawMessage
	news  chan struct{}
	eof   chan struct{}
}

func dial(t testing.TB, e *Edge) *wire {
	t.Helper()
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &wire{t: t, in: inW, out: outR, done: make(chan error, 1), stop: cancel, news: make(chan struct{}, 1), eof: make(chan struct{})}
	go func() {
		err := e.ServeStdio(ctx, inR, outW)
		_ = inR.Close()
		_ = outW.Close()
		w.done <- err
	}()
	go w.read()
	t.Cleanup(func() {
		_ = inW.Close()
		cancel()
		_ = outR.Close()
		<-w.eof
	})
	return w
}

func (w *wire) read() {
	defer close(w.eof)
	r := bufio.NewReader(w.out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		w.mu.Lock()
		w.lines = append(w.lines, bytes.TrimSpace(line))
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

func (w *wire) send(format string, args ...any) {
	w.t.Helper()
	line := format
	if len(args) > 0 {
		line = fmt.Sprintf(format, args...)
	}
	_, err := io.WriteString(w.in, line+"\n")
	require.NoError(w.t, err)
}

// message is any JSON-RPC message.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  map[string]any  `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// result is that of tools/call.
type result struct {
	IsError    bool           `json:"isError"`
	Structured map[string]any `json:"structuredContent"`
	Content    []struct {
		Type, Text, Data, MIMEType string
	} `json:"content"`
}

func (r result) session() string { s, _ := r.Structured["session"].(string); return s }
func (r result) code() string {
	e, _ := r.Structured["error"].(map[string]any)
	s, _ := e["code"].(string)
	return s
}
func (r result) reason() string {
	e, _ := r.Structured["error"].(map[string]any)
	s, _ := e["reason"].(string)
	return s
}

func (w *wire) all() []message {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]message, len(w.lines))
	for i, l := range w.lines {
		require.NoError(w.t, json.Unmarshal(l, &out[i]), "line %s", l)
	}
	return out
}

// until waits for a message.
func (w *wire) until(what string, f func(m message) bool) message {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		for _, m := range w.all() {
			if f(m) {
				return m
			}
		}
		select {
		case <-w.news:
		case <-w.eof:
			for _, m := range w.all() {
				if f(m) {
					return m
				}
			}
			w.t.Fatalf("the stream ended before %s; there were %s", what, w.lines)
		case <-deadline:
			w.t.Fatalf("no %s; there were %s", what, w.lines)
		}
	}
}

func (w *wire) answer(id string) message {
	w.t.Helper()
	return w.until("answer "+id, func(m message) bool { return string(m.ID) == id && m.Method == "" })
}

func (w *wire) result(id string) result {
	w.t.Helper()
	m := w.answer(id)
	require.Nil(w.t, m.Error, "an error %+v", m.Error)
	var r result
	require.NoError(w.t, json.Unmarshal(m.Result, &r))
	return r
}

func (w *wire) initialize() {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}`)
	w.answer(`"init"`)
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (w *wire) call(id, tool, args string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

// do calls and waits.
func (w *wire) do(id, tool, args string) result {
	w.t.Helper()
	w.call(id, tool, args)
	return w.result(id)
}
