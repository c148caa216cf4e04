//go:build linux

package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"pinfold.dev/pinfold/sandbox"
)

const (
	scanBlock   = 1 << 20  // read at a time; a longer line is searched in pieces
	scanOverlap = 8 << 10  // of such pieces, so that a match is not cut
	maxMulti    = 16 << 20 // searched across lines: whole files of at most this
	maxPerHit   = maxSearch + 1
)

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanBlock); return &b }}

// scan looks through one file and closes it.
func (x *found) scan(ctx context.Context, q *query) {
	defer close(x.done)
	defer x.file.Close()
	pooled := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(pooled)
	buf := *pooled
	most := min(len(buf), int(x.size)+1)
	n, err := io.ReadFull(x.file, buf[:min(most, sniffBytes)])
	if err == nil && sniff(buf[:n], false) != encBinary { // only what is text is read on
		var k int
		k, err = io.ReadFull(x.file, buf[n:most])
		n += k
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		x.err = err
		return
	}
	whole := int64(n) >= x.size
	switch enc := sniff(buf[:min(n, sniffBytes)], n <= sniffBytes && whole); enc {
	case encBinary:
		x.binary = true
		return
	case encUTF16LE, encUTF16BE:
		rest, err := io.ReadAll(io.LimitReader(x.file, maxWide))
		if x.err = err; err != nil {
			return
		}
		text, _, _ := decodeUTF16(append(bytes.Clone(buf[:n]), rest...), enc)
		x.text(q, text, 1)
		return
	}
	if q.multiline && !whole {
		if x.size > maxMulti {
			x.err = errors.New("too large to search across lines")
			return
		}
		rest, err := io.ReadAll(io.LimitReader(x.file, maxMulti))
		if x.err = err; err != nil {
			return
		}
		x.text(q, append(bytes.Clone(buf[:n]), rest...), 1)
		return
	}
	if whole {
		x.text(q, buf[:n], 1)
		return
	}
	x.blocks(ctx, q, buf, n)
}

// blocks goes through a large file. Each block ends at a line's end; the lines
// before it that a match may want as context stay in front of the next.
func (x *found) blocks(ctx context.Context, q *query, buf []byte, n int) {
	line := int64(1) // of buf[0]
	from := 0        // where the search goes on; before it is context
	for eof := false; !x.more; {
		if x.err = ctx.Err(); x.err != nil {
			return
		}
		end, again := n, 0 // again: bytes of a line longer than the block that are searched once more
		if !eof {
			if i := bytes.LastIndexByte(buf[from:n], '\n'); i >= 0 {
				end = from + i + 1
			} else {
				again = min(scanOverlap, n-from)
			}
		}
		x.part(q, buf[:end], from, line)
		if eof {
			return
		}
		keep := end - again
		for range q.context {
			i := bytes.LastIndexByte(buf[:max(0, keep-1)], '\n')
			if i < 0 || end-i > len(buf)/4 {
				break
			}
			keep = i + 1
		}
		line += int64(bytes.Count(buf[:keep], []byte{'\n'}))
		from = end - again - keep
		m := copy(buf, buf[keep:n])
		k, err := io.ReadFull(x.file, buf[m:])
		n = m + k
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			eof = true
		case err != nil:
			x.err = err
			return
		}
	}
}

func (x *found) text(q *query, b []byte, line int64) { x.part(q, b, 0, line) }

// part searches b from an offset on; line is the number of b's first line.
func (x *found) part(q *query, b []byte, from int, line int64) {
	if !q.possible(b[from:]) {
		return
	}
	at, number := 0, line // number is the line of b[at]
	for pos := from; pos < len(b) && !x.more; {
		start, end := q.next(b, pos)
		if start < 0 {
			return
		}
		lineStart := bytes.LastIndexByte(b[:start], '\n') + 1
		lineEnd := endOfLine(b, max(start, end-1))
		number += int64(bytes.Count(b[at:lineStart], []byte{'\n'}))
		at = lineStart
		x.add(q, b, lineStart, lineEnd, start, number)
		pos = max(lineEnd, start+1)
		if q.filesOnly {
			x.more = true
		}
	}
}

// possible tells whether a match can lie in b at all.
func (q *query) possible(b []byte) bool {
	switch {
	case len(q.literal) > 0:
		return bytes.Contains(b, q.literal)
	case len(q.folded) == 0:
		return true
	}
	pooled := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(pooled)
	if len(b) > len(*pooled) {
		return true
	}
	low := (*pooled)[:len(b)]
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		low[i] = c
	}
	// Two letters outside ASCII fold into it: the Kelvin sign and the long s.
	return bytes.Contains(low, q.folded) || bytes.Contains(b, []byte("\u212a")) || bytes.Contains(b, []byte("\u017f"))
}

// next finds the next match at or after pos. Without multiline a match lies
// within one line, which is searched alone: an expression such as [^a] would
// run over line ends.
func (q *query) next(b []byte, pos int) (start, end int) {
	if q.only {
		i := bytes.Index(b[pos:], q.literal)
		if i < 0 {
			return -1, -1
		}
		return pos + i, pos + i + len(q.literal)
	}
	if q.multiline {
		m := q.re.FindIndex(b[pos:])
		if m == nil {
			return -1, -1
		}
		return pos + m[0], pos + m[1]
	}
	for pos < len(b) {
		if len(q.literal) > 0 {
			i := bytes.Index(b[pos:], q.literal)
			if i < 0 {
				return -1, -1
			}
			if s := bytes.LastIndexByte(b[pos:pos+i], '\n'); s >= 0 {
				pos += s + 1
			}
		}
		stop := endOfLine(b, pos)
		if m := q.re.FindIndex(bytes.TrimRight(b[pos:stop], "\r\n")); m != nil {
			return pos + m[0], pos + m[1]
		}
		pos = stop
	}
	return -1, -1
}

// endOfLine is the offset after the line that holds pos.
func endOfLine(b []byte, pos int) int {
	if i := bytes.IndexByte(b[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(b)
}

// add records a match, its lines and their context.
func (x *found) add(q *query, b []byte, from, to, at int, number int64) {
	lines := int64(bytes.Count(bytes.TrimSuffix(b[from:to], []byte{'\n'}), []byte{'\n'}))
	if number+lines <= x.after {
		return
	}
	x.count++
	if q.filesOnly {
		return
	}
	last := x.after
	if n := len(x.lines); n > 0 {
		last = x.lines[n-1].Line
	}
	show := func(start int, n int64, match bool, at int) {
		if n <= last {
			if k := len(x.lines) - 1; match && k >= 0 && x.lines[k].Line == n {
				x.lines[k].Context = false
			}
			return
		}
		text := clipLine(bytes.TrimRight(b[start:endOfLine(b, start)], "\r\n"), max(0, at-start), maxLine)
		x.lines = append(x.lines, sandbox.MatchLine{Line: n, Context: !match, Text: text})
		x.bytes += len(text)
	}
	start, n := from, number
	for range q.context {
		if start == 0 {
			break
		}
		start = bytes.LastIndexByte(b[:start-1], '\n') + 1
		n--
	}
	for start < to {
		show(start, n, n >= number, at)
		start, n = endOfLine(b, start), n+1
		if n-number > 50 {
			break // a match over more lines than anyone reads
		}
	}
	for i := 0; i < q.context && start < len(b); i++ {
		show(start, n, false, start)
		start, n = endOfLine(b, start), n+1
	}
	x.more = x.more || x.count >= maxPerHit || x.bytes > 3*maxFound
}
