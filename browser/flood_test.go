package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a page prints must not stand in the way of what the browser answers.
func TestAFloodOfTheConsoleDoesNotTakeTheBrowserAway(t *testing.T) {
	for _, page := range []string{"/error-flood", "/console-large"} {
		t.Run(page, func(t *testing.T) {
			b, _ := fresh(t)
			one := open(t, b, fixture("/form"))
			start := time.Now()
			r, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture(page), Timeout: 20 * time.Second})
			require.NoError(t, err)
			t.Log("arrived after", time.Since(start).Round(time.Millisecond), r.StatusLine())
			for range 5 {
				start = time.Now()
				s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
				require.NoError(t, err, "the page itself can be read")
				assert.Contains(t, s.Snapshot.Text, r.Title)
				t.Log("read after", time.Since(start).Round(time.Millisecond), s.StatusLine())
			}
			start = time.Now()
			n, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), NewTab: true})
			require.NoError(t, err)
			t.Log("new tab after", time.Since(start).Round(time.Millisecond))
			assert.NotEqual(t, one.Tab, n.Tab)
			// A busy page may miss the time of a fetch and is asked again at the next call.
			require.Eventually(t, func() bool {
				n, err = b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/console-once"), Tab: one.Tab})
				return err != nil || strings.Contains(n.StatusLine(), "1 console errors, first: only one")
			}, 10*time.Second, 10*time.Millisecond, "the next page is heard")
			require.NoError(t, err)
			n, err = b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), Tab: one.Tab})
			require.NoError(t, err)
			assert.NotContains(t, n.StatusLine(), "console", "said once")
			t.Log("dropped", b.conn.wire.dropped.Load())
		})
	}
}

// This page swamps the process of the browser by itself, listened to or not: it
// may be lost, the browser may be replaced, but the next page comes.
func TestAPageThatSwampsTheBrowserIsLeft(t *testing.T) {
	b, _ := fresh(t)
	r, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/console-flood"), Timeout: 3 * time.Second})
	t.Log(r.StatusLine(), err)
	for range 4 { // it goes on meanwhile
		start := time.Now()
		s, err := b.Snapshot(callCtx(t), SnapshotRequest{Timeout: 3 * time.Second})
		t.Log("read after", time.Since(start).Round(time.Millisecond), s.StatusLine(), err)
	}
	start := time.Now()
	for {
		n, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), Timeout: 12 * time.Second})
		t.Log(time.Since(start).Round(time.Millisecond), n.StatusLine(), err)
		if err == nil {
			assert.Equal(t, "Form", n.Title)
			break
		}
		assert.False(t, isReason(err, "tab_closed"), "%v", err)
		require.Less(t, time.Since(start), 90*time.Second)
	}
	_, err = b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), NewTab: true})
	require.NoError(t, err)
}

// No page is ever let to send what it prints as it prints it; when it is asked,
// what is too much is thrown away, and answers come through between.
func TestGuardBoundsTheConsole(t *testing.T) {
	b, f := fake(t)
	var mu sync.Mutex
	var told []string
	const flood = 20_000
	for _, m := range []string{"Runtime.enable", "Runtime.disable", "Log.enable", "Log.disable", "Runtime.discardConsoleEntries"} {
		f.on(m, func(m message) any {
			mu.Lock()
			told = append(told, m.Method)
			mu.Unlock()
			if m.Method == "Runtime.enable" {
				for i := range flood {
					kind := map[bool]string{true: "log", false: "error"}[i < flood/2]
					f.raw([]byte(`{"method":"Runtime.consoleAPICalled","params":{"type":"` + kind + `","args":[{"type":"string","value":"` + strings.Repeat("x", 300) + `"}]},"sessionId":"S1"}` + "\x00"))
				}
			}
			return map[string]any{}
		})
	}
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, b.conn.wire.dropped.Load(), int64(flood-10*maxConsole))
	assert.Contains(t, s.StatusLine(), "console errors, first: xxx")
	mu.Lock()
	got := told
	mu.Unlock()
	assert.Equal(t, []string{"Runtime.disable", "Log.disable", // of chromedp, which asked for the contrary
		"Runtime.enable", "Runtime.disable", "Log.enable", "Log.disable", "Runtime.discardConsoleEntries", "Runtime.disable"}, got)
	// In the same second: what the flood used up is not held against the next call.
	s, err = b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.StatusLine(), "console errors, first: xxx")
}

