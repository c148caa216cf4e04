package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/chromedp/cdproto"
	jsonv2 "github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/chromedp"
)

// guard stands between the pipe and chromedp. chromedp trusts the browser: a
// reply without its root node, or an event without its frame, is a nil pointer
// in one of its goroutines and would end our whole process. Chromium is
// hostile here, so what chromedp would follow blindly is checked or dropped
// first. Our own decoding does not need the guard.
type guard struct {
	*chromedp.PipeConn
	in    *bufio.Reader
	queue chan *cdproto.Message
	ended chan struct{} // closed when nothing is written any more

	rates   map[string]*consoleRate // by session; of the goroutine that reads
	dropped atomic.Int64            // console events that were not decoded

	mu    sync.Mutex
	own   int64            // commands of the guard itself
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
func newGuard(p io.ReadWriteCloser, stop <-chan struct{}) *guard {
	g := &guard{PipeConn: chromedp.NewPipeConn(p, p), in: bufio.NewReaderSize(p, maxHead), queue: make(chan *cdproto.Message, 256), ended: make(chan struct{})}
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
	if instead := unsent[m.Method]; instead != "" {
		quiet := *m
		quiet.Method = instead
		m = &quiet
	}
	select {
	case g.queue <- m:
		return nil
	default:
		return errBusy
	}
}

// maxHead is the size up to which a message is looked at in place; a longer one
// is copied together, unless its head says that nobody wants it.
const maxHead = 256 << 10

// next returns the next message that is worth decoding; it is valid until the
// next call.
func (g *guard) next() ([]byte, error) {
	for {
		b, err := g.in.ReadSlice(0)
		method := methodOf(b)
		switch {
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) && len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case err == nil:
			b = b[:len(b)-1]
			if len(bytes.TrimSpace(b)) == 0 || unused(method) || printed(method) && !g.admit(sessionOf(b), b, len(b)) {
				continue
			}
			return b, nil
		case unused(method) || printed(method):
			size, end, quiet := len(b), []byte(nil), noise(b)
			for errors.Is(err, bufio.ErrBufferFull) {
				end = append(end[:0], b[len(b)-100:]...) // the session may be split
				b, err = g.in.ReadSlice(0)
				size += len(b)
			}
			if err == nil && printed(method) && (quiet || g.admit(sessionOf(append(end, b...)), nil, size)) {
				g.dropped.Add(1)
			}
		default:
			long := bytes.Clone(b)
			rest, err := g.in.ReadBytes(0)
			if err != nil {
				return nil, err
			}
			return append(long, rest[:len(rest)-1]...), nil
		}
	}
}

// Read passes on the next message that is safe to follow.
func (g *guard) Read(_ context.Context, m *cdproto.Message) error {
	for {
		b, err := g.next()
		if err != nil {
			return err
		}
		*m = cdproto.Message{}
		if err := jsonv2.Unmarshal(b, m, chromedp.DefaultUnmarshalOptions); err != nil {
			return err
		}
		if m.Method != "" && m.ID == 0 {
			if printed(string(m.Method)) && methodOf(b) == "" && !g.admit(string(m.SessionID), nil, len(b)) {
				continue
			}
			if g.event(m) {
				return nil
			}
			continue
		}
		if m.ID >= ownIDs {
			// One fetch is over: what it used up is not held against the next, which
			// may be another page's. Pages cannot make fetches.
			delete(g.rates, string(m.SessionID))
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
	if unused(string(m.Method)) { // written with another head than usual
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
