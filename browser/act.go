package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Step is one thing to do.
type Step struct {
	Do string // click, hover, focus, scroll_to, fill, type, press, select, check, drag, upload, scroll, mouse, wait
	On string // ref or locator

	Button    string    // click: left, right, middle
	Count     int       // click: 1 to 3
	Modifiers []string  // click: Alt, Control, Meta, Shift
	Offset    []float64 // click: from the top left corner of the target
	Force     bool      // click: without looking what covers it

	Text    *string  // fill, type; wait: until this is on the page
	Submit  bool     // fill: Enter afterwards
	DelayMS int      // type: between keys
	Keys    []string // press
	HoldMS  int      // press
	Values  []string // select: label, value or index
	Checked *bool    // check; default true
	To      string   // drag: target; scroll: top or bottom
	Steps   int      // drag: moves, default 10
	Files   []string // upload: workspace paths
	By      []float64
	Action  string // mouse: move, down, up, click, wheel
	At      []float64

	Conditions
	MS int // wait: so long
}

// Conditions are what wait and expect look for.
type Conditions struct {
	TextGone string
	State    string // of On: visible, hidden, enabled
	URL      string // glob
	Download bool
}

// Expect is what must hold after the steps.
type Expect struct {
	Text *string
	On   string
	Conditions
}

// ActRequest is a batch of steps.
type ActRequest struct {
	Tab         string
	Steps       []Step
	StopOnError *bool // default true
	Follow      *bool // default true: go to a tab that a step opened
	OnDialog    json.RawMessage
	Expect      *Expect
	Snapshot    string // diff, compact, none; default diff
	MaxChars    int
	Timeout     time.Duration // of each step; default 15 s
}

// ActResult says what was done.
type ActResult struct {
	Reply
	Steps    []string // one line per step that ran
	Done     int      // steps that succeeded
	Left     int      // steps that did not run
	Expected string   // which expectation held
	Snapshot SnapshotText
}

const (
	// DefaultStepTimeout is the time of one step.
	DefaultStepTimeout = 15 * time.Second
	// MaxSteps is the most steps of one call.
	MaxSteps = 25
	// callTime is the most that one call takes.
	callTime = 42 * time.Second
)

// Act does the steps in order. An error names the step and how many ran; the
// result says what those did.
func (b *Browser) Act(ctx context.Context, r ActRequest) (ActResult, error) {
	var out ActResult
	answer, err := parseAnswer(r.OnDialog)
	if err != nil {
		return out, err
	}
	if len(r.Steps) == 0 && answer.do == "" && r.Expect == nil {
		return out, fail("bad_value", `Give at least one step, such as {"do":"click","on":"e12"}.`, "steps: is empty").with("field", "steps")
	}
	for i := range r.Steps {
		if err := r.Steps[i].check(); err != nil {
			var e *Error
			if errors.As(err, &e) {
				e.Message = fmt.Sprintf("steps[%d].%s", i, e.Message)
			}
			return out, err
		}
	}
	limit := patience
	if r.Timeout > 0 {
		limit = r.Timeout
	} else {
		r.Timeout = DefaultStepTimeout
	}
	var opened *Tab
	err = b.on(ctx, common{tab: r.Tab, timeout: callTime, answer: answer}, &out.Reply, func(o *op) error {
		defer o.letGo()
		if err := o.steps(r, limit, &out); err != nil {
			return err
		}
		if r.Follow == nil || *r.Follow {
			if opened = o.followed(); opened != nil {
				return nil
			}
		}
		if r.Expect != nil {
			if err := o.expect(r, &out); err != nil {
				return err
			}
		}
		return o.after(r, &out)
	})
	next := ""
	switch {
	case err == nil && opened != nil: // what follows is about the tab that the steps opened
		b.select_(opened)
		next = opened.id
	case isReason(err, "tab_closed") && out.Done == len(r.Steps) && out.Done > 0:
		// The last step closed its tab, as sign-in windows do: back to where it
		// came from.
		if err := b.left(ctx, out.Tab); err != nil {
			return out, nil
		}
	default:
		return out, err
	}
	err = b.on(ctx, common{tab: next, timeout: callTime, answer: answer}, &out.Reply, func(o *op) error {
		if err := o.settle(settleAct); err != nil {
			return err
		}
		if r.Expect != nil {
			if err := o.expect(r, &out); err != nil {
				return err
			}
		}
		return o.after(r, &out)
	})
	return out, err
}

