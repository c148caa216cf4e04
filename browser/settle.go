package browser

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
)

// Settling. After an act or a navigation the page gets a moment to change, but
// every wait has a cap and what is left open is said.
const (
	probeTime   = 120 * time.Millisecond // for a navigation or a request to begin
	quietTime   = 400 * time.Millisecond // without a new request
	settleCap   = 4 * time.Second
	loadCap     = 3 * time.Second
	longRequest = 2 * time.Second // an older one is a long poll
	frameCap    = 300 * time.Millisecond
)

type settleKind int

const (
	settleAct        settleKind = iota // something was done on a page
	settleNavigation                   // a document was committed
)

// mark is the state before an act, to tell what came of it.
type mark struct {
	loader                                       cdp.LoaderID
	commits, moves, starts, stops, begun, opened int
	downloads                                    int
	url                                          string
}

func (t *Tab) mark() mark {
	n := t.b.downloads.seq()
	t.mu.Lock()
	defer t.mu.Unlock()
	return mark{t.loader, t.commits, t.moves, t.starts, t.stops, t.begun, len(t.opened), n, t.url}
}

// settleAfter waits until the page is quiet after an act that began at m.
func (o *op) settleAfter(m mark) error {
	t := o.t
	began := func() bool { return t.starts > m.starts || t.commits > m.commits }
	if err := o.within(probeTime, began); err != nil {
		return err
	}
	t.mu.Lock()
	navigates, asks := began(), t.begun > m.begun
	t.mu.Unlock()
	switch {
	case navigates:
		// A download, or an answer without content, ends without a new document.
		if err := o.within(settleCap, func() bool { return t.commits > m.commits || t.stops > m.stops }); err != nil {
			return err
		}
		if t.b.downloads.seq() > m.downloads {
			return nil
		}
		return o.settle(settleNavigation)
	case asks:
		return o.settle(settleAct)
	}
	o.open = ""
	return o.frames()
}

// settle waits for the document, for its requests, and for two frames.
func (o *op) settle(kind settleKind) error {
	t := o.t
	o.open = ""
	if kind == settleNavigation {
		if err := o.within(settleCap, func() bool { d := t.docs[t.loader]; return d == nil || d.dom }); err != nil {
			return err
		}
		if err := o.within(loadCap, func() bool { d := t.docs[t.loader]; return d == nil || d.load }); err != nil {
			return err
		}
		if !o.scripted() {
			o.left()
			return o.frames()
		}
	}
	if err := o.quiet(); err != nil {
		return err
	}
	o.left()
	return o.frames()
}

// scripted tells whether the page can start requests by itself.
func (o *op) scripted() bool {
	ctx, cancel := context.WithTimeout(o.ctx, frameCap)
	defer cancel()
	var res struct {
		Result struct {
			Value bool `json:"value"`
		} `json:"result"`
	}
	err := o.t.sess.Call(ctx, "Runtime.evaluate", map[string]any{"expression": "!document.querySelector('script,iframe,frame,[onload]')", "returnByValue": true}, &res)
	return err != nil || !res.Result.Value
}

// quiet waits until no request that counts has been open or begun for a while.
func (o *op) quiet() error {
	t := o.t
	end := time.Now().Add(settleCap)
	last, since := -1, time.Now()
	for time.Now().Before(end) {
		t.mu.Lock()
		open, begun := len(t.pending(time.Now())), t.begun
		t.mu.Unlock()
		if open > 0 || begun != last {
			last, since = begun, time.Now()
		}
		if time.Since(since) >= quietTime {
			return nil
		}
		if err := o.sleep(20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pending are the open requests that a settled page would not have; mu is held.
// Streams, media, pictures and long polls do not count.
func (t *Tab) pending(now time.Time) []*request {
	var out []*request
	for _, r := range t.requests {
		if awaited(r.kind) && now.Sub(r.start) < longRequest {
			out = append(out, r)
		}
	}
	return out
}

// left notes what is still open.
func (o *op) left() {
	t := o.t
	t.mu.Lock()
	defer t.mu.Unlock()
	n, first := 0, ""
	for _, r := range t.requests {
		switch r.kind {
		case "EventSource", "WebSocket", "Media", "Ping":
			continue
		}
		n++
		if first == "" || r.url < first {
			first = r.url
		}
	}
	switch {
	case n == 1:
		o.open = "1 request open: " + cut(shortURL(first, t.url), 80)
	case n > 1:
		o.open = fmt.Sprintf("%d requests open, one is %s", n, cut(shortURL(first, t.url), 80))
	case t.docs[t.loader] != nil && !t.docs[t.loader].dom:
		o.open = "the document is still being read"
	}
}

// frames waits for two animation frames, so that what scripts did is laid out.
func (o *op) frames() error {
	ctx, cancel := context.WithTimeout(o.ctx, frameCap)
	defer cancel()
	err := o.t.sess.Call(ctx, "Runtime.evaluate", map[string]any{
		"expression":   "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
		"awaitPromise": true, "returnByValue": true}, nil)
	if err != nil && o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return nil // a hidden page gets no frames, a new document drops the promise: both are no failure
}

// within waits for a condition for at most d; running out of d is no error.
func (o *op) within(d time.Duration, cond func() bool) error {
	ctx, cancel := context.WithTimeout(o.ctx, d)
	defer cancel()
	if o.t.until(ctx, cond) != nil && o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return nil
}
