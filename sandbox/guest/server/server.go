//go:build linux

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// handler answers one request. args is the request's own JSON; a value is sent
// as the result, an error as a sandbox.Error. ctx ends when the host cancels
// the call, when the stream ends, or when the link is lost. The handler runs on
// its own goroutine as uid 0 without any right over files: whatever touches
// files or makes pipes goes through asAgent.
type handler func(ctx context.Context, s *Server, args json.RawMessage, st *stream) (any, error)

// handlersOf collects the handlers of all files: core here, files in file.go,
// kernels in kernel.go.
func handlersOf() map[string]handler {
	all := map[string]handler{}
	for _, m := range []map[string]handler{coreHandlers(), fileHandlers(), codeHandlers()} {
		maps.Copy(all, m)
	}
	return all
}

// opForward turns its stream into a plain byte stream after the result.
const opForward = "forward"

func coreHandlers() map[string]handler {
	return map[string]handler{
		"exec":     handleExec,
		"output":   handleOutput,
		"follow":   handleFollow,
		"input":    handleInput,
		"kill":     handleKill,
		"kill_uid": handleKillUID,
		"status":   handleStatus,
		"shutdown": handleShutdown,
		opForward:  handleForward,
	}
}

// Server is the guest. There is one in a process, since it reaps every child.
type Server struct {
	cfg      guest.Config
	report   guest.Report
	handlers map[string]handler
	started  time.Time
	stderr   io.Writer

	ctx  context.Context // ends when the guest does
	stop context.CancelFunc
	wg   sync.WaitGroup // handlers

	trees   trees
	reap    reaper
	procs   processes
	kernels kernels

	mu      sync.Mutex
	closers []func() // what other parts end with the guest (kernels)
}

// New makes a guest from its configuration. Setup must have been called.
func New(cfg guest.Config, report guest.Report, stderr io.Writer) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, report: report, handlers: handlersOf(), started: time.Now(), stderr: stderr, ctx: ctx, stop: stop}
	s.trees.init(report.GIDMap)
	s.reap.start()
	return s
}

// Serve greets the host on conn and answers it until the link ends.
func (s *Server) Serve(conn net.Conn) error {
	if err := guest.Greet(conn, s.cfg.Token, s.report); err != nil {
		_ = conn.Close()
		return fmt.Errorf("greeting the host: %w", err)
	}
	link, err := guest.ServeLink(conn)
	if err != nil {
		return err
	}
	defer link.Close()
	defer context.AfterFunc(s.ctx, func() { _ = link.Close() })()
	for {
		st, err := link.AcceptStream()
		if err != nil {
			return err
		}
		go s.serve(st, link.IsClosed)
	}
}

// End ends every process inside and waits up to a second for that. As pid 1
// the exit that follows ends what is left.
func (s *Server) End() {
	s.stop()
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	for _, f := range closers {
		f()
	}
	s.endAll(time.Second)
}

// atEnd has f called when the guest ends.
func (s *Server) atEnd(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

func (s *Server) log(format string, args ...any) {
	fmt.Fprintf(s.stderr, "pinfold-guest: "+format+"\n", args...)
}

// decode reads args strictly into a T.
func decode[T any](args json.RawMessage) (T, error) {
	var v T
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := guest.Decode(args, &v); err != nil {
		return v, sandbox.Errorf(sandbox.InvalidArgument, "Send what this guest's version knows.", "the request is malformed: %v", err)
	}
	return v, nil
}
