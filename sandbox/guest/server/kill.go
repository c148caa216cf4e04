//go:build linux

package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Grace between a polite signal and SIGKILL.
const (
	defaultGrace = 2 * time.Second
	maxGrace     = time.Minute
)

// handleKill ends processes with all that they started. TERM, INT and QUIT are
// followed by KILL after the grace; other signals are only sent.
func handleKill(ctx context.Context, s *Server, args json.RawMessage, _ *stream) (any, error) {
	r, err := decode[sandbox.KillRequest](args)
	if err != nil {
		return nil, err
	}
	if (r.Process == "") == !r.All {
		return nil, field("process", "Give a handle, or all.", "exactly one of process and all is needed")
	}
	sig, err := signalOf(r.Signal)
	if err != nil {
		return nil, err
	}
	grace := defaultGrace
	if r.GraceMS > 0 {
		grace = min(time.Duration(r.GraceMS)*time.Millisecond, maxGrace)
	}
	var targets []*process
	if r.All {
		for _, p := range s.procs.all() {
			if !s.treeEmpty(p) {
				targets = append(targets, p)
			}
		}
	} else {
		p, err := s.procs.get(r.Process)
		if err != nil {
			return nil, err
		}
		targets = []*process{p}
	}
	var wg sync.WaitGroup
	for _, p := range targets {
		wg.Go(func() { s.kill(ctx, p, sig, grace, r.GraceMS > 0) })
	}
	wg.Wait()
	if r.All && sig == unix.SIGKILL || r.All && ends(sig) {
		s.killStrays()
	}
	out := sandbox.KillResult{Processes: []sandbox.ProcessInfo{}}
	for _, p := range targets {
		out.Processes = append(out.Processes, p.info(len(inTree(p.child.gid))))
	}
	return out, nil
}

func ends(sig unix.Signal) bool {
	return sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGKILL
}

// kill sends sig to the tree of p, waits for the grace, and ends what is left.
func (s *Server) kill(ctx context.Context, p *process, sig unix.Signal, grace time.Duration, asked bool) {
	if s.treeEmpty(p) {
		return
	}
	if sig == unix.SIGKILL {
		s.end(p, sandbox.Killed, killLimit)
		return
	}
	if ends(sig) || asked {
		p.mark(sandbox.Killed)
	}
	signalTree(p.child.gid, sig)
	if !ends(sig) && !asked {
		return
	}
	signalTree(p.child.gid, unix.SIGCONT) // a stopped process would keep the signal for later
	deadline := time.Now().Add(grace)
	pause := time.Millisecond
	for time.Now().Before(deadline) && ctx.Err() == nil {
		select {
		case <-p.child.done:
			if len(inTree(p.child.gid)) == 0 {
				s.end(p, sandbox.Killed, killLimit) // for its output to come in
				return
			}
		default:
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	s.end(p, sandbox.Killed, killLimit)
}

// killStrays ends what the agent runs outside of every kept tree.
func (s *Server) killStrays() {
	kept := s.trees.kept()
	killWhere(killLimit, func(p *proc) bool {
		if p.uid != sandbox.AgentUID || !p.living() {
			return false
		}
		return !slices.ContainsFunc(p.groups, func(g int) bool { return slices.Contains(kept, g) })
	})
}

var signals = map[string]unix.Signal{
	"TERM": unix.SIGTERM, "KILL": unix.SIGKILL, "INT": unix.SIGINT, "QUIT": unix.SIGQUIT, "HUP": unix.SIGHUP,
	"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "STOP": unix.SIGSTOP, "CONT": unix.SIGCONT, "TSTP": unix.SIGTSTP, "WINCH": unix.SIGWINCH,
}

func signalOf(name string) (unix.Signal, error) {
	if name == "" {
		return unix.SIGTERM, nil
	}
	if sig, ok := signals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]; ok {
		return sig, nil
	}
	return 0, field("signal", "TERM, KILL, INT, QUIT, HUP, USR1, USR2, STOP or CONT.", clip(name)+" is no signal")
}

// handleKillUID ends every process of one user: the browser's.
func handleKillUID(_ context.Context, s *Server, args json.RawMessage, _ *stream) (any, error) {
	r, err := decode[struct {
		UID int `json:"uid"`
	}](args)
	if err != nil {
		return nil, err
	}
	if r.UID <= 0 {
		return nil, field("uid", "", "must be above 0")
	}
	if !killWhere(killLimit, func(p *proc) bool { return p.uid == r.UID && p.living() }) {
		return nil, sandbox.Errorf(sandbox.Internal, "", "processes of uid %d do not end", r.UID)
	}
	return nil, nil
}

// handleShutdown ends everything inside; main then ends the guest.
func handleShutdown(_ context.Context, s *Server, _ json.RawMessage, _ *stream) (any, error) {
	time.AfterFunc(10*time.Millisecond, s.stop) // after the answer
	return nil, nil
}
