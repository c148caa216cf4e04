//go:build linux

package server

import (
	"strings"
	"unicode/utf8"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of a glob: braces multiply, so what they give is counted.
const (
	maxGlob  = 1024
	maxGlobs = 64
)

// glob is a compiled pattern: any of alternatives, each a list of names in which
// "**" stands for any number of folders. Matching takes time in the product of
// the lengths, whatever the pattern.
type glob [][]string

// parseGlob knows *, ?, [a-z], [!a], **, {a,b} and backslash. A pattern without
// a slash matches names in any folder.
func parseGlob(pattern string) (glob, error) {
	if len(pattern) > maxGlob {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Use a shorter pattern.", "glob: longer than %d bytes", maxGlob)
	}
	all, ok := braces(pattern, nil)
	if !ok {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Use fewer braces.", "glob: its braces stand for more than %d patterns", maxGlobs)
	}
	var g glob
	for _, p := range all {
		p = strings.TrimPrefix(strings.TrimPrefix(p, "./"), sandbox.WorkspaceDir+"/")
		if !strings.Contains(p, "/") {
			p = "**/" + p
		}
		g = append(g, globNames(p))
	}
	return g, nil
}

// globNames cuts a pattern into names and joins neighbouring "**".
func globNames(p string) []string {
	var out []string
	for n := range strings.SplitSeq(p, "/") {
		if n == "" || (n == "**" && len(out) > 0 && out[len(out)-1] == "**") {
			continue
		}
		out = append(out, n)
	}
	return out
}

func braces(p string, out []string) ([]string, bool) {
	open, depth, start := -1, 0, 0
	var parts []string
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open, start = i, i+1
			}
		case ',':
			if depth == 1 {
				parts = append(parts, p[start:i])
				start = i + 1
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth > 0 {
				continue
			}
			parts = append(parts, p[start:i])
			for _, part := range parts {
				var ok bool
				if out, ok = braces(p[:open]+part+p[i+1:], out); !ok {
					return out, false
				}
			}
			return out, true
		}
	}
	return append(out, p), len(out) < maxGlobs
}

// match tells whether a path (its names, from the root of the listing) matches.
func (g glob) match(names []string) bool {
	for _, p := range g {
		if matchNames(p, names) {
			return true
		}
	}
	return false
}

// depth is how deep names that match can lie, or 0 for any depth.
func (g glob) depth() int {
	deepest := 0
	for _, p := range g {
		for _, n := range p {
			if n == "**" {
				return 0
			}
		}
		deepest = max(deepest, len(p))
	}
	return deepest
}

// dotted tells whether the pattern itself names something hidden.
func (g glob) dotted() bool {
	for _, p := range g {
		for _, n := range p {
			if strings.HasPrefix(n, ".") {
				return true
			}
		}
	}
	return false
}

// matchNames needs to go back to the last "**" only: an earlier one that takes
// more names never helps a later one.
func matchNames(p, names []string) bool {
	pi, ni, star, mark := 0, 0, -1, 0
	for ni < len(names) {
		switch {
		case pi < len(p) && p[pi] == "**":
			star, mark = pi, ni
			pi++
		case pi < len(p) && matchName(p[pi], names[ni]):
			pi++
			ni++
		case star >= 0:
			mark++
			pi, ni = star+1, mark
		default:
			return false
		}
	}
	for pi < len(p) && p[pi] == "**" {
		pi++
	}
	return pi == len(p)
}

// matchName matches one name, with the same going back to the last star only.
func matchName(p, s string) bool {
	pi, si, star, mark := 0, 0, -1, 0
	for si < len(s) {
		if pi < len(p) && p[pi] == '*' {
			star, mark = pi, si
			pi++
			continue
		}
		if n, m, ok := matchOne(p[pi:], s[si:]); ok {
			pi += n
			si += m
			continue
		}
		if star < 0 {
			return false
		}
		_, w := utf8.DecodeRuneInString(s[mark:])
		mark += w
		pi, si = star+1, mark
	}
	for pi < len(p) && p[pi] == '*' {
		pi++
	}
	return pi == len(p)
}

// matchOne matches one character; n and m are what it took of each.
func matchOne(p, s string) (n, m int, ok bool) {
	if p == "" {
		return 0, 0, false
	}
	r, m := utf8.DecodeRuneInString(s)
	switch p[0] {
	case '?':
		return 1, m, true
	case '[':
		if n, in, ok := matchClass(p, r); ok {
			return n, m, in
		}
	case '\\':
		if len(p) > 1 {
			return 2, 1, p[1] == s[0]
		}
	}
	return 1, 1, p[0] == s[0]
}

// matchClass reads [...]; ok is false when it does not end, and the bracket is
// a character like others.
func matchClass(p string, r rune) (n int, in, ok bool) {
	i := 1
	not := i < len(p) && (p[i] == '!' || p[i] == '^')
	if not {
		i++
	}
	for first := true; i < len(p); first = false {
		if p[i] == ']' && !first {
			return i + 1, in != not, true
		}
		if p[i] == '\\' && i+1 < len(p) {
			i++
		}
		lo, w := utf8.DecodeRuneInString(p[i:])
		i += w
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			hi, w = utf8.DecodeRuneInString(p[i+1:])
			i += 1 + w
		}
		in = in || (r >= lo && r <= hi)
	}
	return 0, false, false
}
