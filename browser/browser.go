package browser

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

const (
	startTimeout = 20 * time.Second // gVisor needs three
	maxTabs      = 12
	killTimeout  = 5 * time.Second
)

// Browser is the one browser of a session. Its methods may be called
// concurrently; calls on one tab wait for each other.
type Browser struct {
	host      Host
	opts      Options
	log       eventLog
	downloads downloads

	starting chan struct{} // held while Chromium starts or is closed

	mu      sync.Mutex
	conn    *connection // nil: not started, or lost
	closed  bool
	tabs    []*Tab // in the order of opening
	current *Tab
	nextTab int
	saved   int // number of the next saved file

	work sync.WaitGroup // every goroutine of ours
}

// connection is one run of Chromium.
type connection struct {
	pipe    *pipe
	wire    *guard
	cdp     *chromedp.Browser
	ctx     context.Context // of chromedp; parent of the tabs' contexts
	stop    func()
	targets chan any // target events, for the goroutine that may send commands
	version string
	done    chan struct{} // closed when the connection was cleaned up
}

// New returns a browser that is not started yet.
func New(host Host, opts Options) *Browser {
	b := &Browser{host: host, opts: opts.fill(), starting: make(chan struct{}, 1)}
	b.downloads.b = b
	return b
}

// Close ends Chromium and waits for all goroutines. The browser cannot be
// used afterwards. Cookies are written when ctx leaves time for it.
func (b *Browser) Close(ctx context.Context) error {
	select {
	case b.starting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.starting }()
	b.mu.Lock()
	b.closed = true
	c := b.conn
	b.mu.Unlock()
	if c != nil {
		// Asked this way Chromium writes its profile and ends the pipe itself.
		// chromedp keeps the command to its own contexts, so it is written past it.
		if c.wire.Write(ctx, &cdproto.Message{ID: 1 << 30, Method: "Browser.close"}) == nil {
			select {
			case <-c.cdp.LostConnection:
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
		}
		c.pipe.Close()
		<-c.done
	}
	b.work.Wait()
	return nil
}

// spawn starts a goroutine that Close waits for; after Close it does nothing.
func (b *Browser) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.work.Go(f)
	return true
}

// connect returns the running Chromium and starts it when there is none.
func (b *Browser) connect(ctx context.Context) (*connection, error) {
	select {
	case b.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, word(context.Cause(ctx), "starting the browser")
	}
	defer func() { <-b.starting }()
	b.mu.Lock()
	c, closed, again := b.conn, b.closed, b.nextTab > 0
	b.mu.Unlock()
	if closed {
		return nil, fail("browser_gone", "Open a new session.", "the session's browser is closed")
	}
	if c != nil {
		select {
		case <-c.cdp.LostConnection: // and not cleaned up yet
			<-c.done
		default:
			return c, nil
		}
	}
	c, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	if again {
		b.log.add(Event{Kind: "restarted", Text: "browser_restarted: the browser was lost and a new one was started; its tabs and what was typed in them are gone, cookies are kept"})
	}
	return c, nil
}

func (b *Browser) start(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	proc, err := b.host.Launch(ctx, b.opts.argv(), b.opts.env())
	if err != nil {
		if typedError(err) {
			return nil, err
		}
		return nil, fail("browser_gone", "Try again; if it stays, look at session_status.", "Chromium could not be started").because(err)
	}
	life, stop := context.WithCancel(context.Background())
	c := &connection{pipe: &pipe{Process: proc, limit: maxMessage}, targets: make(chan any, 256), done: make(chan struct{})}
	c.wire = newGuard(chromedp.NewPipeConn(c.pipe, c.pipe), life.Done())
	c.cdp, _ = chromedp.NewBrowserTransport(life, c.wire,
		chromedp.WithBrowserErrorf(b.opts.Logf), chromedp.WithBrowserLogf(b.opts.Logf))
	alloc, stopAlloc := chromedp.NewAllocatorContext(life, attacher{c.cdp})
	tabs, stopTabs := chromedp.NewContext(alloc)
	c.ctx = tabs
	// The process goes first: then the contexts need not close tab by tab.
	c.stop = func() { c.pipe.Close(); stop(); stopTabs(); stopAlloc() }

	if !b.spawn(func() { b.serve(c) }) {
		c.stop()
		return nil, fail("browser_gone", "Open a new session.", "the session's browser is closed")
	}
	if err := b.handshake(ctx, c); err != nil {
		c.pipe.Close()
		<-c.done
		stderr := proc.Stderr()
		if strings.Contains(stderr, noBrowserMark) {
			return nil, lackChromium(stderr)
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, word(ctx.Err(), "starting the browser")
		}
		e := fail("browser_gone", "Try again; if it stays, the image's Chromium does not run here: see pinfold doctor.", "Chromium did not come up").because(err)
		return nil, e.with("stderr", cut(cleanText(tail(stderr, 600)), 600))
	}
	return c, nil
}

