package browser

import (
	"context"
	"sync"
	"time"
)

// Collecting. One DOMSnapshot and one accessibility tree per frame, joined by
// backend node id. Nothing is injected. Both are decoded into small structs:
// the full types cost five times as much on a large page.
const (
	maxFrames    = 20
	frameTimeout = 5 * time.Second
	// maxDOMNodes is where the accessibility tree becomes too slow (2.5 s at
	// 70,000 nodes): above it a page is read from its elements.
	maxDOMNodes = 40_000
	// maxTreeText is the same for text: the tree has a node per line of it
	// (measured: 3.8 s for 2 MB).
	maxTreeText = 400_000
	maxAXNodes  = 150_000
)

type frameInfo struct {
	ID       string `json:"id"`
	ParentID string `json:"parentId"`
	LoaderID string `json:"loaderId"`
	URL      string `json:"url"`
	Name     string `json:"name"`
}

type frameTree struct {
	Frame frameInfo   `json:"frame"`
	Kids  []frameTree `json:"childFrames"`
}

// frame is one document of the page.
type frame struct {
	frameInfo
	n   int // 0 is the main frame, others are f1, f2, … in order
	ax  map[string]*axNode
	top *axNode
	dom *domDoc
	// x, y is where the frame's content begins in the viewport of the page.
	x, y   float64
	placed bool
}

type axValue struct {
	Value any `json:"value"`
}

func (v axValue) text() string { s, _ := v.Value.(string); return s }

type axProperty struct {
	Name  string  `json:"name"`
	Value axValue `json:"value"`
}

type axNode struct {
	ID         string       `json:"nodeId"`
	Ignored    bool         `json:"ignored"`
	Role       axValue      `json:"role"`
	Name       axValue      `json:"name"`
	Value      axValue      `json:"value"`
	Properties []axProperty `json:"properties"`
	ParentID   string       `json:"parentId"`
	ChildIDs   []string     `json:"childIds"`
	Backend    int64        `json:"backendDOMNodeId"`
}

func (n *axNode) prop(name string) any {
	for _, p := range n.Properties {
		if p.Name == name {
			return p.Value.Value
		}
	}
	return nil
}

func (n *axNode) is(name string) bool {
	switch v := n.prop(name).(type) {
	case bool:
		return v
	case string:
		return v == "true"
	}
	return false
}

// styles are the computed styles that a snapshot asks for, in this order.
var styles = []string{"cursor", "visibility", "opacity", "pointer-events", "overflow-x", "overflow-y", "position", "display"}

const (
	stCursor = iota
	stVisibility
	stOpacity
	stPointer
	stOverflowX
	stOverflowY
	stPosition
	stDisplay
)

type domSnapshot struct {
	Documents []domDocument `json:"documents"`
	Strings   []string      `json:"strings"`
}

type domDocument struct {
	FrameID int     `json:"frameId"`
	ScrollX float64 `json:"scrollOffsetX"`
	ScrollY float64 `json:"scrollOffsetY"`
	Nodes   struct {
		Parent    []int   `json:"parentIndex"`
		Type      []int   `json:"nodeType"`
		Name      []int   `json:"nodeName"`
		Backend   []int64 `json:"backendNodeId"`
		Attrs     [][]int `json:"attributes"`
		Clickable struct {
			Index []int `json:"index"`
		} `json:"isClickable"`
		Content struct {
			Index []int `json:"index"`
			Value []int `json:"value"`
		} `json:"contentDocumentIndex"`
	} `json:"nodes"`
	Layout struct {
		Node   []int       `json:"nodeIndex"`
		Styles [][]int     `json:"styles"`
		Bounds [][]float64 `json:"bounds"`
		Text   []int       `json:"text"`
		Scroll [][]float64 `json:"scrollRects"`
		Client [][]float64 `json:"clientRects"`
	} `json:"layout"`
}

type rect struct{ x, y, w, h float64 }

func (r rect) area() float64 { return r.w * r.h }

// meets tells whether two rectangles share a point.
func (r rect) meets(o rect) bool {
	return r.x < o.x+o.w && o.x < r.x+r.w && r.y < o.y+o.h && o.y < r.y+r.h
}

// domDoc is one document of a DOM snapshot, by node index.
type domDoc struct {
	num     int // index in the snapshot
	strings []string
	raw     *domDocument
	byID    map[int64]int
	layout  []int // node index → layout index, -1 without a box
	click   map[int]bool
	content map[int]int // node index → document index of the frame in it
	opacity []uint8     // node index → 0 unknown, 1 visible, 2 transparent
}

func (d *domDoc) str(i int) string {
	if i < 0 || i >= len(d.strings) {
		return ""
	}
	return d.strings[i]
}

func (d *domDoc) tag(i int) string {
	if i < 0 || i >= len(d.raw.Nodes.Name) {
		return ""
	}
	return d.str(d.raw.Nodes.Name[i])
}

