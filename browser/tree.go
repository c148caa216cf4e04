package browser

import (
	"fmt"
	"slices"
	"strings"
)

// node is one thing that a snapshot shows.
type node struct {
	role, name string
	value      string
	hasValue   bool
	states     []string
	href       string
	key        refKey
	ref        string
	act        bool // can be acted on or scrolled
	textual    bool // its name is its text
	inline     bool // flows in a line of text
	text       bool // a run of text; name holds it
	modal      bool
	onTop      bool
	inView     bool
	level      int // of a heading
	box        rect
	frame      *frame
	kids       []*node
	options    int // of a folded list
}

const (
	maxDepthTree = 400
	maxNameLen   = 200
	foldOptions  = 8
)

// acting are the roles that can be acted on.
var acting = set("button", "link", "textbox", "searchbox", "combobox", "listbox", "option", "checkbox", "radio", "switch", "slider",
	"spinbutton", "menuitem", "menuitemcheckbox", "menuitemradio", "tab", "treeitem", "Date", "DateTime", "InputTime", "ColorWell",
	"DisclosureTriangle", "PopUpButton", "Canvas", "Video", "Audio", "toggleButton")

// landmarks are containers that keep a line of their own.
var landmarks = set("banner", "navigation", "main", "contentinfo", "complementary", "search", "form", "region", "dialog", "alertdialog",
	"alert", "status", "article", "toolbar", "menu", "menubar", "tablist", "tree", "grid", "treegrid", "table", "radiogroup", "listbox", "tabpanel", "figure", "log", "tooltip")

// needName are containers that have a line only when they have a name.
var needName = set("region", "form", "article", "group", "list", "figure", "tabpanel", "radiogroup", "toolbar", "table", "grid", "tablist", "complementary", "search", "status", "menu", "log", "image", "img", "Legend", "term", "definition")

// ownText are roles whose name is their content: text children repeat it.
var ownText = set("button", "link", "option", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "checkbox", "radio", "switch", "treeitem", "heading", "DisclosureTriangle", "clickable", "toggleButton", "PopUpButton")

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// builder makes the tree of a look.
type builder struct {
	p      *pageView
	refs   *refs
	hidden int // pieces of text and controls that a person cannot see
	count  int
	placed map[refKey]*node
}

// build returns the root of the page's tree; every acting node has its ref.
func (o *op) build(p *pageView) (*node, *builder) {
	o.t.refs.begin(p.docs)
	b := &builder{p: p, refs: &o.t.refs, placed: map[refKey]*node{}}
	root := &node{role: "page", inView: true}
	if len(p.frames) > 0 {
		root.frame = p.frames[0]
		root.kids = b.frame(p.frames[0])
	}
	return root, b
}

func (b *builder) frame(f *frame) []*node {
	if f.top == nil {
		return b.elements(f)
	}
	root := f.top
	var kids []*node
	seen := map[string]bool{root.ID: true}
	if root.Role.text() != "RootWebArea" {
		return b.walk(f, root, seen, 0)
	}
	for _, id := range root.ChildIDs {
		if c := f.ax[id]; c != nil {
			kids = append(kids, b.walk(f, c, seen, 1)...)
		}
	}
	return append(mergeText(kids), b.leftOut(f)...)
}

