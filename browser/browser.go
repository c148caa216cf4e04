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
	patience  time.Duration // how long a tab may take to open before the browser is replaced
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
	life    context.Context // ends when the connection is given up
	cut     func()          // ends life
	stop    func()
	targets chan any // target events, for the goroutine that may send commands
	version string
	done    chan struct{} // closed when the connection was cleaned up
}

// New returns a browser that is not started yet.
func New(host Host, opts Options) *Browser {
	b := &Browser{host: host, opts: opts.fill(), patience: 10 * time.Second, starting: make(chan struct{}, 1)}
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
		c.abandon()
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
		case <-c.life.Done(): // given up
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
	c := &connection{pipe: &pipe{Process: proc, limit: maxMessage}, life: life, cut: stop, targets: make(chan any, 256), done: make(chan struct{})}
	c.wire = newGuard(c.pipe, life.Done())
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
		c.abandon()
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
		case <-c.life.Done():
			b.drop(c)
			return
		}
	}
}

// abandon ends a connection whether or not anything in it still moves; serve
// cleans up behind it. The process goes first: then no context closes its tab.
func (c *connection) abandon() {
	c.pipe.Close()
	c.cut()
}

// drop forgets a connection that ended.
func (b *Browser) drop(c *connection) {
	gone := fail("browser_gone", "Call again: a new browser starts by itself; pages must be opened anew.", "the browser ended while the call ran")
	b.mu.Lock()
	tabs := b.tabs
	if b.conn == c {
		b.tabs, b.current = nil, nil
	}
	b.mu.Unlock()
	// The connection stays in its place until all of it is gone: Kill takes every
	// process of the browser's user, and the next Chromium must not be among them.
	defer func() {
		b.mu.Lock()
		if b.conn == c {
			b.conn = nil
		}
		b.mu.Unlock()
	}()
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
