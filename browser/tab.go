package browser

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// Tab is one page with its history. Calls take it one at a time by lock; what
// its events change is under mu.
type Tab struct {
	b      *Browser
	conn   *connection
	id     string // t1, t2, …; never given again
	target target.ID
	opener *Tab

	ctx    context.Context // of chromedp; ending it closes the tab
	cancel func()
	sess   *chromedp.Target // set before ready is closed
	ready  chan struct{}    // closed when attached, or when that failed
	failed error            // why attaching failed; read after ready

	lock chan struct{} // one call at a time

	refs    refs       // owned by the holder of lock
	shown   *shown     // the last snapshot the caller saw; owned by the holder of lock
	mouse   [2]float64 // where the mouse is, in the viewport
	pressed int        // mask of buttons that a mouse step left down

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	state
}

// state is what events tell about a tab.
type state struct {
	title    string
	url      string
	main     cdp.FrameID
	loader   cdp.LoaderID
	commits  int // documents so far; same-document navigations do not count
	moves    int // same-document navigations so far
	starts   int // navigations begun so far
	stops    int // times that the main frame ended loading so far
	docs     map[cdp.LoaderID]*document
	requests map[network.RequestID]*request
	frames   map[cdp.FrameID]bool
	begun    int // document, script, xhr and fetch requests so far

	interrupt context.CancelCauseFunc // of the running call
	answer    dialogAnswer            // for dialogs of the running call
	dialog    *dialog                 // held open
	after     []func(context.Context) // to do once the dialog is answered
	crashed   bool
	end       *Error // why the tab is gone
	opened    []*Tab // by the running call
	chooser   *page.EventFileChooserOpened
	dragged   *input.DragData // of a drag that the page began
}

// document is what is known of one document of the main frame.
type document struct {
	status    int
	mime      string
	redirects []string
	dom, load bool
}

type request struct {
	url   string
	kind  network.ResourceType
	start time.Time
}

const (
	maxRequests = 1000
	maxDocs     = 40
	maxFrameIDs = 400
)

func newTab(b *Browser, c *connection, n int, info *target.Info) *Tab {
	t := &Tab{b: b, conn: c, id: fmt.Sprintf("t%d", n), target: info.TargetID, ready: make(chan struct{}),
		lock: make(chan struct{}, 1), changed: make(chan struct{})}
	t.refs.init()
	t.state = state{title: cleanText(info.Title), url: info.URL, main: cdp.FrameID(info.TargetID),
		docs: map[cdp.LoaderID]*document{}, requests: map[network.RequestID]*request{}, frames: map[cdp.FrameID]bool{}}
	t.ctx, t.cancel = chromedp.NewContext(c.ctx, chromedp.WithTargetID(info.TargetID), chromedp.WithListener(b.safely(t.hear)))
	return t
}

// attach binds the tab to its long-lived context. It can hang with the page,
// for example in a popup that loops, so nobody waits for it without a deadline.
func (t *Tab) attach() {
	defer close(t.ready)
	if err := chromedp.Do(t.ctx); err != nil {
		t.failed = fail("tab_closed", openAnother, "tab %s could not be attached", t.id).because(err)
		if t.ctx.Err() == nil {
			t.b.spawn(t.giveUp)
		}
		return
	}
	t.sess = chromedp.FromContext(t.ctx).Target
	// chromedp follows the DOM of the page with a command of its own at each new
	// document. A page that loops while it logs would fill its queue and stop
	// every tab, and we never ask for its nodes: off.
	for _, method := range []string{"CSS.disable", "DOM.disable"} {
		_ = t.sess.Call(t.ctx, method, nil, nil)
	}
	_ = t.sess.Call(t.ctx, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	var tree struct {
		FrameTree struct {
			Frame frameInfo `json:"frame"`
		} `json:"frameTree"`
	}
	if err := t.sess.Call(t.ctx, "Page.getFrameTree", nil, &tree); err == nil {
		t.mu.Lock()
		if t.loader == "" {
			t.main, t.loader, t.url = cdp.FrameID(tree.FrameTree.Frame.ID), cdp.LoaderID(tree.FrameTree.Frame.LoaderID), tree.FrameTree.Frame.URL
		}
		t.mu.Unlock()
	}
}

// usable waits until the tab is attached.
func (t *Tab) usable(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.failed
	case <-ctx.Done():
		return fail("timeout", "Open the page with browser_navigate and new_tab, or take another tab.", "tab %s did not answer in time", t.id).because(ctx.Err())
	case <-t.conn.done:
		return fail("browser_gone", "Call again: a new browser starts by itself.", "the browser ended")
	}
}

// take gets the tab for one call.
func (t *Tab) take(ctx context.Context) error {
	select {
	case t.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fail("timeout", "Wait for the other call, or work in another tab.", "tab %s is busy with another call", t.id).because(ctx.Err())
	}
}

func (t *Tab) release() { <-t.lock }

// notify wakes who waits for a change; mu is held.
func (t *Tab) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// until waits until cond holds; cond runs with mu held.
func (t *Tab) until(ctx context.Context, cond func() bool) error {
	for {
		t.mu.Lock()
		ok, ch := cond(), t.changed
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gone ends the tab and the call that runs on it.
func (t *Tab) gone(why *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil {
		t.end = why
	}
	t.stopCall(why)
	t.notify()
}

// stopCall ends the running call with a reason; mu is held.
func (t *Tab) stopCall(why error) {
	if t.interrupt != nil {
		t.interrupt(why)
	}
}

func (t *Tab) crash(status string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crashed || t.end != nil {
		return
	}
	t.crashed, t.dialog = true, nil
	clear(t.requests)
	t.stopCall(fail("tab_crashed", "Call again: the page is loaded anew. If it crashes again, open another page with browser_navigate.", "the page in tab %s crashed (%s)", t.id, cut(cleanText(status), 40)))
	t.b.log.add(Event{Kind: "crashed", Tab: t.id, Text: "the page in " + t.id + " crashed"})
	t.notify()
}

func (t *Tab) openedTab(n *Tab) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.opened) < maxTabs {
		t.opened = append(t.opened, n)
	}
	t.notify()
}

func (t *Tab) renamed(title string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.title = cut(cleanText(title), 200)
}

func (t *Tab) info() TabInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := TabInfo{ID: t.id, Title: t.title, URL: cut(cleanText(t.url), maxURL)}
	switch {
	case t.crashed:
		i.State = "crashed"
	case t.dialog != nil:
		i.State = "dialog"
	case t.docs[t.loader] != nil && !t.docs[t.loader].load:
		i.State = "loading"
	}
	return i
}
