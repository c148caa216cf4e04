package browser

import (
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// hear follows the events of a tab. It runs on the goroutine that reads the
// tab's messages: no commands, no blocking.
func (t *Tab) hear(ev any) {
	switch ev := ev.(type) {
	case *page.EventJavascriptDialogOpening:
		t.dialogOpening(ev)
		return
	case *inspector.EventTargetCrashed:
		t.crash("crashed")
		return
	case *runtime.EventConsoleAPICalled:
		if string(ev.Type) == "error" {
			t.b.log.count("console", t.id, consoleText(ev))
		}
		return
	case *runtime.EventExceptionThrown:
		if d := ev.ExceptionDetails; d != nil {
			text := d.Text
			if d.Exception != nil && d.Exception.Description != "" {
				text, _, _ = strings.Cut(d.Exception.Description, "\n")
			}
			t.b.log.count("console", t.id, text)
		}
		return
	case *log.EventEntryAdded:
		if e := ev.Entry; e != nil && string(e.Level) == "error" && string(e.Source) != "network" {
			t.b.log.count("console", t.id, e.Text)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch ev := ev.(type) {
	case *page.EventFrameNavigated:
		t.navigated(ev)
	case *page.EventNavigatedWithinDocument:
		if ev.FrameID == t.main {
			t.url = ev.URL
			t.moves++
		}
	case *page.EventFrameStartedNavigating:
		if ev.FrameID == t.main && !strings.Contains(strings.ToLower(string(ev.NavigationType)), "samedocument") {
			t.starts++
		}
	case *page.EventFrameStoppedLoading:
		if ev.FrameID == t.main {
			t.stops++
		}
	case *input.EventDragIntercepted:
		t.dragged = ev.Data
	case *page.EventFrameAttached:
		if len(t.frames) < maxFrameIDs {
			t.frames[ev.FrameID] = true
		}
	case *page.EventFrameDetached:
		delete(t.frames, ev.FrameID)
	case *page.EventLifecycleEvent:
		if ev.FrameID == t.main {
			t.lifecycle(ev)
		}
	case *page.EventJavascriptDialogClosed:
		t.dialog = nil
	case *page.EventFileChooserOpened:
		t.chooser = ev
	case *network.EventRequestWillBeSent:
		t.requested(ev)
	case *network.EventResponseReceived:
		t.responded(ev)
	case *network.EventLoadingFinished:
		delete(t.requests, ev.RequestID)
	case *network.EventLoadingFailed:
		if r := t.requests[ev.RequestID]; r != nil && !ev.Canceled && r.kind != network.ResourceTypeDocument && ev.ErrorText != "net::ERR_ABORTED" {
			t.b.log.count("requests", t.id, ev.ErrorText+" "+shortURL(r.url, t.url))
		}
		delete(t.requests, ev.RequestID)
	default:
		return // nothing that anyone waits for
	}
	t.notify()
}

func (t *Tab) navigated(ev *page.EventFrameNavigated) {
	f := ev.Frame
	if f.ParentID != "" {
		return
	}
	t.main, t.loader, t.url = f.ID, f.LoaderID, f.URL+f.URLFragment
	if f.UnreachableURL != "" {
		t.url = f.UnreachableURL
	}
	t.commits++
	t.crashed = false
	d := t.doc(f.LoaderID)
	d.mime = f.MimeType
	if ev.Type == page.NavigationTypeBackForwardCacheRestore {
		d.dom, d.load = true, true
	}
	// Requests of the old document may never be reported as ended, nor a document
	// that was still being read. What began after the new one belongs to it.
	loaded := t.requests[network.RequestID(f.LoaderID)]
	for id, r := range t.requests {
		switch {
		case r == loaded:
		case time.Since(r.start) > time.Second, r.kind == network.ResourceTypeDocument && loaded != nil && r.start.Before(loaded.start):
			delete(t.requests, id)
		}
	}
}

// doc returns the entry of a loader; mu is held.
func (t *Tab) doc(id cdp.LoaderID) *document {
	d := t.docs[id]
	if d == nil {
		if len(t.docs) >= maxDocs {
			for old := range t.docs {
				if old != t.loader {
					delete(t.docs, old)
				}
			}
		}
		d = &document{}
		t.docs[id] = d
	}
	return d
}

func (t *Tab) lifecycle(ev *page.EventLifecycleEvent) {
	switch ev.Name {
	case "init":
		d := t.doc(ev.LoaderID)
		d.dom, d.load = false, false
	case "DOMContentLoaded":
		t.doc(ev.LoaderID).dom = true
	case "load":
		d := t.doc(ev.LoaderID)
		d.dom, d.load = true, true
	}
}

func (t *Tab) requested(ev *network.EventRequestWillBeSent) {
	if ev.Request == nil {
		return
	}
	kind := ev.Type
	if kind == network.ResourceTypeDocument && ev.FrameID == t.main {
		d := t.doc(ev.LoaderID)
		if r := ev.RedirectResponse; r != nil && len(d.redirects) < 20 {
			d.redirects = append(d.redirects, fmt.Sprintf("%d %s", r.Status, r.URL))
		}
	}
	if awaited(kind) {
		t.begun++
	}
	if len(t.requests) < maxRequests {
		t.requests[ev.RequestID] = &request{url: ev.Request.URL, kind: kind, start: time.Now()}
	}
}

// awaited tells whether a page that still loads such a thing is not settled.
func awaited(k network.ResourceType) bool {
	switch k {
	case network.ResourceTypeDocument, network.ResourceTypeScript, network.ResourceTypeXHR, network.ResourceTypeFetch, network.ResourceTypeStylesheet:
		return true
	}
	return false
}

func (t *Tab) responded(ev *network.EventResponseReceived) {
	if ev.Response == nil {
		return
	}
	if ev.Type == network.ResourceTypeDocument && ev.FrameID == t.main {
		d := t.doc(ev.LoaderID)
		d.status, d.mime = int(ev.Response.Status), ev.Response.MimeType
		return
	}
	if r := t.requests[ev.RequestID]; r != nil {
		r.kind = ev.Type
		if strings.HasPrefix(ev.Response.MimeType, "text/event-stream") {
			r.kind = network.ResourceTypeEventSource
		}
	}
	if ev.Response.Status >= 400 {
		t.b.log.count("requests", t.id, fmt.Sprintf("%d %s", ev.Response.Status, shortURL(ev.Response.URL, t.url)))
	}
}

func consoleText(ev *runtime.EventConsoleAPICalled) string {
	var parts []string
	for _, a := range ev.Args {
		switch {
		case a.Description != "":
			first, _, _ := strings.Cut(a.Description, "\n")
			parts = append(parts, first)
		case len(a.Value) > 0:
			parts = append(parts, strings.Trim(cut(string(a.Value), 200), `"`))
		}
		if len(parts) == 4 {
			break
		}
	}
	return strings.Join(parts, " ")
}
