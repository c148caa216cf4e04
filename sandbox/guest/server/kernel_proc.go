//go:build linux

package server

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	kernelStart    = 40 * time.Second // until a kernel has answered, on a busy machine
	interruptGrace = 3 * time.Second  // then it is ended
	kernelTemp     = "/tmp"           // for sockets: a short path on the sandbox's own file system
	stderrKept     = 4 << 10
)

//go:embed kernel_init.py
var kernelInit string

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
	kn.folder = k.temp + "/.pinfold-kernel-" + rand.Text()[:8]
	defer func() {
		if err != nil {
			kn.fail("it did not start")
		}
	}()
	file := kn.folder + "/connection.json"
	if err := k.files.as(sandbox.AgentUID, func() error { return writeConnection(kn, file) }); err != nil {
		return nil, fmt.Errorf("writing the kernel's connection file: %w", err)
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

func writeConnection(kn *kernel, file string) error {
	if err := unix.Mkdir(kn.folder, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": kn.folder + "/k", "key": string(kn.sign.key), "signature_scheme": "hmac-sha256",
		"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "kernel_name": "python3",
	})
	if err != nil {
		return err
	}
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, b)
	return err
}

// kernelMissing tells an image without a kernel from one whose kernel is broken.
func kernelMissing(err error, stderr string) error {
	lacks := ""
	var own *sandbox.Error
	switch {
	case strings.Contains(stderr, "No module named ipykernel"):
		lacks = "ipykernel"
	case err != nil && (errors.Is(err, unix.ENOENT) || errors.Is(err, os.ErrNotExist)), errors.As(err, &own) && own.Code == sandbox.NotFound:
		lacks = "python3"
	}
	if lacks != "" {
		return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "image_lacks", Details: map[string]any{"image_lacks": lacks},
			Message: "this session's image has no " + lacks + ", which code_run needs",
			Hint:    "Use shell_run with python3 or another program; or make the full image with pinfold image build and open a new session."}
	}
	if own != nil {
		return err
	}
	return &sandbox.Error{Code: sandbox.Unavailable, Reason: "kernel_start", Retry: true, Cause: err,
		Message: strings.TrimSpace("the Python kernel did not start. " + stderr), Hint: "Try again; shell_run with python3 -m ipykernel_launcher shows more."}
}

// connect waits for the kernel's sockets and connects to them, as the agent:
// their folder is closed to everyone else.
func (kn *kernel) connect(ctx context.Context) error {
	for _, s := range []struct {
		port int
		kind string
		to   **peer
	}{{1, "DEALER", &kn.shell}, {2, "SUB", &kn.iopub}, {4, "DEALER", &kn.control}} {
		path := kn.folder + "/k-" + strconv.Itoa(s.port)
		for *s.to == nil {
			conn, err := kn.k.dial(path)
			if err == nil {
				p, err := greetPeer(conn, s.kind)
				if err != nil {
					return kernelMissing(err, kn.stderr.text())
				}
				*s.to = p
				break
			}
			select {
			case <-time.After(10 * time.Millisecond): // the socket appears when the kernel has come so far
			case <-kn.proc.done:
				kn.stderr.wait()
				return kernelMissing(nil, kn.proc.how()+"\n"+kn.stderr.text())
			case <-ctx.Done():
				return kernelMissing(ctx.Err(), kn.stderr.text())
			}
		}
	}
	return kn.iopub.send([][]byte{{1}}) // subscribe to everything
}

// dial connects to a Unix socket as the agent.
func (k *kernels) dial(path string) (net.Conn, error) {
	var fd int
	err := k.files.as(sandbox.AgentUID, func() (err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return net.FileConn(f)
}

// prepare waits until the kernel answers on both channels and sets it up. A
// subscription takes effect at some time after it was sent, so that the first
// broadcasts may be missed: it asks until one comes.
func (kn *kernel) prepare(ctx context.Context) error {
	folder, err := json.Marshal(kn.k.out)
	if err != nil {
		return err
	}
	code := kernelInit + "\n_pinfold_setup(" + string(folder) + ")\ndel _pinfold_setup\n"
	for range 20 {
		r := newRun(kn, "")
		if err := kn.submit(r, code, true); err != nil {
			return kernelMissing(err, kn.stderr.text())
		}
		select {
		case <-r.replied:
		case <-kn.dead:
			kn.stderr.wait()
			return kernelMissing(nil, kn.reason+"\n"+kn.stderr.text())
		case <-ctx.Done():
			return kernelMissing(ctx.Err(), kn.stderr.text())
		}
		select {
		case <-r.done:
			return nil
		case <-kn.dead:
			return kernelMissing(nil, kn.reason)
		case <-time.After(200 * time.Millisecond):
			kn.forget(r)
			code = "pass" // the first took effect, only its end was not heard
		}
	}
	return kernelMissing(nil, "its broadcasts do not arrive")
}

// submit sends code to the kernel as the request of a run.
func (kn *kernel) submit(r *run, code string, silent bool) error {
	id, frames, err := kn.sign.encode("execute_request", map[string]any{
		"code": code, "silent": silent, "store_history": !silent, "user_expressions": map[string]any{}, "allow_stdin": false, "stop_on_error": true,
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

// tail keeps the end of a stream.
type tail struct {
	mu   sync.Mutex
	b    []byte
	over chan struct{}
	init sync.Once
}

func (t *tail) ended() chan struct{} {
	t.init.Do(func() { t.over = make(chan struct{}) })
	return t.over
}

func (t *tail) from(r io.Reader) {
	defer close(t.ended())
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		t.mu.Lock()
		t.b = append(t.b, buf[:n]...)
		if len(t.b) > 2*stderrKept {
			t.b = append([]byte(nil), t.b[len(t.b)-stderrKept:]...)
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wait gives the stream of a process that ended a moment to end too.
func (t *tail) wait() {
	select {
	case <-t.ended():
	case <-time.After(time.Second):
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, _ := validText(t.b[max(0, len(t.b)-stderrKept):])
	return strings.TrimSpace(stripANSI(s))
}
