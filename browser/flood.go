package browser

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/target"
)

// What a page prints to its console would come over the wire that every tab
// uses, and a page prints faster than Chromium itself can pass on. Measured: a
// page that prints 10 kB a thousand times in 10 ms keeps the process of the
// browser busy and makes it grow by 200 MB a second, and no command reaches the
// page any more, not even the one that stops it, however fast the pipe is read.
//
// So nothing is sent as it is printed. The page keeps the newest 1,000 messages
// (10 MB) itself; they are asked for at the end of each call, and the guard
// bounds what of them is decoded.

const (
	maxConsole      = 200       // console events of one session that pass in a second, or up to the next answer to a fetch
	maxConsoleBytes = 512 << 10 // and their size
	maxSessions     = 64
	fetchTimeout    = 500 * time.Millisecond
)

// unsent are the commands of chromedp that would let a page send what it
// prints, and what is sent instead; the answers are alike.
var unsent = map[cdproto.MethodType]cdproto.MethodType{
	"Runtime.enable": "Runtime.disable",
	"Log.enable":     "Log.disable",
}

// fetchConsole lets the page tell what it printed since the last time. It is
// for the end of a call: a page that does not answer is asked another time.
func (t *Tab) fetchConsole(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	// What was printed is kept with the objects that were printed, until it is
	// thrown away.
	t.conn.wire.command(t.sess.SessionID, "Runtime.enable", "Runtime.disable", "Log.enable", "Log.disable",
		"Runtime.discardConsoleEntries", "Log.clear")
	_ = t.sess.Call(ctx, "Runtime.disable", nil, nil) // answered after all of it
}

// ownIDs are the numbers of the guard's own commands; chromedp counts from 1,
// and Chromium reads 31 bits.
const ownIDs = 1<<30 + 1

// command sends commands whose answers nobody waits for: all of them, or none.
func (g *guard) command(session target.SessionID, methods ...cdproto.MethodType) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue)+len(methods) > cap(g.queue)/2 {
		return
	}
	for _, method := range methods {
		g.own++
		select {
		case g.queue <- &cdproto.Message{ID: ownIDs + g.own, Method: method, SessionID: session}:
		default:
		}
	}
}

// consoleRate counts the console events of one session.
type consoleRate struct {
	since    time.Time // begin of the running second
	n, bytes int       // in that second
}

var (
	methodHead  = []byte(`{"method":"`)
	consoleHead = []byte(`{"method":"Runtime.consoleAPICalled","params":{"type":"`)
	errorType   = []byte(`error"`)
)

// methodOf reads the method of an event at the head of a message, as Chromium
// writes it; "" when it is not there.
func methodOf(head []byte) string {
	rest, ok := bytes.CutPrefix(head, methodHead)
	if !ok {
		return ""
	}
	end := bytes.IndexByte(rest[:min(len(rest), 80)], '"')
	if end < 0 {
		return ""
	}
	return string(rest[:end])
}

// sessionOf reads the session at the end of a message, as Chromium writes it.
func sessionOf(message []byte) string {
	tail := message[max(0, len(message)-100):]
	i := bytes.LastIndex(tail, []byte(`"sessionId":"`))
	if i < 0 {
		return ""
	}
	id, _, _ := bytes.Cut(tail[i+len(`"sessionId":"`):], []byte{'"'})
	return string(id)
}

// printed tells whether a page makes such events at will.
func printed(method string) bool {
	return method == "Runtime.consoleAPICalled" || method == "Runtime.exceptionThrown" || method == "Log.entryAdded"
}

// noise tells whether the message is of the console and no error.
func noise(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, consoleHead)
	return ok && !bytes.HasPrefix(rest, errorType)
}

// unused tells whether nobody here follows such events.
func unused(method string) bool {
	switch method {
	case "Network.dataReceived", "Network.requestWillBeSentExtraInfo", "Network.responseReceivedExtraInfo", "Network.eventSourceMessageReceived":
		return true
	}
	return strings.HasPrefix(method, "DOM.") || strings.HasPrefix(method, "CSS.") || strings.HasPrefix(method, "Network.webSocket")
}

// admit counts a console event and tells whether it passes. Only the goroutine
// that reads calls it.
func (g *guard) admit(session string, head []byte, size int) bool {
	if noise(head) {
		g.dropped.Add(1)
		return false
	}
	now := time.Now()
	r := g.rates[session]
	if r == nil {
		if g.rates == nil || len(g.rates) >= maxSessions {
			g.rates = map[string]*consoleRate{}
		}
		r = &consoleRate{since: now}
		g.rates[session] = r
	}
	if now.Sub(r.since) >= time.Second {
		r.since, r.n, r.bytes = now, 0, 0
	}
	r.n++
	r.bytes += size
	if r.n <= maxConsole && r.bytes <= maxConsoleBytes {
		return true
	}
	g.dropped.Add(1)
	return false
}
