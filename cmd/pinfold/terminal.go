package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"

	"pinfold.dev/pinfold/sandbox"
)

// terminal is the person's own terminal while a sandbox has it.
type terminal struct {
	fd    int
	saved *term.State
}

// takeTerminal puts the terminal behind in into raw mode; nil when in is none.
func takeTerminal(in io.Reader) (*terminal, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, nil
	}
	saved, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fail("Run it in an ordinary terminal.", "the terminal cannot be put into raw mode")
	}
	return &terminal{int(f.Fd()), saved}, nil
}

// giveBack restores the terminal; it may be called on nil and more than once.
func (t *terminal) giveBack() {
	if t != nil {
		_ = term.Restore(t.fd, t.saved)
	}
}

// size returns the terminal's size in cells, or 80×24.
func (t *terminal) size() sandbox.TermSize {
	if t != nil {
		if cols, rows, err := term.GetSize(t.fd); err == nil && cols > 0 && rows > 0 {
			return sandbox.TermSize{Cols: cols, Rows: rows}
		}
	}
	return sandbox.TermSize{Cols: 80, Rows: 24}
}

// watchSize calls f with each new size, until ctx ends.
func (t *terminal) watchSize(ctx context.Context, f func(sandbox.TermSize)) {
	if t == nil {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	defer signal.Stop(c)
	for {
		select {
		case <-c:
			f(t.size())
		case <-ctx.Done():
			return
		}
	}
}

// detachKey is what leaves an attached terminal: ctrl-].
const detachKey = 0x1d

// detachReader passes bytes on until the detach key, which ends it.
type detachReader struct {
	r        io.Reader
	detached atomic.Bool
}

func (d *detachReader) Read(p []byte) (int, error) {
	if d.detached.Load() {
		return 0, io.EOF
	}
	n, err := d.r.Read(p)
	for i, b := range p[:n] {
		if b == detachKey {
			d.detached.Store(true)
			return i, io.EOF
		}
	}
	return n, err
}