// left waits until a closed tab is off the list.
func (b *Browser) left(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		_, err := b.pick(id)
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.current == nil {
				return err
			}
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// followed is the last tab that a step opened and that is still there.
func (o *op) followed() *Tab {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	for i := len(o.t.opened) - 1; i >= 0; i-- {
		t := o.t.opened[i]
		t.mu.Lock()
		alive := t.end == nil
		t.mu.Unlock()
		if alive {
			return t
		}
	}
	return nil
}

// steps runs them; what each did is a line of the result.
func (o *op) steps(r ActRequest, limit time.Duration, out *ActResult) error {
	var first error
	for i, s := range r.Steps {
		line, err := o.timed(r.Timeout, func(o *op) (string, error) { return o.step(s, limit) })
		if err == nil {
			out.Done++
			out.Steps = append(out.Steps, fmt.Sprintf("%d %s: %s", i+1, s.Do, line))
			continue
		}
		out.Steps = append(out.Steps, fmt.Sprintf("%d %s: failed: %s", i+1, s.Do, plain(err)))
		out.Left = len(r.Steps) - i - 1
		stop := r.StopOnError == nil || *r.StopOnError
		if stop || o.ctx.Err() != nil || isReason(err, "tab_closed") {
			return o.stepError(err, i, out)
		}
		if first == nil {
			first = o.stepError(err, i, out)
		}
	}
	out.Left = 0
	return first
}

// stepError adds to the error of a step where in the batch it happened.
func (o *op) stepError(err error, i int, out *ActResult) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Details = map[string]any{"step": i + 1, "steps_done": out.Done, "steps_left": out.Left}
	for k, v := range e.Details {
		c.Details[k] = v
	}
	return &c
}

// timed runs f with a deadline of its own inside of the call's.
func (o *op) timed(d time.Duration, f func(*op) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(o.ctx, d)
	defer cancel()
	so := *o
	so.ctx = ctx
	line, err := f(&so)
	o.open = so.open
	if err != nil {
		err = so.verdict(err)
	}
	return line, err
}

// step does one step and waits until the page is quiet.
func (o *op) step(s Step, limit time.Duration) (string, error) {
	m := o.t.mark()
	line, err := o.act(s, limit)
	if err != nil {
		if isReason(err, "tab_closed") && line != "" { // the act itself closed it
			return line + "; the tab closed", nil
		}
		return line, err
	}
	if s.Do == "wait" || s.Do == "hover" {
		return line, nil
	}
	if err := o.settleAfter(m); err != nil {
		if isReason(err, "tab_closed") {
			return line + "; the tab closed", nil
		}
		return line, err
	}
	if o.b.downloads.seq() > m.downloads {
		if err := o.awaitDownloadsFor(m.downloads, 10*time.Second); err != nil {
			return line, err
		}
		line += "; started a download"
	}
	return line + o.effect(m), nil
}

// effect says what an act led to beyond the page's own changes.
func (o *op) effect(m mark) string {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	switch {
	case o.t.commits > m.commits:
		return "; went to " + cut(cleanText(o.t.url), maxURL)
	case o.t.moves > m.moves:
		return "; address is now " + cut(shortURL(o.t.url, m.url), maxURL)
	case len(o.t.opened) > m.opened:
		return "; opened " + o.t.opened[len(o.t.opened)-1].id
	}
	return ""
}

// act does one step.
func (o *op) act(s Step, limit time.Duration) (string, error) {
	switch s.Do {
	case "wait":
		return o.waitFor(s)
	case "mouse":
		return o.mouseStep(s)
	case "scroll":
		return o.scrollStep(s)
	case "press":
		return o.pressStep(s, limit)
	case "upload":
		return o.uploadStep(s, limit)
	}
	if s.Do == "type" && s.On == "" {
		return o.typeStep(s, nil, limit)
	}
	h, err := o.resolve(s.On)
	if err != nil {
		return "", err
	}
	if h.xy != nil && s.Do != "click" && s.Do != "hover" && s.Do != "drag" {
		return "", fail("bad_value", "Name the element: a ref such as e12, or another locator.", "on: a point cannot be used for %s", s.Do).with("field", "on")
	}
	switch s.Do {
	case "click":
		return o.clickStep(s, h, limit)
	case "hover":
		a, err := o.aimAt(h, s.Offset, s.Force, limit)
		if err != nil {
			return "", err
		}
		o.t.mouse = [2]float64{a.x, a.y}
		return h.String(), o.mouseEvent("mouseMoved", a.x, a.y, "none", 0, 0, 0)
	case "focus":
		return h.String(), o.focus(h)
	case "scroll_to":
		return h.String(), o.scrollTo(h)
	case "fill":
		return o.fillStep(s, h, limit)
	case "type":
		return o.typeStep(s, h, limit)
	case "select":
		return o.selectStep(s, h, limit)
	case "check":
		return o.checkStep(s, h, limit)
	case "drag":
		return o.dragStep(s, h, limit)
	}
	return "", fail("bad_value", "See the list of steps.", "do: %s is not known", quote(cut(cleanText(s.Do), 20)))
}

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

func (o *op) mainFrame() string {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	return string(o.t.main)
}

// after takes the snapshot that was asked for.
func (o *op) after(r ActRequest, out *ActResult) error {
	if r.Snapshot == "none" {
		return nil
	}
	var err error
	out.Snapshot, err = o.snapshot(snapOptions{mode: "compact", diff: r.Snapshot != "compact", max: r.MaxChars})
	return err
}
