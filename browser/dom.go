package browser

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