func (d *domDoc) parent(i int) int {
	if i < 0 || i >= len(d.raw.Nodes.Parent) {
		return -1
	}
	if p := d.raw.Nodes.Parent[i]; p < i {
		return p
	}
	return -1 // a parent comes before its children; anything else would loop
}

func (d *domDoc) attr(i int, name string) (string, bool) {
	if i < 0 || i >= len(d.raw.Nodes.Attrs) {
		return "", false
	}
	a := d.raw.Nodes.Attrs[i]
	for k := 0; k+1 < len(a); k += 2 {
		if d.str(a[k]) == name {
			return d.str(a[k+1]), true
		}
	}
	return "", false
}

func (d *domDoc) style(i, which int) string {
	if i < 0 || i >= len(d.layout) || d.layout[i] < 0 {
		return ""
	}
	s := d.raw.Layout.Styles
	l := d.layout[i]
	if l >= len(s) || which >= len(s[l]) {
		return ""
	}
	return d.str(s[l][which])
}

// box is in document coordinates of the frame.
func (d *domDoc) box(i int) (rect, bool) {
	if i < 0 || i >= len(d.layout) || d.layout[i] < 0 || d.layout[i] >= len(d.raw.Layout.Bounds) {
		return rect{}, false
	}
	b := d.raw.Layout.Bounds[d.layout[i]]
	if len(b) < 4 {
		return rect{}, false
	}
	return rect{b[0], b[1], b[2], b[3]}, true
}

// layoutText is the text that a layout object shows.
func (d *domDoc) layoutText(l int) string {
	if l < 0 || l >= len(d.raw.Layout.Text) {
		return ""
	}
	return d.str(d.raw.Layout.Text[l])
}

// scrolls tells whether the node is a scroll container with something to scroll.
func (d *domDoc) scrolls(i int) bool {
	for _, which := range []int{stOverflowX, stOverflowY} {
		if o := d.style(i, which); o != "auto" && o != "scroll" {
			continue
		}
		l := d.layout[i]
		if l < len(d.raw.Layout.Scroll) && l < len(d.raw.Layout.Client) {
			s, c := d.raw.Layout.Scroll[l], d.raw.Layout.Client[l]
			if len(s) >= 4 && len(c) >= 4 && (s[2] > c[2]+2 && which == stOverflowX || s[3] > c[3]+2 && which == stOverflowY) {
				return true
			}
		}
	}
	return false
}

// scrolled tells whether the node is a container that was scrolled away from
// its start, so that negative positions in it can be reached.
func (d *domDoc) scrolled(i int) bool {
	if i < 0 || i >= len(d.layout) || d.layout[i] < 0 || d.layout[i] >= len(d.raw.Layout.Scroll) {
		return false
	}
	s := d.raw.Layout.Scroll[d.layout[i]]
	return len(s) >= 2 && (s[0] > 0 || s[1] > 0)
}

// pageView is everything that one look at a page brought.
type pageView struct {
	frames  []*frame
	more    []frameInfo // beyond maxFrames
	view    rect        // the viewport: 0, 0, width, height
	bodyH   float64     // height of the whole page
	scrollY float64
	notes   []string
	docs    map[string]string // frame id → loader id
}

// frameDocs asks for the frames of the page and their documents.
func (o *op) frameDocs() ([]frameInfo, error) {
	var res struct {
		FrameTree frameTree `json:"frameTree"`
	}
	if err := o.call("Page.getFrameTree", nil, &res); err != nil {
		return nil, err
	}
	var all []frameInfo
	var walk func(t frameTree, depth int)
	walk = func(t frameTree, depth int) {
		if len(all) > maxFrameIDs || depth > 50 {
			return
		}
		all = append(all, t.Frame)
		for _, k := range t.Kids {
			walk(k, depth+1)
		}
	}
	walk(res.FrameTree, 0)
	return all, nil
}

// metrics asks for the viewport and the page's size.
func (o *op) metrics() (view rect, page rect, err error) {
	var m struct {
		Visual struct {
			X float64 `json:"pageX"`
			Y float64 `json:"pageY"`
			W float64 `json:"clientWidth"`
			H float64 `json:"clientHeight"`
		} `json:"cssVisualViewport"`
		Content struct {
			W float64 `json:"width"`
			H float64 `json:"height"`
		} `json:"cssContentSize"`
	}
	err = o.call("Page.getLayoutMetrics", nil, &m)
	return rect{m.Visual.X, m.Visual.Y, m.Visual.W, m.Visual.H}, rect{0, 0, m.Content.W, m.Content.H}, err
}

