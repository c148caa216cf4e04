package browser

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Targets. What a call acts on is a ref (e12) or a locator: css=, xpath=,
// text=, role=button name="Save", label=, xy=120,340. A locator must match
// exactly one visible node.

var refPattern = regexp.MustCompile(`^e[0-9]{1,9}$`)

// hit is a node that was found, live.
type hit struct {
	key  refKey
	ref  string
	role string
	name string
	xy   *[2]float64 // a bare point of the page instead of a node
}

func (h *hit) String() string {
	if h.xy != nil {
		return fmt.Sprintf("the point %.0f,%.0f", h.xy[0], h.xy[1])
	}
	s := h.role
	if h.ref != "" {
		s += " " + h.ref
	}
	if h.name != "" {
		s += " " + quote(cut(h.name, 60))
	}
	return s
}

// resolve finds a target now: a ref is checked against its fingerprint, a
// locator is searched in a new look at the page.
func (o *op) resolve(on string) (*hit, error) {
	on = strings.TrimSpace(on)
	if refPattern.MatchString(on) {
		return o.byRef(on)
	}
	if xy, ok := strings.CutPrefix(on, "xy="); ok {
		return parseXY(xy)
	}
	kind, _, ok := strings.Cut(on, "=")
	if !ok || !locators[kind] {
		return nil, fail("bad_value", `Use a ref such as e12, or css=, xpath=, text=, label=, role=button name="Save", xy=120,340.`,
			"on: %s is neither a ref nor a locator", quote(cut(cleanText(on), 60))).with("field", "on")
	}
	p, err := o.look()
	if err != nil {
		return nil, err
	}
	root, _ := o.build(p)
	return o.locate(on, p, root)
}

var locators = set("css", "xpath", "text", "role", "label")

func parseXY(s string) (*hit, error) {
	xs, ys, ok := strings.Cut(s, ",")
	x, err1 := strconv.ParseFloat(strings.TrimSpace(xs), 64)
	y, err2 := strconv.ParseFloat(strings.TrimSpace(ys), 64)
	if !ok || err1 != nil || err2 != nil || x < 0 || y < 0 || x > maxExtent || y > maxExtent {
		return nil, fail("bad_value", "Give page pixels such as xy=120,340.", "on: xy=%s is no point", cut(cleanText(s), 30)).with("field", "on")
	}
	return &hit{xy: &[2]float64{x, y}}, nil
}

// byRef resolves a ref and checks that its node is still what it was.
func (o *op) byRef(ref string) (*hit, error) {
	i, err := o.t.refs.find(ref)
	if err != nil {
		return nil, err
	}
	frames, err := o.frameDocs()
	if err != nil {
		return nil, err
	}
	loader, there := "", false
	for _, f := range frames {
		if f.ID == i.key.frame {
			loader, there = f.LoaderID, true
		}
	}
	switch {
	case !there:
		return nil, stale(ref, "its frame is gone")
	case loader != i.key.loader:
		return nil, stale(ref, "the page changed since (was "+i.String()+")")
	}
	var res struct {
		Nodes []axNode `json:"nodes"`
	}
	err = o.call("Accessibility.getPartialAXTree", map[string]any{"backendNodeId": i.key.backend, "fetchRelatives": false}, &res)
	if err != nil {
		if isReason(err, "protocol") {
			return nil, o.gone(ref, i)
		}
		return nil, err
	}
	if connected, err := o.connected(i.key.backend); err != nil {
		return nil, err
	} else if !connected {
		return nil, o.gone(ref, i)
	}
	h := &hit{key: i.key, ref: ref, role: i.role, name: i.name}
	if len(res.Nodes) == 0 || i.role == "unlisted" {
		return h, nil
	}
	role, name := res.Nodes[0].Role.text(), cleanText(res.Nodes[0].Name.text())
	if i.textual {
		name = o.textOf(i.key.backend)
	}
	if res.Nodes[0].Ignored {
		role = ""
	}
	if !sameRole(i.role, role) || !sameName(i.name, cut(name, 200)) {
		h.role, h.name = firstOf(i.role, role), name
		return nil, stale(ref, fmt.Sprintf("it is %s %s now and was %s", i.role, quote(cut(name, 60)), i.String())).with("now", map[string]any{"role": role, "name": cut(name, 100)})
	}
	return h, nil
}

