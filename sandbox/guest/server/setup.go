//go:build linux

package server

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// Setup makes this process fit to run commands: limits, groups, capabilities,
// the system-call filter. What protects is an error when it fails; what only
// serves is a note in the report.
func Setup(cfg guest.Config, r *guest.Report) error {
	// Nobody but root may look into the guest, whose memory holds the token and
	// is shared with each child until its program runs.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing the guest's memory: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	unix.Umask(0o022)
	if ownUID == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("dropping the groups of the container: %w", err)
		}
		r.Notes = append(r.Notes, knowUsers()...)
		if err := dropBounding(); err != nil {
			return err
		}
	}
	if err := setLimits(cfg.Limits); err != nil {
		return err
	}
	makeFolders()
	makeProfile()
	r.Notes = append(r.Notes, closeBrowserDir()...)
	r.Notes = append(r.Notes, notes()...)
	dropHandlers()
	// Last: it also keeps the guest itself from what it refuses.
	r.Filter = "on"
	if err := installFilter(cfg.NestedSandboxes); err != nil {
		return err
	}
	return nil
}

// dropBounding empties the bounding set on every thread, so that no program
// that is ever started from here can have a capability.
func dropBounding() error {
	const lastCap = 63
	for c := uintptr(0); c <= lastCap; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // beyond the kernel's last
		}
		if held == 0 {
			continue
		}
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 {
			return fmt.Errorf("dropping capability %d from what commands could get: %w", c, e)
		}
	}
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if e != 0 && e != unix.EINVAL {
		return fmt.Errorf("clearing ambient capabilities: %w", e)
	}
	return nil
}

// setLimits sets the limits that commands inherit on this process itself: it
// may not set those of another uid. The process limit counts the agent's own
// processes; the guest's threads belong to another uid.
func setLimits(l sandbox.Limits) error {
	set := func(what int, name string, n uint64) error {
		var old unix.Rlimit
		if err := unix.Getrlimit(what, &old); err != nil {
			return fmt.Errorf("reading the limit of %s: %w", name, err)
		}
		n = min(n, old.Max) // without the right to raise what the container has
		// Through syscall and not unix, for the descriptor limit: the library
		// else gives children the one it found.
		if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("setting the limit of %s: %w", name, err)
		}
		return nil
	}
	if err := set(unix.RLIMIT_CORE, "core files", 0); err != nil {
		return err
	}
	if l.Files > 0 {
		if err := set(unix.RLIMIT_NOFILE, "open files", uint64(l.Files)); err != nil {
			return err
		}
	}
	// Never none: commands that use up the numbers of the namespace would leave
	// the guest without a thread, which ends it.
	if err := set(unix.RLIMIT_NPROC, "processes", uint64(cmp.Or(max(l.Pids, 0), sandbox.DefaultLimits.Pids))); err != nil {
		return err
	}
	if l.Memory > 0 {
		// Data and not address space, which Chromium and Node reserve freely.
		if err := set(unix.RLIMIT_DATA, "memory", uint64(l.Memory)); err != nil {
			return err
		}
	}
	return nil
}

// makeFolders makes the folders that commands expect where no volume is
// mounted; a read-only root has them already or does without.
func makeFolders() {
	for _, dir := range []string{sandbox.WorkspaceDir, sandbox.SessionDir, sandbox.HomeDir} {
		if _, err := os.Stat(dir); err != nil {
			_ = os.MkdirAll(dir, 0o755)
		}
	}
}

// closeBrowserDir closes the browser's folder, with its cookies, to the agent:
// an engine's volume comes with the owner that was asked for, and mode 0755.
func closeBrowserDir() []string {
	err := asUser(sandbox.BrowserUID, sandbox.BrowserGID, func() error { return os.Chmod(sandbox.BrowserDir, 0o700) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []string{"the browser's folder stays open to commands: " + err.Error()}
	}
	return nil
}

// makeProfile gives the agent a profile, unless it has one of its own.
func makeProfile() {
	_ = asAgent(func() error {
		for _, name := range []string{"/.bash_profile", "/.bash_login"} {
			if _, err := os.Lstat(sandbox.HomeDir + name); err == nil {
				return nil
			}
		}
		fd, err := unix.Open(sandbox.HomeDir+"/.profile", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte(profile))
		return err
	})
}

// users are the lines that an image may lack.
var users = []struct{ file, line string }{
	{"/etc/passwd", fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh", sandbox.AgentName, sandbox.AgentUID, sandbox.AgentGID, sandbox.HomeDir)},
	{"/etc/passwd", fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh", sandbox.BrowserName, sandbox.BrowserUID, sandbox.BrowserGID, sandbox.BrowserDir)},
	{"/etc/group", fmt.Sprintf("%s:x:%d:", sandbox.AgentName, sandbox.AgentGID)},
	{"/etc/group", fmt.Sprintf("%s:x:%d:", sandbox.BrowserName, sandbox.BrowserGID)},
}

// knowUsers gives the two users of a sandbox their names, taking out whatever
// the image had under their names or numbers. Where the files cannot be
// written, programs see numbers.
func knowUsers() []string {
	var left []string
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		old := slurp(file)
		var lines []string
		for _, u := range users {
			if u.file == file {
				lines = append(lines, u.line)
			}
		}
		if containsAll(old, lines) {
			continue
		}
		keep := slices.DeleteFunc(strings.Split(strings.TrimRight(old, "\n"), "\n"), func(l string) bool {
			f := strings.Split(l, ":")
			return l == "" || slices.Contains([]string{sandbox.AgentName, sandbox.BrowserName}, f[0]) ||
				len(f) > 2 && slices.Contains([]string{strconv.Itoa(sandbox.AgentUID), strconv.Itoa(sandbox.BrowserUID)}, f[2])
		})
		text := strings.Join(append(keep, lines...), "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			left = append(left, "the names of the users inside are unknown: "+err.Error())
		}
	}
	return left
}

func containsAll(text string, lines []string) bool {
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			return false
		}
	}
	return true
}
