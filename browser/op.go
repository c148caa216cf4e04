package browser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// Reply is what every answer begins with: where the tab is now, and what
// happened since the last reply.
type Reply struct {
	Tab     string  `json:"tab,omitempty"`
	Title   string  `json:"title,omitempty"`
	URL     string  `json:"url,omitempty"`
	Status  int     `json:"status,omitempty"`  // HTTP status of the page
	Loading string  `json:"loading,omitempty"` // why the page is not settled
	Events  []Event `json:"events,omitempty"`
}

// op is one call on one tab.
type op struct {
	b    *Browser
	t    *Tab
	base context.Context // of the call; lives a little longer than ctx, for cleaning up
	ctx  context.Context // ends at the deadline and when a dialog, a crash or the end of the tab stops the call
	// open says what the last settle left open.
	open string
}

const (
	// reserve is kept of the call's time for recovery and the reply.
	reserve    = 2 * time.Second
	probeAfter = 250 * time.Millisecond
)

// common are the inputs of every tool.
type common struct {
	tab     string
	timeout time.Duration
	answer  dialogAnswer
	leaving bool // the call leaves the page: a crashed one need not be loaded again first
}

// on runs f on a tab: finds it, waits for its lock, answers a dialog that is
// held, ends f in time, frees a hung page, and fills the reply.
func (b *Browser) on(ctx context.Context, c common, reply *Reply, f func(*op) error) error {
	err := b.run(ctx, c, reply, f)
	reply.Events = append(reply.Events, b.log.take()...) // a call on two tabs replies once
	return err
}

func (b *Browser) run(ctx context.Context, c common, reply *Reply, f func(*op) error) error {
	base := ctx
	ctx, cancel := within(ctx, c.timeout)
	defer cancel()
	t, err := b.takeTab(ctx, base, c)
	if err != nil {
		return err
	}
	held := true
	defer func() {
		if held {
			t.release()
		}
	}()
	reply.Tab = t.id
	if err := t.usable(ctx); err != nil {
		return err
	}
	opctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	o := &op{b: b, t: t, base: base, ctx: opctx}
	if err := t.begin(stop, c.answer); err != nil {
		return err
	}
	defer t.finish()
	err = t.answerHeld(ctx, c.answer)
	if err == nil && !c.leaving {
		err = o.revive()
	}
	if err == nil {
		err = f(o)
	}
	err = o.verdict(err)
	if isReason(err, "timeout") {
		if freed := o.free(); freed != nil {
			err = freed
			if isReason(err, "tab_hung") && freed.Details["still"] == true {
				held = !b.spawn(func() { defer t.release(); o.rebuild() })
			}
		}
	}
	o.fill(reply, !isReason(err, "tab_hung") && !isReason(err, "timeout"))
	return err
}

// takeTab gets a tab for one call: the one it names, the current one, or a new
// one when none is open.
func (b *Browser) takeTab(ctx, base context.Context, c common) (*Tab, error) {
	for {
		if _, err := b.connect(ctx); err != nil {
			return nil, err
		}
		t, err := b.pick(c.tab)
		if err != nil && c.tab == "" { // the last tab was closed
			id, err := b.newTab(base, c.timeout)
			if err != nil {
				return nil, err
			}
			if t, err = b.pick(id); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		if err := t.take(ctx); err != nil {
			return nil, err
		}
		t.mu.Lock()
		ended := t.end != nil
		t.mu.Unlock()
		if !ended || c.tab != "" || !c.leaving {
			return t, nil
		}
		// It was lost while the call waited for it. Whoever wants another page
		// anyway need not hear of it.
		t.release()
		if ctx.Err() != nil {
			return nil, word(context.Cause(ctx), "the call")
		}
		b.forget(t.target)
	}
}

// within bounds a call by its timeout and keeps a reserve of the caller's
// deadline.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	at := time.Now().Add(d)
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if latest := end.Add(-min(reserve, left/3)); latest.Before(at) {
			at = latest
		}
	}
	return context.WithDeadline(ctx, at)
}

