//go:build linux

package server

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// handleOutput reads a process's output: at once, or when there is some, when
// a pattern appears, or when it ends.
func handleOutput(ctx context.Context, s *Server, args json.RawMessage, _ *stream) (any, error) {
	r, err := decode[sandbox.OutputRequest](args)
	if err != nil {
		return nil, err
	}
	p, err := s.procs.get(r.Process)
	if err != nil {
		return nil, err
	}
	which, err := streamOf(r.Stream)
	if err != nil {
		return nil, err
	}
	var re *regexp.Regexp
	if r.Match != "" {
		if len(r.Match) > 1000 {
			return nil, field("match", "Look for a shorter text.", "is longer than 1000 characters")
		}
		if re, err = regexp.Compile(r.Match); err != nil {
			return nil, field("match", "It is an RE2 pattern; escape . ( ) [ ] with a backslash.", err.Error())
		}
	}
	return p.readOut(ctx, readSpec{since: r.Since, wait: time.Duration(r.WaitMS) * time.Millisecond, match: re, stream: which, most: r.MaxOutput}), nil
}

func streamOf(name string) (int, error) {
	switch name {
	case "stdout":
		return stdout, nil
	case "stderr":
		return stderr, nil
	case "":
		return both, nil
	}
	return 0, field("stream", "stdout, stderr, or nothing for both.", clip(name)+" is no stream")
}

// readSpec is what readOut shall return.
type readSpec struct {
	since  *int64
	wait   time.Duration
	match  *regexp.Regexp
	stream int
	most   int
	quiet  time.Duration // answer once something came and nothing more for so long
	echo   int64         // bytes that are no answer yet: a terminal shows what was typed
}

// totalLocked and rawLocked read a stream, or both as they came.
func (p *process) totalLocked(stream int) int64 {
	if stream == both {
		return p.out.total
	}
	return p.out.rings[stream].total
}

func (p *process) rawLocked(stream int, off int64, n int) (b []byte, from, next int64) {
	if stream == both {
		return p.out.read(off, n)
	}
	b, from = p.out.rings[stream].read(nil, off, n)
	return b, from, from + int64(len(b))
}

// matchWindow is how far back a match is looked for when output came since.
const matchWindow = 64 << 10

// readOut waits for what r asks and reads from its offset on.
func (p *process) readOut(ctx context.Context, r readSpec) sandbox.OutputResult {
	most := r.most
	if most <= 0 {
		most = defaultOutput
	}
	most = min(most, maxOutput)

	p.mu.Lock()
	defer p.mu.Unlock()
	off := p.cursor[r.stream]
	if r.since != nil {
		off = *r.since
		if off < 0 {
			off = max(0, p.totalLocked(r.stream)+off)
		}
	}
	off = min(off, p.totalLocked(r.stream))
	var timer *time.Timer
	if r.wait > 0 {
		timer = time.NewTimer(r.wait)
		defer timer.Stop()
	}
	matched, scanned := false, off
	for timer != nil {
		if r.match != nil {
			if matched = p.matchLocked(r.match, r.stream, &scanned, off); matched {
				break
			}
		} else if r.quiet == 0 && p.totalLocked(r.stream) > off {
			break
		}
		if p.status != sandbox.Running {
			break
		}
		var quiet <-chan time.Time
		if r.quiet > 0 && p.totalLocked(r.stream) > off+r.echo {
			left := r.quiet - time.Since(p.lastOut)
			if left <= 0 {
				break
			}
			quiet = time.After(left)
		}
		wake := p.changedLocked()
		p.mu.Unlock()
		stop := false
		select {
		case <-wake:
		case <-quiet:
		case <-timer.C:
			stop = true
		case <-ctx.Done():
			stop = true
		}
		p.mu.Lock()
		if stop {
			break
		}
	}
	if r.match != nil && !matched {
		matched = p.matchLocked(r.match, r.stream, &scanned, off)
	}
	out := p.pieceLocked(r.stream, off, most)
	if r.match != nil {
		out.Matched = &matched
	}
	return out
}

// matchLocked looks for re from off on, again only over what is new and a window
// before it.
func (p *process) matchLocked(re *regexp.Regexp, stream int, scanned *int64, off int64) bool {
	total := p.totalLocked(stream)
	if total == *scanned && total > off {
		return false
	}
	from := max(off, *scanned-matchWindow)
	for from < total {
		b, at, next := p.rawLocked(stream, from, 4*matchWindow)
		if len(b) == 0 && next <= from {
			break
		}
		if re.Match(b) {
			return true
		}
		if next >= total {
			break
		}
		from = max(next-matchWindow, at+1)
	}
	*scanned = total
	return false
}

// pieceLocked is the part of a stream from off on, at most most characters.
func (p *process) pieceLocked(stream int, off int64, most int) sandbox.OutputResult {
	b, from, next := p.rawLocked(stream, off, 4*most)
	total := p.totalLocked(stream)
	if next < total || p.status == sandbox.Running {
		b = b[:len(b)-cutEnd(b)] // the rest of the character comes next time
	}
	b = b[:fitPiece(b, most)]
	next = from + int64(len(b))
	if len(b) == 0 && next < total && p.status != sandbox.Running {
		next = total
	}
	p.cursor[stream] = next
	return sandbox.OutputResult{
		Process: p.id, Status: p.status, ExitCode: p.code, Signal: p.signal,
		Text: cleanText(b), Offset: from, Next: next, Total: total, Dropped: from - off,
		More: next < total, Waiting: p.waitingLocked(),
	}
}

// fitPiece is fitHead for a piece whose end was already cut between characters.
func fitPiece(b []byte, n int) int {
	if width(b) <= n {
		return len(b)
	}
	return max(1, fitHead(b, n))
}