// look collects the page.
func (o *op) look() (*pageView, error) {
	infos, err := o.frameDocs()
	if err != nil {
		return nil, err
	}
	view, size, err := o.metrics()
	if err != nil {
		return nil, err
	}
	p := &pageView{view: rect{0, 0, view.w, view.h}, bodyH: size.h, scrollY: view.y, docs: map[string]string{}}
	for _, f := range infos {
		p.docs[f.ID] = f.LoaderID
	}
	var snap domSnapshot
	if err := o.call("DOMSnapshot.captureSnapshot", map[string]any{"computedStyles": styles, "includeDOMRects": true}, &snap); err != nil {
		return nil, err
	}
	if len(infos) > maxFrames {
		p.more, infos = infos[maxFrames:], infos[:maxFrames]
	}
	total, text := 0, 0
	byFrame := map[string]*domDoc{}
	var docs []*domDoc
	for i := range snap.Documents {
		d := index(&snap, i)
		docs = append(docs, d)
		byFrame[d.str(d.raw.FrameID)] = d
		total += len(d.raw.Nodes.Name)
		for _, t := range d.raw.Layout.Text {
			text += len(d.str(t))
		}
	}
	for i, info := range infos {
		p.frames = append(p.frames, &frame{frameInfo: info, n: i, dom: byFrame[info.ID]})
	}
	if total > maxDOMNodes || text > maxTreeText {
		p.notes = append(p.notes, "very large page: read from its elements, names may be missing")
	} else {
		var wg sync.WaitGroup
		for _, f := range p.frames {
			wg.Go(func() { o.tree(f) })
		}
		wg.Wait()
	}
	if o.ctx.Err() != nil {
		return nil, o.worded(context.Cause(o.ctx), "reading the page")
	}
	p.place(docs)
	return p, nil
}

// tree asks for the accessibility tree of one frame.
func (o *op) tree(f *frame) {
	ctx, cancel := context.WithTimeout(o.ctx, frameTimeout)
	defer cancel()
	var res struct {
		Nodes []axNode `json:"nodes"`
	}
	if err := o.t.sess.Call(ctx, "Accessibility.getFullAXTree", map[string]any{"frameId": f.ID}, &res); err != nil {
		return // it is read from its elements
	}
	f.take(res.Nodes)
}

// take keeps the tree of a frame by node id.
func (f *frame) take(nodes []axNode) {
	if len(nodes) > maxAXNodes {
		nodes = nodes[:maxAXNodes]
	}
	f.ax = make(map[string]*axNode, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		f.ax[n.ID] = n
		if n.ParentID == "" && f.top == nil {
			f.top = n
		}
	}
}

// index makes a document of the snapshot searchable.
func index(s *domSnapshot, i int) *domDoc {
	raw := &s.Documents[i]
	n := len(raw.Nodes.Name)
	d := &domDoc{num: i, strings: s.Strings, raw: raw, byID: make(map[int64]int, n), layout: make([]int, n),
		click: map[int]bool{}, content: map[int]int{}, opacity: make([]uint8, n)}
	for k := range d.layout {
		d.layout[k] = -1
	}
	for k, node := range raw.Layout.Node {
		if node >= 0 && node < n && d.layout[node] < 0 {
			d.layout[node] = k
		}
	}
	for k, id := range raw.Nodes.Backend {
		if k < n {
			d.byID[id] = k
		}
	}
	for _, k := range raw.Nodes.Clickable.Index {
		d.click[k] = true
	}
	for k, node := range raw.Nodes.Content.Index {
		if k < len(raw.Nodes.Content.Value) {
			d.content[node] = raw.Nodes.Content.Value[k]
		}
	}
	return d
}

// place finds where each frame lies in the viewport.
func (p *pageView) place(docs []*domDoc) {
	at := map[*domDoc]*frame{}
	for _, f := range p.frames {
		if f.dom != nil {
			at[f.dom] = f
		}
	}
	if len(p.frames) == 0 || p.frames[0].dom == nil {
		return
	}
	main := p.frames[0]
	main.x, main.y, main.placed = -main.dom.raw.ScrollX, -main.dom.raw.ScrollY, true
	// Parents come before their frames in the list, so one pass places all.
	for _, f := range p.frames {
		if !f.placed || f.dom == nil {
			continue
		}
		for node, doc := range f.dom.content {
			if doc < 0 || doc >= len(docs) {
				continue
			}
			child := at[docs[doc]]
			box, ok := f.dom.box(node)
			if child == nil || child.placed || !ok {
				continue
			}
			child.x = f.x + box.x - child.dom.raw.ScrollX
			child.y = f.y + box.y - child.dom.raw.ScrollY
			child.placed = true
		}
	}
}

// frameIn returns the frame that an element of f holds.
func (p *pageView) frameIn(f *frame, node int) *frame {
	if f.dom == nil {
		return nil
	}
	doc, ok := f.dom.content[node]
	if !ok {
		return nil
	}
	for _, c := range p.frames {
		if c.dom != nil && c != f && c.dom.num == doc {
			return c
		}
	}
	return nil
}
