//go:build linux

package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of an answer, in characters.
const (
	defaultOutput = 30_000
	maxOutput     = 1_000_000
)

// Times after which a quiet command that could be typed into is taken to wait
// for input, when its output ends within a line.
const (
	promptCheck = 500 * time.Millisecond
	promptQuiet = 1500 * time.Millisecond
)

// await waits for the end of p, for its soft limit, for a prompt, or for the
// host to give up, which ends the command's tree.
func (s *Server) await(ctx context.Context, p *process, r sandbox.ExecRequest, wait time.Duration, progress func()) {
	var soft, tick, prompt <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		soft = t.C
	}
	if r.ProgressMS > 0 {
		t := time.NewTicker(max(time.Duration(r.ProgressMS), 50) * time.Millisecond)
		defer t.Stop()
		tick = t.C
	}
	if wait > 0 && (r.OpenStdin || r.TTY != nil) {
		t := time.NewTicker(promptCheck)
		defer t.Stop()
		prompt = t.C
	}
	for {
		select {
		case <-p.ended:
			return
		case <-soft:
			return
		case <-prompt:
			p.mu.Lock()
			w := p.waitingLocked()
			p.mu.Unlock()
			if w != "" {
				return
			}
		case <-tick:
			progress()
		case <-ctx.Done():
			s.end(p, sandbox.Killed, killLimit)
			return
		}
	}
}

func (p *process) progress() sandbox.ExecProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sandbox.ExecProgress{Process: p.id, LastLine: p.lastLineLocked(), Bytes: p.out.total, ElapsedMS: time.Since(p.started).Milliseconds()}
}

// lastLineLocked is the end of the output, as one line.
func (p *process) lastLineLocked() string {
	b, _, _ := p.out.read(max(0, p.out.total-400), 400)
	line := bytes.TrimRight(b[cutStart(b):], "\r\n")
	if i := bytes.LastIndexAny(line, "\r\n"); i >= 0 {
		line = line[i+1:]
	}
	return clipTo(string(line), 200)
}

// waitingLocked is the prompt of a command that seems to wait for input: it can
// be typed into, is quiet, and its output ends within a line.
func (p *process) waitingLocked() string {
	if p.status != sandbox.Running || p.stdin == nil || p.out.total == 0 || time.Since(p.lastOut) < promptQuiet {
		return ""
	}
	b, _, _ := p.out.read(p.out.total-1, 1)
	if len(b) == 0 || b[0] == '\n' {
		return ""
	}
	return p.lastLineLocked()
}

// result is the state of p as an Exec answers it.
func (s *Server) result(p *process, r sandbox.ExecRequest, began time.Time) sandbox.ExecResult {
	most := r.MaxOutput
	if most <= 0 {
		most = defaultOutput
	}
	most = min(most, maxOutput)
	over := p.over()
	var children []sandbox.ChildInfo
	if over && !s.treeEmpty(p) {
		for _, c := range inTree(p.child.gid) {
			children = append(children, sandbox.ChildInfo{PID: c.pid, Command: commandOf(c)})
			if len(children) == 20 {
				break
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := sandbox.ExecResult{
		Process: p.id, Status: p.status, ExitCode: p.code, Signal: p.signal,
		DurationMS: time.Since(began).Milliseconds(), StillRunning: children,
		Waiting: p.waitingLocked(), NextOffset: p.out.total,
	}
	// What stderr does not need is stdout's; neither starves the other.
	quota := most / 2
	if n := p.out.rings[stderr].total; n < int64(quota) {
		quota = int(n)
	}
	so := most - quota
	if n := p.out.rings[stdout].total; n < int64(most/2) {
		quota = most - int(n)
	}
	out.Stdout, out.Stderr = p.shownLocked(stdout, so, over), p.shownLocked(stderr, quota, over)
	p.cursor = [3]int64{p.out.rings[stdout].total, p.out.rings[stderr].total, p.out.total}
	return out
}

// shownLocked is one stream within most characters: whole, or its head and tail.
func (p *process) shownLocked(stream uint8, most int, over bool) sandbox.Output {
	r := &p.out.rings[stream]
	o := sandbox.Output{Bytes: r.total, Lines: r.lines()}
	if r.total == 0 {
		return o
	}
	if r.total <= headMax+tailMax && r.total <= 4*int64(most) {
		b, _ := r.read(make([]byte, 0, r.total), 0, int(r.total))
		if !over {
			b = b[:len(b)-cutEnd(b)]
		}
		if n := width(b); n <= most {
			o.Text = cleanText(b)
			return o
		}
	}
	head, _ := r.read(nil, 0, min(2*most, headMax)) // half the characters, of four bytes each
	keepHead := fitHead(head, most/2)
	from := max(r.total-2*int64(most), int64(keepHead))
	tail, from := r.read(nil, from, int(r.total-from))
	if !over {
		tail = tail[:len(tail)-cutEnd(tail)]
	}
	keepTail := fitTail(tail, most-most/2)
	end := from + int64(len(tail)) - int64(keepTail)
	o.Truncated, o.Omitted = true, end-int64(keepHead)
	o.Text = fmt.Sprintf("%s\n[… %d bytes omitted …]\n%s", cleanText(head[:keepHead]), o.Omitted, cleanText(tail[len(tail)-keepTail:]))
	o.Spill = p.spill[stream].name()
	return o
}

// width is the number of characters that cleanText makes of b.
func width(b []byte) int {
	n := utf8.RuneCount(b)
	if utf8.Valid(b) {
		return n
	}
	return n + 3*bad(b)
}

// bad counts invalid bytes.
func bad(b []byte) (n int) {
	for len(b) > 0 {
		r, m := utf8.DecodeRune(b)
		if r == utf8.RuneError && m == 1 {
			n++
		}
		b = b[m:]
	}
	return n
}

// fitHead returns how many bytes of the start of b make at most n characters.
func fitHead(b []byte, n int) int {
	at := 0
	for at < len(b) {
		r, m := utf8.DecodeRune(b[at:])
		w := 1
		if r == utf8.RuneError && m == 1 {
			if !utf8.FullRune(b[at:]) {
				break // cut by our own reading
			}
			w = 4
		}
		if n -= w; n < 0 {
			break
		}
		at += m
	}
	return at
}

// fitTail returns how many bytes of the end of b make at most n characters.
func fitTail(b []byte, n int) int {
	at := len(b)
	for at > 0 {
		r, m := utf8.DecodeLastRune(b[:at])
		w := 1
		if r == utf8.RuneError && m == 1 {
			w = 4
		}
		if n -= w; n < 0 {
			break
		}
		at -= m
	}
	k := b[at:]
	return len(k) - cutStart(k)
}

// commandOf is a process's command line, or its name in brackets.
func commandOf(p *proc) string {
	b, ok := readSmall(fmt.Sprintf("/proc/%d/cmdline", p.pid), make([]byte, 512))
	if !ok || len(b) == 0 {
		return "[" + clipTo(p.name, 60) + "]"
	}
	return clipTo(strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))), 200)
}
