//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxKernels  = 6
	maxRuns     = 16               // finished ones that are kept for who asks again
	runKept     = 10 * time.Minute // and how long
	defaultWait = 45 * time.Second
	maxCode     = 1 << 20
)

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// kernels are the kernels of a session, by context, and their runs. The zero
// value works for a Server.
type kernels struct {
	files  *files
	temp   string // for sockets
	out    string // for what is too large for an answer
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
	k.files, k.temp, k.out = newFiles(), kernelTemp, sandbox.SessionDir+"/code"
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

// What ends a kernel on purpose.
const (
	sessionEnded = "the session ended"
	wasReset     = "it was reset"
)

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

// launchKernel starts ipykernel as the agent, in a tree of its own.
func (s *Server) launchKernel(folder, connection string) (*kernelProc, error) {
	env, err := s.environment(map[string]string{"IPYTHONDIR": folder + "/ipython", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}, false)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := agentPipe(true)
	if err != nil {
		return nil, err
	}
	// One pipe for both of its streams: what it prints there is for us only.
	fd, err := unix.FcntlInt(rawFD(theirs), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	also := os.NewFile(uintptr(fd), "pipe")
	c, err := s.start(startSpec{programs: programOf(kernelCommand(connection)), env: env, dir: sandbox.WorkspaceDir, keep: true, stdout: theirs, stderr: also})
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &kernelProc{pid: c.pid, done: c.done, how: func() string { return howEnded(c.status) }, stderr: ours, kill: func() {
		killTree(c.gid, 2*time.Second)
		<-c.done
		s.trees.give(c.gid)
	}}, nil
}

// kernelCommand is the kernel without history, which would go to a file.
func kernelCommand(connection string) []string {
	return []string{"python3", "-m", "ipykernel_launcher", "-f", connection, "--HistoryManager.enabled=False"}
}

func howEnded(w syscall.WaitStatus) string {
	switch {
	case w.Signaled() && w.Signal() == syscall.SIGKILL:
		return "it was killed (SIGKILL), perhaps for want of memory"
	case w.Signaled():
		return "it died by signal " + strconv.Itoa(int(w.Signal())) + " (" + w.Signal().String() + ")"
	}
	return "it exited with code " + strconv.Itoa(w.ExitStatus())
}

// runCode answers a CodeRequest.
func (s *Server) runCode(ctx context.Context, r sandbox.CodeRequest, progress func(sandbox.CodeProgress)) (sandbox.CodeResult, error) {
	s.kernels.init(s)
	return s.kernels.run(ctx, r, progress)
}

func (k *kernels) run(ctx context.Context, r sandbox.CodeRequest, progress func(sandbox.CodeProgress)) (sandbox.CodeResult, error) {
	wait := time.Duration(r.WaitMS) * time.Millisecond
	if wait <= 0 {
		wait = defaultWait
	}
	w := &waiting{ctx: ctx, until: time.Now().Add(wait), began: time.Now(), every: time.Duration(r.ProgressMS) * time.Millisecond, progress: progress}
	if r.Run != "" {
		run, err := k.find(r.Run)
		if err != nil {
			return sandbox.CodeResult{}, err
		}
		return k.wait(w, run, r.MaxOutput)
	}
	if err := checkCode(&r); err != nil {
		return sandbox.CodeResult{}, err
	}
	if r.Reset {
		k.mu.Lock()
		kn := k.live[r.Context]
		k.mu.Unlock()
		if kn != nil {
			kn.end(wasReset)
		}
		if strings.TrimSpace(r.Code) == "" {
			return sandbox.CodeResult{Context: r.Context, Language: "python", Status: "ok", Outputs: []sandbox.CodeOutput{}, Kernel: "restarted"}, nil
		}
	}
	for again := true; ; again = false {
		kn, note, err := k.ensure(w, r.Context)
		if err != nil {
			return sandbox.CodeResult{}, err
		}
		if err := w.turn(kn); err != nil {
			return sandbox.CodeResult{}, err
		}
		run := newRun(kn, k.number())
		run.note, run.fresh = note, r.Reset || note != ""
		if err := kn.submit(run, r.Code, false); err != nil {
			run.end("kernel_died", err.Error())
			if again { // it had died before it got anything
				kn.end(connectionEnded)
				continue
			}
		}
		k.keep(run)
		if r.TimeoutMS > 0 {
			run.limit(time.Duration(r.TimeoutMS) * time.Millisecond)
		}
		return k.wait(w, run, r.MaxOutput)
	}
}

func checkCode(r *sandbox.CodeRequest) error {
	if r.Language != "" && r.Language != "python" {
		return sandbox.Errorf(sandbox.InvalidArgument, "Use shell_run for other languages, as in node -e or bash.", "language: %q; only python runs in a kernel here", short(r.Language))
	}
	if r.Context == "" {
		r.Context = "default"
	}
	switch {
	case !contextName.MatchString(r.Context):
		return sandbox.Errorf(sandbox.InvalidArgument, "Use letters, digits, _ . and -.", "context: %q is no name", short(r.Context))
	case len(r.Code) > maxCode:
		return sandbox.Errorf(sandbox.InvalidArgument, "Write it to a file and import that.", "code: longer than %d bytes", maxCode)
	case strings.TrimSpace(r.Code) == "" && !r.Reset:
		return sandbox.Errorf(sandbox.InvalidArgument, "Give code, or run to go on waiting for one.", "code: is empty")
	}
	return nil
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

func (k *kernels) number() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	return "run_" + strconv.Itoa(k.count)
}

// keep makes a run known by its handle and forgets old ones.
func (k *kernels) keep(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[r.handle] = r
	k.order = append(k.order, r.handle)
	k.order = slices.DeleteFunc(k.order, func(h string) bool {
		old := k.runs[h]
		gone := old.finished() && (len(k.runs) > maxRuns || time.Since(old.began) > runKept+old.took())
		if gone {
			delete(k.runs, h)
		}
		return gone
	})
}

func (k *kernels) find(handle string) (*run, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.runs[handle]; r != nil {
		return r, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "Start it again with code.", "run: %q is not known (any more)", short(handle))
}

// wait waits for a run and answers with what came since the last answer.
func (k *kernels) wait(w *waiting, r *run, most int) (sandbox.CodeResult, error) {
	err := w.on(r.done, r.lastLine)
	if err != nil && !errors.Is(err, errWaited) {
		r.stop("interrupted")
		return sandbox.CodeResult{}, err
	}
	res := r.result(most)
	if res.Kernel == "dead" {
		k.mu.Lock()
		delete(k.ended, res.Context) // told here
		k.mu.Unlock()
	}
	return res, nil
}

// waiting is one call's patience.
type waiting struct {
	ctx      context.Context
	began    time.Time
	until    time.Time
	every    time.Duration
	progress func(sandbox.CodeProgress)
}

func (w *waiting) say(line string) {
	if w.every > 0 && w.progress != nil {
		w.progress(sandbox.CodeProgress{LastLine: line, ElapsedMS: time.Since(w.began).Milliseconds()})
	}
}

var errWaited = errors.New("waited long enough")

// on waits for done, the soft limit or ctx, and says meanwhile what goes on.
func (w *waiting) on(done <-chan struct{}, line func() string) error {
	soft := time.NewTimer(time.Until(w.until))
	defer soft.Stop()
	var tick <-chan time.Time
	if w.every > 0 && w.progress != nil {
		t := time.NewTicker(max(w.every, 50*time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-done:
			return nil
		case <-tick:
			w.say(line())
		case <-soft.C:
			return errWaited
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

// turn waits until nothing runs in the kernel, and takes its turn. A kernel
// that dies ends its run, which gives the turn on.
func (w *waiting) turn(kn *kernel) error {
	err := w.on(kn.turn, func() string { return "waiting for the run before" })
	if errors.Is(err, errWaited) {
		return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "context_busy", Message: fmt.Sprintf("context %q is still running earlier code", kn.context),
			Hint: "Wait for it with run, use another context, or set reset."}
	}
	return err
}
