package browser

import (
	"fmt"
	"strings"
)

// line is one line of a snapshot.
type line struct {
	depth   int
	text    string // as shown, without indentation
	full    string // as saved; empty when equal to text
	key     string // what it is compared by
	ref     string
	rank    int // what the budget is spent on first: 0 best
	outline bool
	whole   bool // the line shows what is in its node too
	parent  int  // index of the line that holds it, -1 at the top
	node    *node
}

const (
	rankTop = iota
	rankView
	rankOutline
	rankRest
	rankFrames
)

const (
	compactText = 80   // characters of a block of text in compact
	maxLine     = 4000 // characters of a block of text in full
	inlineText  = 200  // characters of a row or list item that still fits one line
	inlineActs  = 6
)

// renderer turns a tree into lines.
type renderer struct {
	mode   string
	boxes  bool
	depth  int // 0: no limit
	lines  []line
	hidden int
}

// render lists the nodes below a parent line.
func (r *renderer) render(kids []*node, depth, parent int, top bool) {
	for i := 0; i < len(kids); i++ {
		k := kids[i]
		if r.depth > 0 && depth >= r.depth {
			r.hidden++
			continue
		}
		at := len(r.lines)
		over := top || k.modal || k.onTop
		switch {
		case k.text:
			t := cleanText(k.name)
			if t == "" || r.mode == "interactive" || i+1 < len(kids) && kids[i+1].act && kids[i+1].name == t ||
				i > 0 && kids[i-1].act && kids[i-1].name == t {
				continue // a label that its control says again
			}
			r.add(k, depth, parent, over, t)
			continue
		case k.role == "row", k.role == "listitem", k.role == "paragraph":
			if flat(k) {
				r.flat(k, depth, parent, over)
				continue
			}
			if k.role != "row" && !k.act {
				r.render(k.kids, depth, parent, over)
				continue
			}
		case k.role == "heading" && len(k.kids) == 1 && k.kids[0].act && len(k.kids[0].kids) == 0 && !k.act && k.kids[0].name == k.name:
			r.add(k, depth, parent, over, fmt.Sprintf("h%d %s", max(k.level, 1), r.word(k.kids[0])))
			r.lines[len(r.lines)-1].ref, r.lines[len(r.lines)-1].whole = k.kids[0].ref, true
			continue
		}
		if r.mode == "interactive" && !k.act && k.role != "heading" && !strings.HasPrefix(k.role, "iframe") {
			r.render(k.kids, depth, parent, over)
			continue
		}
		r.add(k, depth, parent, over, r.word(k))
		r.render(k.kids, depth+1, at, over)
	}
}

// add appends a line; long text is cut in compact and kept in full.
func (r *renderer) add(k *node, depth, parent int, top bool, text string) {
	l := line{depth: depth, text: text, parent: parent, ref: k.ref, node: k, rank: rankRest}
	if k.text {
		limit := compactText
		if r.mode == "full" {
			limit = maxLine
		}
		if l.text = cut(text, limit); l.text != text {
			l.full = text
		}
	}
	l.outline = k.role == "heading" || landmarks[k.role]
	switch {
	case top:
		l.rank = rankTop
	case k.frame != nil && k.frame.n > 0:
		l.rank = rankFrames
		if k.inView {
			l.rank = rankView
		}
	case k.inView:
		l.rank = rankView
	case l.outline:
		l.rank = rankOutline
	}
	id := fmt.Sprintf("%s/%d/%d", k.key.frame, k.key.backend, len(k.key.loader))
	if k.key.backend == 0 {
		id = k.role + "/" + text
	}
	l.key = id
	r.lines = append(r.lines, l)
}