// pick returns the tab of that id, or the current one.
func (b *Browser) pick(id string) (*Tab, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id == "" {
		if b.current == nil {
			return nil, fail("tab_closed", "Open a page with browser_navigate and new_tab.", "no tab is open")
		}
		return b.current, nil
	}
	var open []string
	for _, t := range b.tabs {
		if t.id == id {
			return t, nil
		}
		open = append(open, t.id)
	}
	return nil, fail("tab_closed", "Leave tab out for the current one.", "there is no tab %s; open: %v", quote(cut(cleanText(id), 20)), open).with("tabs", open)
}

// begin makes the call the one that events interrupt.
func (t *Tab) begin(stop context.CancelCauseFunc, a dialogAnswer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end != nil {
		return t.end
	}
	t.interrupt, t.answer, t.opened, t.chooser = stop, a, nil, nil
	return nil
}

func (t *Tab) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt, t.answer = nil, dialogAnswer{}
}

// call sends one command to the page.
func (o *op) call(method string, params, res any) error {
	err := o.t.sess.Call(o.ctx, method, params, res)
	if err == nil {
		return nil
	}
	return o.worded(err, method)
}

// worded gives an error of the protocol its type: what ended the call wins
// over what the command says.
func (o *op) worded(err error, what string) error {
	if cause := context.Cause(o.ctx); cause != nil && typedError(cause) {
		return cause
	}
	if errors.Is(err, chromedp.ErrTargetDetached) {
		return fail("tab_closed", "Take another tab, or open a page with browser_navigate.", "tab %s was closed", o.t.id)
	}
	if o.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return fail("browser_gone", "Call again: a new browser starts by itself; pages must be opened anew.", "the browser ended while the call ran").because(err)
	}
	return word(err, what)
}

// verdict words the error of a whole call: a wait that the deadline ended may
// come as a bare context error.
func (o *op) verdict(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(o.ctx); cause != nil && typedError(cause) && !isStep(err) {
		return cause
	}
	return word(err, "the call")
}

// isStep tells whether the error carries more than its cause.
func isStep(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Details["steps_done"] != nil
}

// sleep waits, at most to the deadline.
func (o *op) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}

// fill writes where the tab is now. It asks the browser, not the page, so it
// works while a dialog is open; only a page that answers is asked what it printed.
func (o *op) fill(r *Reply, answers bool) {
	t := o.t
	t.mu.Lock()
	silent := t.dialog != nil || t.crashed || t.end != nil
	t.mu.Unlock()
	if !silent && answers {
		t.fetchConsole(context.WithoutCancel(o.base))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.base), 500*time.Millisecond)
	defer cancel()
	info, err := cdp.Call(ctx, t.conn.cdp, target.GetTargetInfo, target.GetTargetInfoParams{TargetID: t.target})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && info.TargetInfo != nil {
		t.title = cut(cleanText(info.TargetInfo.Title), 200)
	}
	r.Tab, r.Title, r.URL, r.Loading = t.id, cut(t.title, 100), cut(cleanText(t.url), maxURL), o.open
	if d := t.docs[t.loader]; d != nil {
		r.Status = d.status
	}
}

// StatusLine is the first line of every text reply.
func (r Reply) StatusLine() string {
	if r.Tab == "" {
		return "no tab"
	}
	s := r.Tab + " " + quote(r.Title) + " " + r.URL
	if r.Status != 0 {
		s += fmt.Sprintf(" %d", r.Status)
	}
	if r.Loading != "" {
		s += " (still loading: " + r.Loading + ")"
	}
	for _, e := range r.Events {
		s += "\n! " + e.Line()
	}
	return s
}

// Line is an event as one line of text.
func (e Event) Line() string {
	s := e.Kind
	if e.Tab != "" {
		s += " " + e.Tab
	}
	return s + ": " + e.Text
}
