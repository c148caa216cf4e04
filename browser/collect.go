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
