//go:build linux

package server

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// The search for the nearest text is bounded in work and in time: it is a help,
// never a reason to wait.
const (
	nearLines  = 200_000
	nearWindow = 40 // lines of old that are compared
	nearTime   = 60 * time.Millisecond
)

// nearest explains why old was not found: it shows the place most like it, with
// the difference marked.
func nearest(text []byte, old string) error {
	have := lineTexts(text, nearLines)
	want := lineTexts([]byte(old), nearWindow)
	for len(want) > 1 && strings.TrimSpace(want[len(want)-1]) == "" {
		want = want[:len(want)-1]
	}
	at, score := bestWindow(have, want, time.Now().Add(nearTime))
	if score <= 0 {
		return &mismatch{"no_match", "old does not occur, and nothing like it does.", "Read the file with file_read and copy the text to replace exactly.", map[string]any{"occurrences": 0}}
	}
	end := min(len(have), at+len(want))
	shown, spaces := markDifference(want, have[at:end])
	what := "The nearest text"
	if spaces {
		what = "Only white space differs: the text"
	}
	return &mismatch{"no_match", fmt.Sprintf("old does not occur. %s is at line %d (- old, + file%s):\n%s", what, at+1, legend(shown), shown),
		"Copy the lines marked + into old.", map[string]any{"occurrences": 0, "line": at + 1, "difference": shown}}
}

func legend(shown string) string {
	if strings.ContainsAny(shown, "·→␍") {
		return "; · is a space, → a tab, ␍ a carriage return"
	}
	return ""
}

func lineTexts(b []byte, limit int) []string {
	var out []string
	for len(b) > 0 && len(out) < limit {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		out = append(out, string(line[:min(len(line), 2000)]))
		b = rest
	}
	return out
}

// bestWindow finds the lines most like want and how like they are.
func bestWindow(have, want []string, until time.Time) (at int, best float64) {
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	wanted := make([]string, len(want))
	weight := make([]float64, len(want))
	first := map[string][]int{} // flattened line → its places in want
	for i, l := range want {
		wanted[i] = flat(l)
		weight[i] = float64(min(len(wanted[i]), 60)) / 60
		if wanted[i] != "" {
			first[wanted[i]] = append(first[wanted[i]], i)
		}
	}
	// Lines that are equal but for white space vote for where the window starts.
	votes := map[int]float64{}
	for i, l := range have {
		for _, j := range first[flat(l)] {
			votes[i-j] += weight[j] + 0.1
		}
		if i%1024 == 1023 && time.Now().After(until) {
			break
		}
	}
	for start, v := range votes {
		if v > best || (v == best && start < at) {
			at, best = start, v
		}
	}
	if best > 0 {
		return max(0, min(at, len(have)-1)), best
	}
	// No line is equal: the longest of want against every line, by pairs of letters.
	key := 0
	for i := range wanted {
		if len(wanted[i]) > len(wanted[key]) {
			key = i
		}
	}
	if len(wanted) == 0 || len(wanted[key]) < 3 {
		return 0, 0
	}
	pairs := letterPairs(wanted[key])
	for i, l := range have {
		if s := likePairs(pairs, len(wanted[key]), flat(l)); s > best {
			at, best = i-key, s
		}
		if i%256 == 255 && time.Now().After(until) {
			break
		}
	}
	if best < 0.5 {
		return 0, 0
	}
	return max(0, min(at, len(have)-1)), best
}

func letterPairs(s string) map[[2]byte]int {
	m := make(map[[2]byte]int, len(s))
	for i := 1; i < len(s); i++ {
		m[[2]byte{s[i-1], s[i]}]++
	}
	return m
}

// likePairs is Dice's coefficient of the pairs of letters of two lines.
func likePairs(pairs map[[2]byte]int, n int, s string) float64 {
	if len(s) < 2 || len(s) > 4*n || n > 4*len(s) {
		return 0
	}
	seen := make(map[[2]byte]int, len(s))
	common := 0
	for i := 1; i < len(s); i++ {
		p := [2]byte{s[i-1], s[i]}
		if seen[p] < pairs[p] {
			common++
		}
		seen[p]++
	}
	return 2 * float64(common) / float64(n+len(s)-2)
}

// markDifference sets the lines against each other; spaces says that nothing
// but white space differs.
func markDifference(want, have []string) (shown string, spaces bool) {
	var out strings.Builder
	spaces = len(want) == len(have)
	for i := range max(len(want), len(have)) {
		var w, h string
		if i < len(want) {
			w = want[i]
		}
		if i < len(have) {
			h = have[i]
		}
		if w == h && i < len(want) && i < len(have) {
			fmt.Fprintf(&out, "  %s\n", clipLine([]byte(w), 0, 200))
			continue
		}
		blank := strings.Join(strings.Fields(w), "") == strings.Join(strings.Fields(h), "")
		spaces = spaces && blank
		at := common(w, h)
		ends := strings.TrimRight(w, " \t\r") == strings.TrimRight(h, " \t\r")
		if i < len(want) {
			fmt.Fprintf(&out, "- %s\n", visible(clipLine([]byte(w), at, 200), blank, ends))
		}
		if i < len(have) {
			fmt.Fprintf(&out, "+ %s\n", visible(clipLine([]byte(h), at, 200), blank, ends))
		}
		if out.Len() > 4000 {
			out.WriteString("  …\n")
			break
		}
	}
	return out.String(), spaces
}

func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// visible makes white space visible where it is what differs: at the line's
// end, or all of it.
func visible(s string, blank, ends bool) string {
	marks := strings.NewReplacer(" ", "·", "\t", "→", "\r", "␍")
	switch {
	case !blank:
		return s
	case ends:
		body := strings.TrimRight(s, " \t\r")
		return body + marks.Replace(s[len(body):])
	}
	return marks.Replace(s)
}
