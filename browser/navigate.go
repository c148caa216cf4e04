package browser

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"
)

// NavigateRequest asks for a page.
type NavigateRequest struct {
	URL        string
	Go         string // back, forward, reload, stop; instead of URL
	Tab        string
	NewTab     bool
	Wait       string        // commit, dom, settled, load; default settled
	WaitServer time.Duration // on loopback: retry refused connections for so long
	Snapshot   string        // compact, full, none; default compact
	OnDialog   json.RawMessage
	Timeout    time.Duration
	MaxChars   int
}

// NavigateResult is where it led.
type NavigateResult struct {
	Reply
	Redirects []string
	Download  bool // the address was a download; see the events
	Snapshot  SnapshotText
}

// DefaultNavigateTimeout is used when a request has none.
const DefaultNavigateTimeout = 30 * time.Second

// Navigate opens an address, or goes through the history, and tells what is on
// the page. Errors: blocked_by_policy for schemes that are not served,
// navigation_failed with the network error, timeout.
func (b *Browser) Navigate(ctx context.Context, r NavigateRequest) (NavigateResult, error) {
	var out NavigateResult
	answer, err := parseAnswer(r.OnDialog)
	if err != nil {
		return out, err
	}
	var to *url.URL
	switch {
	case r.URL != "" && r.Go != "":
		return out, fail("unsupported_arg", "Give url or go, not both.", "url and go were both given")
	case r.URL != "":
		if to, err = parseURL(r.URL); err != nil {
			return out, err
		}
	case r.Go == "" && !r.NewTab:
		return out, fail("bad_value", "Give a url, or go.", "url: is required").with("field", "url")
	case r.Go != "" && r.NewTab:
		return out, fail("unsupported_arg", "A new tab has no history: give a url.", "go and new_tab were both given")
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultNavigateTimeout
	}
	c := common{tab: r.Tab, timeout: r.Timeout, answer: answer, leaving: r.Go != "reload"}
	if r.NewTab {
		if c.tab, err = b.newTab(ctx, r.Timeout); err != nil {
			return out, err
		}
	}
	err = b.on(ctx, c, &out.Reply, func(o *op) error {
		b.makeCurrent(o.t)
		if to == nil && r.Go == "" {
			return nil
		}
		var err error
		if to != nil {
			err = o.navigate(to, r, &out)
		} else {
			err = o.history(r)
		}
		if err != nil {
			return err
		}
		if out.Download || r.Snapshot == "none" || r.Go == "stop" && r.Snapshot == "" {
			return nil
		}
		mode := r.Snapshot
		if mode == "" {
			mode = "compact"
		}
		out.Snapshot, err = o.snapshot(snapOptions{mode: mode, max: r.MaxChars})
		return err
	})
	return out, err
}

func (b *Browser) makeCurrent(t *Tab) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = t
}

// newTab opens a tab and returns its id.
func (b *Browser) newTab(ctx context.Context, d time.Duration) (string, error) {
	base := ctx
	ctx, cancel := within(ctx, d)
	defer cancel()
	b.mu.Lock()
	fresh := b.conn == nil
	b.mu.Unlock()
	c, err := b.connect(ctx)
	if err != nil {
		return "", err
	}
	if fresh { // the tab that a new browser has will do
		return "", nil
	}
	b.mu.Lock()
	n := len(b.tabs)
	b.mu.Unlock()
	if n >= maxTabs {
		return "", fail("too_many_tabs", "Close a tab first, or go on in an open one.", "%d tabs are open, which is the most", n)
	}
	since := time.Now()
	ctx, stop := context.WithTimeout(ctx, b.patience)
	defer stop()
	id, err := b.open(ctx, c)
	if err != nil {
		return "", b.unopened(base, c, since, err)
	}
	t, err := b.awaitTab(ctx, c, func(t *Tab) bool { return t.target == id })
	if err == nil {
		err = t.usable(ctx)
	}
	if err != nil {
		return "", b.unopened(base, c, since, err)
	}
	return t.id, nil
}

