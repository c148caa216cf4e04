package browser

import (
	"strings"
)

// locate fills the node's place in the viewport of the page.
func (b *builder) locate(n *node, di int) {
	f := n.frame
	if f.dom == nil || di < 0 {
		n.inView = f.n == 0
		return
	}
	r, ok := f.dom.box(di)
	if !ok {
		return
	}
	r.x += f.x
	r.y += f.y
	n.box, n.inView = r, f.placed && r.meets(b.p.view)
}

// concealed tells whether a person cannot see the node: transparent, one
// pixel, or outside of what can be scrolled to.
func (b *builder) concealed(f *frame, i int) bool {
	d := f.dom
	if d == nil || i < 0 {
		return false
	}
	if d.transparent(i) {
		return true
	}
	if v := d.style(i, stVisibility); v == "hidden" || v == "collapse" {
		return true
	}
	r, ok := d.box(i)
	if ok && r.w > 0 && r.h > 0 && (r.x+r.w <= 0 || r.y+r.h <= 0) && !d.inScrolled(i) {
		return true
	}
	// Text that is clipped to a pixel: the container says so.
	for k, up := i, 0; k >= 0 && up < 6; k, up = d.parent(k), up+1 {
		r, ok := d.box(k)
		if ok && r.w <= 1.5 && r.h <= 1.5 && (d.style(k, stOverflowX) == "hidden" || d.style(k, stOverflowX) == "clip") {
			return true
		}
	}
	return false
}

// transparent tells whether the node or one around it has opacity 0.
func (d *domDoc) transparent(i int) bool {
	var path []int
	result := uint8(1)
	for k := i; k >= 0; k = d.parent(k) {
		if d.opacity[k] != 0 {
			result = d.opacity[k]
			break
		}
		path = append(path, k)
		if o := d.style(k, stOpacity); o == "0" {
			result = 2
			break
		}
	}
	// Everything on the way below the first transparent one is transparent too.
	for _, k := range path {
		d.opacity[k] = result
	}
	return result == 2
}

func (d *domDoc) inScrolled(i int) bool {
	for k := d.parent(i); k >= 0; k = d.parent(k) {
		if d.scrolled(k) {
			return true
		}
	}
	return false
}

// clickable marks a node that the page made clickable without saying so.
func (b *builder) clickable(n *node, f *frame, i int, kids []*node) {
	d := f.dom
	switch d.tag(i) {
	case "HTML", "BODY", "#document", "LABEL", "IFRAME", "OPTION", "":
		return
	}
	pointer := d.style(i, stCursor) == "pointer" && d.style(d.parent(i), stCursor) != "pointer"
	if !pointer && !d.click[i] {
		return
	}
	r, ok := d.box(i)
	if !ok || r.w < 2 || r.h < 2 || d.style(i, stPointer) == "none" {
		return
	}
	if !pointer && (r.area() > 0.5*b.p.view.area() || hasAct(kids)) {
		return // a root that listens for its children
	}
	n.act = true
	if n.role == "" || n.role == "none" {
		n.role = "clickable"
	}
}

func hasAct(kids []*node) bool {
	for _, k := range kids {
		if k.act || hasAct(k.kids) {
			return true
		}
	}
	return false
}

// leftOut adds what the accessibility tree leaves out: things that can be
// clicked in parts that are hidden from it, and file inputs without a box.
func (b *builder) leftOut(f *frame) []*node {
	d := f.dom
	if d == nil {
		return nil
	}
	known := map[int64]bool{}
	for _, a := range f.ax {
		if !a.Ignored {
			known[a.Backend] = true
		}
	}
	var out []*node
	for i, tagIdx := range d.raw.Nodes.Name {
		if len(out) > 200 || i >= len(d.raw.Nodes.Backend) {
			break
		}
		tag := d.str(tagIdx)
		if len(tag) > 0 && tag[0] == '#' || known[d.raw.Nodes.Backend[i]] {
			continue
		}
		key := refKey{f.ID, f.LoaderID, d.raw.Nodes.Backend[i]}
		if b.placed[key] != nil {
			continue
		}
		n := &node{frame: f, key: key, act: true}
		b.locate(n, i)
		switch {
		case tag == "INPUT":
			if kind, _ := d.attr(i, "type"); !strings.EqualFold(kind, "file") {
				continue
			}
			n.role, n.states = "file", []string{"hidden"}
			if v, ok := d.attr(i, "name"); ok {
				n.name = cut(cleanText(v), 80)
			}
			if _, ok := d.attr(i, "multiple"); ok {
				n.states = append(n.states, "multiple")
			}
		case (tag == "BUTTON" || tag == "A" || d.click[i]) && b.ariaHidden(d, i) && !b.concealed(f, i):
			r, ok := d.box(i)
			if !ok || r.w < 4 || r.h < 4 || tag == "LABEL" || r.area() > 0.5*b.p.view.area() {
				continue
			}
			n.role = map[string]string{"BUTTON": "button", "A": "link"}[tag]
			if n.role == "" {
				n.role = "clickable"
			}
			n.name, n.textual = cut(d.textOf(i, 200), maxNameLen), false
		default:
			continue
		}
		n.ref = b.refs.assign(key, "unlisted", n.name, false)
		b.placed[key] = n
		out = append(out, n)
	}
	return out
}

func (b *builder) ariaHidden(d *domDoc, i int) bool {
	for k := i; k >= 0; k = d.parent(k) {
		if v, ok := d.attr(k, "aria-hidden"); ok && v == "true" {
			return true
		}
	}
	return false
}

// textOf gathers the text under a node from the DOM snapshot. Children follow
// their parent in the list.
func (d *domDoc) textOf(i, limit int) string {
	in := map[int]bool{i: true}
	var sb strings.Builder
	for k := i + 1; k < len(d.raw.Nodes.Name) && sb.Len() < limit; k++ {
		if !in[d.parent(k)] {
			if d.parent(k) < i {
				break
			}
			continue
		}
		in[k] = true
		if l := d.layout[k]; l >= 0 && d.tag(k) == "#text" && l < len(d.raw.Layout.Node) {
			sb.WriteString(d.layoutText(l) + " ")
		}
	}
	return cleanText(sb.String())
}
