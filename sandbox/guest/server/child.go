//go:build linux

package server

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// startSpec is one process to start as the agent, in a tree of its own.
type startSpec struct {
	programs []program // the first that exists is run
	env      []string  // the whole environment
	dir      string    // absolute

	// The child's stdio. They must not be used elsewhere: start closes them.
	// A nil stdin is /dev/null.
	stdin, stdout, stderr *os.File
	keep                  bool // Kill with All leaves this tree (kernels)
	tty                   bool // stdin is the terminal that the child shall control
}

// program is a program and its arguments. path is looked up in the PATH of the
// child's environment unless it has a slash.
type program struct {
	path string
	argv []string
}

// programOf is argv as one writes it.
func programOf(argv []string) []program { return []program{{path: argv[0], argv: argv}} }

// child is a started process and the tree below it.
type child struct {
	pid  int
	gid  int           // the supplementary group number of its tree
	done chan struct{} // closed once the leader was reaped

	status syscall.WaitStatus // holds after done
	usage  syscall.Rusage
	alone  bool // nothing but the leader was alive when it ended
}

// agentPipe makes a pipe that belongs to the agent, so that a child may open
// its end again by name (/dev/stderr). ours is the parent's end, which works
// with deadlines.
func agentPipe(parentReads bool) (ours, theirs *os.File, err error) {
	var p [2]int
	if err := actAs(sandbox.AgentUID, sandbox.AgentGID, func() error { return unix.Pipe2(p[:], unix.O_CLOEXEC) }); err != nil {
		return nil, nil, err
	}
	ours, theirs = wrapPipe(p, parentReads)
	return ours, theirs, nil
}

func wrapPipe(p [2]int, parentReads bool) (ours, theirs *os.File) {
	our, their := p[0], p[1]
	if !parentReads {
		our, their = p[1], p[0]
	}
	_ = unix.SetNonblock(our, true) // of an own pipe: cannot fail
	return os.NewFile(uintptr(our), "pipe"), os.NewFile(uintptr(their), "pipe")
}

// devNull is the stdin of what has none.
var devNull = func() *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return os.Stdin
	}
	return f
}()

func rawFD(f *os.File) uintptr {
	var fd uintptr
	rc, err := f.SyscallConn()
	if err == nil {
		err = rc.Control(func(n uintptr) { fd = n })
	}
	if err != nil {
		return ^uintptr(0) // the child then fails with EBADF
	}
	return fd
}

// reaper waits for every child of this process.
type reaper struct {
	mu       sync.Mutex
	waiting  map[int]*child
	early    map[int]exit // ended before start could register them
	starting int
	kick     chan struct{}
}

type exit struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	alone  bool
}

func (r *reaper) start() {
	r.waiting, r.early, r.kick = map[int]*child{}, map[int]exit{}, make(chan struct{}, 1)
	go r.loop()
}

// loop blocks in wait4, which costs nothing while nothing ends and wakes faster
// than a signal handler would. Without children it sleeps until one is started.
func (r *reaper) loop() {
	var ws syscall.WaitStatus
	var ru syscall.Rusage
	flags := 0
	for {
		pid, err := syscall.Wait4(-1, &ws, flags, &ru)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.ECHILD:
			flags = 0
			<-r.kick
			continue
		case err != nil:
			time.Sleep(10 * time.Millisecond) // does not happen; must not spin
			continue
		case pid == 0:
			flags = 0
			continue
		}
		for pid > 0 {
			e := exit{status: ws, usage: ru}
			next, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, &ru)
			e.alone = err == syscall.ECHILD
			r.deliver(pid, e)
			if err != nil {
				next = 0
			}
			pid = next
		}
	}
}

func (r *reaper) deliver(pid int, e exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.waiting[pid]; c != nil {
		delete(r.waiting, pid)
		c.end(e)
	} else if r.starting > 0 {
		r.early[pid] = e
	}
}

func (c *child) end(e exit) {
	c.status, c.usage, c.alone = e.status, e.usage, e.alone
	close(c.done)
}

// begin tells the reaper that a process is about to be started: ends of unknown
// processes are kept until register.
func (r *reaper) begin() {
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()
}

// register ends what begin began; pid 0 means that nothing was started.
func (r *reaper) register(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	if c != nil {
		if e, ended := r.early[c.pid]; ended {
			delete(r.early, c.pid)
			c.end(e)
		} else {
			r.waiting[c.pid] = c
		}
	}
	if r.starting == 0 {
		clear(r.early)
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