// handshake makes the browser ready: who it is, its targets, its downloads,
// its first tab.
func (b *Browser) handshake(ctx context.Context, c *connection) error {
	v, err := cdp.Call(ctx, c.cdp, cdpbrowser.GetVersion, cdp.Empty{})
	if err != nil {
		return err
	}
	c.version = v.Product
	// The first call on the context binds it, so no deadline here; it does not
	// touch the wire.
	if err := chromedp.ListenBrowser(c.ctx, b.safely(func(ev any) { b.hear(c, ev) })); err != nil {
		return err
	}
	yes := true
	if _, err := cdp.Call(ctx, c.cdp, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllowAndName, DownloadPath: b.opts.Home + "/downloads", EventsEnabled: &yes,
	}); err != nil {
		return err
	}
	b.mu.Lock()
	b.conn = c
	b.mu.Unlock()
	if _, err := cdp.Call(ctx, c.cdp, target.SetDiscoverTargets, target.SetDiscoverTargetsParams{Discover: true}); err != nil {
		return err
	}
	if res, err := cdp.Call(ctx, c.cdp, target.GetTargets, target.GetTargetsParams{}); err != nil {
		return err
	} else if !hasPage(res.TargetInfos) {
		if _, err := b.open(ctx, c); err != nil {
			return err
		}
	}
	t, err := b.firstTab(ctx, c)
	if err != nil {
		return err
	}
	return t.usable(ctx)
}

func hasPage(infos []*target.Info) bool {
	for _, i := range infos {
		if i.Type == "page" {
			return true
		}
	}
	return false
}

// hear runs on the goroutine that reads the pipe: it must not block.
func (b *Browser) hear(c *connection, ev any) {
	switch ev := ev.(type) {
	case *target.EventTargetCreated, *target.EventTargetDestroyed, *target.EventTargetCrashed:
		select {
		case c.targets <- ev:
		default:
			b.opts.Logf("browser: a target event was dropped, the queue is full")
		}
	case *target.EventTargetInfoChanged:
		if t := b.byTarget(ev.TargetInfo.TargetID); t != nil {
			t.renamed(ev.TargetInfo.Title)
		}
	case *cdpbrowser.EventDownloadWillBegin:
		b.downloads.begin(ev)
	case *cdpbrowser.EventDownloadProgress:
		b.downloads.progress(ev)
	}
}

// serve owns a connection: it follows target events until the pipe ends and
// then cleans up.
func (b *Browser) serve(c *connection) {
	defer close(c.done)
	for {
		select {
		case ev := <-c.targets:
			b.target(c, ev)
		case <-c.cdp.LostConnection:
			b.drop(c)
			return
		}
	}
}

