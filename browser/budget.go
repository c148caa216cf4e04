package browser

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

func runes(s string) int { return utf8.RuneCountInString(s) }

// foldLen is more than any line that stands for left-out lines takes.
const foldLen = 70

// choose picks the lines that fit into max characters, the best rank first,
// each with the lines that hold it. It returns which are shown.
func choose(lines []line, max int) []bool {
	cost := make([]int, len(lines))
	total := 0
	for i, l := range lines {
		cost[i] = runes(l.text) + min(l.depth, 40) + 1
		total += cost[i]
	}
	shown := make([]bool, len(lines))
	if total <= max {
		for i := range shown {
			shown[i] = true
		}
		return shown
	}
	order := make([]int, len(lines))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return lines[order[a]].rank < lines[order[b]].rank })
	used := 0
	pick := func(i, limit int) bool {
		need := 0
		var path []int
		for k := i; k >= 0 && !shown[k]; k = lines[k].parent {
			need += cost[k]
			path = append(path, k)
		}
		if used+need > limit {
			return false
		}
		for _, k := range path {
			shown[k] = true
		}
		used += need
		return true
	}
	outline := 0
	for _, l := range lines {
		if l.rank == rankOutline {
			outline += runes(l.text) + 2
		}
	}
	reserveOutline := min(max*15/100, outline)
	misses := 0
	for _, i := range order {
		limit := max
		if lines[i].rank < rankOutline {
			limit = max - reserveOutline
		}
		if shown[i] {
			continue
		}
		if !pick(i, limit) {
			if misses++; misses > 200 && lines[i].rank >= rankRest {
				break
			}
		}
	}
	// Each run of left-out lines takes a line that stands for it.
	for {
		if used+folds(shown)*foldLen <= max || used == 0 {
			return shown
		}
		dropped := false
		for k := len(order) - 1; k >= 0; k-- {
			i := order[k]
			if shown[i] && !holds(lines, shown, i) {
				shown[i], dropped = false, true
				used -= cost[i]
				order = order[:k]
				break
			}
		}
		if !dropped {
			return shown
		}
	}
}

// holds tells whether a shown line is inside of line i.
func holds(lines []line, shown []bool, i int) bool {
	for k := i + 1; k < len(lines) && lines[k].depth > lines[i].depth; k++ {
		if shown[k] {
			return true
		}
	}
	return false
}

// folds counts the runs of lines that are left out.
func folds(shown []bool) int {
	n, in := 0, false
	for _, s := range shown {
		if !s && !in {
			n++
		}
		in = !s
	}
	return n
}

// assemble writes the shown lines and one line for each run that is left out.
// container gives a ref for the line that holds a run.
func assemble(lines []line, shown []bool, container func(i int) string) string {
	var s strings.Builder
	for i := 0; i < len(lines); i++ {
		if shown[i] {
			s.WriteString(lines[i].indent() + "\n")
			continue
		}
		k := i
		for k < len(lines) && !shown[k] {
			k++
		}
		where := ""
		if p := lines[i].parent; p >= 0 {
			if ref := container(p); ref != "" {
				where = ": snapshot on=" + ref
			}
		}
		fmt.Fprintf(&s, "%s… %d more lines%s\n", strings.Repeat(" ", min(lines[i].depth, 10)), k-i, where)
		i = k - 1
	}
	return s.String()
}
