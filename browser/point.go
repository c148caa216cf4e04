package browser

import (
	"context"
	"fmt"
	"math"
	"time"
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

func (r rect) String() string { return fmt.Sprintf("%.0f,%.0f %.0fx%.0f", r.x, r.y, r.w, r.h) }

// clip is the part of r inside of o.
func (r rect) clip(o rect) rect {
	x0, y0 := math.Max(r.x, o.x), math.Max(r.y, o.y)
	x1, y1 := math.Min(r.x+r.w, o.x+o.w), math.Min(r.y+r.h, o.y+o.h)
	return rect{x0, y0, math.Max(0, x1-x0), math.Max(0, y1-y0)}
}

// quads asks for the boxes of a node in viewport coordinates of the main page,
// also for nodes in frames. A node without a box has none.
func (o *op) quads(backend int64) ([]quad, error) {
	var res struct {
		Quads [][]float64 `json:"quads"`
	}
	if err := o.call("DOM.getContentQuads", map[string]any{"backendNodeId": backend}, &res); err != nil {
		if isReason(err, "protocol") {
			return nil, nil
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

// aim is a point that was checked: a press there reaches the target.
type aim struct {
	x, y float64
	note string
}

const (
	// patience is how long a target may stay covered, moving or disabled when
	// the call names no time of its own: an agent is better off knowing.
	patience = 2 * time.Second
	// motion is how long a moving target is waited for before it is taken as
	// one that never rests.
	motion = time.Second
)

// aimAt checks that a target can be acted on and returns a point for it. It
// tries again until limit, then says what was in the way.
func (o *op) aimAt(h *hit, offset []float64, force bool, limit time.Duration) (aim, error) {
	if h.xy != nil {
		return o.aimXY(h)
	}
	ctx, cancel := context.WithTimeout(o.ctx, limit)
	defer cancel()
	start := time.Now()
	var last error
	for _, wait := range []time.Duration{50, 100, 200} {
		a, err := o.aimOnce(h, offset, force, time.Since(start) > motion)
		if err == nil || !retryable(err) {
			return a, err
		}
		last = err
		if o.pause(ctx, wait*time.Millisecond) != nil {
			break
		}
	}
	for ctx.Err() == nil {
		a, err := o.aimOnce(h, offset, force, time.Since(start) > motion)
		if err == nil || !retryable(err) {
			return a, err
		}
		last = err
		_ = o.pause(ctx, 200*time.Millisecond)
	}
	if cause := context.Cause(o.ctx); cause != nil && typedError(cause) {
		return aim{}, cause
	}
	return aim{}, o.explain(last)
}

func (o *op) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func retryable(err error) bool {
	for _, r := range []string{"covered", "unstable", "disabled", "not_visible"} {
		if isReason(err, r) {
			return true
		}
	}
	return false
}

// aimXY turns a point of the page into one of the viewport.
func (o *op) aimXY(h *hit) (aim, error) {
	view, _, err := o.metrics()
	if err != nil {
		return aim{}, err
	}
	x, y := h.xy[0]-view.x, h.xy[1]-view.y
	if x < 0 || y < 0 || x >= view.w || y >= view.h {
		if err := o.call("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("scrollTo({left: %f, top: %f, behavior: 'instant'})", h.xy[0]-view.w/2, h.xy[1]-view.h/2)}, nil); err != nil {
			return aim{}, err
		}
		if view, _, err = o.metrics(); err != nil {
			return aim{}, err
		}
		x, y = h.xy[0]-view.x, h.xy[1]-view.y
	}
	return aim{x: x, y: y}, nil
}

// aimOnce is one try: in view, at rest, enabled, and not covered.
func (o *op) aimOnce(h *hit, offset []float64, force, restless bool) (aim, error) {
	var a aim
	state, err := o.stateOf(h)
	if err != nil {
		return a, err
	}
	if state.disabled && !force {
		return a, fail("disabled", "It is disabled: do first what enables it.", "%s is disabled", h)
	}
	if err := o.scrollTo(h); err != nil {
		return a, err
	}
	first, err := o.quads(h.key.backend)
	if err != nil {
		return a, err
	}
	node := h.key.backend
	if len(first) == 0 || largest(first).area() < 1 || state.transparent {
		// A control that is drawn by its label: act on the label.
		if label := state.label; label != 0 {
			node = label
			if err := o.scrollTo(&hit{key: refKey{backend: label}}); err != nil {
				return a, err
			}
			if first, err = o.quads(label); err != nil {
				return a, err
			}
		}
	}
	if len(first) == 0 || largest(first).area() < 0.01 {
		return a, fail("not_visible", "Take a browser_snapshot and choose something that is shown.", "%s is not visible: it has no size on the page", h)
	}
	if err := o.frames(); err != nil {
		return a, err
	}
	second, err := o.quads(node)
	if err != nil {
		return a, err
	}
	if !same(first, second) {
		if !restless {
			return a, fail("unstable", "Wait until it rests, or give force.", "%s moves", h)
		}
		a.note = "it moves all the time; clicked where it was"
	}
	if len(second) == 0 {
		return a, fail("not_visible", "Take a browser_snapshot.", "%s went away", h)
	}
	view, _, err := o.metrics()
	if err != nil {
		return a, err
	}
	box := largest(second).clip(rect{0, 0, view.w, view.h})
	if box.area() < 0.01 {
		return a, fail("not_visible", "Scroll its container, or choose something else.", "%s cannot be scrolled into view", h)
	}
	points := [][2]float64{{box.x + box.w/2, box.y + box.h/2}, {box.x + box.w*.25, box.y + box.h*.25}, {box.x + box.w*.75, box.y + box.h*.25},
		{box.x + box.w*.25, box.y + box.h*.75}, {box.x + box.w*.75, box.y + box.h*.75}}
	if len(offset) == 2 {
		points = [][2]float64{{largest(second).x + offset[0], largest(second).y + offset[1]}}
	}
	if force {
		a.x, a.y, a.note = points[0][0], points[0][1], "forced: not checked whether something covers it"
		return a, nil
	}
	var cover *hit
	for _, p := range points {
		ok, c, err := o.reaches(h, p[0], p[1], view)
		if err != nil {
			return a, err
		}
		if ok {
			a.x, a.y = p[0], p[1]
			return a, nil
		}
		if cover == nil {
			cover = c
		}
	}
	// A sticky header covers what was scrolled under it: move on by its height.
	_ = o.call("Runtime.evaluate", map[string]any{"expression": "scrollBy({top: -100, behavior: 'instant'})"}, nil)
	e := fail("covered", "Close or answer what covers it, or give force.", "%s is covered", h)
	if cover != nil {
		e.Message += " by " + cover.String()
		e.detail("backend", cover.key.backend)
	}
	return a, e
}

func largest(qs []quad) rect {
	var r rect
	for _, q := range qs {
		if b := q.bounds(); b.area() >= r.area() {
			r = b
		}
	}
	return r
}

func same(a, b []quad) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		for k := range a[i] {
			if math.Abs(a[i][k]-b[i][k]) > 0.5 {
				return false
			}
		}
	}
	return true
}
