//go:build linux

package server

import (
	"bytes"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxIgnoreFile  = 256 << 10
	maxIgnoreLines = 4096
)

// ignoreRule is one line of an ignore file, as gitignore(5) has it.
type ignoreRule struct {
	names   []string // from the folder of the file
	negate  bool
	dirOnly bool
}

// ignores are the rules of one folder, over those of the folders above.
type ignores struct {
	up    *ignores
	depth int // names above this folder, in the paths that are judged
	rules []ignoreRule
}

func parseIgnore(b []byte) []ignoreRule {
	var out []ignoreRule
	for line := range bytes.SplitSeq(bytes.TrimPrefix(b, utf8BOM), []byte{'\n'}) {
		s := strings.TrimSuffix(string(line), "\r")
		for strings.HasSuffix(s, " ") && !strings.HasSuffix(s, `\ `) {
			s = s[:len(s)-1]
		}
		if s == "" || s[0] == '#' || len(s) > maxGlob || len(out) >= maxIgnoreLines {
			continue
		}
		var r ignoreRule
		if s[0] == '!' {
			r.negate, s = true, s[1:]
		}
		if strings.HasSuffix(s, "/") {
			r.dirOnly, s = true, strings.TrimRight(s, "/")
		}
		if !strings.Contains(s, "/") {
			s = "**/" + s
		}
		if r.names = globNames(s); len(r.names) == 0 {
			continue
		}
		// "a/**" means what is in a, not a itself.
		if n := len(r.names); n > 1 && r.names[n-1] == "**" {
			r.names = append(r.names, "*")
		}
		out = append(out, r)
	}
	return out
}

// ignored judges a path by its names from the root of the walk; the last rule
// that matches decides, deeper files first. Folders above were judged before.
func (g *ignores) ignored(names []string, dir bool) bool {
	for ; g != nil; g = g.up {
		for i := len(g.rules) - 1; i >= 0; i-- {
			r := &g.rules[i]
			if (!r.dirOnly || dir) && matchNames(r.names, names[g.depth:]) {
				return !r.negate
			}
		}
	}
	return false
}

// enter adds the ignore file of an open folder, if it has one. It must run
// inside as.
func (g *ignores) enter(dir int, name string, depth int) *ignores {
	if name == "" {
		return g
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return g
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return g
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxIgnoreFile))
	if err != nil {
		return g
	}
	if rules := parseIgnore(b); len(rules) > 0 {
		return &ignores{up: g, depth: depth, rules: rules}
	}
	return g
}