// drop forgets a connection that ended.
func (b *Browser) drop(c *connection) {
	gone := fail("browser_gone", "Call again: a new browser starts by itself; pages must be opened anew.", "the browser ended while the call ran")
	b.mu.Lock()
	tabs := b.tabs
	if b.conn == c {
		b.conn, b.tabs, b.current = nil, nil, nil
	}
	b.mu.Unlock()
	for _, t := range tabs {
		if t.conn == c {
			t.gone(gone)
		}
	}
	c.stop()
	<-c.wire.ended
	for _, t := range tabs {
		t.cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := b.host.Kill(ctx); err != nil {
		b.opts.Logf("browser: ending the browser's processes: %v", err)
	}
	b.downloads.lost()
}

// target follows one target event; it may send commands.
func (b *Browser) target(c *connection, ev any) {
	switch ev := ev.(type) {
	case *target.EventTargetCreated:
		if i := ev.TargetInfo; i != nil && i.Type == "page" && i.Subtype == "" {
			b.adopt(c, i)
		}
	case *target.EventTargetDestroyed:
		b.forget(ev.TargetID)
	case *target.EventTargetCrashed:
		if t := b.byTarget(ev.TargetID); t != nil {
			t.crash(ev.Status)
		}
	}
}

// adopt makes a tab of a page target.
func (b *Browser) adopt(c *connection, info *target.Info) {
	b.mu.Lock()
	if b.conn != c || b.closed {
		b.mu.Unlock()
		return
	}
	for _, t := range b.tabs {
		if t.target == info.TargetID {
			b.mu.Unlock()
			return
		}
	}
	if len(b.tabs) >= maxTabs {
		b.mu.Unlock()
		b.log.add(Event{Kind: "tab_closed", Text: "too_many_tabs: a new tab was closed at once, 12 are open: " + shortURL(cleanText(info.URL), "")})
		b.spawn(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, _ = cdp.Call(ctx, c.cdp, target.CloseTarget, target.CloseTargetParams{TargetID: info.TargetID})
		})
		return
	}
	b.nextTab++
	t := newTab(b, c, b.nextTab, info)
	var opener *Tab
	for _, o := range b.tabs {
		if info.OpenerID != "" && o.target == info.OpenerID {
			opener = o
		}
	}
	t.opener = opener
	b.tabs = append(b.tabs, t)
	if b.current == nil {
		b.current = t
	}
	b.mu.Unlock()
	if opener != nil {
		b.log.add(Event{Kind: "tab_opened", Tab: t.id, Text: t.id + " was opened by " + opener.id})
		opener.openedTab(t)
	}
	b.spawn(t.attach)
}

// forget ends a tab whose target is gone. The current tab falls back to the
// opener.
func (b *Browser) forget(id target.ID) {
	b.mu.Lock()
	var t *Tab
	for i, o := range b.tabs {
		if o.target == id {
			t = o
			b.tabs = append(b.tabs[:i:i], b.tabs[i+1:]...)
			break
		}
	}
	if t == nil {
		b.mu.Unlock()
		return
	}
	back := ""
	if b.current == t {
		b.current = nil
		for _, o := range b.tabs {
			if b.current == nil || o == t.opener {
				b.current = o
			}
		}
		if b.current != nil {
			back = "; back in " + b.current.id
		}
	}
	b.mu.Unlock()
	t.gone(fail("tab_closed", "Take another tab, or open a page with browser_navigate.", "tab %s is closed", t.id))
	b.log.add(Event{Kind: "tab_closed", Tab: t.id, Text: t.id + " was closed" + back})
	b.spawn(t.cancel)
}

func (b *Browser) byTarget(id target.ID) *Tab {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tabs {
		if t.target == id {
			return t
		}
	}
	return nil
}

// open makes a new tab and returns its target.
func (b *Browser) open(ctx context.Context, c *connection) (target.ID, error) {
	window := true // in a window of its own a tab is visible and gets animation frames
	res, err := cdp.Call(ctx, c.cdp, target.CreateTarget, target.CreateTargetParams{URL: "about:blank", NewWindow: &window})
	return res.TargetID, err
}

// firstTab waits until the browser has a tab.
func (b *Browser) firstTab(ctx context.Context, c *connection) (*Tab, error) {
	return b.awaitTab(ctx, c, func(*Tab) bool { return true })
}

// awaitTab waits until a tab that fits is known.
func (b *Browser) awaitTab(ctx context.Context, c *connection, fits func(*Tab) bool) (*Tab, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		for _, t := range b.tabs {
			if t.conn == c && fits(t) {
				b.mu.Unlock()
				return t, nil
			}
		}
		b.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, fail("browser_gone", "Call again: a new browser starts by itself.", "the browser ended")
		}
	}
}

// TabInfo describes one tab for a status.
type TabInfo struct {
	ID      string `json:"id"`
	Current bool   `json:"current,omitempty"`
	Title   string `json:"title,omitempty"`
	URL     string `json:"url,omitempty"`
	State   string `json:"state,omitempty"` // dialog, crashed, loading
}

// Tabs lists the open tabs. It neither starts the browser nor waits for it.
func (b *Browser) Tabs() []TabInfo {
	b.mu.Lock()
	tabs, current := append([]*Tab(nil), b.tabs...), b.current
	b.mu.Unlock()
	out := make([]TabInfo, 0, len(tabs))
	for _, t := range tabs {
		i := t.info()
		i.Current = t == current
		out = append(out, i)
	}
	return out
}

// Running tells whether Chromium runs now.
func (b *Browser) Running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn != nil
}

// token is new for each reply, so that a page cannot know it.
func token() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
