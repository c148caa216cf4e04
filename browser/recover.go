package browser

import (
	"context"
	"errors"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
)

// Hung pages. While a script loops, every command on the tab waits. Measured:
// Runtime.terminateExecution frees it in 2 ms with the document intact, but
// only when no navigation was tried first.

// responds asks the page for a trifle.
func (t *Tab) responds(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return t.sess.Call(ctx, "Runtime.evaluate", map[string]any{"expression": "1", "returnByValue": true}, nil) == nil
}

// free looks whether a call that ran out of time met a hung page and frees it.
// It returns nil when the page was not hung.
func (o *op) free() *Error {
	ctx := context.WithoutCancel(o.base)
	t := o.t
	t.mu.Lock()
	busy := t.dialog != nil || t.crashed || t.end != nil
	t.mu.Unlock()
	if busy || t.responds(ctx, probeAfter) {
		return nil
	}
	stop, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err := t.sess.Call(stop, "Runtime.terminateExecution", nil, nil)
	if err == nil && t.responds(ctx, probeAfter) {
		t.b.log.add(Event{Kind: "recovered", Tab: t.id, Text: "tab_hung: a script that did not end was stopped; the page stays"})
		return fail("tab_hung", "The page works again; its script loops, so do not start it again.", "the page in %s did not answer: a script looped and was stopped", t.id).with("recovered", "script stopped")
	}
	return fail("tab_hung", "Do not go on in this page: open another one with browser_navigate, or with new_tab. Its renderer is ended; loaded again it may hang again.", "the page in %s does not answer, not even to being stopped", t.id).with("still", true)
}

// rebuild brings a tab back whose script could not be stopped: it crashes the
// renderer and loads the last address; the holder of the lock calls it.
func (o *op) rebuild() {
	t := o.t
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.base), 5*time.Second)
	defer cancel()
	kill, stop := context.WithTimeout(ctx, time.Second)
	_ = t.sess.Call(kill, "Page.crash", nil, nil) // itself waits for its deadline
	stop()
	how := "the renderer was ended"
	t.mu.Lock()
	t.crashed = true
	t.mu.Unlock()
	if err := t.reload(ctx); err != nil {
		how = "the tab could not be brought back and is closed"
		t.giveUp()
	}
	t.b.log.add(Event{Kind: "recovered", Tab: t.id, Text: "tab_hung: " + how})
}

// giveUp closes a tab that cannot be used any more. Calls that name no tab go
// on in another one at once; a browser that does not even close it is replaced.
func (t *Tab) giveUp() {
	t.gone(fail("tab_closed", openAnother, "tab %s did not answer any more and was closed", t.id))
	t.b.forget(t.target)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, err := cdp.Call(ctx, t.conn.cdp, target.CloseTarget, target.CloseTargetParams{TargetID: t.target})
	if errors.Is(err, context.DeadlineExceeded) {
		t.b.replace(t.conn, "a tab that hung could not be closed")
	}
}

const (
	openAnother  = "Open the page, or another one, with browser_navigate and new_tab."
	closeTimeout = 3 * time.Second
)

// replace ends a browser that does not do its work any more: the last resort,
// so that no page can take the browser away for good. The next call starts a
// new one.
func (b *Browser) replace(c *connection, why string) {
	b.mu.Lock()
	current := b.conn == c
	b.mu.Unlock()
	if !current || c.life.Err() != nil {
		return
	}
	b.log.add(Event{Kind: "recovered", Text: "the browser is ended: " + why})
	c.abandon()
}

// unopened gives the error of a tab that could not be opened. The browser is
// replaced when it had time enough, or does not answer at all.
func (b *Browser) unopened(ctx context.Context, c *connection, since time.Time, err error) error {
	var typed *Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &typed) && typed.Reason == "timeout"
	if !late || ctx.Err() != nil {
		return word(err, "opening a tab")
	}
	if time.Since(since) < b.patience {
		ask, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := cdp.Call(ask, c.cdp, target.GetTargets, target.GetTargetsParams{}); err == nil {
			return fail("timeout", "Raise timeout_ms.", "opening a tab took too long").because(err)
		}
	}
	b.replace(c, "it did not open a tab in time")
	return fail("browser_gone", "Call again: a new browser starts by itself; pages must be opened anew.", "the browser did not open a tab in time and was ended").because(err)
}

// reload brings a crashed tab back by loading its last address.
func (t *Tab) reload(ctx context.Context) error {
	t.mu.Lock()
	url, commits := t.url, t.commits
	t.mu.Unlock()
	if url == "" {
		url = "about:blank"
	}
	if err := t.sess.Call(ctx, "Page.navigate", map[string]any{"url": url}, nil); err != nil {
		return err
	}
	if err := t.until(ctx, func() bool { return t.commits > commits }); err != nil {
		return err
	}
	t.mu.Lock()
	t.crashed = false
	t.mu.Unlock()
	return nil
}

// revive loads the page of a crashed tab again, once, and says so.
func (o *op) revive() error {
	t := o.t
	t.mu.Lock()
	crashed := t.crashed
	t.mu.Unlock()
	if !crashed {
		return nil
	}
	ctx, cancel := context.WithTimeout(o.ctx, 10*time.Second)
	defer cancel()
	if err := t.reload(ctx); err != nil {
		return o.worded(err, "loading the crashed page again")
	}
	t.b.log.add(Event{Kind: "recovered", Tab: t.id, Text: "the page that had crashed was loaded again; what was typed in it is gone"})
	return o.settle(settleNavigation)
}
