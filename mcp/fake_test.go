package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// fakeLauncher makes sandboxes that are folders and processes of this machine:
// a small real thing, for what is tested here is the way to it.
type fakeLauncher struct {
	root string

	mu       sync.Mutex
	fail     error         // of the next launches
	hold     chan struct{} // a launch waits for it
	launched []sandbox.Spec
	boxes    map[string]*fakeBox
	discards []string
}

func newFakeLauncher(root string) *fakeLauncher {
	return &fakeLauncher{root: root, boxes: map[string]*fakeBox{}}
}

func (l *fakeLauncher) Launch(ctx context.Context, spec sandbox.Spec) (*Box, error) {
	l.mu.Lock()
	l.launched = append(l.launched, spec)
	err, hold := l.fail, l.hold
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.root, spec.Session)
	if spec.Resume != "" {
		dir = filepath.Join(l.root, spec.Resume)
		if _, err := os.Stat(dir); err != nil {
			return nil, sandbox.Errorf(sandbox.NotFound, "Call session_open for a new session.", "the kept workspace is gone")
		}
	} else if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	b := &fakeBox{launcher: l, spec: spec, dir: dir, done: make(chan struct{}), procs: map[string]*fakeProc{}}
	l.mu.Lock()
	l.boxes[spec.Session] = b
	l.mu.Unlock()
	return &Box{Sandbox: b, Guest: fakeGuest{b}}, nil
}

func (l *fakeLauncher) Discard(_ context.Context, session, _ string) error {
	l.mu.Lock()
	l.discards = append(l.discards, session)
	l.mu.Unlock()
	return os.RemoveAll(filepath.Join(l.root, session))
}

func (l *fakeLauncher) launches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.launched)
}

func (l *fakeLauncher) box(session string) *fakeBox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.boxes[session]
}

type fakeBox struct {
	launcher *fakeLauncher
	spec     sandbox.Spec
	dir      string
	done     chan struct{}
	once     sync.Once
	serial   atomic.Int64

	mu    sync.Mutex
	procs map[string]*fakeProc
}

type fakeProc struct {
	cmd     *exec.Cmd
	request sandbox.ExecRequest
	since   time.Time
	ended   chan struct{}
	killed  atomic.Bool

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *fakeProc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *fakeProc) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// die ends the sandbox as a crash of its pid 1 would.
func (b *fakeBox) die() {
	b.once.Do(func() { close(b.done) })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.procs {
		p.kill()
	}
}

func (b *fakeBox) Info() sandbox.Info {
	return sandbox.Info{ID: "box-" + b.spec.Session, Session: b.spec.Session, Owner: b.spec.Owner, State: sandbox.StateRunning, Isolation: b.spec.Isolation,
		Runtime: "fake", Workspace: b.spec.Workspace, Created: b.spec.Created, Image: "sha256:fake",
		Posture: sandbox.Posture{Network: "none", NoNewPrivs: true, Degraded: []string{"pids: the host counts none"}}}
}
func (b *fakeBox) Dial(context.Context) (net.Conn, error) { return nil, errors.ErrUnsupported }
func (b *fakeBox) Token() string                          { return "fake" }
func (b *fakeBox) Done() <-chan struct{}                  { return b.done }
func (b *fakeBox) Exec(context.Context, sandbox.ExecSpec) (sandbox.Stream, error) {
	return nil, errors.ErrUnsupported
}

func (b *fakeBox) Stop(_ context.Context, keep sandbox.Keep) error {
	b.die()
	if keep == sandbox.KeepWorkspace {
		return nil
	}
	return os.RemoveAll(b.dir)
}
func (b *fakeBox) Remove(ctx context.Context) error { return b.Stop(ctx, sandbox.KeepNothing) }

// fakeGuest is the box as its guest.
type fakeGuest struct{ *fakeBox }

func (g fakeGuest) Close() error { return nil }

