//go:build linux

package server

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// Look reports what the guest finds, before it changes anything.
func Look(build string) guest.Report {
	r := guest.Report{Build: build, PID: os.Getpid(), UIDMap: slurp("/proc/self/uid_map"), GIDMap: slurp("/proc/self/gid_map"), Interfaces: interfaces(), Probes: probe()}
	for line := range strings.Lines(slurp("/proc/self/status")) {
		key, v, _ := strings.Cut(line, ":")
		v = strings.TrimSpace(v)
		switch key {
		case "Seccomp":
			r.Seccomp, _ = strconv.Atoi(v)
		case "NoNewPrivs":
			r.NoNewPrivs = v == "1"
		case "CapEff":
			r.CapEffective = v
		case "CapBnd":
			r.CapBounding = v
		}
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil {
		r.NoNewPrivs = v == 1
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	r.GVisor = isGVisor()
	r.ReadOnlyRoot = errors.Is(unix.Access("/", unix.W_OK), unix.EROFS)
	return r
}

// isGVisor reads the kernel's log, in which gVisor introduces itself. Other
// kernels do not let us read it.
func isGVisor() bool {
	const readAll = 3
	buf := make([]byte, 4096)
	n, err := unix.Klogctl(readAll, buf)
	return err == nil && bytes.Contains(buf[:n], []byte("Starting gVisor"))
}

// probe tries calls that a container's profile refuses, for what they answer
// now, before the guest's own filter.
func probe() map[string]string {
	answer := func(e error) string {
		switch {
		case e == nil:
			return "allowed"
		case errors.Is(e, unix.EPERM), errors.Is(e, unix.ENOSYS), errors.Is(e, unix.EACCES):
			return "refused"
		}
		return e.Error()
	}
	m := map[string]string{}
	const describe, ownRing = 6, ^uintptr(2) // KEYCTL_DESCRIBE of the session keyring, -3
	_, _, e := unix.RawSyscall(unix.SYS_KEYCTL, describe, ownRing, 0)
	m["keyctl"] = answer(errno(e))
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	m["vsock"] = answer(err)
	if err == nil {
		_ = unix.Close(fd)
	}
	_, _, e = unix.RawSyscall(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0), 0, 0)
	m["open_by_handle_at"] = answer(errno(e))
	return m
}

func errno(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// interfaces lists the network interfaces.
func interfaces() []string {
	l := []string{}
	for line := range strings.Lines(slurp("/proc/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			l = append(l, strings.TrimSpace(name))
		}
	}
	return l
}

func slurp(path string) string {
	b, _ := readSmall(path, make([]byte, 16<<10))
	return string(b)
}

// notes tells what a session will lack.
func notes() []string {
	var l []string
	for _, dir := range []string{sandbox.WorkspaceDir, sandbox.SessionDir, sandbox.HomeDir} {
		// By the effective ids: the real ones of this thread stay root's.
		err := asAgent(func() error { return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) })
		if err != nil {
			l = append(l, dir+" is not writable for commands: "+err.Error())
		}
	}
	return l
}
