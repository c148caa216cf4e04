package browser

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
)

// downloads follows files that pages send. Chromium stores each under its GUID
// in its own folder; a finished one is moved into the workspace.
type downloads struct {
	b  *Browser
	mu sync.Mutex
	// open are those that are not in the workspace yet.
	open    map[string]*download
	begun   int
	changed chan struct{}
}

type download struct {
	seq      int
	guid     string
	name     string
	url      string
	tab      string
	received int64
	total    int64
}

const maxDownloads = 200

func (d *downloads) notify() {
	if d.changed != nil {
		close(d.changed)
	}
	d.changed = make(chan struct{})
}

// begin runs on the reader goroutine.
func (d *downloads) begin(ev *cdpbrowser.EventDownloadWillBegin) {
	tab := d.b.byFrame(ev.FrameID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]*download{}
	}
	if len(d.open) >= maxDownloads || !plainGUID(ev.GUID) {
		return
	}
	d.begun++
	d.open[ev.GUID] = &download{seq: d.begun, guid: ev.GUID, name: cleanName(ev.SuggestedFilename), url: ev.URL, tab: tab}
	d.notify()
}

// progress runs on the reader goroutine.
func (d *downloads) progress(ev *cdpbrowser.EventDownloadProgress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.open[ev.GUID]
	if x == nil {
		return
	}
	x.received, x.total = int64(ev.ReceivedBytes), int64(ev.TotalBytes)
	switch ev.State {
	case cdpbrowser.DownloadProgressStateCompleted:
		// The path is ours to know: what Chromium says about it is not believed.
		if !d.b.spawn(func() { d.keep(x) }) {
			delete(d.open, x.guid)
		}
	case cdpbrowser.DownloadProgressStateCanceled:
		d.end(x, Event{Kind: "download", Tab: x.tab, Text: fmt.Sprintf("download of %s failed or was cancelled after %s", quote(x.name), bytesText(x.received))})
	}
	d.notify()
}

// keep moves a finished download into the workspace.
func (d *downloads) keep(x *download) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	where, n, err := d.b.host.Import(ctx, path.Join(d.b.opts.Home, "downloads", x.guid), x.name)
	e := Event{Kind: "download", Tab: x.tab, Path: where, Bytes: n, Text: fmt.Sprintf("downloaded %s (%s, from %s); untrusted, not opened", where, bytesText(n), cut(shortURL(x.url, ""), 100))}
	if err != nil {
		d.b.opts.Logf("browser: importing a download: %v", err)
		e = Event{Kind: "download", Tab: x.tab, Text: fmt.Sprintf("download of %s finished but could not be moved into the workspace: %s", quote(x.name), cut(cleanText(plain(err)), 200))}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(x, e)
	d.notify()
}

// end closes the books on one; mu is held.
func (d *downloads) end(x *download, e Event) {
	delete(d.open, x.guid)
	d.b.log.add(e)
}

// lost drops what a lost browser left open.
func (d *downloads) lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.open)
	d.notify()
}

// seq counts the downloads that began so far.
func (d *downloads) seq() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun
}

// awaitBegin waits until a download that the browser promised is announced:
// the announcement may come after the answer to the navigation.
func (d *downloads) awaitBegin(ctx context.Context, seq int) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for d.seq() <= seq {
		_, ch := d.openSince(seq)
		if d.seq() > seq {
			return
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return
		}
	}
}

// openSince lists downloads that began after seq and are not kept yet.
func (d *downloads) openSince(seq int) (open []*download, ch chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.open {
		if x.seq > seq {
			c := *x
			open = append(open, &c)
		}
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return open, d.changed
}

// awaitDownloads waits until the downloads that began after seq are in the
// workspace. One that goes on when the call must end is reported as such.
func (o *op) awaitDownloads(seq int) error { return o.awaitDownloadsFor(seq, time.Hour) }

func (o *op) awaitDownloadsFor(seq int, d time.Duration) error {
	ctx, cancel := context.WithTimeout(o.ctx, d)
	defer cancel()
	for {
		open, ch := o.b.downloads.openSince(seq)
		if len(open) == 0 {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			for _, x := range open {
				o.b.log.add(Event{Kind: "download", Tab: x.tab, Text: fmt.Sprintf("download of %s goes on: %s so far; a later reply tells when it is done", quote(x.name), bytesText(x.received))})
			}
			if cause := context.Cause(o.ctx); cause != nil && typedError(cause) {
				return cause
			}
			return nil
		}
	}
}

func (b *Browser) byFrame(id cdp.FrameID) string {
	b.mu.Lock()
	tabs := append([]*Tab(nil), b.tabs...)
	b.mu.Unlock()
	for _, t := range tabs {
		t.mu.Lock()
		hit := t.main == id || t.frames[id]
		t.mu.Unlock()
		if hit {
			return t.id
		}
	}
	return ""
}

// plainGUID keeps a lying browser from naming another file.
func plainGUID(s string) bool {
	if len(s) < 8 || len(s) > 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdefABCDEF-") == ""
}

// maxName is what file systems take, less room for a counter.
const maxName = 200

// cleanName makes a file name of what a server suggests: no folders, no
// control or bidirectional characters, no leading dot or dash, at most 200 bytes with
// its extension kept.
func cleanName(s string) string {
	s = cleanText(s)
	if i := strings.LastIndexAny(s, `/\`); i >= 0 {
		s = s[i+1:]
	}
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`<>:"|?*`, r) || r == utf8.RuneError {
			return '_'
		}
		return r
	}, s)
	s = strings.TrimLeft(strings.TrimSpace(s), ".-~ ")
	s = strings.TrimRight(s, ". ")
	if s == "" {
		return "download"
	}
	if len(s) > maxName {
		ext := path.Ext(s)
		if len(ext) > 20 {
			ext = ""
		}
		stem := s[:maxName-len(ext)]
		for !utf8.ValidString(stem) {
			stem = stem[:len(stem)-1]
		}
		s = stem + ext
	}
	return s
}

// plain is the message of an error without its causes.
func plain(err error) string {
	if t, ok := err.(interface {
		Typed() (code, reason, message, hint string, retryable bool, details map[string]any)
	}); ok {
		_, _, m, _, _, _ := t.Typed()
		return m
	}
	return err.Error()
}
