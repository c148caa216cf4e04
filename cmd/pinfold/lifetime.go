package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errParentGone is the reason for which a stdio server ends when its client died
// without closing anything.
var errParentGone = errors.New("the program that started the server has ended")

// protectStdout takes the protocol's stream away from descriptor 1 and puts
// stderr in its place: a stray print of any library, or of a child that
// inherits it, would otherwise break the client's parser.
func protectStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, fmt.Errorf("keeping stdout: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return nil, fmt.Errorf("pointing stdout at stderr: %w", err)
	}
	os.Stdout = os.Stderr
	return os.NewFile(uintptr(fd), "protocol"), nil
}

// watchParent ends ctx when the process ppid ends; someone else may hold our
// stdin open then. It costs nothing while it waits. A parent-death signal would
// not do: it is sent when the parent's thread ends, which in a host written in
// Go happens at any time.
func watchParent(ppid int, end context.CancelCauseFunc) (stop func(), err error) {
	pidfd, err := unix.PidfdOpen(ppid, 0)
	if err != nil {
		pidfd = -1 // gone already, or a kernel before 5.3: then the parent is asked for
	}
	var wake [2]int
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		closeFD(pidfd)
		return nil, fmt.Errorf("watching the host: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer closeFD(pidfd)
		defer closeFD(wake[0])
		if parentEnded(pidfd, wake[0], ppid) {
			end(errParentGone)
		}
	})
	return sync.OnceFunc(func() { closeFD(wake[1]); wg.Wait() }), nil
}

// parentEnded blocks until the parent has ended, or false: until wake has news.
func parentEnded(pidfd, wake, ppid int) bool {
	timeout := -1
	if pidfd < 0 {
		timeout = 500
	}
	for {
		if os.Getppid() != ppid {
			return true
		}
		fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if fds[0].Revents != 0 {
			return false
		}
		if fds[1].Revents != 0 {
			return true
		}
	}
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// eofReader calls onEOF once its reader has ended.
type eofReader struct {
	io.Reader
	once  sync.Once
	onEOF func()
}

func (r *eofReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.once.Do(r.onEOF)
	}
	return n, err
}

// lastWish is how long a stdio server may take to end once its client is gone:
// hosts send SIGTERM 2 s after closing stdin, and SIGKILL 2 s later.
const lastWish = 3 * time.Second

// deadman ends the process when an orderly end takes too long; what is left
// then is removed by the next start.
type deadman struct {
	stderr io.Writer

	mu    sync.Mutex
	timer *time.Timer
	until time.Time
}

// arm starts the clock, once.
func (d *deadman) arm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		return
	}
	d.until = time.Now().Add(lastWish)
	d.timer = time.AfterFunc(lastWish, func() {
		fmt.Fprintln(d.stderr, "pinfold: the server did not end in time and leaves the rest to the next start.")
		os.Exit(exitFailure)
	})
}

// context bounds the orderly end, with some room before the clock runs out.
func (d *deadman) context() (context.Context, context.CancelFunc) {
	d.arm()
	d.mu.Lock()
	defer d.mu.Unlock()
	return context.WithDeadline(context.Background(), d.until.Add(-300*time.Millisecond))
}

func (d *deadman) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
}
