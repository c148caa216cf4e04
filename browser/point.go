package browser

import (
	"fmt"
	"math"
)

// quad is four corners in viewport coordinates of the main page.
type quad [8]float64

func (q quad) bounds() rect {
	x0, y0, x1, y1 := q[0], q[1], q[0], q[1]
	for i := 2; i < 8; i += 2 {
		x0, x1 = math.Min(x0, q[i]), math.Max(x1, q[i])
		y0, y1 = math.Min(y0, q[i+1]), math.Max(y1, q[i+1])
	}
	return rect{x0, y0, x1 - x0, y1 - y0}
}

// quads asks for the boxes of a node in viewport coordinates of the main page,
// also for nodes in frames.
func (o *op) quads(backend int64) ([]quad, error) {
	var res struct {
		Quads [][]float64 `json:"quads"`
	}
	if err := o.call("DOM.getContentQuads", map[string]any{"backendNodeId": backend}, &res); err != nil {
		if isReason(err, "protocol") {
			return nil, nil // no box
		}
		return nil, err
	}
	var out []quad
	for _, q := range res.Quads {
		if len(q) == 8 {
			out = append(out, quad(q))
		}
	}
	return out, nil
}

// boxOf is what surrounds all boxes of a node.
func (o *op) boxOf(h *hit) (rect, error) {
	qs, err := o.quads(h.key.backend)
	if err != nil {
		return rect{}, err
	}
	if len(qs) == 0 {
		return rect{}, fail("not_visible", "Take a browser_snapshot and choose something that is shown.", "%s has no box on the page", h)
	}
	r := qs[0].bounds()
	for _, q := range qs[1:] {
		b := q.bounds()
		x1, y1 := math.Max(r.x+r.w, b.x+b.w), math.Max(r.y+r.h, b.y+b.h)
		r.x, r.y = math.Min(r.x, b.x), math.Min(r.y, b.y)
		r.w, r.h = x1-r.x, y1-r.y
	}
	return r, nil
}

// scrollTo brings a target into view.
func (o *op) scrollTo(h *hit) error {
	if h.xy != nil {
		return nil
	}
	err := o.call("DOM.scrollIntoViewIfNeeded", map[string]any{"backendNodeId": h.key.backend}, nil)
	if isReason(err, "protocol") {
		return nil // without a box; whoever needs one finds out
	}
	return err
}

func (r rect) String() string { return fmt.Sprintf("%.0f,%.0f %.0fx%.0f", r.x, r.y, r.w, r.h) }
