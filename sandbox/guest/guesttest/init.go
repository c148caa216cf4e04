//go:build linux

package guesttest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// initArg is argv[0] of the program that makes the root and becomes the guest.
const initArg = "pinfold-guesttest-init"

// initMain makes what an engine makes: a root of its own with the host's /usr,
// the volumes, the link; the five capabilities; no_new_privs; a filter. Then it
// becomes the guest.
func initMain(binary, dir string, flags []string) {
	runtime.LockOSThread()
	if err := makeRoot(binary, dir, slices.Contains(flags, "readonly")); err != nil {
		fmt.Fprintln(os.Stderr, "guesttest:", err)
		os.Exit(1)
	}
	if err := confine(!slices.Contains(flags, "uncontained")); err != nil {
		fmt.Fprintln(os.Stderr, "guesttest:", err)
		os.Exit(1)
	}
	err := unix.Exec(sandbox.GuestPath, []string{sandbox.GuestPath}, os.Environ())
	fmt.Fprintln(os.Stderr, "guesttest:", err)
	os.Exit(1)
}

func makeRoot(binary, dir string, readOnly bool) error {
	root := filepath.Join(dir, "root")
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755") },
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return fmt.Errorf("root: %w", err)
		}
	}
	in := func(p string) string { return filepath.Join(root, p) }
	bind := func(from, to string, isDir bool) error {
		if isDir {
			if err := os.MkdirAll(in(to), 0o755); err != nil {
				return err
			}
		} else {
			if err := os.MkdirAll(filepath.Dir(in(to)), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(in(to), nil, 0o644); err != nil {
				return err
			}
		}
		if err := unix.Mount(from, in(to), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding %s: %w", from, err)
		}
		return nil
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if to, err := os.Readlink("/" + l); err == nil {
			if err := os.Symlink(to, in(l)); err != nil {
				return err
			}
		}
	}
	for _, d := range []string{"/usr"} {
		if err := bind(d, d, true); err != nil {
			return err
		}
	}
	for _, f := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		if err := bind(f, f, false); err != nil {
			return err
		}
	}
	for _, d := range []string{"/etc", "/proc", "/dev/pts", "/dev/shm", "/tmp", "/.pinfold", "/old"} {
		if err := os.MkdirAll(in(d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(in("/etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/bash\n"), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(in("/etc/group"), []byte("root:x:0:\n"), 0o644); err != nil {
		return err
	}
	mounts := []struct{ kind, at, data string }{
		{"proc", "/proc", ""},
		{"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", sandbox.WorkspaceDir, "uid=1000,gid=1000,mode=0755"},
		{"tmpfs", sandbox.HomeDir, "uid=1000,gid=1000,mode=0755"},
		{"tmpfs", sandbox.SessionDir, "uid=1000,gid=1000,mode=0755"},
		{"tmpfs", sandbox.BrowserDir, "uid=1001,gid=1001,mode=0700"},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(in(m.at), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, in(m.at), m.kind, unix.MS_NOSUID, m.data); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.kind, m.at, err)
		}
	}
	for link, to := range map[string]string{"/dev/ptmx": "pts/ptmx", "/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, in(link)); err != nil {
			return err
		}
	}
	if err := bind(binary, sandbox.GuestPath, false); err != nil {
		return err
	}
	if err := bind(filepath.Join(dir, "link"), sandbox.LinkDir, true); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, in("/old")); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Remove("/old"); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if readOnly {
		return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return nil
}

// loopbackUp does what every container runtime does for a network of its own.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// confine leaves the five capabilities after the next execve, sets
// no_new_privs and puts a filter in place as an engine does; this one refuses
// keyctl and nothing else.
func confine(filtered bool) error {
	keep := []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if !slices.Contains(keep, c) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return fmt.Errorf("capability %d: %w", c, err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if !filtered {
		return nil
	}
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_KEYCTL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return e
	}
	return nil
}
