//go:build linux

package server

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// agentSlots bounds the threads that act as the agent at one time; each is an
// operating system thread.
var agentSlots = make(chan struct{}, 16)

// asAgent runs fn on a thread whose effective ids (and with them the ids that
// files are judged by) are the agent's. fn must stay on its goroutine and must
// not start processes. It may block; others are not held up.
//
// The real and saved ids stay 0, so that the agent's processes can neither
// signal nor trace the thread and it does not count against the agent's
// process limit; a fork from here would inherit that, hence no starts.
func asAgent(fn func() error) error { return asUser(sandbox.AgentUID, sandbox.AgentGID, fn) }

// asUser is asAgent for a given user; sandbox.BrowserUID is the other one.
func asUser(uid, gid int, fn func() error) error {
	agentSlots <- struct{}{}
	defer func() { <-agentSlots }()
	return actAs(uid, gid, fn)
}

// actAs is asUser without its bound, for what does not wait: pipes and
// terminals of a start, which slow file work must not hold up.
func actAs(uid, gid int, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := become(uid, gid); err != nil {
		return err
	}
	defer unbecome()
	return fn()
}

// become changes the effective ids of this thread alone, by raw system
// calls: the library's would change every thread. The result is read back,
// since a kernel that ignores the call would leave file work to root.
func become(uid, gid int) error {
	if ownUID != 0 {
		return nil // a guest that is not root (tests of single parts) is the agent already
	}
	_, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, ^uintptr(0), uintptr(gid), ^uintptr(0))
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
	}
	if e == 0 && (rawID(unix.SYS_GETEUID) != uid || rawID(unix.SYS_GETEGID) != gid) {
		e = unix.EPERM
	}
	if e != 0 {
		unbecome()
		return fmt.Errorf("acting as uid %d: %w", uid, e)
	}
	return nil
}

// unbecome returns this thread to root. A thread that cannot return must
// not serve anyone else.
func unbecome() {
	if ownUID != 0 {
		return
	}
	_, _, e1 := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0))
	_, _, e2 := syscall.RawSyscall(unix.SYS_SETRESGID, ^uintptr(0), 0, ^uintptr(0))
	if e1 != 0 || e2 != 0 {
		fmt.Fprintln(os.Stderr, "pinfold-guest: a thread cannot return from the agent's ids:", e1, e2)
		os.Exit(exitBroken)
	}
}

func rawID(nr uintptr) int {
	id, _ := unix.RawSyscallNoError(nr, 0, 0, 0)
	return int(id)
}

var ownUID = os.Getuid()

// exitBroken is the guest's exit status when it must not go on.
const exitBroken = 70