func firstOf(a, b string) string {
	if b != "" {
		return b
	}
	return a
}

// own are roles that this package gives; accessibility has another name or none.
var own = set("clickable", "scrollable", "file", "unlisted", "textbox")

func sameRole(was, is string) bool {
	return was == is || own[was] || is == "" || is == "generic" || is == "none"
}

// sameName lets a counter in a name change, nothing else.
func sameName(was, is string) bool {
	if was == is || was == "" {
		return true
	}
	a, b := stripNumbers(was), stripNumbers(is)
	if a == b && a != "" && !enumerated(was, is) {
		return true
	}
	return strings.HasPrefix(is, was) && len(was) >= 3
}

var numbers = regexp.MustCompile(`[0-9][0-9.,]*`)

func stripNumbers(s string) string { return strings.TrimSpace(numbers.ReplaceAllString(s, "#")) }

// enumerated tells names like "Row 3" and "Row 53", which name different
// things, from counters like "Inbox (3)" and "Inbox (4)".
func enumerated(a, b string) bool {
	return !counter.MatchString(a) || !counter.MatchString(b)
}

var counter = regexp.MustCompile(`(\([0-9.,]+\)|: ?[0-9.,]+|[0-9.,]+ (items?|times?|results?|new|unread|left|clicks?))\s*$`)

// gone is the error of a ref whose node left the page, with what looks like it.
func (o *op) gone(ref string, i *refInfo) error {
	e := stale(ref, "its node is gone from the page (was "+i.String()+")")
	p, err := o.look()
	if err != nil {
		return e
	}
	root, _ := o.build(p)
	var found []*node
	collect(root.kids, func(n *node) bool { return n.act && n.role == i.role && n.name == i.name }, &found, 6)
	if len(found) == 1 {
		e.Hint = "The same looks to be at " + found[0].ref + " now."
		e.detail("candidate", found[0].ref)
	} else if len(found) > 1 {
		e.detail("candidates", describe(found))
	}
	return e
}

func collect(kids []*node, fits func(*node) bool, into *[]*node, limit int) {
	for _, k := range kids {
		if len(*into) >= limit {
			return
		}
		if fits(k) {
			*into = append(*into, k)
		}
		collect(k.kids, fits, into, limit)
	}
}

// connected tells whether a node is still in a document.
func (o *op) connected(backend int64) (bool, error) {
	var out bool
	err := o.callOn(backend, `function() { return this.isConnected }`, nil, &out)
	if isReason(err, "protocol") {
		return false, nil
	}
	return out, err
}

// textOf is the text of a node as a look would give it.
func (o *op) textOf(backend int64) string {
	var res struct {
		Nodes []axNode `json:"nodes"`
	}
	if err := o.call("Accessibility.queryAXTree", map[string]any{"backendNodeId": backend, "role": "StaticText"}, &res); err != nil {
		return ""
	}
	var parts []string
	for _, n := range res.Nodes {
		parts = append(parts, n.Name.text())
	}
	return cleanText(strings.Join(parts, " "))
}

// locate finds exactly one node of a look by ref or locator.
func (o *op) locate(on string, p *pageView, root *node) (*hit, error) {
	on = strings.TrimSpace(on)
	if refPattern.MatchString(on) {
		return o.byRef(on)
	}
	kind, what, ok := strings.Cut(on, "=")
	if !ok || !locators[kind] {
		return nil, fail("bad_value", "Use a ref such as e12, or a locator such as text=Save.", "on: %s is neither a ref nor a locator", quote(cut(cleanText(on), 60))).with("field", "on")
	}
	var found []*node
	var err error
	switch kind {
	case "css", "xpath":
		found, err = o.query(kind, what, p, root)
	default:
		found, err = search(kind, what, root)
	}
	if err != nil {
		return nil, err
	}
	switch len(found) {
	case 0:
		return nil, fail("not_found", "Take a browser_snapshot and use a ref.", "nothing on the page matches %s", quote(cut(cleanText(on), 100)))
	case 1:
	default:
		return nil, fail("ambiguous", "Use one of the refs.", "%d nodes match %s", len(found), quote(cut(cleanText(on), 100))).with("candidates", describe(found))
	}
	n := found[0]
	return &hit{key: n.key, ref: n.ref, role: n.role, name: n.name}, nil
}