// walk turns one accessibility node into the nodes that stand for it: none,
// itself, or what is in it.
func (b *builder) walk(f *frame, a *axNode, seen map[string]bool, depth int) []*node {
	if seen[a.ID] && depth > 1 || depth > maxDepthTree || b.count > maxAXNodes {
		return nil
	}
	seen[a.ID] = true
	b.count++
	role := a.Role.text()
	switch role {
	case "InlineTextBox", "ListMarker":
		return nil
	case "LineBreak":
		return []*node{{text: true, inline: true, name: " ", frame: f}}
	}
	di := -1
	if f.dom != nil {
		if i, ok := f.dom.byID[a.Backend]; ok && a.Backend != 0 {
			di = i
		}
	}
	n := &node{role: role, frame: f, key: refKey{f.ID, f.LoaderID, a.Backend}, inline: true}
	b.locate(n, di)
	if role == "StaticText" {
		n.text, n.name = true, cleanSpaces(a.Name.text())
		if b.concealed(f, di) {
			if strings.TrimSpace(n.name) != "" {
				b.hidden++
			}
			return nil
		}
		return []*node{n}
	}
	if a.Ignored {
		n.role = ""
	}
	n.name = cleanText(a.Name.text())
	n.inline = di < 0 || inlineDisplay(f.dom.style(di, stDisplay))
	b.states(n, a)
	isFrame := role == "Iframe" || role == "IframePresentational"
	n.act = !a.Ignored && (acting[role] || a.is("focusable") && role != "RootWebArea" && (role != "generic" || a.prop("editable") != nil || a.is("focusable")))
	if di >= 0 && f.dom.tag(di) == "OPTION" {
		n.act = false // chosen through its list
	}
	if a.prop("editable") != nil && n.act && role == "generic" {
		n.role = "textbox"
		if a.is("multiline") || di >= 0 {
			n.hasValue, n.value = true, ""
		}
	}
	concealed := di >= 0 && b.concealed(f, di)
	var kids []*node
	if isFrame {
		if c := b.p.frameIn(f, di); c != nil {
			kids = b.frame(c)
			n.role, n.href = fmt.Sprintf("iframe f%d", c.n), shortURL(c.URL, b.p.frames[0].URL)
		} else {
			n.role = "iframe"
		}
		n.inline, n.act = false, false
		if len(kids) > 0 {
			return []*node{{role: n.role, name: n.name, href: n.href, frame: f, key: n.key, box: n.box, inView: n.inView, kids: kids}}
		}
		return []*node{n}
	}
	for _, id := range a.ChildIDs {
		if c := f.ax[id]; c != nil && c.ParentID == a.ID {
			kids = append(kids, b.walk(f, c, seen, depth+1)...)
		}
	}
	kids = mergeText(kids)
	// A control that cannot be seen stays only when a label stands for it.
	if concealed {
		if !(role == "checkbox" || role == "radio" || role == "switch") {
			if n.act || n.name != "" && !a.Ignored {
				b.hidden++
			}
			return kids
		}
	}
	if !n.act && di >= 0 {
		b.clickable(n, f, di, kids)
	}
	if !n.act && di >= 0 && f.dom.scrolls(di) && f.dom.tag(di) != "HTML" && f.dom.tag(di) != "BODY" {
		n.act, n.role = true, "scrollable"
	}
	if n.act && (n.role == "generic" || n.role == "") {
		n.role = "clickable"
	}
	return b.distil(n, kids)
}

// distil decides whether the node has a line of its own.
func (b *builder) distil(n *node, kids []*node) []*node {
	switch {
	case n.role == "MenuListPopup":
		return kids
	case n.role == "combobox" || n.role == "listbox":
		kids = b.choices(n, kids)
	case n.role == "Date" || n.role == "DateTime" || n.role == "InputTime":
		kids, n.hasValue = nil, true // its parts are set as one value
	case n.role == "textbox" || n.role == "searchbox" || n.role == "spinbutton":
		if n.value == "" {
			n.value = joinText(kids, 500)
		}
		kids = controls(kids)
		n.hasValue = true
	case n.role == "heading":
		n.inline = false
	case n.role == "paragraph" && !hasAct(kids):
		n.role = ""
	}
	if n.act && n.name == "" && n.role != "scrollable" && n.role != "textbox" && n.role != "combobox" {
		n.name, n.textual = cutAt(joinText(kids, 400), maxNameLen), true
	}
	if ownText[n.role] && n.name != "" {
		kids = dropRepeats(kids, n.name)
	}
	if n.act && n.key.backend != 0 {
		n.ref = b.refs.assign(n.key, n.role, n.name, n.textual)
		b.placed[n.key] = n
	}
	n.kids = kids
	keep := n.act || n.role == "heading" || n.role == "row" || n.role == "listitem" || n.role == "paragraph" ||
		(n.role == "image" || n.role == "img" || n.role == "Image") && n.name != "" ||
		landmarks[n.role] && (n.name != "" || !needName[n.role]) && (len(kids) > 0 || n.name != "") ||
		needName[n.role] && n.name != "" && len(kids) > 0 || n.role == "option" || n.role == "progressbar" || n.role == "meter" || n.role == "table" && len(kids) > 0
	if keep {
		if (n.role == "listitem" || n.role == "paragraph") && len(kids) == 0 {
			return nil
		}
		return []*node{n}
	}
	if !n.inline {
		for _, k := range kids {
			if k.text {
				k.inline = false
			}
		}
	}
	return kids
}

// choices folds the options of a list.
func (b *builder) choices(n *node, kids []*node) []*node {
	var options []*node
	var gather func(ks []*node)
	gather = func(ks []*node) {
		for _, k := range ks {
			if k.role == "option" {
				options = append(options, k)
			} else {
				gather(k.kids)
			}
		}
	}
	gather(kids)
	n.options = len(options)
	if n.role == "listbox" && len(options) <= 30 && hasAct(options) || len(options) == 0 {
		return kids
	}
	n.states = slices.DeleteFunc(n.states, func(s string) bool { return s == "collapsed" })
	var names []string
	for _, k := range options {
		if slices.Contains(k.states, "selected") && n.value == "" {
			n.value, n.hasValue = k.name, true
		}
		names = append(names, quote(cutAt(k.name, 40)))
	}
	if len(options) > foldOptions {
		n.states = append(n.states, fmt.Sprintf("(%d options)", len(options)))
	} else {
		n.states = append(n.states, "options: "+strings.Join(names, " "))
	}
	return nil
}

