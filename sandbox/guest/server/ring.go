//go:build linux

package server

import (
	"bytes"
	"unicode/utf8"
)

// Bounds of what a process's output takes in memory. Both are allocated as
// output comes.
const (
	headMax = 64 << 10 // first bytes of a stream, kept for good
	tailMax = 1 << 20  // last bytes of a stream
)

var newline = []byte{'\n'}

// ring keeps the first headMax and the last tailMax bytes of one stream and
// counts what passed. It is not safe for concurrent use.
type ring struct {
	head  []byte
	tail  []byte // grows to tailMax, then wraps at at
	at    int    // index of the oldest byte of a full tail
	total int64
	nl    int64
	last  byte
}

func (r *ring) write(p []byte) {
	if len(p) == 0 {
		return
	}
	r.nl += int64(bytes.Count(p, newline))
	r.last = p[len(p)-1]
	r.total += int64(len(p))
	if n := min(headMax-len(r.head), len(p)); n > 0 {
		r.head = append(r.head, p[:n]...)
		p = p[n:]
	}
	if n := min(tailMax-len(r.tail), len(p)); n > 0 {
		r.tail = append(r.tail, p[:n]...)
		p = p[n:]
	}
	if len(p) > tailMax {
		p = p[len(p)-tailMax:]
		r.at = 0
	}
	for len(p) > 0 {
		n := copy(r.tail[r.at:], p)
		r.at = (r.at + n) % tailMax
		p = p[n:]
	}
}

// lines counts lines; one without an end counts too.
func (r *ring) lines() int64 {
	if r.total > 0 && r.last != '\n' {
		return r.nl + 1
	}
	return r.nl
}

// tailFrom is the offset of the oldest byte of the tail.
func (r *ring) tailFrom() int64 { return r.total - int64(len(r.tail)) }

// read appends up to n bytes from offset on to dst and returns the offset of
// the first one: later than asked when those before are gone.
func (r *ring) read(dst []byte, off int64, n int) ([]byte, int64) {
	if h := int64(len(r.head)); off < h {
		m := min(int64(n), h-off)
		dst = append(dst, r.head[off:off+m]...)
		if m < int64(n) && r.tailFrom() == h {
			dst, _ = r.read(dst, h, n-int(m))
		}
		return dst, off
	}
	off = max(off, r.tailFrom())
	m := int(min(int64(n), r.total-off))
	if m <= 0 {
		return dst, off
	}
	i := int(off - r.tailFrom())
	if len(r.tail) == tailMax {
		i = (i + r.at) % tailMax
	}
	k := min(m, len(r.tail)-i)
	dst = append(dst, r.tail[i:i+k]...)
	return append(dst, r.tail[:m-k]...), off
}

// seg is a run of one stream in the order things came.
type seg struct {
	at     int64 // offset in both streams taken together
	off    int64 // offset in its own stream
	stream uint8
}

// maxSegs bounds the memory of the order: streams that alternate faster lose
// the order of what came first.
const maxSegs = 8192

// size is the memory that r holds.
func (r *ring) size() int { return cap(r.head) + cap(r.tail) }

// shrink gives memory back: of the tail, the last n bytes stay.
func (r *ring) shrink(n int) {
	if len(r.tail) <= n {
		return
	}
	tail, _ := r.read(make([]byte, 0, n), r.total-int64(n), n)
	r.tail, r.at = tail, 0
}

// output is all that a process wrote.
type output struct {
	rings [2]ring // stdout, stderr
	segs  []seg
	total int64
}

func (o *output) write(stream uint8, p []byte) {
	if n := len(o.segs); len(p) > 0 && (n == 0 || o.segs[n-1].stream != stream) {
		if n == maxSegs {
			o.segs = append(o.segs[:0], o.segs[n/2:]...)
		}
		o.segs = append(o.segs, seg{at: o.total, off: o.rings[stream].total, stream: stream})
	}
	o.rings[stream].write(p)
	o.total += int64(len(p))
}

// read returns up to n bytes of both streams as they came, from offset on, the
// offset of the first, and that after the last. Where bytes are gone it goes on
// after them, and only before the first byte.
func (o *output) read(off int64, n int) (text []byte, from, next int64) {
	from, next = off, off
	for i := range o.segs {
		g := o.segs[i]
		end := o.total
		if i+1 < len(o.segs) {
			end = o.segs[i+1].at
		}
		if end <= next {
			continue
		}
		want := max(next, g.at)
		left := n - len(text)
		if left <= 0 {
			break
		}
		was := len(text)
		var at int64
		pos := g.off + want - g.at
		text, at = o.rings[g.stream].read(text, pos, int(min(int64(left), end-want)))
		if at != pos && was > 0 {
			text = text[:was] // a gap within: the next read begins after it
			break
		}
		got := min(int64(len(text)-was), max(0, end-want-(at-pos)))
		text = text[:was+int(got)] // what is beyond belongs to a later run
		if got == 0 {
			next = end
			if was == 0 {
				from = next
			}
			continue
		}
		if was == 0 {
			from = want + at - pos
		}
		next = want + at - pos + got
		if next < end {
			break
		}
	}
	return text, from, next
}

// cleanText turns bytes into valid UTF-8, with invalid bytes as \xNN.
func cleanText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	const hex = "0123456789abcdef"
	out := make([]byte, 0, len(b)+64)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			out = append(out, '\\', 'x', hex[b[0]>>4], hex[b[0]&15])
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return string(out)
}

// cutEnd returns how many bytes at the end of b are the start of a character
// whose rest has not come.
func cutEnd(b []byte) int {
	for i := 1; i <= min(3, len(b)); i++ {
		c := b[len(b)-i]
		if c&0xC0 == 0x80 {
			continue
		}
		if c >= 0xC0 && !utf8.FullRune(b[len(b)-i:]) {
			return i
		}
		return 0
	}
	return 0
}

// cutStart returns how many bytes at the start of b are the rest of a character
// that began before.
func cutStart(b []byte) int {
	for i := 0; i < min(4, len(b)); i++ {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	if len(b) < 4 {
		return len(b)
	}
	return 0
}
