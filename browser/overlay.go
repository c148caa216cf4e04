package browser

func findNode(kids []*node, k refKey) *node {
	for _, n := range kids {
		if n.key == k && !n.text {
			return n
		}
		if hit := findNode(n.kids, k); hit != nil {
			return hit
		}
	}
	return nil
}

// inside lists the outermost nodes in an element that has no line of its own.
func inside(p *pageView, root *node, k refKey) []*node {
	marked := map[int64]bool{k.backend: true}
	var out []*node
	var walk func(ks []*node)
	walk = func(ks []*node) {
		for _, n := range ks {
			if n.frame != nil && n.frame.ID == k.frame && n.frame.dom != nil && under(n.frame.dom, n.key.backend, marked) {
				out = append(out, n)
			} else {
				walk(n.kids)
			}
		}
	}
	walk(root.kids)
	return out
}

// overlay marks what lies on top of a large part of the viewport, such as a
// consent banner: it is shown first and named as such.
func (o *op) overlay(p *pageView, root *node) {
	if len(p.frames) == 0 || p.frames[0].dom == nil {
		return
	}
	d := p.frames[0].dom
	fixed := map[int64]bool{}
	for i, id := range d.raw.Nodes.Backend {
		if s := d.style(i, stPosition); s != "fixed" && s != "sticky" {
			continue
		}
		if r, ok := d.box(i); ok && r.area() > 0.2*p.view.area() && d.style(i, stPointer) != "none" && !d.transparent(i) && d.style(i, stVisibility) != "hidden" {
			fixed[id] = true
		}
	}
	if len(fixed) == 0 {
		return
	}
	var walk func(ks []*node)
	walk = func(ks []*node) {
		for _, k := range ks {
			if k.frame == p.frames[0] && under(d, k.key.backend, fixed) {
				k.onTop = k.act || landmarks[k.role] || k.role == "heading"
			} else {
				walk(k.kids)
			}
		}
	}
	walk(root.kids)
}

// under tells whether a node is one of the marked ones or inside of one.
func under(d *domDoc, backend int64, marked map[int64]bool) bool {
	i, ok := d.byID[backend]
	if !ok {
		return false
	}
	for ; i >= 0; i = d.parent(i) {
		if i < len(d.raw.Nodes.Backend) && marked[d.raw.Nodes.Backend[i]] {
			return true
		}
	}
	return false
}
