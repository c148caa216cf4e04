//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Times of typing.
const (
	inputTimeout = 10 * time.Second       // a command that reads nothing for so long gets no more
	inputQuiet   = 150 * time.Millisecond // an answer is complete when nothing follows for so long
)

// handleInput types into a process and returns what appears.
func handleInput(ctx context.Context, s *Server, args json.RawMessage, _ *stream) (any, error) {
	r, err := decode[sandbox.InputRequest](args)
	if err != nil {
		return nil, err
	}
	p, err := s.procs.get(r.Process)
	if err != nil {
		return nil, err
	}
	data := r.Data
	if len(r.Keys) > 0 && !p.tty {
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Start it with tty to send keys; data and eof work without.", "%s has no terminal", p.id)
	}
	for _, k := range r.Keys {
		b, ok := keyBytes(k)
		if !ok {
			return nil, field("keys", "Known: enter, tab, esc, space, backspace, delete, insert, up, down, left, right, home, end, page-up, page-down, f1 to f12, ctrl-a to ctrl-z, alt-x.", clip(k)+" is no key")
		}
		data = append(data, b...)
	}
	if r.Resize != nil {
		if !p.tty {
			return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Start it with tty.", "%s has no terminal", p.id)
		}
		if t := r.Resize; t.Cols < 1 || t.Rows < 1 || t.Cols > 1000 || t.Rows > 1000 {
			return nil, field("resize", "80 by 24 is usual.", "columns and rows must be between 1 and 1000")
		}
	}
	if r.EOF && p.tty {
		data = append(data, 4) // ctrl-d, as the terminal means it
	}
	p.mu.Lock()
	f, from := p.stdin, p.out.total
	p.mu.Unlock()
	if f == nil {
		e := sandbox.Errorf(sandbox.FailedPrecondition, "Start it with tty, or with its stdin kept open.", "the stdin of %s is closed", p.id)
		if p.over() {
			e.Message, e.Hint = p.id+" has ended", "Its output is still there: shell_output."
		}
		return nil, e
	}
	if r.Resize != nil {
		if err := resize(f, *r.Resize); err != nil {
			return nil, err
		}
	}
	if len(data) > 0 {
		if err := p.typeIn(ctx, f, data); err != nil {
			return nil, err
		}
	}
	if r.EOF && !p.tty {
		p.closeStdin()
	}
	spec := readSpec{since: &from, wait: time.Duration(r.WaitMS) * time.Millisecond, stream: both, quiet: inputQuiet}
	if p.tty {
		spec.echo = echoOf(data)
	}
	return p.readOut(ctx, spec), nil
}

// echoOf is how many bytes a terminal shows for what is typed, by default:
// control characters take two (^C, and a line's end).
func echoOf(data []byte) int64 {
	n := int64(len(data))
	for _, b := range data {
		if b < ' ' {
			n++
		}
	}
	return n
}

// typeIn writes data, for as long as the command takes it.
func (p *process) typeIn(ctx context.Context, f *os.File, data []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = f.SetWriteDeadline(time.Now().Add(inputTimeout))
	n, err := f.Write(data)
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &sandbox.Error{Code: sandbox.DeadlineExceeded, Retry: true, Details: map[string]any{"written": n},
			Message: p.id + " took only " + strconv.Itoa(n) + " of " + strconv.Itoa(len(data)) + " bytes of input", Hint: "It does not read; send the rest later, or end it with shell_kill."}
	}
	return sandbox.Errorf(sandbox.FailedPrecondition, "See shell_output for why.", "%s reads no more input", p.id)
}

var keys = map[string]string{
	"enter": "\r", "return": "\r", "tab": "\t", "esc": "\x1b", "escape": "\x1b", "space": " ", "backspace": "\x7f",
	"delete": "\x1b[3~", "insert": "\x1b[2~", "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
	"home": "\x1b[H", "end": "\x1b[F", "page-up": "\x1b[5~", "page-down": "\x1b[6~", "shift-tab": "\x1b[Z",
	"f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS", "f5": "\x1b[15~", "f6": "\x1b[17~", "f7": "\x1b[18~",
	"f8": "\x1b[19~", "f9": "\x1b[20~", "f10": "\x1b[21~", "f11": "\x1b[23~", "f12": "\x1b[24~",
	"ctrl-space": "\x00", "ctrl-[": "\x1b", "ctrl-\\": "\x1c", "ctrl-]": "\x1d", "ctrl-^": "\x1e", "ctrl-_": "\x1f",
}

// keyBytes is what a terminal sends for a key.
func keyBytes(k string) ([]byte, bool) {
	k = strings.ToLower(k)
	if s, ok := keys[k]; ok {
		return []byte(s), true
	}
	if c, ok := strings.CutPrefix(k, "ctrl-"); ok && len(c) == 1 && c[0] >= 'a' && c[0] <= 'z' {
		return []byte{c[0] - 'a' + 1}, true
	}
	if c, ok := strings.CutPrefix(k, "alt-"); ok && len([]rune(c)) == 1 {
		return []byte("\x1b" + c), true
	}
	return nil, false
}
