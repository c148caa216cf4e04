//go:build linux

package server

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// searchCursor is the last line that was given.
type searchCursor struct {
	Path string `json:"p"`
	Line int64  `json:"l"` // 0: the whole file was
}

// searching carries files from the walk to the scanners and to the answer.
type searching struct {
	ctx     context.Context
	q       *query
	from    searchCursor
	single  bool
	work    chan *found
	turn    chan *found // in the order of the walk
	scanned int
	binary  int
	special int
	large   int
	denied  int
	broken  int
}

// found is one file: its descriptor first, its matches when done is closed.
type found struct {
	path   string
	file   *os.File
	size   int64
	after  int64 // give only lines after this one
	done   chan struct{}
	lines  []sandbox.MatchLine
	count  int // matches
	bytes  int // of the lines kept
	binary bool
	more   bool // stopped at the bound of one answer
	err    error
}

func (s *searching) visit(dir int, name string, kind uint8, p []byte) error {
	switch kind {
	case unix.DT_REG:
	case unix.DT_DIR, unix.DT_LNK:
		return nil
	default:
		s.special++
		return nil
	}
	if c := comparePaths(p, s.from.Path); s.from.Path != "" && (c < 0 || (c == 0 && s.from.Line == 0)) {
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		s.denied++
		return nil
	}
	return s.hand(fd, string(p))
}

// hand gives an open file to the scanners and takes it over.
func (s *searching) hand(fd int, p string) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxSearchFile {
		unix.Close(fd)
		if st.Size > maxSearchFile {
			s.large++
		} else {
			s.special++ // became something else since the listing
		}
		return nil
	}
	x := &found{path: p, file: os.NewFile(uintptr(fd), p), size: st.Size, done: make(chan struct{})}
	if p == s.from.Path || (s.single && s.from.Path != "") {
		x.after = s.from.Line
	}
	select {
	case s.turn <- x:
	case <-s.ctx.Done():
		x.file.Close()
		return s.ctx.Err()
	}
	select {
	case s.work <- x:
		return nil
	case <-s.ctx.Done():
		x.file.Close()
		x.err = s.ctx.Err()
		close(x.done)
		return x.err
	}
}

// collect takes findings in order until the page is full.
func (s *searching) collect(res *sandbox.SearchResult, limit int, cancel func()) {
	size := 0
	for x := range s.turn {
		<-x.done
		if s.ctx.Err() != nil && x.err != nil {
			continue
		}
		s.scanned++
		switch {
		case x.err != nil:
			s.broken++
			continue
		case x.binary:
			s.binary++
			continue
		case x.count == 0:
			continue
		}
		m := sandbox.FileMatches{Path: encodeName(x.path)}
		size += len(m.Path) + 16
		if s.q.filesOnly {
			res.Files = append(res.Files, m)
			res.Matches++
			if res.Matches >= limit || size > maxFound {
				res.Cursor = encodeCursor(searchCursor{Path: encodeName(x.path)})
				cancel()
				return
			}
			continue
		}
		last := int64(0)
		for _, l := range x.lines {
			size += len(l.Text) + 12
			if !l.Context {
				if res.Matches >= limit || (size > maxFound && res.Matches > 0) {
					x.more = true
					break
				}
				res.Matches++
				last = l.Line
			}
			m.Lines = append(m.Lines, l)
		}
		if last > 0 {
			for len(m.Lines) > 0 && m.Lines[len(m.Lines)-1].Context && m.Lines[len(m.Lines)-1].Line > last+int64(s.q.context) {
				m.Lines = m.Lines[:len(m.Lines)-1] // context of the match that no longer fits
			}
			res.Files = append(res.Files, m)
		}
		if x.more || res.Matches >= limit || size > maxFound {
			c := searchCursor{Path: encodeName(x.path), Line: last}
			if last == 0 {
				c.Line = x.after
			}
			res.Cursor = encodeCursor(c)
			cancel()
			return
		}
	}
}

func (s *searching) notes() []string {
	var out []string
	add := func(n int, format string) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, n))
		}
	}
	add(s.binary, "%d binary files skipped")
	add(s.special, "%d pipes, sockets or devices skipped")
	add(s.denied, "%d files could not be opened")
	add(s.broken, "%d files could not be read to their end")
	add(s.large, "%d files over 1 GiB skipped")
	return out
}