// describe lists up to five candidates.
func describe(found []*node) []string {
	var out []string
	r := renderer{}
	for _, n := range found[:min(5, len(found))] {
		out = append(out, cut(r.word(n), 120))
	}
	return out
}

var roleLocator = regexp.MustCompile(`^([a-zA-Z]+)(?:\s+name=(?:"([^"]*)"|'([^']*)'|(\S.*)))?$`)

// search looks through the tree: all frames and shadow roots are in it.
func search(kind, what string, root *node) ([]*node, error) {
	want := strings.ToLower(cleanText(strings.Trim(what, `"`)))
	if want == "" {
		return nil, fail("bad_value", "Say what to look for after the sign.", "on: %s= is empty", kind).with("field", "on")
	}
	var found []*node
	by := func(fits func(n *node) bool) []*node {
		found = nil
		collect(root.kids, fits, &found, 50)
		return found
	}
	switch kind {
	case "role":
		m := roleLocator.FindStringSubmatch(strings.TrimSpace(what))
		if m == nil {
			return nil, fail("bad_value", `Write role=button name="Save".`, "on: role=%s is not understood", cut(cleanText(what), 40)).with("field", "on")
		}
		name := strings.ToLower(cleanText(m[2] + m[3] + m[4]))
		is := func(n *node) bool { return strings.EqualFold(n.role, m[1]) }
		if name == "" {
			return by(is), nil
		}
		if exact := by(func(n *node) bool { return is(n) && strings.ToLower(n.name) == name }); len(exact) > 0 {
			return exact, nil
		}
		return by(func(n *node) bool { return is(n) && strings.Contains(strings.ToLower(n.name), name) }), nil
	case "label":
		field := func(n *node) bool { return n.act && (n.hasValue || fields[n.role]) }
		if exact := by(func(n *node) bool { return field(n) && strings.ToLower(n.name) == want }); len(exact) > 0 {
			return exact, nil
		}
		return by(func(n *node) bool { return field(n) && strings.Contains(strings.ToLower(n.name), want) }), nil
	}
	// text: what can be acted on first, exact before partial.
	for _, fits := range []func(n *node) bool{
		func(n *node) bool { return n.act && strings.ToLower(cleanText(n.name)) == want },
		func(n *node) bool { return n.key.backend != 0 && strings.ToLower(cleanText(n.name)) == want },
		func(n *node) bool { return n.act && strings.Contains(strings.ToLower(n.name), want) },
		func(n *node) bool { return n.key.backend != 0 && strings.Contains(strings.ToLower(n.name), want) },
	} {
		if hits := by(fits); len(hits) > 0 {
			return hits, nil
		}
	}
	return nil, nil
}

var fields = set("textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "switch", "slider", "spinbutton", "Date", "DateTime", "InputTime", "ColorWell", "file", "button")

// query runs a selector in every frame, in a world of its own that the page's
// scripts cannot reach.
func (o *op) query(kind, what string, p *pageView, root *node) ([]*node, error) {
	text, _ := json.Marshal(what)
	find := fmt.Sprintf(`Array.from(document.querySelectorAll(%s)).slice(0, 50)`, text)
	if kind == "xpath" {
		find = fmt.Sprintf(`(() => { const r = document.evaluate(%s, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null), out = [];
			for (let i = 0; i < Math.min(r.snapshotLength, 50); i++) { const n = r.snapshotItem(i); out.push(n.nodeType === 1 ? n : n.parentElement); } return out })()`, text)
	}
	find = `(() => { const all = ` + find + `; const seen = all.filter(n => { const r = n.getBoundingClientRect(), s = getComputedStyle(n);
		return r.width > 0 && r.height > 0 && s.visibility !== 'hidden' || n.type === 'file' }); return seen.length ? seen : all.slice(0, 1) })()`
	var out []*node
	for _, f := range p.frames {
		backends, err := o.evalNodes(f, find)
		if err != nil {
			return nil, err
		}
		for _, id := range backends {
			key := refKey{f.ID, f.LoaderID, id}
			if n := findNode(root.kids, key); n != nil {
				if n.ref == "" {
					n.ref = o.t.refs.assign(key, n.role, n.name, n.textual)
				}
				out = append(out, n)
				continue
			}
			n := &node{role: "node", key: key, frame: f}
			n.ref = o.t.refs.assign(key, "unlisted", "", false)
			out = append(out, n)
		}
	}
	return out, nil
}
