//go:build linux

package server

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of what is kept of commands.
const (
	keepEnded    = 10 * time.Minute // a finished command's output is readable for so long
	maxEnded     = 256              // and so many of them
	endedBytes   = 16 << 20         // and so much of their output in memory; of older ones, the ends
	endedTail    = 16 << 10         // kept of each stream of an older one
	endedSpill   = 256 << 20        // and so much of it on disk
	maxProcesses = 1024             // running at one time
)

// process is one command of an exec, and what it wrote.
type process struct {
	id         string
	command    string // as given, for listings
	started    time.Time
	background bool
	child      *child
	stdin      *os.File // open stdin, or the terminal's master; nil when closed
	tty        bool
	lossless   bool // the streams wait for their follower
	readers    []*os.File
	eof        chan struct{} // closed once every reader ended
	ended      chan struct{} // closed once the leader ended and its output is in

	mu       sync.Mutex
	out      output
	cursor   [3]int64 // where the last read of stdout, stderr, both ended
	wake     chan struct{}
	taken    [2]int64      // how far each stream was followed
	room     chan struct{} // closed when a follower took something
	lastOut  time.Time
	why      sandbox.Status // set before we end it
	ending   bool           // its tree is being killed
	status   sandbox.Status
	code     *int
	signal   string
	endedAt  time.Time
	treeGone bool
	limit    *time.Timer
	spill    [2]*spill
}

// Streams of a process; both is for offsets only.
const (
	stdout = 0
	stderr = 1
	both   = 2
)

// processes is the table of a session's commands.
type processes struct {
	mu    sync.Mutex
	last  int
	byID  map[string]*process
	order []*process
}

func (t *processes) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[string]*process{}
	}
	t.last++
	p.id = "p" + strconv.Itoa(t.last)
	t.byID[p.id] = p
	t.order = append(t.order, p)
}

// all lists the commands, oldest first.
func (t *processes) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
}

func (t *processes) get(id string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byID[id]; p != nil {
		return p, nil
	}
	var known []string
	for _, p := range t.order {
		known = append(known, p.id)
	}
	if len(known) > 20 {
		known = known[len(known)-20:]
	}
	e := sandbox.Errorf(sandbox.NotFound, "A command's handle is valid until ten minutes after its end. Known: "+strings.Join(known, ", ")+".", "there is no process %q in this session", clip(id))
	if len(known) == 0 {
		e.Hint = "No command of this session has a handle; start one with shell_run."
	}
	return nil, e
}

func clip(s string) string {
	r := []rune(s)
	if len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// room forgets commands that ended long ago or are too many, and refuses when
// too many run. It is called before a start.
func (s *Server) room() error {
	t := &s.procs
	t.mu.Lock()
	var gone []*process
	running, ended := 0, 0
	for _, p := range t.order {
		if p.over() {
			ended++
		} else {
			running++
		}
	}
	now := time.Now()
	for _, p := range t.order {
		if p.over() && (ended > maxEnded || now.Sub(p.endedAt) > keepEnded) {
			gone = append(gone, p)
			ended--
		}
	}
	t.mu.Unlock()
	for _, p := range gone {
		if !s.treeEmpty(p) {
			continue // its handle is the only way to end what it left running
		}
		t.mu.Lock()
		delete(t.byID, p.id)
		t.order = slices.DeleteFunc(t.order, func(q *process) bool { return q == p })
		t.mu.Unlock()
		p.release()
	}
	if running >= maxProcesses {
		return sandbox.Errorf(sandbox.ResourceExhausted, "End some: shell_kill.", "%d commands run in this session", running)
	}
	return nil
}

// trim bounds what ended commands hold in memory and on disk: the latest keep
// theirs.
func (s *Server) trim() {
	memory, disk := endedBytes, int64(endedSpill)
	for _, p := range slices.Backward(s.procs.all()) {
		if !p.over() {
			continue
		}
		memory -= p.size()
		p.mu.Lock()
		for i := range p.out.rings {
			if memory < 0 {
				p.out.rings[i].shrink(endedTail)
			}
			if sp := p.spill[i]; sp != nil {
				if disk -= sp.n; disk < 0 {
					sp.remove()
					sp.bad, sp.n = true, 0
				}
			}
		}
		p.mu.Unlock()
	}
}

func (p *process) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.rings[stdout].size() + p.out.rings[stderr].size()
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// treeEmpty reports whether nothing of p's tree lives, and then frees its
// number.
func (s *Server) treeEmpty(p *process) bool {
	p.mu.Lock()
	gone := p.treeGone
	p.mu.Unlock()
	if gone {
		return true
	}
	if !p.over() || len(inTree(p.child.gid)) > 0 {
		return false
	}
	s.treeLeft(p)
	return true
}

// treeLeft notes that the tree of p has no process any more.
func (s *Server) treeLeft(p *process) {
	p.mu.Lock()
	was := p.treeGone
	p.treeGone = true
	p.mu.Unlock()
	if !was {
		s.trees.give(p.child.gid)
	}
}

// release gives back what a forgotten command held.
func (p *process) release() {
	for _, f := range p.readers {
		_ = f.Close()
	}
	p.closeStdin()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sp := range p.spill {
		sp.remove()
	}
	p.out = output{}
}

func (p *process) closeStdin() {
	p.mu.Lock()
	f := p.stdin
	p.stdin = nil
	p.mu.Unlock()
	if f != nil && !p.tty { // the terminal's master is a reader too, and closed as one
		_ = f.Close()
	}
}

// read moves what comes on f into the output, until its end.
func (p *process) read(f *os.File, stream uint8, left *sync.WaitGroup) {
	defer left.Done()
	b := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(b)
	for {
		n, err := f.Read(*b)
		if n > 0 {
			p.write(stream, (*b)[:n])
			if p.lossless {
				p.throttle(stream)
			}
		}
		// A terminal ends with EIO once no one has its other side.
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO) && !errors.Is(err, os.ErrClosed) {
				p.write(stream, []byte("\n[pinfold: reading the output failed: "+err.Error()+"]\n"))
			}
			if !p.tty {
				_ = f.Close()
			}
			return
		}
	}
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (p *process) write(stream uint8, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.write(stream, b)
	if !p.lossless { // its follower has it all
		p.spillLocked(stream, b)
	}
	p.lastOut = time.Now()
	p.wakeLocked()
}