func (p *fakeProc) kill() {
	p.killed.Store(true)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

func (g fakeGuest) lost() error {
	select {
	case <-g.done:
		return sandbox.Lost(nil)
	default:
		return nil
	}
}

func (g fakeGuest) Exec(ctx context.Context, r sandbox.ExecRequest, progress func(sandbox.ExecProgress)) (sandbox.ExecResult, error) {
	if err := g.lost(); err != nil {
		return sandbox.ExecResult{}, err
	}
	argv := r.Argv
	if r.Command == "" && len(argv) == 0 {
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.InvalidArgument, "Give one.", "command: is empty")
	}
	if r.Command != "" {
		argv = []string{"/bin/sh", "-c", r.Command}
	}
	p := &fakeProc{request: r, since: time.Now(), ended: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = g.dir, p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if r.OpenStdin {
		in, _ := p.cmd.StdinPipe()
		p.request.Stdin = nil
		g.fakeBox.mu.Lock()
		stdins[p] = in
		g.fakeBox.mu.Unlock()
	}
	if err := p.cmd.Start(); err != nil {
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.NotFound, "Check the name.", "%v", err)
	}
	id := fmt.Sprintf("p%d", g.serial.Add(1))
	g.fakeBox.mu.Lock()
	g.procs[id] = p
	g.fakeBox.mu.Unlock()
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var soft <-chan time.Time
	if r.WaitMS > 0 {
		soft = time.After(time.Duration(r.WaitMS) * time.Millisecond)
	}
	if r.Background {
		soft = time.After(0)
	}
	for {
		select {
		case <-p.ended:
			return g.result(id, p), nil
		case <-soft:
			return g.result(id, p), nil
		case <-g.done:
			return sandbox.ExecResult{}, sandbox.Lost(nil)
		case <-ctx.Done():
			p.kill()
			<-p.ended
			return g.result(id, p), ctx.Err()
		case <-tick.C:
			if progress != nil {
				progress(sandbox.ExecProgress{Process: id, LastLine: lastLine(p.text()), ElapsedMS: time.Since(p.since).Milliseconds()})
			}
		}
	}
}

var stdins = map[*fakeProc]io.WriteCloser{}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func (g fakeGuest) result(id string, p *fakeProc) sandbox.ExecResult {
	out := p.text()
	r := sandbox.ExecResult{Process: id, Status: sandbox.Running, Stdout: sandbox.Output{Text: out, Bytes: int64(len(out))}, DurationMS: time.Since(p.since).Milliseconds()}
	select {
	case <-p.ended:
		code := p.cmd.ProcessState.ExitCode()
		if r.Status, r.ExitCode = sandbox.Exited, &code; code < 0 {
			r.Status, r.ExitCode, r.Signal = sandbox.Killed, nil, "SIGKILL"
		}
	default:
	}
	return r
}

func (g fakeGuest) proc(id string) (*fakeProc, error) {
	if err := g.lost(); err != nil {
		return nil, err
	}
	g.fakeBox.mu.Lock()
	defer g.fakeBox.mu.Unlock()
	if p := g.procs[id]; p != nil {
		return p, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "Call session_status.", "process: there is no %q", id)
}

func (g fakeGuest) Output(ctx context.Context, r sandbox.OutputRequest) (sandbox.OutputResult, error) {
	p, err := g.proc(r.Process)
	if err != nil {
		return sandbox.OutputResult{}, err
	}
	since := int64(0)
	if r.Since != nil {
		since = *r.Since
	}
	match := regexp.MustCompile(r.Match)
	deadline := time.After(time.Duration(r.WaitMS) * time.Millisecond)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		res := g.result(r.Process, p)
		text := p.text()[min(int(since), len(p.text())):]
		o := sandbox.OutputResult{Process: r.Process, Status: res.Status, ExitCode: res.ExitCode, Signal: res.Signal, Text: text, Offset: since, Next: since + int64(len(text))}
		if res.Status != sandbox.Running || (r.Match != "" && match.MatchString(text)) || r.WaitMS == 0 {
			return o, nil
		}
		select {
		case <-deadline:
			return o, nil
		case <-ctx.Done():
			return o, ctx.Err()
		case <-tick.C:
		}
	}
}

