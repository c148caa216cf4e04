package browser

import (
	"fmt"
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

// states reads value, link target and states.
func (b *builder) states(n *node, a *axNode) {
	switch v := a.Value.Value.(type) {
	case string:
		n.value, n.hasValue = cut(cleanText(v), 500), v != ""
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
				n.value, n.hasValue = cut(cleanText(s), 100), true
			}
		}
	}
	if n.role == "dialog" || n.role == "alertdialog" {
		n.modal = true
	}
}
