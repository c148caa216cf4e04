//go:build linux

package server

import (
	"os"
	"path"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of output on disk.
const (
	spillFrom = 30_000   // a stream longer than an answer goes to a file
	spillMost = 64 << 20 // of one stream
)

// spillDir holds a file for each long stream. It belongs to the agent, who may
// do with it what it wants: the files are opened as the agent, made new, and
// never read back by the guest.
var spillDir = sandbox.SessionDir + "/output"

// spill is the file of one stream.
type spill struct {
	path string
	f    *os.File
	n    int64
	bad  bool // could not be made or written: nothing is promised of it
}

// spillLocked writes what came to the stream's file once it is long. The caller
// holds p.mu and has added b to the ring.
func (p *process) spillLocked(stream uint8, b []byte) {
	r := &p.out.rings[stream]
	if r.total <= spillFrom {
		return
	}
	sp := p.spill[stream]
	if sp == nil {
		sp = newSpill(p.id + []string{".stdout", ".stderr"}[stream])
		p.spill[stream] = sp
		// All that came until now is still in memory: the first pieces are small.
		b, _ = r.read(nil, 0, int(min(r.total, headMax+tailMax)))
	}
	sp.write(b)
}

func newSpill(name string) *spill {
	sp := &spill{path: path.Join(spillDir, name)}
	err := asAgent(func() error {
		_ = unix.Mkdir(spillDir, 0o755)
		_ = unix.Unlink(sp.path)
		fd, err := unix.Open(sp.path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err == nil {
			sp.f = os.NewFile(uintptr(fd), sp.path)
		}
		return err
	})
	sp.bad = err != nil
	return sp
}

func (sp *spill) write(b []byte) {
	if sp.f == nil {
		return
	}
	if left := spillMost - sp.n; int64(len(b)) > left {
		b = b[:left]
	}
	n, err := sp.f.Write(b)
	sp.n += int64(n)
	if err != nil { // the disk is full: what was written stays, no more is tried
		sp.bad = sp.n == 0
		sp.close()
	}
}

func (sp *spill) close() {
	if sp != nil && sp.f != nil {
		_ = sp.f.Close()
		sp.f = nil
	}
}

// remove deletes the file of a forgotten command.
func (sp *spill) remove() {
	if sp == nil {
		return
	}
	sp.close()
	_ = asAgent(func() error { return unix.Unlink(sp.path) })
}

// name is the path for an answer, empty when there is none.
func (sp *spill) name() string {
	if sp == nil || sp.bad {
		return ""
	}
	return sp.path
}
