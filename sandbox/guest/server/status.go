//go:build linux

package server

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of a status.
const (
	maxTable     = 500
	maxListeners = 200
)

// handleStatus tells what runs inside.
func handleStatus(_ context.Context, s *Server, _ json.RawMessage, _ *stream) (any, error) {
	out := sandbox.GuestStatus{
		Version: s.report.Build, UptimeMS: time.Since(s.started).Milliseconds(),
		Processes: []sandbox.ProcessInfo{}, Table: []sandbox.PSInfo{}, Listening: listeners(), Kernels: kernelsOf(s),
	}
	members := map[int]int{} // of each tree
	eachProc(func(p *proc) {
		for _, g := range p.groups {
			if p.inTree(g) {
				members[g]++
			}
		}
	})
	for _, p := range s.procs.all() {
		out.Processes = append(out.Processes, p.info(members[p.child.gid]))
	}
	page := int64(os.Getpagesize())
	buf := make([]byte, 4096)
	add := func(p *proc) {
		i := sandbox.PSInfo{PID: p.pid, PPID: p.ppid, UID: p.uid, State: string(p.state), Command: commandOf(p)}
		if b, ok := readSmall(fmt.Sprintf("/proc/%d/stat", p.pid), buf); ok {
			// The name in the second field may hold anything but ends with the last parenthesis.
			if _, rest, ok := strings.Cut(string(b[lastParen(b):]), ") "); ok {
				if f := strings.Fields(rest); len(f) > 21 {
					ut, _ := strconv.ParseInt(f[11], 10, 64)
					st, _ := strconv.ParseInt(f[12], 10, 64)
					rss, _ := strconv.ParseInt(f[21], 10, 64)
					i.CPUMS, i.RSS = (ut+st)*10, rss*page
				}
			}
		}
		out.Mem += i.RSS
		if p.pid == 1 {
			out.RSS = i.RSS
		}
		if len(out.Table) < maxTable {
			out.Table = append(out.Table, i)
		}
	}
	if p, ok := readProc(os.Getpid(), make([]byte, 8192)); ok {
		p.pid = os.Getpid()
		add(p)
		if out.RSS == 0 {
			out.RSS = out.Mem
		}
	}
	eachProc(func(p *proc) {
		if p.pid != os.Getpid() {
			add(p)
		}
	})
	var fs unix.Statfs_t
	if unix.Statfs(sandbox.WorkspaceDir, &fs) == nil {
		out.Disk = int64(fs.Bavail) * int64(fs.Bsize)
	}
	return out, nil
}

func lastParen(b []byte) int {
	for i := len(b) - 1; i > 0; i-- {
		if b[i] == ')' {
			return i
		}
	}
	return 0
}

// info is one command for a listing; children is the number of living processes
// with its tree's number.
func (p *process) info(children int) sandbox.ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.treeGone {
		children = 0 // the number may be another's by now
	}
	i := sandbox.ProcessInfo{Process: p.id, Command: p.command, Status: p.status, ExitCode: p.code, Signal: p.signal,
		StartedMS: time.Since(p.started).Milliseconds(), Bytes: p.out.total, Background: p.background, Children: children}
	if p.status == sandbox.Running {
		i.PID = p.child.pid
	}
	return i
}

// listeners reads the listening TCP sockets from /proc/net.
func listeners() []sandbox.Listener {
	l := []sandbox.Listener{}
	buf := make([]byte, 256<<10)
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, ok := readSmall(f, buf)
		if !ok {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			const listen = "0A"
			if len(f) < 4 || f[3] != listen {
				continue
			}
			addr, port, _ := strings.Cut(f[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			ip, ok := procAddr(addr)
			if err == nil && ok && len(l) < maxListeners {
				l = append(l, sandbox.Listener{Address: ip.String(), Port: int(n)})
			}
		}
	}
	return l
}

// procAddr reads an address as /proc/net writes it: words in the machine's own
// order.
func procAddr(s string) (netip.Addr, bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b)%4 != 0 {
		return netip.Addr{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, ok := netip.AddrFromSlice(b)
	return ip.Unmap(), ok
}
