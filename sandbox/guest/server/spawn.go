//go:build linux && (amd64 || arm64)

package server

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// The standard library's fork cannot serve here. Its child holds the parent's
// memory and one of the runtime's processors until it calls execve (vfork), and
// uid 1000 can freeze it before that with kill -STOP -1: the guest would hang
// with it. This one arms a timer in the child first, with which the kernel
// itself kills what has not reached execve in time; an execve that succeeds
// disarms it. Beside that it saves the pipe on which the library's child
// reports, tries the candidates of PATH as the agent, and leaves the reaping to
// one place.

// startWatchdog is the time a child has to reach its program.
const startWatchdog = time.Second

// startAttempts bounds how often a start that the watchdog ended is tried.
const startAttempts = 2

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:noescape
func rawVfork(trap, flags, a2, a3 uintptr) (pid, errno uintptr)

// Stages of a child before its program runs, told when it fails.
const (
	stageSetup = iota
	stageDir
	stageExec
)

// candidate is a program to try and its arguments.
type candidate struct {
	path *byte
	argv **byte
}

// forkArgs is all the child needs, made before the fork: the child may not
// allocate. It writes stage and errno, which the parent reads after it is gone.
type forkArgs struct {
	uid, gid, tree uintptr
	root           bool // the guest is root and can change ids
	fd             [3]uintptr
	tty            bool
	dir            *byte
	envv           **byte
	try            []candidate
	groups         [1]uint32
	event          sigevent
	limit          unix.ItimerSpec
	timer          int32
	watch          bool
	noAction       [4]uint64 // the kernel's sigaction for the default
	noSignal       uint64

	stage uintptr
	errno uintptr
}

// sigevent is the kernel's struct: SIGEV_SIGNAL with signo.
type sigevent struct {
	value  uint64
	signo  int32
	notify int32
	_      [48]byte
}

// handled are the signals that this process keeps the runtime's handlers for:
// faults, which it turns into panics; the end that the engine asks for; broken
// pipes; and the one with which the runtime interrupts its own threads.
var handled = [...]uintptr{
	uintptr(syscall.SIGHUP), uintptr(syscall.SIGINT), uintptr(syscall.SIGTERM), uintptr(syscall.SIGSEGV), uintptr(syscall.SIGBUS),
	uintptr(syscall.SIGFPE), uintptr(syscall.SIGPIPE), uintptr(syscall.SIGURG),
}

const (
	sigSetMask = 2
	sigsetSize = 8
	atFDCWD    = ^uintptr(99) // AT_FDCWD, -100
)

// dropHandlers gives all other signals their default back. It must be called
// before the first start and after everything that uses the runtime's signals,
// such as calls on all threads; os/signal must not be used in this process.
func dropHandlers() {
	var none [4]uint64
	for sig := uintptr(1); sig <= 64; sig++ {
		if !slices.Contains(handled[:], sig) {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&none)), 0, sigsetSize, 0, 0)
		}
	}
}

// fork starts the child and returns its pid. It returns once the child has
// become its program or has failed, at the latest when the watchdog struck.
func (a *forkArgs) fork() (int, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, errno := a.vfork()
	runtimeAfterFork()
	runtime.KeepAlive(a)
	return int(pid), syscall.Errno(errno)
}

// vfork is the part that parent and child share. The child must not return from
// it, and nothing here may grow the stack or allocate.
//
//go:noinline
//go:norace
//go:nocheckptr
func (a *forkArgs) vfork() (pid, errno uintptr) {
	var e, found syscall.Errno
	var i int
	var final bool
	runtimeBeforeFork()
	pid, errno = rawVfork(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|syscall.CLONE_VFORK|syscall.CLONE_VM, 0, 0)
	if errno != 0 || pid != 0 {
		// The parent returns at once: the child used this frame.
		return
	}
	// All signals are blocked since before the fork. The handlers are the
	// parent's and would run on its memory: they go before signals come again.
	// The library would clear all 64, a fifth of the cost of a start under gVisor.
	for i = 0; i < len(handled); i++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, handled[i], uintptr(unsafe.Pointer(&a.noAction)), 0, sigsetSize, 0, 0)
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&a.noSignal)), 0, sigsetSize, 0, 0)
	if a.watch {
		_, _, e = syscall.RawSyscall(syscall.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&a.event)), uintptr(unsafe.Pointer(&a.timer)))
		if e != 0 {
			goto fail
		}
		_, _, e = syscall.RawSyscall6(syscall.SYS_TIMER_SETTIME, uintptr(a.timer), 0, uintptr(unsafe.Pointer(&a.limit)), 0, 0, 0)
		if e != 0 {
			goto fail
		}
	}
	_, _, e = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if e != 0 {
		goto fail
	}
	for i = 0; i < 3; i++ {
		_, _, e = syscall.RawSyscall(syscall.SYS_DUP3, a.fd[i], uintptr(i), 0)
		if e != 0 {
			goto fail
		}
	}
	// Every descriptor is close-on-exec; this holds should one not be. An old
	// kernel without the call is no reason to fail.
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, uintptr(^uint32(0)), 0)
	if a.tty {
		_, _, e = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0)
		if e != 0 {
			goto fail
		}
	}
	if a.root {
		_, _, e = syscall.RawSyscall(syscall.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&a.groups)), 0)
		if e != 0 {
			goto fail
		}
		_, _, e = syscall.RawSyscall(syscall.SYS_SETRESGID, a.gid, a.gid, a.gid)
		if e != 0 {
			goto fail
		}
		// Files are judged by the effective id. The real and the saved one stay
		// root's until the last moment: the agent cannot signal before.
		_, _, e = syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), a.uid, ^uintptr(0))
		if e != 0 {
			goto fail
		}
	}
	a.stage = stageDir
	_, _, e = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(a.dir)), 0, 0)
	if e != 0 {
		goto fail
	}
	a.stage = stageExec
	for i = 0; i < len(a.try); i++ {
		if i+1 < len(a.try) {
			// Asking first is cheap; an execve of what is not there costs a
			// millisecond under gVisor. It asks for the real id: what that may
			// not see is tried.
			_, _, e = syscall.RawSyscall(syscall.SYS_FACCESSAT, atFDCWD, uintptr(unsafe.Pointer(a.try[i].path)), 0)
			if e == syscall.ENOENT || e == syscall.ENOTDIR {
				continue
			}
		}
		if a.root && !final {
			final = true
			_, _, e = syscall.RawSyscall(syscall.SYS_SETRESUID, a.uid, a.uid, a.uid)
			if e != 0 {
				goto fail
			}
		}
		_, _, e = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(a.try[i].path)), uintptr(unsafe.Pointer(a.try[i].argv)), uintptr(unsafe.Pointer(a.envv)))
		if e != syscall.ENOENT && e != syscall.ENOTDIR && e != syscall.EACCES {
			goto fail
		}
		if e == syscall.EACCES {
			found = e // as a shell tells it: a file that may not be run goes before none
		}
	}
	e = syscall.ENOENT
	if found != 0 {
		e = found
	}