// word is a node as words: role ref "name" =value states -> link.
func (r *renderer) word(k *node) string {
	if k.text {
		return cleanText(k.name)
	}
	role := k.role
	switch role {
	case "heading":
		role = fmt.Sprintf("h%d", max(k.level, 1))
	case "DisclosureTriangle":
		role = "summary"
	case "image", "img", "Image":
		role = "img"
	case "PopUpButton":
		role = "combobox"
	}
	var s strings.Builder
	s.WriteString(role)
	if k.ref != "" {
		s.WriteString(" " + k.ref)
	}
	if k.name != "" {
		s.WriteString(" " + quote(cut(k.name, maxNameLen)))
	}
	if k.hasValue && (k.value != "" || k.role == "textbox" || k.role == "searchbox" || k.role == "combobox") && k.role != "link" {
		limit := 100
		if r.mode == "full" {
			limit = 500
		}
		s.WriteString(" =" + quote(cut(k.value, limit)))
	}
	for _, st := range k.states {
		s.WriteString(" " + st)
	}
	if k.onTop {
		s.WriteString(" on top")
	}
	if k.href != "" {
		s.WriteString(" -> " + k.href)
	}
	if r.boxes && k.box.w > 0 {
		fmt.Fprintf(&s, " @%.0f,%.0f,%.0f,%.0f", k.box.x, k.box.y, k.box.w, k.box.h)
	}
	return s.String()
}

// flat tells whether a row or list item fits on one line.
func flat(k *node) bool {
	text, acts, ok := 0, 0, true
	var walk func(ks []*node, depth int)
	walk = func(ks []*node, depth int) {
		for _, c := range ks {
			switch {
			case c.text:
				text += len(c.name)
			case c.role == "row", c.role == "table", c.role == "listitem", c.role == "list", c.role == "listbox", c.modal, strings.HasPrefix(c.role, "iframe"):
				ok = false
			case c.role == "heading" && k.role != "row":
				ok = false
			default:
				text += len(c.name)
				if c.act {
					acts++
				}
			}
			if text > 600 || acts > inlineActs || depth > 20 {
				ok = false
			}
			if !ok {
				return
			}
			walk(c.kids, depth+1)
		}
	}
	walk(k.kids, 0)
	if k.role == "listitem" && text > inlineText && acts > 0 {
		return false
	}
	return ok
}

// flat writes a row or list item on one line: cells parted by bars, controls
// in their place.
func (r *renderer) flat(k *node, depth, parent int, top bool) {
	var parts []string
	ref := k.ref
	var acts int
	var words func(ks []*node) string
	words = func(ks []*node) string {
		var out []string
		for _, c := range ks {
			w := ""
			switch {
			case c.text, !c.act && c.role != "img" && c.role != "image" && c.role != "heading":
				if r.mode != "interactive" {
					w = cleanText(c.name)
				}
				if !c.text {
					if inner := words(c.kids); inner != "" {
						w = inner
					}
				}
			default:
				acts++
				w = r.word(c)
				if ref == "" {
					ref = c.ref
				}
				if inner := words(c.kids); inner != "" {
					w += " " + inner
				}
			}
			if w != "" {
				out = append(out, w)
			}
		}
		return strings.Join(out, " ")
	}
	sep := " "
	if k.role == "row" {
		sep = " | "
		for _, c := range k.kids {
			parts = append(parts, words([]*node{c}))
		}
	} else {
		parts = []string{words(k.kids)}
	}
	text := strings.Join(parts, sep)
	if strings.Trim(text, " |") == "" {
		if !k.act {
			return
		}
		text = k.name
	}
	if r.mode == "interactive" && acts == 0 && !k.act {
		return
	}
	if k.act {
		text = fmt.Sprintf("%s %s: %s", k.role, k.ref, text)
	} else if k.role == "listitem" {
		text = "- " + text
	}
	full := text
	if r.mode != "full" && acts == 0 {
		limit := compactText
		if k.role == "row" {
			limit = 3 * compactText
		}
		text = cut(text, limit)
	}
	r.add(k, depth, parent, top, full)
	l := &r.lines[len(r.lines)-1]
	l.ref, l.whole = ref, true
	if l.text != text {
		l.text, l.full = text, full
	}
}

// indent writes a line at its depth.
func (l line) indent() string { return strings.Repeat(" ", min(l.depth, 40)) + l.text }
