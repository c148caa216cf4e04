package browser

import (
	"context"
	"fmt"
	"strings"
	"time"
)

func (o *op) clickStep(s Step, h *hit, limit time.Duration) (string, error) {
	modifiers, err := parseModifiers(s.Modifiers)
	if err != nil {
		return "", err
	}
	a, err := o.aimAt(h, s.Offset, s.Force, limit)
	if err != nil {
		return "", err
	}
	line := h.String()
	if a.note != "" {
		line += " (" + a.note + ")"
	}
	button := s.Button
	if button == "" {
		button = "left"
	}
	return line, o.clickAt(a.x, a.y, button, max(1, s.Count), modifiers)
}

func (o *op) focus(h *hit) error {
	if h.xy != nil {
		return fail("bad_value", "Use click.", "on: a point cannot be focused").with("field", "on")
	}
	return o.call("DOM.focus", map[string]any{"backendNodeId": h.key.backend}, nil)
}

func (o *op) pressStep(s Step, limit time.Duration) (string, error) {
	if s.On != "" {
		h, err := o.resolve(s.On)
		if err != nil {
			return "", err
		}
		if err := o.focus(h); err != nil {
			return "", err
		}
	}
	for _, k := range s.Keys {
		c, err := parseChord(k)
		if err != nil {
			return "", err
		}
		if err := o.press(c, time.Duration(s.HoldMS)*time.Millisecond); err != nil {
			return strings.Join(s.Keys, " "), err
		}
	}
	return strings.Join(s.Keys, " "), nil
}

// dragStep presses on one target and lets go on another. When the page begins
// a drag of its own (HTML5), the browser's drag events follow instead.
func (o *op) dragStep(s Step, h *hit, limit time.Duration) (string, error) {
	from, err := o.aimAt(h, s.Offset, s.Force, limit)
	if err != nil {
		return "", err
	}
	target, err := o.resolve(s.To)
	if err != nil {
		return "", err
	}
	var to aim
	if target.xy != nil {
		to, err = o.aimXY(target)
	} else {
		var box rect
		if box, err = o.boxOf(target); err == nil {
			to = aim{x: box.x + box.w/2, y: box.y + box.h/2}
		}
	}
	if err != nil {
		return "", err
	}
	if err := o.call("Input.setInterceptDrags", map[string]any{"enabled": true}, nil); err != nil {
		return "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(o.base), 500*time.Millisecond)
		defer cancel()
		_ = o.t.sess.Call(ctx, "Input.setInterceptDrags", map[string]any{"enabled": false}, nil)
	}()
	o.t.mu.Lock()
	o.t.dragged = nil
	o.t.mu.Unlock()
	line := h.String() + " to " + target.String()
	if err := o.mouseEvent("mouseMoved", from.x, from.y, "none", 0, 0, 0); err != nil {
		return "", err
	}
	if err := o.mouseEvent("mousePressed", from.x, from.y, "left", 1, 1, 0); err != nil {
		o.letUp(err, mouseParams("mouseReleased", from.x, from.y, "left", 0, 1, 0))
		return "", err
	}
	n := s.Steps
	if n <= 0 {
		n = 10
	}
	for i := 1; i <= n; i++ {
		f := float64(i) / float64(n)
		x, y := from.x+(to.x-from.x)*f, from.y+(to.y-from.y)*f
		if err := o.mouseEvent("mouseMoved", x, y, "left", 1, 0, 0); err != nil {
			o.letUp(err, mouseParams("mouseReleased", x, y, "left", 0, 1, 0))
			return "", err
		}
		if i == min(2, n) {
			if err := o.within(50*time.Millisecond, func() bool { return o.t.dragged != nil }); err != nil {
				return "", err
			}
		}
		o.t.mu.Lock()
		data := o.t.dragged
		o.t.mu.Unlock()
		if data != nil {
			for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
				if err := o.call("Input.dispatchDragEvent", map[string]any{"type": kind, "x": to.x, "y": to.y, "data": data}, nil); err != nil {
					return "", err
				}
			}
			line += " (drag and drop)"
			break
		}
	}
	return line, o.mouseEvent("mouseReleased", to.x, to.y, "left", 0, 1, 0)
}

// mouseStep is for canvas and maps: points of the page, no checks.
func (o *op) mouseStep(s Step) (string, error) {
	p := o.t.mouse
	if len(s.At) == 2 {
		a, err := o.aimXY(&hit{xy: &[2]float64{s.At[0], s.At[1]}})
		if err != nil {
			return "", err
		}
		p = [2]float64{a.x, a.y}
	}
	o.t.mouse = p
	button := s.Button
	if button == "" {
		button = "left"
	}
	line := fmt.Sprintf("%s at %.0f,%.0f", s.Action, p[0], p[1])
	switch s.Action {
	case "move":
		return line, o.mouseEvent("mouseMoved", p[0], p[1], "none", o.t.pressed, 0, 0)
	case "down":
		o.t.pressed = buttonBits[button]
		return line, o.mouseEvent("mousePressed", p[0], p[1], button, buttonBits[button], 1, 0)
	case "up":
		o.t.pressed = 0
		return line, o.mouseEvent("mouseReleased", p[0], p[1], button, 0, 1, 0)
	case "click":
		return line, o.clickAt(p[0], p[1], button, max(1, s.Count), 0)
	}
	wheel := mouseParams("mouseWheel", p[0], p[1], "none", 0, 0, 0)
	wheel["deltaX"], wheel["deltaY"] = s.By[0], s.By[1]
	return line, o.call("Input.dispatchMouseEvent", wheel, nil)
}

// scrollStep scrolls the page or a container, by pixels or to an end.
func (o *op) scrollStep(s Step) (string, error) {
	function := `function(dx, dy, to) {
		let el = this.nodeType === 9 ? this.scrollingElement : this;
		const can = n => n.scrollHeight > n.clientHeight + 1 || n.scrollWidth > n.clientWidth + 1;
		const doc = (this.ownerDocument || this).scrollingElement;
		while (el && el !== doc && !(can(el) && /auto|scroll/.test(getComputedStyle(el).overflow + getComputedStyle(el).overflowY))) el = el.parentElement;
		el = el || doc;
		const y = el.scrollTop, x = el.scrollLeft;
		if (to) el.scrollTo({ top: to === 'top' ? 0 : el.scrollHeight, behavior: 'instant' });
		else el.scrollBy({ left: dx, top: dy, behavior: 'instant' });
		return Math.round(el.scrollTop) + ' of ' + Math.round(el.scrollHeight - el.clientHeight) + ' pixels down' + (el.scrollTop === y && el.scrollLeft === x ? ', did not move' : '');
	}`
	dx, dy := 0.0, 0.0
	if len(s.By) == 2 {
		dx, dy = s.By[0], s.By[1]
	}
	var where string
	if s.On != "" {
		h, err := o.resolve(s.On)
		if err != nil {
			return "", err
		}
		err = o.callIn(h.key.backend, h.key.frame, function, []any{dx, dy, s.To}, &where)
		return h.String() + ": " + where, err
	}
	world, err := o.world(o.mainFrame())
	if err != nil {
		return "", err
	}
	var res struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
	}
	err = o.call("Runtime.callFunctionOn", map[string]any{"executionContextId": world, "functionDeclaration": "function(...a) { return (" + function + ").apply(document, a) }",
		"arguments": []map[string]any{{"value": dx}, {"value": dy}, {"value": s.To}}, "returnByValue": true}, &res)
	return "the page: " + res.Result.Value, err
}