// navigate loads one address.
func (o *op) navigate(to *url.URL, r NavigateRequest, out *NavigateResult) error {
	retry := time.Now().Add(r.WaitServer)
	tries := []string{to.String()}
	if loopback(to) {
		tries = append(tries, otherFamilies(to)...)
	}
	for {
		var last error
		for i, address := range tries {
			last = o.load(address, r.Wait, out)
			if !isRefused(last) {
				if last == nil && i > 0 {
					o.b.log.add(Event{Kind: "navigated", Tab: o.t.id, Text: "nothing listens at " + to.Host + "; its other loopback address answered"})
				}
				return last
			}
		}
		if !loopback(to) || !time.Now().Before(retry) {
			return o.refusedHint(last, to)
		}
		if err := o.sleep(150 * time.Millisecond); err != nil {
			return err
		}
	}
}

func isRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Details["net_error"] == "net::ERR_CONNECTION_REFUSED"
}

// load sends the page to an address and waits as asked.
func (o *op) load(address, wait string, out *NavigateResult) error {
	t := o.t
	m := t.mark()
	began := o.b.downloads.seq()
	var res struct {
		LoaderID   string `json:"loaderId"`
		ErrorText  string `json:"errorText"`
		IsDownload bool   `json:"isDownload"`
	}
	if err := o.call("Page.navigate", map[string]any{"url": address}, &res); err != nil {
		if isReason(err, "timeout") {
			stop, cancel := context.WithTimeout(context.WithoutCancel(o.base), 300*time.Millisecond)
			defer cancel()
			_ = t.sess.Call(stop, "Page.stopLoading", nil, nil)
			return fail("timeout", "The server accepts but does not answer; look at its log, or raise timeout_ms.", "%s did not answer in time", cut(address, maxURL))
		}
		var e *Error
		if errors.As(err, &e) && e.Reason == "protocol" {
			return fail("bad_value", "Check the address.", "%s: not a valid address", cut(cleanText(address), 200)).because(err)
		}
		return err
	}
	if res.IsDownload || (res.ErrorText == "net::ERR_ABORTED" && o.b.downloads.seq() > began) {
		out.Download = true
		o.b.downloads.awaitBegin(o.ctx, began)
		return o.awaitDownloads(began)
	}
	if res.ErrorText != "" {
		return navigationError(res.ErrorText, address)
	}
	if res.LoaderID == "" { // within the document
		return o.frames()
	}
	if err := t.until(o.ctx, func() bool { return string(t.loader) == res.LoaderID || t.commits > m.commits }); err != nil {
		return word(err, "committing the page")
	}
	t.mu.Lock()
	if d := t.docs[t.loader]; d != nil {
		for _, s := range d.redirects {
			out.Redirects = append(out.Redirects, cut(cleanText(s), maxURL))
		}
	}
	t.mu.Unlock()
	return o.arrive(wait)
}

// arrive waits for the committed document as asked.
func (o *op) arrive(wait string) error {
	t := o.t
	switch wait {
	case "commit":
		return nil
	case "dom":
		return word(t.until(o.ctx, func() bool { d := t.docs[t.loader]; return d != nil && d.dom }), "reading the document")
	case "load":
		return word(t.until(o.ctx, func() bool { d := t.docs[t.loader]; return d != nil && d.load }), "loading the page")
	}
	return o.settle(settleNavigation)
}

// history goes back, forward, reloads or stops.
func (o *op) history(r NavigateRequest) error {
	t := o.t
	m := t.mark()
	switch r.Go {
	case "stop":
		return o.call("Page.stopLoading", nil, nil)
	case "reload":
		if err := o.call("Page.reload", map[string]any{}, nil); err != nil {
			return err
		}
	case "back", "forward":
		var h struct {
			Current int `json:"currentIndex"`
			Entries []struct {
				ID  int    `json:"id"`
				URL string `json:"url"`
			} `json:"entries"`
		}
		if err := o.call("Page.getNavigationHistory", nil, &h); err != nil {
			return err
		}
		i := h.Current - 1
		if r.Go == "forward" {
			i = h.Current + 1
		}
		if i < 0 || i >= len(h.Entries) {
			return fail("not_found", "Give a url.", "there is no page to go %s to", r.Go)
		}
		if err := o.call("Page.navigateToHistoryEntry", map[string]any{"entryId": h.Entries[i].ID}, nil); err != nil {
			return err
		}
	default:
		return fail("bad_value", "Use back, forward, reload or stop.", "go: %s is not known", quote(cut(cleanText(r.Go), 20)))
	}
	if err := t.until(o.ctx, func() bool { return t.commits > m.commits || t.moves > m.moves }); err != nil {
		return word(err, "going "+r.Go)
	}
	return o.arrive(r.Wait)
}
