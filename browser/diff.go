package browser

import (
	"strings"
)

// changes lists what differs between two looks at the same document: lines
// that came (+), went (-) and changed (~), each group under the line that holds
// it. It reports false when the list would not be much shorter than the page.
func changes(before, after []line, max int) (string, bool) {
	type old struct {
		text string
		used bool
	}
	was := map[string][]*old{}
	for _, l := range before {
		was[l.key] = append(was[l.key], &old{text: l.text})
	}
	type change struct {
		sign string
		i    int
	}
	var out []change
	var unmatched []int
	for i, l := range after {
		var hit *old
		for _, o := range was[l.key] {
			if !o.used {
				hit = o
				break
			}
		}
		switch {
		case hit == nil:
			unmatched = append(unmatched, i)
		case unfocused(hit.text) != unfocused(l.text):
			hit.used = true
			out = append(out, change{"~", i})
		default:
			hit.used = true
		}
	}
	// A rewrite of a part gives every node a new id; what reads the same and
	// holds no ref did not change for a reader.
	gone := map[string]int{}
	var goneLines []line
	seen := map[string]int{}
	for _, l := range before {
		k := seen[l.key]
		seen[l.key]++
		if !was[l.key][k].used {
			gone[l.text]++
			goneLines = append(goneLines, l)
		}
	}
	for _, i := range unmatched {
		if after[i].ref == "" && gone[after[i].text] > 0 {
			gone[after[i].text]--
			for k, l := range goneLines {
				if l.text == after[i].text && l.ref == "" {
					goneLines = append(goneLines[:k:k], goneLines[k+1:]...)
					break
				}
			}
			continue
		}
		out = append(out, change{"+", i})
	}
	var s strings.Builder
	size, whole := 0, 0
	for _, l := range after {
		whole += runes(l.text) + l.depth + 1
	}
	header := -2
	write := func(text string) {
		s.WriteString(text + "\n")
		size += runes(text) + 1
	}
	byIndex := map[int]string{}
	for _, c := range out {
		byIndex[c.i] = c.sign
	}
	for i, l := range after {
		sign, ok := byIndex[i]
		if !ok {
			continue
		}
		if l.parent != header && l.parent >= 0 && byIndex[l.parent] == "" {
			write("in " + cut(after[l.parent].text, 80))
		}
		header = l.parent
		write(sign + " " + l.text)
	}
	for _, l := range goneLines {
		write("- " + cut(l.text, 80))
	}
	if size > whole*6/10 && size > 400 || size > max {
		return "", false
	}
	if size == 0 {
		return "(no change)\n", true
	}
	return s.String(), true
}

// unfocused is a line without the note that it has the focus, which every
// click moves.
func unfocused(s string) string { return strings.Replace(s, " focused", "", 1) }
