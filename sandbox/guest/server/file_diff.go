//go:build linux

package server

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	diffContext = 3
	maxDiff     = 20_000 // characters of a diff in an answer
	maxScript   = 800    // lines added and removed; past it the middle is one block
)

// unifiedDiff shows what changed between two texts, bounded in work and size.
// It stands here because the guest gets no diff library for one function.
func unifiedDiff(before, after []byte, path string) string {
	a, b := splitLines(before), splitLines(after)
	head := 0
	for head < len(a) && head < len(b) && bytes.Equal(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	ops := script(a[head:len(a)-tail], b[head:len(b)-tail])
	for i := range ops {
		ops[i].a += head
		ops[i].b += head
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- a/%s\n+++ b/%s\n", strings.TrimPrefix(path, "/"), strings.TrimPrefix(path, "/"))
	for i := 0; i < len(ops); {
		j := i // ops i..j share a hunk
		for j+1 < len(ops) && ops[j+1].a-(ops[j].a+ops[j].del) <= 2*diffContext {
			j++
		}
		if out.Len() > maxDiff {
			fmt.Fprintf(&out, "… %d more changes\n", len(ops)-i)
			break
		}
		writeHunk(&out, a, b, ops[i:j+1])
		i = j + 1
	}
	return out.String()
}

// change replaces del lines of a by ins lines of b.
type change struct{ a, del, b, ins int }

func writeHunk(out *strings.Builder, a, b [][]byte, ops []change) {
	first, last := ops[0], ops[len(ops)-1]
	from := max(0, first.a-diffContext)
	to := min(len(a), last.a+last.del+diffContext)
	bFrom := first.b - (first.a - from)
	bTo := last.b + last.ins + (to - last.a - last.del)
	span := func(from, n int) string {
		if n > 0 {
			from++
		}
		return fmt.Sprintf("%d,%d", from, n)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(from, to-from), span(bFrom, bTo-bFrom))
	line := func(mark byte, l []byte) {
		if out.Len() > maxDiff+4000 {
			return
		}
		text := bytes.TrimSuffix(l, []byte{'\n'})
		out.WriteByte(mark)
		out.WriteString(clipLine(text, 0, 2000))
		out.WriteByte('\n')
		if len(text) == len(l) {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
	pos := from
	for _, o := range ops {
		for ; pos < o.a; pos++ {
			line(' ', a[pos])
		}
		for i := range o.del {
			line('-', a[o.a+i])
		}
		for i := range o.ins {
			line('+', b[o.b+i])
		}
		pos = o.a + o.del
	}
	for ; pos < to; pos++ {
		line(' ', a[pos])
	}
	if out.Len() > maxDiff+4000 {
		out.WriteString("\n… the change is longer than is shown\n")
	}
}

// splitLines keeps line ends. The lines share memory with b.
func splitLines(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n') + 1
		if i == 0 {
			i = len(b)
		}
		out = append(out, b[:i])
		b = b[i:]
	}
	return out
}

// script is Myers' shortest edit script, given up past maxScript.
func script(a, b [][]byte) []change {
	n, m := len(a), len(b)
	if n == 0 && m == 0 {
		return nil
	}
	if n == 0 || m == 0 {
		return []change{{0, n, 0, m}}
	}
	limit := min(n+m, maxScript)
	v := make([]int, 2*limit+2)
	var trace [][]int
	at := func(k int) int { return k + limit }
	done := -1
	for d := 0; d <= limit && done < 0; d++ {
		trace = append(trace, append([]int(nil), v[at(-d):at(d)+1]...))
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || (k != d && v[at(k-1)] < v[at(k+1)]) {
				x = v[at(k+1)]
			} else {
				x = v[at(k-1)] + 1
			}
			for x < n && x-k < m && bytes.Equal(a[x], b[x-k]) {
				x++
			}
			v[at(k)] = x
			if x >= n && x-k >= m {
				done = d
				break
			}
		}
	}
	if done < 0 {
		return []change{{0, n, 0, m}}
	}
	// Backwards along the path: single steps, joined where they touch.
	var out []change
	x, y := n, m
	for d := done; d > 0; d-- {
		prev := trace[d]
		get := func(k int) int { return prev[k+d] } // trace[d] holds -d..d as they stood before round d
		k := x - y
		pk := k - 1
		if k == -d || (k != d && get(k-1) < get(k+1)) {
			pk = k + 1
		}
		px := get(pk)
		py := px - pk
		c := change{px, 1, py, 0}
		if pk == k+1 {
			c = change{px, 0, py, 1}
		}
		if len(out) > 0 {
			if l := &out[len(out)-1]; l.a == c.a+c.del && l.b == c.b+c.ins {
				*l = change{c.a, l.del + c.del, c.b, l.ins + c.ins}
				x, y = px, py
				continue
			}
		}
		out = append(out, c)
		x, y = px, py
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
