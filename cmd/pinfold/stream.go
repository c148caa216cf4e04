package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"golang.org/x/sync/errgroup"

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

// pass returns once the command has ended and all its output was written.
func (s *streams) pass(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The goroutine may stay in Read when the command ends first; the process ends then.
	go s.feed(ctx)
	go s.terminal.watchSize(ctx, func(size sandbox.TermSize) {
		_, _ = s.client.Input(ctx, sandbox.InputRequest{Process: s.process, Resize: &size})
	})
	var g errgroup.Group
	if !s.tty {
		g.Go(func() error {
			_, err := s.follow(ctx, cancel, "stderr", s.app.stderr)
			return err
		})
	}
	var out outcome
	g.Go(func() (err error) {
		out, err = s.follow(ctx, cancel, "stdout", s.app.stdout)
		return err
	})
	return out, g.Wait()
}

// follow copies one stream until the command has ended. When our reader goes
// away the other stream is given up too.
func (s *streams) follow(ctx context.Context, giveUp func(), stream string, w io.Writer) (outcome, error) {
	r, err := s.client.Follow(ctx, sandbox.FollowRequest{Process: s.process, Stream: stream}, w)
	if err != nil {
		var typed *sandbox.Error
		if !errors.As(err, &typed) && ctx.Err() == nil {
			err = outputGone(err)
		}
		giveUp()
		return outcome{}, err
	}
	return outcome{exit: r.ExitCode, signal: r.Signal}, nil
}

// outputGone is the error of a reader of ours that went away. As in any pipe
// (run … | head) that is no fault to speak of.
func outputGone(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return exitCode(exitSignal + int(syscall.SIGPIPE))
	}
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
