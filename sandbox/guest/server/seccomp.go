//go:build linux && (amd64 || arm64)

package server

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest's own filter, under whatever the container has, holds on all of its
// threads before it runs anything, so that every command inherits it. It is a
// list of refusals over the container's list of permissions: where there is
// none (gVisor), it is what keeps commands off.
//
// ptrace is let through on purpose: debuggers and tracers are work tools, the
// kernel lets uid 1000 trace its own processes only (the guest is not dumpable
// and of another uid), and since Linux 4.8 a tracer cannot step around a
// filter.

// denied calls answer EPERM.
var denied = []uintptr{
	// Namespaces and mounts.
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	// Kernel objects that are shared with the host's user or a large surface.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KCMP, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MEMFD_SECRET, unix.SYS_VHANGUP,
	// The machine itself.
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
}

// nested calls are let through for suites that start browsers with a sandbox of
// their own (nested_sandboxes), which need namespaces and chroot, not mounts.
var nested = []uintptr{unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT}

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// lastCall is the newest call that this list was checked against (Linux 6.18);
// newer ones do not exist for commands.
const lastCall = 469

// Offsets in struct seccomp_data. The kernel takes int and unsigned int
// arguments from the low halves, whatever stands above, so these are compared.
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16
	dataArg1 = 24
	dataArg2 = 32
)

// filter builds the program. Jumps are counted back from its end, where the
// verdicts stand.
func filter(nestedSandboxes bool) []unix.SockFilter {
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		eperm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		noafam = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	)
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	ret := func(v uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v}
	}
	// unless skips n instructions when the loaded word is v.
	unless := func(v uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: v, Jt: n}
	}
	// when runs the next n instructions only when the loaded word is v.
	when := func(v uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: v, Jf: n}
	}
	above := func(v uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: v, Jf: n}
	}
	bits := func(v uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: v, Jf: n}
	}

	prog := []unix.SockFilter{
		load(dataArch), unless(auditArch, 1), ret(unix.SECCOMP_RET_KILL_PROCESS), // another architecture has other numbers
		load(dataNr), above(lastCall, 1), ret(enosys), // x32 too: its numbers carry a high bit
	}
	for _, nr := range append(denied[:len(denied):len(denied)], deniedHere...) {
		if nestedSandboxes && contains(nested, nr) {
			continue
		}
		prog = append(prog, when(uint32(nr), 1), ret(eperm))
	}
	if !nestedSandboxes {
		prog = append(prog,
			// Its flags are in memory, out of reach: the C library then uses clone.
			when(unix.SYS_CLONE3, 1), ret(enosys),
			when(unix.SYS_CLONE, 4), load(dataArg0), bits(newNamespaces, 1), ret(eperm), ret(allow),
		)
	}
	// Of ioctl, what types into a terminal of others.
	prog = append(prog, when(unix.SYS_IOCTL, 6), load(dataArg1), when(unix.TIOCSTI, 1), ret(eperm), when(tioclinux, 1), ret(eperm), ret(allow))
	// Of personality, all but the usual ones: others switch protections off.
	prog = append(prog, when(unix.SYS_PERSONALITY, 7), load(dataArg0), unless(0, 4), unless(0xffffffff, 3), unless(8, 2), unless(addrNoRandomize, 1), ret(eperm), ret(allow))
	for _, nr := range []uintptr{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		prog = append(prog,
			when(uint32(nr), 9), load(dataArg0),
			unless(unix.AF_UNIX, 6), unless(unix.AF_INET, 5), unless(unix.AF_INET6, 4),
			when(unix.AF_NETLINK, 2), load(dataArg2), unless(unix.NETLINK_ROUTE, 1),
			ret(noafam), ret(allow),
		)
	}
	return append(prog, ret(allow))
}

const (
	tioclinux       = 0x541C
	addrNoRandomize = 0x0040000
)

func contains(l []uintptr, v uintptr) bool {
	for _, x := range l {
		if x == v {
			return true
		}
	}
	return false
}

// installFilter puts the filter on every thread of this process at once.
func installFilter(nestedSandboxes bool) error {
	prog := filter(nestedSandboxes)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		return fmt.Errorf("installing the system-call filter: %w", e)
	}
	if r != 0 {
		return fmt.Errorf("installing the system-call filter: thread %d has another", r)
	}
	return nil
}
