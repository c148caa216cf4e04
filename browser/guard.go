package browser

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"
)

// guard stands between the pipe and chromedp. chromedp trusts the browser: a
// reply without its root node, or an event without its frame, is a nil pointer
// in one of its goroutines and would end our whole process. Chromium is
// hostile here, so what chromedp would follow blindly is checked or dropped
// first. Our own decoding does not need the guard.
type guard struct {
	*chromedp.PipeConn
	queue chan *cdproto.Message
	ended chan struct{} // closed when nothing is written any more

	mu    sync.Mutex
	asked map[int64]string // commands whose reply chromedp itself reads
}

// emptyDocument is the answer chromedp gets for its own walk of the DOM, which
// nothing here uses.
var emptyDocument = []byte(`{"root":{"nodeId":1,"backendNodeId":1,"nodeType":9,"nodeName":"#document","localName":"","nodeValue":"","childNodeCount":0}}`)

var errBusy = errors.New("the browser does not read its commands")

// newGuard starts the goroutine that writes. chromedp writes on the goroutine
// that also hands out what was read: a browser that sends without reading
// would stop both for good, so writing has a queue of its own. It ends when
// stop is closed; a write that blocks ends with the pipe.
func newGuard(conn *chromedp.PipeConn, stop <-chan struct{}) *guard {
	g := &guard{PipeConn: conn, queue: make(chan *cdproto.Message, 256), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		for {
			select {
			case m := <-g.queue:
				if g.PipeConn.Write(context.Background(), m) != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return g
}

// Write notes the commands whose replies are checked.
func (g *guard) Write(_ context.Context, m *cdproto.Message) error {
	switch m.Method {
	case "DOM.getDocument", "Page.getFrameTree", "Runtime.evaluate":
		g.mu.Lock()
		if g.asked == nil {
			g.asked = map[int64]string{}
		}
		if len(g.asked) > 4096 { // replies that never came
			clear(g.asked)
		}
		g.asked[m.ID] = string(m.Method)
		g.mu.Unlock()
	}
	select {
	case g.queue <- m:
		return nil
	default:
		return errBusy
	}
}

// Read passes on the next message that is safe to follow.
func (g *guard) Read(ctx context.Context, m *cdproto.Message) error {
	for {
		*m = cdproto.Message{}
		if err := g.PipeConn.Read(ctx, m); err != nil {
			return err
		}
		if m.Method != "" && m.ID == 0 {
			if g.event(m) {
				return nil
			}
			continue
		}
		if m.ID != 0 {
			m.Method = ""
			g.reply(m)
		}
		return nil
	}
}

// event tells whether an event may pass.
func (g *guard) event(m *cdproto.Message) bool {
	switch m.Method.Domain() {
	case "DOM", "CSS": // not asked for
		return false
	}
	switch m.Method {
	case "Page.frameNavigated", "Page.documentOpened":
		var e struct {
			Frame *struct {
				ID string `json:"id"`
			} `json:"frame"`
		}
		return json.Unmarshal(m.Params, &e) == nil && e.Frame != nil && e.Frame.ID != ""
	case "Runtime.executionContextCreated":
		var e struct {
			Context *struct{} `json:"context"`
		}
		return json.Unmarshal(m.Params, &e) == nil && e.Context != nil
	}
	return true
}

// reply makes a reply safe to read: it becomes an error when it lacks what
// must be there.
func (g *guard) reply(m *cdproto.Message) {
	g.mu.Lock()
	method := g.asked[m.ID]
	delete(g.asked, m.ID)
	g.mu.Unlock()
	if method == "" || m.Error != nil {
		return
	}
	ok := true
	switch method {
	case "DOM.getDocument":
		m.Result = emptyDocument
	case "Page.getFrameTree":
		var r struct {
			Tree *struct {
				Frame *struct {
					ID string `json:"id"`
				} `json:"frame"`
			} `json:"frameTree"`
		}
		ok = json.Unmarshal(m.Result, &r) == nil && r.Tree != nil && r.Tree.Frame != nil
	case "Runtime.evaluate":
		var r struct {
			Result *struct{} `json:"result"`
		}
		ok = json.Unmarshal(m.Result, &r) == nil && r.Result != nil
	}
	if !ok {
		m.Result, m.Error = nil, &cdproto.Error{Code: -32603, Message: "the browser's answer to " + method + " makes no sense"}
	}
}

// safely runs a listener on one of chromedp's goroutines: an event that lacks
// what it must have is logged and forgotten.
func (b *Browser) safely(f func(ev any)) func(ev any) {
	return func(ev any) {
		defer func() {
			if r := recover(); r != nil {
				b.opts.Logf("browser: event %T dropped: %v", ev, r)
			}
		}()
		f(ev)
	}
}