func TestGuardReadsWhateverTheSize(t *testing.T) {
	var in strings.Builder
	say := func(method, session string, n int) {
		fmt.Fprintf(&in, `{"method":"%s","params":{"text":"%s"},"sessionId":"%s"}`+"\x00", method, strings.Repeat("z", n), session)
	}
	for n := maxHead - 120; n < maxHead+20; n++ { // a session that the end of the buffer splits
		say("Runtime.exceptionThrown", "BIG", n)
	}
	say("Runtime.exceptionThrown", "S", 10)
	say("Page.loadEventFired", "S", 3*maxHead)
	in.WriteString(" \x00\x00")
	say("DOM.documentUpdated", "S", 2*maxHead)
	fmt.Fprintf(&in, `{"params":{},"sessionId":"S","method":"Network.dataReceived"}`+"\x00")
	fmt.Fprintf(&in, `{"id":7,"result":{"a":"%s"}}`+"\x00", strings.Repeat("r", 2*maxHead))
	in.WriteString("{\"id\":8")
	stop := make(chan struct{})
	defer close(stop)
	g := newGuard(&pipe{Process: fakeProcess{strings.NewReader(in.String()), io.Discard, func() {}}, limit: maxMessage}, stop)
	var got []string
	for {
		var m cdproto.Message
		err := g.Read(context.Background(), &m)
		if err != nil {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			break
		}
		if m.ID != 0 {
			assert.Len(t, m.Result, 2*maxHead+len(`{"a":""}`))
			assert.True(t, json.Valid(m.Result))
		}
		if m.SessionID != "BIG" {
			got = append(got, fmt.Sprintf("%s%d %s", m.Method, m.ID, m.SessionID))
		}
	}
	assert.Equal(t, []string{"Runtime.exceptionThrown0 S", "Page.loadEventFired0 S", "7 "}, got)
	assert.Len(t, g.rates, 2, "each session was read whole: %v", g.rates)
	assert.GreaterOrEqual(t, g.dropped.Load(), int64(130))
}

// A tab that was lost does not stand in the way of the next page, and a browser
// that closes nothing and opens nothing is replaced.
func TestALostTabMakesRoomForTheNextPage(t *testing.T) {
	for _, closes := range []bool{true, false} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			b, f := fake(t)
			_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
			require.NoError(t, err)
			hung := func(message) any { return nil }
			for _, m := range []string{"DOMSnapshot.captureSnapshot", "Runtime.evaluate", "Runtime.terminateExecution", "Page.crash", "Page.navigate"} {
				f.on(m, hung)
			}
			if !closes {
				f.on("Target.closeTarget", hung)
			}
			_, err = b.Snapshot(callCtx(t), SnapshotRequest{Timeout: 300 * time.Millisecond})
			require.True(t, isReason(err, "tab_hung"), "%v", err)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Contains(t, e.Hint, "new_tab")
			// The page is given up in the background; this call waits for that.
			next := fakeTarget["targetId"]
			f.on("Target.createTarget", func(message) any {
				f.event("", "Target.targetCreated", map[string]any{"targetInfo": map[string]any{"targetId": "F2", "type": "page", "url": "about:blank"}})
				return map[string]any{"targetId": "F2"}
			})
			f.on("Target.attachToTarget", func(m message) any {
				if strings.Contains(string(m.Params), fmt.Sprint(next)) {
					return map[string]any{"sessionId": "S1"}
				}
				return map[string]any{"sessionId": "S2"}
			})
			f.on("Runtime.evaluate", func(m message) any {
				if m.Session == "S1" && f.launches() == 1 {
					return nil
				}
				return map[string]any{"result": map[string]any{"type": "object", "className": "Window", "value": 1}}
			})
			f.on("Page.navigate", func(m message) any {
				if m.Session == "S1" && f.launches() == 1 {
					return nil
				}
				return map[string]any{"loaderId": ""}
			})
			r, err := b.Navigate(callCtx(t), NavigateRequest{URL: "http://localhost/", Snapshot: "none"})
			if !closes && err != nil { // the new tab ended with the browser
				require.True(t, isReason(err, "browser_gone"), "%v", err)
				r, err = b.Navigate(callCtx(t), NavigateRequest{URL: "http://localhost/", Snapshot: "none"})
			}
			require.NoError(t, err)
			assert.NotEqual(t, "t1", r.Tab)
			if !closes {
				require.Eventually(t, func() bool { return !b.Running() || f.launches() == 2 }, 10*time.Second, 10*time.Millisecond)
				r, err = b.Navigate(callCtx(t), NavigateRequest{URL: "http://localhost/", Snapshot: "none"})
				require.NoError(t, err)
				assert.Equal(t, 2, f.launches())
				assert.Contains(t, fmt.Sprint(b.Tabs()), r.Tab)
			}
		})
	}
}

func TestABrowserThatOpensNoTabIsReplaced(t *testing.T) {
	b, f := fake(t)
	b.patience = 700 * time.Millisecond
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	f.on("Target.createTarget", func(message) any { return nil })
	_, err = b.Navigate(callCtx(t), NavigateRequest{NewTab: true, Timeout: 100 * time.Millisecond})
	require.True(t, isReason(err, "timeout"), "little time is no reason: %v", err)
	assert.Equal(t, 1, f.launches())
	_, err = b.Navigate(callCtx(t), NavigateRequest{NewTab: true})
	require.True(t, isReason(err, "browser_gone"), "%v", err)
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Equal(t, 2, f.launches())
	assert.Contains(t, s.StatusLine(), "browser_restarted")
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Equal(t, 1, f.killed)
}
