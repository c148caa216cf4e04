//go:build linux

package server

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// A tree is told by a supplementary group number of its own: uid 1000 can leave
// its session, its process group and its parent, but it cannot drop a group.
// Numbers are taken in turn from treeFirst on, within what the user namespace
// maps, so that one is used again only after all the others.
const (
	treeFirst = 30000
	treeLast  = 59999
)

// trees hands out tree numbers.
type trees struct {
	mu          sync.Mutex
	first, last int
	next        int
	live        map[int]bool // trees that may have processes; true for those that Kill with All leaves
}

// init fits the range to the namespace's own map of groups.
func (t *trees) init(gidMap string) {
	t.live, t.first, t.last = map[int]bool{}, treeFirst, treeLast
	mapped := func(id int) bool {
		for line := range strings.Lines(gidMap) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			from, _ := strconv.Atoi(f[0])
			n, _ := strconv.Atoi(f[2])
			if id >= from && id < from+n {
				return true
			}
		}
		return false
	}
	if gidMap != "" && !mapped(t.last) {
		// Fewer groups than 65536: take the largest block above those that
		// images use.
		for line := range strings.Lines(gidMap) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			from, _ := strconv.Atoi(f[0])
			n, _ := strconv.Atoi(f[2])
			if from+n-1 > sandbox.BrowserGID {
				t.first, t.last = max(from, from+n/2, sandbox.BrowserGID+1), from+n-1
			}
		}
	}
	t.next = t.first
}

func (t *trees) take(keep bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range t.last - t.first + 1 {
		gid := t.next
		if t.next++; t.next > t.last {
			t.next = t.first
		}
		if _, taken := t.live[gid]; !taken {
			t.live[gid] = keep
			return gid, nil
		}
	}
	return 0, sandbox.Errorf(sandbox.ResourceExhausted, "End some: shell_kill with all.", "%d commands still have running processes", t.last-t.first+1)
}

// give returns the number of a tree that has no process any more.
func (t *trees) give(gid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, gid)
}

// kept lists the trees that Kill with All leaves.
func (t *trees) kept() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var l []int
	for gid, keep := range t.live {
		if keep {
			l = append(l, gid)
		}
	}
	return l
}

// proc is what the guest reads of a process.
type proc struct {
	pid, ppid, uid int
	threads        int
	state          byte
	name           string
	groups         []int
}

// living reports whether the process can still do anything. A zombie cannot: it
// holds nothing and ends when its parent does. But the state is that of the
// first thread, which can end before the others.
func (p *proc) living() bool {
	return p.state != 'Z' && p.state != 'X' || p.threads > 1
}

// inTree reports whether the process lives in tree gid.
func (p *proc) inTree(gid int) bool {
	return p.living() && slices.Contains(p.groups, gid)
}

// eachProc calls f for every process but pid 1. It reads /proc/PID/status,
// which is open to all.
func eachProc(f func(p *proc)) {
	d, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	buf := make([]byte, 8192)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 {
			continue
		}
		if p, ok := readProc(pid, buf); ok {
			f(p)
		}
	}
}

func readProc(pid int, buf []byte) (*proc, bool) {
	b, ok := readSmall("/proc/"+strconv.Itoa(pid)+"/status", buf)
	if !ok {
		return nil, false
	}
	p := &proc{pid: pid}
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		key, v, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		v = bytes.TrimSpace(v)
		switch string(key) {
		case "Name":
			p.name = string(v)
		case "State":
			if len(v) > 0 {
				p.state = v[0]
			}
		case "PPid":
			p.ppid, _ = strconv.Atoi(string(v))
		case "Threads":
			p.threads, _ = strconv.Atoi(string(v))
		case "Uid":
			first, _, _ := bytes.Cut(v, []byte("\t"))
			p.uid, _ = strconv.Atoi(string(first))
		case "Groups":
			for g := range bytes.FieldsSeq(v) {
				if n, err := strconv.Atoi(string(g)); err == nil {
					p.groups = append(p.groups, n)
				}
			}
		}
	}
	return p, true
}

// readSmall reads a file of /proc into buf with three system calls and without
// the poller, which such files do not go with.
func readSmall(path string, buf []byte) ([]byte, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, false
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], true
}

// inTree lists the living processes of a tree.
func inTree(gid int) []*proc {
	var l []*proc
	eachProc(func(p *proc) {
		if p.inTree(gid) {
			l = append(l, p)
		}
	})
	return l
}

// signalTree sends sig to every process of a tree and returns how many it met.
func signalTree(gid int, sig unix.Signal) int {
	return signalWhere(sig, func(p *proc) bool { return p.inTree(gid) })
}

func signalWhere(sig unix.Signal, match func(p *proc) bool) int {
	n := 0
	eachProc(func(p *proc) {
		if match(p) && signal(p.pid, sig, match) {
			n++
		}
	})
	return n
}

// signal sends sig to a process that matched, and to no other: the number may
// have become another's since it was read, so it is held and read again.
func signal(pid int, sig unix.Signal, match func(p *proc) bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return false
	}
	if err != nil { // a kernel without: numbers come again after many others only
		return unix.Kill(pid, sig) == nil
	}
	defer unix.Close(fd)
	p, ok := readProc(pid, make([]byte, 8192))
	if !ok || !match(p) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// killTree ends a tree and reports whether it is empty.
func killTree(gid int, limit time.Duration) bool {
	return killWhere(limit, func(p *proc) bool { return p.inTree(gid) })
}
