package browser

import (
	"context"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
)

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