// states reads value, link target and states.
func (b *builder) states(n *node, a *axNode) {
	switch v := a.Value.Value.(type) {
	case string:
		n.value, n.hasValue = cutAt(cleanText(v), 500), v != ""
	case float64:
		n.value, n.hasValue = strings.TrimSuffix(fmt.Sprintf("%.4g", v), ".0"), true
	}
	for _, p := range a.Properties {
		s, _ := p.Value.Value.(string)
		on, _ := p.Value.Value.(bool)
		switch p.Name {
		case "url":
			if n.role == "link" {
				base := ""
				if n.frame != nil {
					base = n.frame.URL
				}
				n.href = shortURL(s, base)
			}
		case "level":
			if f, ok := p.Value.Value.(float64); ok {
				n.level = int(f)
			}
		case "checked", "pressed":
			switch {
			case s == "true" || on:
				n.states = append(n.states, p.Name)
			case s == "mixed":
				n.states = append(n.states, p.Name+"=mixed")
			}
		case "expanded":
			if on {
				n.states = append(n.states, "expanded")
			} else {
				n.states = append(n.states, "collapsed")
			}
		case "disabled", "required", "selected", "readonly", "focused", "modal", "busy":
			if on && n.role != "RootWebArea" {
				n.states = append(n.states, p.Name)
			}
			if p.Name == "modal" && on {
				n.modal = true
			}
		case "invalid":
			if s != "" && s != "false" {
				n.states = append(n.states, "invalid")
			}
		case "valuetext":
			if s != "" && n.role == "slider" {
				n.value, n.hasValue = cutAt(cleanText(s), 100), true
			}
		}
	}
	if n.role == "dialog" || n.role == "alertdialog" {
		n.modal = true
	}
}

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
				n.name = cutAt(cleanText(v), 80)
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
			n.name, n.textual = cutAt(d.textOf(i, 200), maxNameLen), false
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

// mergeText joins runs of text that flow in one line.
func mergeText(kids []*node) []*node {
	out := kids[:0:0]
	for _, k := range kids {
		if k.text && k.inline && len(out) > 0 && out[len(out)-1].text && out[len(out)-1].inline {
			last := *out[len(out)-1]
			last.name += k.name
			last.inView = last.inView || k.inView
			out[len(out)-1] = &last
			continue
		}
		out = append(out, k)
	}
	return slices.DeleteFunc(out, func(k *node) bool { return k.text && strings.TrimSpace(k.name) == "" && !k.inline })
}

// joinText is the text of nodes in one line, at most about limit bytes.
func joinText(kids []*node, limit int) string {
	var sb strings.Builder
	var walk func(ks []*node)
	walk = func(ks []*node) {
		for _, k := range ks {
			if sb.Len() > limit {
				return
			}
			if k.name != "" {
				if !k.inline {
					sb.WriteByte(' ')
				}
				sb.WriteString(k.name)
			}
			if !ownText[k.role] || k.name == "" {
				walk(k.kids)
			}
			if !k.inline {
				sb.WriteByte(' ')
			}
		}
	}
	walk(kids)
	return cleanText(sb.String())
}

// controls keeps only what can be acted on.
func controls(kids []*node) []*node {
	var out []*node
	for _, k := range kids {
		if k.act {
			out = append(out, k)
		} else {
			out = append(out, controls(k.kids)...)
		}
	}
	return out
}

// dropRepeats takes out text that the parent's name already says.
func dropRepeats(kids []*node, name string) []*node {
	var out []*node
	for _, k := range kids {
		if !k.act && len(k.kids) == 0 {
			t := cleanText(k.name)
			if len(t) < 4 || strings.Contains(name, t) || strings.HasPrefix(t, strings.TrimSuffix(name, "…")) {
				continue
			}
		}
		out = append(out, k)
	}
	return out
}

func inlineDisplay(d string) bool {
	return d == "" || strings.HasPrefix(d, "inline") || d == "contents"
}

// cleanSpaces cleans a run of text but keeps one blank at either end, which
// parts it from its neighbours.
func cleanSpaces(s string) string {
	c := cleanText(s)
	if c == "" {
		if s != "" {
			return " "
		}
		return ""
	}
	if strings.TrimLeft(s, " \t\n\r\u00a0") != s {
		c = " " + c
	}
	if strings.TrimRight(s, " \t\n\r\u00a0") != s {
		c += " "
	}
	return c
}

func cutAt(s string, n int) string { return cut(s, n) }
