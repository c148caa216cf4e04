//go:build linux

package server

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// openTerminal makes a terminal that belongs to the agent.
func openTerminal(size sandbox.TermSize) (master, slave *os.File, err error) {
	m, t := -1, -1
	err = actAs(sandbox.AgentUID, sandbox.AgentGID, func() error {
		var err error
		if m, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("opening a terminal: %w", err)
		}
		if err = unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
			return fmt.Errorf("unlocking the terminal: %w", err)
		}
		n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
		if err != nil {
			return fmt.Errorf("naming the terminal: %w", err)
		}
		if t, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("opening the terminal's other side: %w", err)
		}
		return unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)})
	})
	if err != nil {
		for _, fd := range []int{m, t} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
		return nil, nil, err
	}
	return os.NewFile(uintptr(m), "/dev/ptmx"), os.NewFile(uintptr(t), "terminal"), nil
}

// resize changes the size of the terminal behind master; the kernel tells its
// foreground processes.
func resize(master *os.File, size sandbox.TermSize) error {
	rc, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = rc.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)})
	})
	if err != nil {
		return err
	}
	return ierr
}
