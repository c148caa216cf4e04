//go:build linux

package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"pinfold.dev/pinfold/sandbox"
)

// kernels are the kernels of a session, by context, and their runs. The zero
// value works for a Server.
type kernels struct {
	files  *files
	temps  []string // for sockets, the first that works
	out    string   // for what is too large for an answer
	launch func(folder, connection string) (*kernelProc, error)

	mu     sync.Mutex
	live   map[string]*kernel
	starts map[string]*starting
	ended  map[string]string // why the last kernel of a context ended, until someone was told
	runs   map[string]*run
	order  []string // of runs, oldest first
	count  int
	closed bool
	ctx    context.Context // ends with the session; kernels are started under it
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// starting is a kernel being started, which several calls may wait for.
type starting struct {
	done chan struct{}
	kn   *kernel
	err  error
}

func (k *kernels) init(s *Server) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live != nil {
		return
	}
	k.reset()
	k.files, k.temps, k.out = newFiles(), kernelTemps, sandbox.SessionDir+"/code"
	k.launch = s.launchKernel
	s.atEnd(k.close)
}

func (k *kernels) reset() {
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.live, k.starts, k.ended, k.runs = map[string]*kernel{}, map[string]*starting{}, map[string]string{}, map[string]*run{}
}

func (k *kernels) list() []sandbox.KernelInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []sandbox.KernelInfo{}
	for _, kn := range k.live {
		kn.mu.Lock()
		out = append(out, sandbox.KernelInfo{Context: kn.context, Language: "python", State: kn.state, PID: kn.proc.pid})
		kn.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b sandbox.KernelInfo) int { return strings.Compare(a.Context, b.Context) })
	return out
}

// close ends every kernel and waits for that.
func (k *kernels) close() {
	k.mu.Lock()
	k.closed = true
	k.cancel()
	var live []*kernel
	for _, kn := range k.live {
		live = append(live, kn)
	}
	k.mu.Unlock()
	for _, kn := range live {
		kn.fail(sessionEnded)
	}
	k.wg.Wait()
}

// drop forgets a kernel that is dead. Whoever starts the next one of its
// context is told, unless a run was told before.
func (k *kernels) drop(kn *kernel, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live[kn.context] != kn {
		return
	}
	delete(k.live, kn.context)
	if reason != sessionEnded && reason != wasReset {
		k.ended[kn.context] = reason
	}
}

// ensure returns the context's kernel, started if need be. The start goes on
// when the caller stops waiting.
func (k *kernels) ensure(w *waiting, name string) (*kernel, string, error) {
	k.mu.Lock()
	if kn := k.live[name]; kn != nil {
		k.mu.Unlock()
		return kn, "", nil
	}
	st := k.starts[name]
	if st == nil {
		if k.closed || len(k.live)+len(k.starts) >= maxKernels {
			defer k.mu.Unlock()
			return nil, "", sandbox.Errorf(sandbox.ResourceExhausted, "Use an earlier context.", "%d kernels are running; there are no more in a session", maxKernels)
		}
		st = &starting{done: make(chan struct{})}
		k.starts[name] = st
		k.wg.Go(func() { k.begin(name, st) })
	}
	k.mu.Unlock()
	const says = "starting the Python kernel"
	w.say(says) // at once: a start is over before the first tick
	if err := w.on(st.done, func() string { return says }); err != nil {
		if errors.Is(err, errWaited) {
			err = sandbox.Errorf(sandbox.Unavailable, "Send the same call again in a moment.", "the Python kernel is still starting")
		}
		return nil, "", err
	}
	if st.err != nil {
		return nil, "", st.err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	note := ""
	if why := k.ended[name]; why != "" {
		note = "This is a fresh kernel: the one before has ended (" + why + ") and its variables are gone."
		delete(k.ended, name)
	}
	return st.kn, note, nil
}

func (k *kernels) begin(name string, st *starting) {
	st.kn, st.err = k.startKernel(k.ctx, name)
	k.mu.Lock()
	delete(k.starts, name)
	closed := k.closed
	if st.err == nil && !closed {
		st.kn.mu.Lock()
		if st.kn.state != "dead" {
			k.live[name] = st.kn
		}
		st.kn.mu.Unlock()
	}
	k.mu.Unlock()
	if closed && st.err == nil {
		st.kn.fail(sessionEnded)
		st.err = sandbox.Errorf(sandbox.Unavailable, "Open a new session.", "the session is ending")
	}
	close(st.done)
}