func (g fakeGuest) Input(_ context.Context, r sandbox.InputRequest) (sandbox.OutputResult, error) {
	p, err := g.proc(r.Process)
	if err != nil {
		return sandbox.OutputResult{}, err
	}
	g.fakeBox.mu.Lock()
	in := stdins[p]
	g.fakeBox.mu.Unlock()
	_, err = in.Write(r.Data)
	return sandbox.OutputResult{Process: r.Process}, err
}

func (g fakeGuest) Kill(_ context.Context, r sandbox.KillRequest) (sandbox.KillResult, error) {
	p, err := g.proc(r.Process)
	if err == nil {
		p.kill()
	}
	return sandbox.KillResult{}, err
}

func (g fakeGuest) path(p string) string {
	return filepath.Join(g.dir, filepath.Clean("/"+strings.TrimPrefix(p, sandbox.WorkspaceDir)))
}

func (g fakeGuest) ReadFile(_ context.Context, r sandbox.ReadRequest) (sandbox.ReadResult, error) {
	b, err := os.ReadFile(g.path(r.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.ReadResult{}, sandbox.Errorf(sandbox.NotFound, "Call file_list.", "path: there is no %s", r.Path)
	}
	if strings.HasSuffix(r.Path, ".png") {
		return sandbox.ReadResult{Path: r.Path, Kind: "image", MediaType: "image/png", Data: b, Size: int64(len(b))}, err
	}
	return sandbox.ReadResult{Path: r.Path, Kind: "text", Text: string(b), Size: int64(len(b)), Encoding: "utf-8", From: 1}, err
}

func (g fakeGuest) WriteFile(_ context.Context, r sandbox.WriteRequest) (sandbox.WriteResult, error) {
	return sandbox.WriteResult{Path: r.Path, Bytes: int64(len(r.Content)), Created: true}, os.WriteFile(g.path(r.Path), r.Content, 0o600)
}

func (g fakeGuest) EditFile(context.Context, sandbox.EditRequest) (sandbox.EditResult, error) {
	panic("a fault in the guest's client")
}

func (g fakeGuest) List(_ context.Context, r sandbox.ListRequest) (sandbox.ListResult, error) {
	entries, err := os.ReadDir(g.path(r.Path))
	res := sandbox.ListResult{Path: r.Path, Total: len(entries)}
	for _, e := range entries {
		res.Entries = append(res.Entries, sandbox.Entry{Path: e.Name(), Type: "file"})
	}
	return res, err
}

func (g fakeGuest) Search(context.Context, sandbox.SearchRequest) (sandbox.SearchResult, error) {
	return sandbox.SearchResult{}, errors.New("disk on fire: /home/user/.secret")
}

func (g fakeGuest) RunCode(context.Context, sandbox.CodeRequest, func(sandbox.CodeProgress)) (sandbox.CodeResult, error) {
	return sandbox.CodeResult{}, errors.ErrUnsupported
}

func (g fakeGuest) Status(context.Context) (sandbox.GuestStatus, error) {
	if err := g.lost(); err != nil {
		return sandbox.GuestStatus{}, err
	}
	st := sandbox.GuestStatus{Listening: []sandbox.Listener{{Address: "127.0.0.1", Port: 8000}}, Mem: 1 << 20, Disk: 1 << 30}
	g.fakeBox.mu.Lock()
	defer g.fakeBox.mu.Unlock()
	for id, p := range g.procs {
		r := g.result(id, p)
		st.Processes = append(st.Processes, sandbox.ProcessInfo{Process: id, Command: p.request.Command, Status: r.Status})
	}
	return st, nil
}

func (g fakeGuest) Transfer(context.Context, sandbox.TransferRequest) (sandbox.TransferResult, error) {
	return sandbox.TransferResult{}, errors.ErrUnsupported
}
func (g fakeGuest) KillUID(context.Context, int) error { return nil }
