//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

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
