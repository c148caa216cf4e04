//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	kernelStart    = 40 * time.Second       // until a kernel has answered, on a busy machine
	interruptNot   = 250 * time.Millisecond // after the start of a run: its code may not run yet
	interruptGrace = 3 * time.Second        // then it is ended
	stderrKept     = 4 << 10
)

// kernelTemps are where a kernel's sockets may lie: short paths, best on the
// sandbox's own file system, since not every volume takes sockets.
var kernelTemps = []string{"/tmp", sandbox.SessionDir}

// kernelProc is the process of a kernel; child behind it, or a test's own.
type kernelProc struct {
	pid    int
	done   <-chan struct{} // closed once it has ended
	how    func() string   // after done: "exited with code 1", "killed by SIGKILL"
	kill   func()          // ends all that it started, and waits
	stderr io.ReadCloser
}

// kernel is one running kernel. Its reader goroutine ends with the connections.
type kernel struct {
	k       *kernels
	context string
	proc    *kernelProc
	sign    *signer
	shell   *peer
	control *peer
	iopub   *peer
	folder  string        // of its sockets
	turn    chan struct{} // holds a token while nothing runs
	dead    chan struct{} // closed when it is of no more use
	closed  chan struct{} // closed when nothing is left of it

	once   sync.Once
	mu     sync.Mutex
	runs   map[string]*run // by request id
	state  string
	reason string // why it is dead
	stderr tail
	wg     sync.WaitGroup
}

// startKernel starts a Python kernel and waits until it answers.
func (k *kernels) startKernel(ctx context.Context, name string) (_ *kernel, err error) {
	kn := &kernel{k: k, context: name, sign: newSigner(), runs: map[string]*run{}, state: "starting", turn: make(chan struct{}, 1), dead: make(chan struct{}), closed: make(chan struct{})}
	kn.turn <- struct{}{}
	defer func() {
		if err != nil {
			kn.fail("it did not start")
		}
	}()
	file, err := kn.makeFolder()
	if err != nil {
		return nil, fileError("write", kn.folder, err)
	}
	if kn.proc, err = k.launch(kn.folder, file); err != nil {
		return nil, kernelMissing(err, "")
	}
	kn.wg.Go(func() { kn.stderr.from(kn.proc.stderr) })
	ctx, cancel := context.WithTimeout(ctx, kernelStart)
	defer cancel()
	if err := kn.connect(ctx); err != nil {
		return nil, err
	}
	kn.wg.Go(func() { kn.watch() })
	kn.wg.Go(func() { kn.receive(kn.shell) })
	kn.wg.Go(func() { kn.receive(kn.iopub) })
	return kn, kn.prepare(ctx)
}

// submit sends code to the kernel as the request of a run.
func (kn *kernel) submit(r *run, code string, silent bool) error {
	id, frames, err := kn.sign.encode("execute_request", map[string]any{
		"code": code, "silent": silent, "store_history": !silent, "user_expressions": map[string]any{}, "allow_stdin": false,
		// Runs are sent one at a time; with it, one that follows a failed one at once would be dropped.
		"stop_on_error": false,
	})
	if err != nil {
		return err
	}
	kn.mu.Lock()
	if kn.state == "dead" {
		defer kn.mu.Unlock()
		return errors.New(kn.reason)
	}
	r.id = id
	kn.runs[id] = r
	kn.mu.Unlock()
	return kn.shell.send(frames)
}

func (kn *kernel) forget(r *run) {
	kn.mu.Lock()
	defer kn.mu.Unlock()
	delete(kn.runs, r.id)
}

// receive hands what comes on one connection to its runs, until that ends.
func (kn *kernel) receive(p *peer) {
	for {
		m, err := p.receive()
		if err != nil {
			kn.fail(connectionEnded)
			return
		}
		msg, err := kn.sign.decode(m)
		if err != nil {
			continue // not signed with the key: not from the kernel
		}
		kn.mu.Lock()
		r := kn.runs[msg.Parent]
		if msg.Type == "status" {
			var s stateContent
			if json.Unmarshal(msg.Content, &s) == nil {
				kn.state = s.State
			}
		}
		kn.mu.Unlock()
		if r != nil && r.take(msg) {
			kn.forget(r)
		}
	}
}

// watch ends the kernel's runs when its process ends.
func (kn *kernel) watch() {
	select {
	case <-kn.proc.done:
		kn.fail(kn.proc.how())
	case <-kn.dead:
	}
}

// fail marks the kernel dead, ends its runs, its process with all that it
// started, and everything of ours. Only the first call and its reason count.
func (kn *kernel) fail(reason string) {
	kn.once.Do(func() {
		if kn.proc != nil && reason == connectionEnded {
			select {
			case <-kn.proc.done:
				reason = kn.proc.how() // says more
			case <-time.After(200 * time.Millisecond):
			}
		}
		kn.k.drop(kn, reason)
		kn.mu.Lock()
		kn.state, kn.reason = "dead", reason
		runs := kn.runs
		kn.runs = map[string]*run{}
		kn.mu.Unlock()
		close(kn.dead)
		for _, r := range runs {
			r.end("kernel_died", reason)
		}
		kn.k.wg.Go(func() { kn.release() })
	})
}

const connectionEnded = "it closed its connection"

func (kn *kernel) release() {
	defer close(kn.closed)
	if kn.proc != nil {
		kn.proc.kill()
		kn.proc.stderr.Close()
	}
	for _, p := range []*peer{kn.shell, kn.iopub, kn.control} {
		if p != nil {
			p.conn.Close()
		}
	}
	kn.wg.Wait()
	_ = kn.k.files.as(sandbox.AgentUID, func() error { return removeFolder(unix.AT_FDCWD, kn.folder, 0) })
}

// end ends the kernel and waits until nothing of it is left.
func (kn *kernel) end(reason string) {
	kn.fail(reason)
	<-kn.closed
}

// interrupt stops what runs now, as ctrl-c would.
func (kn *kernel) interrupt() { _ = unix.Kill(-kn.proc.pid, unix.SIGINT) }

// removeFolder removes a small tree, following no link. It must run inside as.
func removeFolder(at int, name string, depth int) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var names []string
	_ = readDir(fd, func(name string, _ uint8) bool {
		names = append(names, name)
		return len(names) < 1000
	})
	for _, n := range names {
		if unix.Unlinkat(fd, n, 0) != nil && depth < 8 {
			_ = removeFolder(fd, n, depth+1)
		}
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}