func (p *process) wakeLocked() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// changed returns a channel that is closed at the next output, or at the end.
// The caller holds mu.
func (p *process) changedLocked() <-chan struct{} {
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	return p.wake
}

// Times of a leader's end.
const (
	drainHeld = 50 * time.Millisecond // pipes that a child still holds: for what is on its way
	drainMost = time.Second           // pipes that never run empty
)

// finish waits for the leader, takes what it wrote and closes ended.
func (s *Server) finish(p *process) {
	<-p.child.done
	wait := drainHeld
	if p.child.alone {
		wait = drainMost // no one is left to hold the pipes
	}
	t := time.NewTimer(wait)
	select {
	case <-p.eof:
	case <-t.C:
		for until := time.Now().Add(drainMost); time.Now().Before(until) && p.pending(); {
			t.Reset(5 * time.Millisecond)
			<-t.C
		}
	}
	t.Stop()
	p.mu.Lock()
	ending := p.ending
	p.mu.Unlock()
	if ending {
		killTree(p.child.gid, killLimit) // who waits for the end waits for that of the tree
	}
	p.mu.Lock()
	if p.limit != nil {
		p.limit.Stop()
	}
	p.endedAt = time.Now()
	ws := p.child.status
	switch {
	case p.why != "":
		p.status = p.why
	case ws.Exited():
		code := ws.ExitStatus()
		p.status, p.code = sandbox.Exited, &code
	default:
		p.status, p.signal = sandbox.Signaled, unix.SignalName(ws.Signal())
	}
	p.wakeLocked()
	p.mu.Unlock()
	if p.child.alone {
		s.treeLeft(p)
	}
	p.closeStdin()
	close(p.ended)
	if p.size() > endedTail {
		s.trim() // a long output; short ones are bounded by their number
	}
	go func() {
		<-p.eof
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, sp := range p.spill {
			sp.close()
		}
		if p.tty {
			for _, f := range p.readers {
				_ = f.Close()
			}
		}
	}()
}

// pending reports whether bytes wait in one of the pipes.
func (p *process) pending() bool {
	for _, f := range p.readers {
		n := 0
		rc, err := f.SyscallConn()
		if err != nil {
			continue
		}
		_ = rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		if n > 0 {
			return true
		}
	}
	return false
}

// end ends the tree of p for a reason, unless its leader ended by itself
// before. It returns once the tree is empty or limit passed.
func (s *Server) end(p *process, why sandbox.Status, limit time.Duration) {
	p.mark(why)
	p.mu.Lock()
	gone := p.treeGone
	p.ending = true
	p.mu.Unlock()
	if gone {
		return // its number may be another tree's by now
	}
	if killTree(p.child.gid, limit) {
		select {
		case <-p.ended:
			s.treeLeft(p)
		case <-time.After(limit):
		}
	}
}

// mark says why p is about to end, unless it has.
func (p *process) mark(why sandbox.Status) {
	select {
	case <-p.child.done:
		return
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == "" {
		p.why = why
	}
}

// endAll ends every process but this one.
func (s *Server) endAll(limit time.Duration) {
	killWhere(limit, (*proc).living)
}
