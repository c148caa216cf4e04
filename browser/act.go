package browser

import (
	"context"
	"errors"
	"fmt"
	"time"
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
		b.makeCurrent(opened)
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
