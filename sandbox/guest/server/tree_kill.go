//go:build linux

package server

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// When a tree that forks faster than it is read is met with more than signals.
const (
	stopAfter   = 3  // rounds that met processes: they are stopped first
	freezeAfter = 10 // rounds: everything stands still while the tree is read
)

// killWhere ends every process that matches and reports whether all are gone
// within limit. A round that meets none proves it only when no process was made
// meanwhile: one that forks and exits at once is always a step ahead of a list.
func killWhere(limit time.Duration, match func(p *proc) bool) bool {
	deadline := time.Now().Add(limit)
	pause := 200 * time.Microsecond
	for round := 0; ; round++ {
		if round >= stopAfter && round < freezeAfter {
			for range 3 {
				if signalWhere(unix.SIGSTOP, match) == 0 {
					break
				}
			}
		}
		before := lastPID()
		n := 0
		still := round >= freezeAfter && frozen(func() { n = signalWhere(unix.SIGKILL, match) })
		if !still {
			n = signalWhere(unix.SIGKILL, match)
		}
		if n == 0 && (still || lastPID() == before) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		if n > 0 {
			time.Sleep(pause)
			pause = min(2*pause, 20*time.Millisecond)
		}
	}
}

// lastPID is the number that the newest process or thread of the namespace got,
// the last field of /proc/loadavg.
func lastPID() string {
	b, _ := readSmall("/proc/loadavg", make([]byte, 128))
	return string(b[bytes.LastIndexByte(b, ' ')+1:])
}

var freezing sync.Mutex

// frozen runs f while every other process of the namespace is stopped, and lets
// those go on that were not stopped before. The signal reaches all in one step,
// and what has a signal waiting cannot fork. It reports false where it cannot
// be done: outside a namespace of our own it would meet the machine.
func frozen(f func()) bool {
	if os.Getpid() != 1 {
		return false
	}
	freezing.Lock()
	defer freezing.Unlock()
	stopped := map[int]bool{}
	eachProc(func(p *proc) { stopped[p.pid] = p.state == 'T' })
	if unix.Kill(-1, unix.SIGSTOP) != nil {
		return false
	}
	f()
	var all []int
	eachProc(func(p *proc) {
		if !stopped[p.pid] {
			all = append(all, p.pid)
		}
	})
	// The newest first: a shell that goes on must not meet its job stopped.
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(b, a) })
	for _, pid := range all {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
	return true
}
