//go:build linux

package server

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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

// What ends a kernel on purpose.
const (
	sessionEnded = "the session ended"
	wasReset     = "it was reset"
)

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
