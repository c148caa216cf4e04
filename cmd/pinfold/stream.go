package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// streams passes a command's streams on between its sandbox and ours.
type streams struct {
	client   *guest.Client
	process  string
	app      *app
	tty      bool
	terminal *terminal
}

// pollWait is how long one read waits for output; the answer comes as soon as
// there is some.
const pollWait = 20_000

// pass returns once the command has ended and all its output was written.
func (s *streams) pass(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The goroutine may stay in Read when the command ends first; the process ends then.
	go s.feed(ctx)
	go s.terminal.watchSize(ctx, func(size sandbox.TermSize) {
		_, _ = s.client.Input(ctx, sandbox.InputRequest{Process: s.process, Resize: &size})
	})
	if s.tty {
		return s.pump(ctx, "stdout", s.app.stdout)
	}
	var wg sync.WaitGroup
	var errs error
	wg.Go(func() { _, errs = s.pump(ctx, "stderr", s.app.stderr) })
	out, err := s.pump(ctx, "stdout", s.app.stdout)
	wg.Wait()
	return out, errors.Join(err, errs)
}

// pump copies one stream until the command has ended.
func (s *streams) pump(ctx context.Context, stream string, w io.Writer) (outcome, error) {
	var next int64
	for {
		r, err := s.client.Output(ctx, sandbox.OutputRequest{Process: s.process, Stream: stream, Since: &next, WaitMS: pollWait, MaxOutput: 256 << 10})
		if err != nil {
			return outcome{}, err
		}
		if _, err := io.WriteString(w, r.Text); err != nil {
			return outcome{}, outputGone(err)
		}
		next = r.Next
		if r.Status != sandbox.Running && !r.More {
			return outcome{exit: r.ExitCode, signal: r.Signal}, nil
		}
	}
}

// outputGone is the error of a reader of ours that went away.
func outputGone(err error) error {
	return &failure{what: "the output can no longer be written: " + err.Error(), next: "The command was ended.", code: exitRunFailed, cause: err}
}

// feed passes our stdin on, as fast as the command takes it, and its end.
func (s *streams) feed(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.app.stdin.Read(buf)
		if n > 0 && !s.typeIn(ctx, buf[:n]) {
			return
		}
		if err != nil {
			_, _ = s.client.Input(ctx, sandbox.InputRequest{Process: s.process, EOF: true})
			return
		}
	}
}

// typeIn hands data over whole. A command that reads nothing for a while is
// waited for; one that reads no more ends the feeding.
func (s *streams) typeIn(ctx context.Context, data []byte) bool {
	for len(data) > 0 {
		_, err := s.client.Input(ctx, sandbox.InputRequest{Process: s.process, Data: data})
		if err == nil {
			return true
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.DeadlineExceeded || ctx.Err() != nil {
			return false
		}
		written, ok := e.Details["written"].(float64)
		if !ok || written < 0 || int(written) > len(data) {
			return false
		}
		data = data[int(written):]
	}
	return true
}
