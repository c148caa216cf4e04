package browser

import (
	"slices"
	"strconv"
	"strings"
)

// Reading a page from its elements: for a page that is too large for the
// accessibility tree, or whose tree did not come in time.

// tagRoles are the roles of plain elements.
var tagRoles = map[string]string{"A": "link", "BUTTON": "button", "SELECT": "combobox", "TEXTAREA": "textbox", "SUMMARY": "DisclosureTriangle",
	"H1": "heading", "H2": "heading", "H3": "heading", "H4": "heading", "H5": "heading", "H6": "heading",
	"TR": "row", "LI": "listitem", "TABLE": "table", "NAV": "navigation", "MAIN": "main", "HEADER": "banner", "FOOTER": "contentinfo",
	"DIALOG": "dialog", "IFRAME": "iframe", "P": "paragraph"}

var inputRoles = map[string]string{"checkbox": "checkbox", "radio": "radio", "submit": "button", "button": "button", "reset": "button", "image": "button",
	"range": "slider", "number": "spinbutton", "date": "Date", "search": "searchbox", "file": "file"}

// elements builds the nodes of a frame from the DOM snapshot alone.
func (b *builder) elements(f *frame) []*node {
	d := f.dom
	if d == nil {
		return []*node{{text: true, name: "(this frame could not be read)", frame: f, inView: true}}
	}
	// Children follow their parents in the list: one pass links them.
	kids := make([][]int, len(d.raw.Nodes.Name))
	roots := []int{}
	for i := range d.raw.Nodes.Name {
		if p := d.parent(i); p >= 0 {
			kids[p] = append(kids[p], i)
		} else {
			roots = append(roots, i)
		}
	}
	var walk func(i, depth int) []*node
	walk = func(i, depth int) []*node {
		if depth > maxDepthTree || b.count > maxAXNodes {
			return nil
		}
		b.count++
		tag := d.tag(i)
		switch tag {
		case "SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "OPTION", "#comment", "svg", "SVG":
			return nil
		}
		n := &node{frame: f, inline: true}
		if i < len(d.raw.Nodes.Backend) {
			n.key = refKey{f.ID, f.LoaderID, d.raw.Nodes.Backend[i]}
		}
		b.locate(n, i)
		if tag == "#text" {
			if d.layout[i] < 0 {
				return nil
			}
			n.text, n.name = true, cleanSpaces(d.layoutText(d.layout[i]))
			if b.concealed(f, i) {
				b.hidden++
				return nil
			}
			return []*node{n}
		}
		var below []*node
		for _, k := range kids[i] {
			below = append(below, walk(k, depth+1)...)
		}
		below = mergeText(below)
		if tag == "" || tag[0] == '#' {
			return below
		}
		return b.element(n, i, tag, below)
	}
	var out []*node
	for _, i := range roots {
		out = append(out, walk(i, 0)...)
	}
	return mergeText(out)
}

// element gives an element its role, name and states.
func (b *builder) element(n *node, i int, tag string, below []*node) []*node {
	f, d := n.frame, n.frame.dom
	n.inline = inlineDisplay(d.style(i, stDisplay))
	n.role = tagRoles[tag]
	if role, ok := d.attr(i, "role"); ok && (acting[role] || landmarks[role] || role == "row" || role == "listitem" || role == "heading") {
		n.role = role
	}
	kind, _ := d.attr(i, "type")
	if tag == "INPUT" {
		if kind = strings.ToLower(kind); kind == "hidden" {
			return nil
		}
		if n.role = inputRoles[kind]; n.role == "" {
			n.role = "textbox"
		}
	}
	for _, a := range []string{"aria-label", "alt", "title", "placeholder"} {
		if v, ok := d.attr(i, a); ok && n.name == "" {
			n.name = cut(cleanText(v), maxNameLen)
		}
	}
	if n.role == "button" && tag == "INPUT" {
		if v, ok := d.attr(i, "value"); ok {
			n.name = cut(cleanText(v), maxNameLen)
		}
	}
	if tag == "IMG" && n.name != "" {
		n.role = "img"
	}
	if len(tag) == 2 && tag[0] == 'H' && tag[1] >= '1' && tag[1] <= '6' {
		n.level = int(tag[1] - '0')
	}
	for _, st := range []string{"disabled", "checked", "required", "readonly", "multiple"} {
		if _, ok := d.attr(i, st); ok {
			n.states = append(n.states, st)
		}
	}
	if href, ok := d.attr(i, "href"); ok && tag == "A" {
		n.href = shortURL(href, f.URL)
	}
	n.act = acting[n.role] || n.role == "file"
	if b.concealed(f, i) {
		if n.act {
			b.hidden++
		}
		return below
	}
	if tag == "IFRAME" {
		if c := b.p.frameIn(f, i); c != nil {
			return []*node{{role: "iframe f" + strconv.Itoa(c.n), name: n.name, href: shortURL(c.URL, b.p.frames[0].URL), frame: f, key: n.key, box: n.box, inView: n.inView, kids: b.frame(c)}}
		}
	}
	if !n.act && n.role != "heading" {
		b.clickable(n, f, i, below)
	}
	if n.role == "heading" && n.name == "" {
		n.name = cut(joinText(below, 400), maxNameLen)
	}
	if slices.Contains([]string{"combobox", "textbox"}, n.role) {
		below = nil
	}
	if n.role == "" && !n.act {
		if !n.inline {
			for _, k := range below {
				if k.text {
					k.inline = false
				}
			}
		}
		return below
	}
	return b.distil(n, below)
}