fail:
	// Only here: a child that became its program leaves no trace.
	a.errno = uintptr(e)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// start starts spec as the agent in a tree of its own and closes the child's
// stdio. The error is typed.
func (s *Server) start(spec startSpec) (*child, error) {
	defer func() {
		for _, f := range []*os.File{spec.stdin, spec.stdout, spec.stderr} {
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	a, err := spec.prepare()
	if err != nil {
		return nil, err
	}
	for range startAttempts {
		c, frozen, err := s.startOnce(a, spec)
		if !frozen {
			return c, err
		}
	}
	return nil, &sandbox.Error{
		Code: sandbox.FailedPrecondition, Reason: "start_frozen",
		Message: "a process of this sandbox stops every new command before it can begin",
		Hint:    "End it: shell_kill with all.",
	}
}

func (s *Server) startOnce(a *forkArgs, spec startSpec) (c *child, frozen bool, err error) {
	gid, err := s.trees.take(spec.keep)
	if err != nil {
		return nil, false, err
	}
	a.tree, a.groups[0], a.stage, a.errno = uintptr(gid), uint32(gid), stageSetup, 0
	s.reap.begin()
	began := time.Now()
	pid, errno := a.fork()
	if errno != 0 {
		s.reap.register(nil)
		s.trees.give(gid)
		return nil, false, startError(stageSetup, errno, spec)
	}
	c = &child{pid: pid, gid: gid, done: make(chan struct{})}
	s.reap.register(c)
	if a.errno != 0 {
		<-c.done
		s.trees.give(gid)
		return nil, false, startError(int(a.stage), syscall.Errno(a.errno), spec)
	}
	if time.Since(began) >= startWatchdog {
		select {
		case <-c.done:
		case <-time.After(100 * time.Millisecond): // it reached its program after all
			return c, false, nil
		}
		if c.status.Signaled() && c.status.Signal() == syscall.SIGKILL {
			s.trees.give(gid)
			return nil, true, nil
		}
	}
	return c, false, nil
}

// prepare makes what the child needs.
func (spec *startSpec) prepare() (*forkArgs, error) {
	a := &forkArgs{
		uid: sandbox.AgentUID, gid: sandbox.AgentGID, root: ownUID == 0, tty: spec.tty, watch: !noStartTimer,
		event: sigevent{signo: int32(syscall.SIGKILL)},
		limit: unix.ItimerSpec{Value: unix.NsecToTimespec(startWatchdog.Nanoseconds())},
	}
	stdin := spec.stdin
	if stdin == nil {
		stdin = devNull
	}
	for i, f := range []*os.File{stdin, spec.stdout, spec.stderr} {
		// SyscallConn and not Fd, which would make a pipe of ours block.
		a.fd[i] = rawFD(f)
	}
	var err error
	if a.dir, err = syscall.BytePtrFromString(spec.dir); err != nil {
		return nil, nulError("cwd")
	}
	envv, err := syscall.SlicePtrFromStrings(spec.env)
	if err != nil {
		return nil, nulError("env")
	}
	a.envv = &envv[0]
	for _, try := range spec.programs {
		ptrs, err := syscall.SlicePtrFromStrings(try.argv)
		if err != nil {
			return nil, nulError("command")
		}
		for _, p := range lookIn(try.path, spec.env) {
			path, err := syscall.BytePtrFromString(p)
			if err != nil {
				return nil, nulError("command")
			}
			a.try = append(a.try, candidate{path: path, argv: &ptrs[0]})
		}
	}
	return a, nil
}

func nulError(field string) error {
	return &sandbox.Error{Code: sandbox.InvalidArgument, Message: field + ": holds a NUL byte", Hint: "Take the NUL out.", Details: map[string]any{"field": field}}
}

// lookIn returns the paths at which name may stand.
func lookIn(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var paths []string
	for _, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			paths = paths[:0]
			for dir := range strings.SplitSeq(list, ":") {
				if dir == "" {
					dir = "."
				}
				paths = append(paths, dir+"/"+name)
			}
		}
	}
	if len(paths) > maxPathEntries {
		paths = paths[:maxPathEntries]
	}
	return paths
}

const maxPathEntries = 64
