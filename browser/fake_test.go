package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// fakeBrowser speaks just enough of the protocol to have one tab, and lies,
// stalls and dies as a test wants.
type fakeBrowser struct {
	mu     sync.Mutex
	out    *io.PipeWriter
	in     *io.PipeReader
	answer map[string]func(m message) any // result; nil: no answer at all
	killed int
	// slowKill runs in Kill.
	slowKill func()
	launched int
}

type message struct {
	ID      int64           `json:"id"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type fakeProcess struct {
	io.Reader
	io.Writer
	close func()
}

func (p fakeProcess) Close() error   { p.close(); return nil }
func (p fakeProcess) Stderr() string { return "fake" }

func (f *fakeBrowser) Launch(context.Context, []string, []string) (Process, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	f.mu.Lock()
	f.in, f.out = inR, outW
	f.launched++
	f.mu.Unlock()
	go f.serve(inR)
	return fakeProcess{outR, inW, func() { inW.Close(); inR.Close(); outR.Close(); outW.Close() }}, nil
}

func (f *fakeBrowser) launches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.launched
}

func (f *fakeBrowser) serve(r io.Reader) {
	br := bufio.NewReader(r)
	for {
		b, err := br.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(b[:len(b)-1], &m) != nil {
			return
		}
		f.mu.Lock()
		answer := f.answer[m.Method]
		f.mu.Unlock()
		var result any = map[string]any{}
		switch m.Method {
		case "Browser.getVersion":
			result = map[string]any{"product": "Fake/1"}
		case "Target.setDiscoverTargets":
			if m.Session == "" {
				f.event("", "Target.targetCreated", map[string]any{"targetInfo": fakeTarget})
			}
		case "Browser.close":
			f.out.Close()
			return
		case "Target.getTargets":
			result = map[string]any{"targetInfos": []any{fakeTarget}}
		case "Target.attachToTarget":
			result = map[string]any{"sessionId": "S1"}
		case "Target.getTargetInfo":
			result = map[string]any{"targetInfo": fakeTarget}
		case "Runtime.evaluate":
			result = map[string]any{"result": map[string]any{"type": "object", "className": "Window", "value": 1}}
		case "Page.getFrameTree":
			result = map[string]any{"frameTree": map[string]any{"frame": map[string]any{"id": "F1", "loaderId": "L1", "url": "http://localhost/", "domainAndRegistry": "", "securityOrigin": "", "mimeType": "text/html"}}}
		case "Page.getLayoutMetrics":
			result = map[string]any{"cssVisualViewport": map[string]any{"clientWidth": 1280, "clientHeight": 800}, "cssContentSize": map[string]any{"width": 1280, "height": 800}}
		case "Accessibility.getFullAXTree":
			result = map[string]any{"nodes": []any{
				map[string]any{"nodeId": "1", "role": map[string]any{"value": "RootWebArea"}, "childIds": []string{"2"}},
				map[string]any{"nodeId": "2", "parentId": "1", "role": map[string]any{"value": "button"}, "name": map[string]any{"value": "Fake"}, "backendDOMNodeId": 7}}}
		}
		if answer != nil {
			if result = answer(m); result == nil {
				continue
			}
		}
		f.send(map[string]any{"id": m.ID, "sessionId": m.Session, "result": result})
	}
}

var fakeTarget = map[string]any{"targetId": "F1", "type": "page", "title": "Fake page", "url": "http://localhost/", "attached": false, "canAccessOpener": false}

func (f *fakeBrowser) send(v any) {
	if m, ok := v.(map[string]any); ok && m["sessionId"] == "" {
		delete(m, "sessionId")
	}
	b, _ := json.Marshal(v)
	f.raw(append(b, 0))
}

func (f *fakeBrowser) raw(b []byte) {
	f.mu.Lock()
	out := f.out
	f.mu.Unlock()
	_, _ = out.Write(b)
}

func (f *fakeBrowser) event(session, method string, params any) {
	f.send(map[string]any{"sessionId": session, "method": method, "params": params})
}

func (f *fakeBrowser) on(method string, answer func(m message) any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer == nil {
		f.answer = map[string]func(m message) any{}
	}
	f.answer[method] = answer
}

func (f *fakeBrowser) Kill(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed++
	if f.slowKill != nil {
		f.slowKill()
	}
	return nil
}

func (f *fakeBrowser) Import(context.Context, string, string) (string, int64, error) {
	return "downloads/x", 1, nil
}
func (f *fakeBrowser) Export(context.Context, string) (string, int64, error) { return "/x", 1, nil }
func (f *fakeBrowser) Save(_ context.Context, name string, _ []byte) (string, error) {
	return "/session/browser/" + name, nil
}

func fake(t *testing.T) (*Browser, *fakeBrowser) {
	t.Helper()
	leak := goleak.IgnoreCurrent()
	f := &fakeBrowser{}
	b := New(f, Options{})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, b.Close(ctx))
		require.NoError(t, goleak.Find(leak))
	})
	return b, f
}

func TestFakeSnapshot(t *testing.T) {
	b, _ := fake(t)
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, `button e1 "Fake"`)
	assert.Equal(t, "t1", s.Tab)
}

func TestB87UnknownEventsAndValues(t *testing.T) {
	b, f := fake(t)
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	f.event("S1", "Page.brandNewEvent", map[string]any{"x": 1})
	f.event("S1", "Network.requestWillBeSent", map[string]any{"requestId": "1", "type": "HologramFetch", "request": map[string]any{"url": "x", "initialPriority": "Quantum"}})
	f.event("S1", "Runtime.consoleAPICalled", map[string]any{"type": "shout", "args": []any{map[string]any{"type": "newtype"}}})
	f.event("S1", "Page.frameNavigated", map[string]any{"frame": map[string]any{"id": "F1", "loaderId": "L2", "url": 7}})
	f.event("", "Target.targetCreated", map[string]any{"targetInfo": map[string]any{"targetId": "X", "type": "spaceship"}})
	f.event("UNKNOWN", "Page.loadEventFired", map[string]any{})
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Fake")
}

func TestSilentBrowserEndsInTime(t *testing.T) {
	for _, method := range []string{"Page.getFrameTree", "DOMSnapshot.captureSnapshot", "Target.getTargetInfo", "Page.captureScreenshot"} {
		t.Run(method, func(t *testing.T) {
			b, f := fake(t)
			_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
			require.NoError(t, err)
			f.on(method, func(message) any { return nil })
			start := time.Now()
			_, err = b.Snapshot(callCtx(t), SnapshotRequest{Timeout: 300 * time.Millisecond})
			if method == "Page.captureScreenshot" {
				_, err = b.Screenshot(callCtx(t), ScreenshotRequest{Timeout: 300 * time.Millisecond})
			}
			assert.Less(t, time.Since(start), 1300*time.Millisecond)
			if method != "Target.getTargetInfo" {
				assert.True(t, isReason(err, "timeout"), "%v", err)
			}
		})
	}
}

func TestBrowserThatNeverStarts(t *testing.T) {
	b, f := fake(t)
	f.on("Browser.getVersion", func(message) any { return nil })
	ctx, cancel := context.WithTimeout(context.Background(), 900*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := b.Snapshot(ctx, SnapshotRequest{})
	assert.True(t, isReason(err, "browser_gone"), "%v", err)
	assert.Less(t, time.Since(start), 1900*time.Millisecond)
	assert.Equal(t, 1, f.killed)
	f.on("Browser.getVersion", func(message) any { return map[string]any{"product": "Fake/2"} })
	_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err, "the next call starts it")
}

func TestGarbageAndDisconnectEndTheCall(t *testing.T) {
	for name, do := range map[string]func(f *fakeBrowser){
		"disconnect": func(f *fakeBrowser) { f.out.Close() },
		"garbage":    func(f *fakeBrowser) { f.raw([]byte("{not json\x00")) },
		"no object":  func(f *fakeBrowser) { f.raw([]byte("[1,2]\x00")) },
		"deep":       func(f *fakeBrowser) { f.raw([]byte(`{"method":"x","params":` + strings.Repeat("[", 20000) + "\x00")) },
	} {
		t.Run(name, func(t *testing.T) {
			b, f := fake(t)
			_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
			require.NoError(t, err)
			f.on("DOMSnapshot.captureSnapshot", func(message) any { do(f); return nil })
			_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
			assert.True(t, isReason(err, "browser_gone"), "%v", err)
			f.on("DOMSnapshot.captureSnapshot", func(message) any { return map[string]any{} })
			s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
			require.NoError(t, err)
			assert.Equal(t, "t2", s.Tab)
			assert.Contains(t, s.StatusLine(), "browser_restarted")
		})
	}
}

func TestMessageThatIsTooLarge(t *testing.T) {
	p := &pipe{Process: fakeProcess{strings.NewReader(strings.Repeat("x", 5000) + "\x00ok\x00"), io.Discard, func() {}}, limit: 1000}
	_, err := io.ReadAll(p)
	require.ErrorIs(t, err, errMessageTooLarge)
	p = &pipe{Process: fakeProcess{strings.NewReader(strings.Repeat(strings.Repeat("x", 900)+"\x00", 50)), io.Discard, func() {}}, limit: 1000}
	b, err := io.ReadAll(p)
	require.NoError(t, err)
	assert.Len(t, b, 50*901)
}

// What a browser says of its tree may be nonsense: cycles, wrong indexes.
func TestNonsenseTreesDoNoHarm(t *testing.T) {
	b, f := fake(t)
	f.on("Accessibility.getFullAXTree", func(message) any {
		return map[string]any{"nodes": []any{
			map[string]any{"nodeId": "1", "role": map[string]any{"value": "RootWebArea"}, "childIds": []string{"2", "1", "9"}},
			map[string]any{"nodeId": "2", "parentId": "1", "role": map[string]any{"value": "list"}, "childIds": []string{"3", "2", "1"}, "backendDOMNodeId": -5},
			map[string]any{"nodeId": "3", "parentId": "2", "role": map[string]any{"value": 12}, "name": map[string]any{"value": []int{1}}, "childIds": []string{"2"}}}}
	})
	f.on("DOMSnapshot.captureSnapshot", func(message) any {
		return map[string]any{"strings": []string{"a"}, "documents": []any{map[string]any{"frameId": 99, "nodes": map[string]any{"parentIndex": []int{5, 0, 1}, "nodeName": []int{-1, 7, 0, 0}, "backendNodeId": []int{1},
			"contentDocumentIndex": map[string]any{"index": []int{0}, "value": []int{77}}, "isClickable": map[string]any{"index": []int{1000}}},
			"layout": map[string]any{"nodeIndex": []int{50, 0, -3}, "bounds": [][]float64{{1}}, "styles": [][]int{{4}}}}}}
	})
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	_, err = b.Snapshot(callCtx(t), SnapshotRequest{Mode: "full", Boxes: true, MaxChars: 500})
	require.NoError(t, err)
}

func TestEventFloodIsBounded(t *testing.T) {
	b, f := fake(t)
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	for i := range 3000 {
		f.event("S1", "Network.requestWillBeSent", map[string]any{"requestId": fmt.Sprint(i), "type": "Image", "request": map[string]any{"url": "http://x/"}})
		f.event("", "Browser.downloadWillBegin", map[string]any{"guid": fmt.Sprintf("aaaaaaaa-%04d", i), "url": "x", "suggestedFilename": "x", "frameId": "F1"})
		f.event("S1", "Runtime.exceptionThrown", map[string]any{"timestamp": 1, "exceptionDetails": map[string]any{"text": "boom"}})
	}
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.LessOrEqual(t, len(s.Events), maxEvents+2)
	assert.LessOrEqual(t, len(b.byName("t1").requests), maxRequests)
	assert.LessOrEqual(t, len(b.downloads.open), maxDownloads)
}

// hostileEvents are the events that chromedp or this package follow.
const hostileEvents = `Browser.downloadProgress Browser.downloadWillBegin CSS.styleSheetAdded DOM.attributeModified DOM.attributeRemoved DOM.characterDataModified
DOM.childNodeCountUpdated DOM.childNodeInserted DOM.childNodeRemoved DOM.documentUpdated DOM.inlineStyleInvalidated DOM.pseudoElementAdded DOM.setChildNodes DOM.shadowRootPushed
Input.dragIntercepted Inspector.detached Inspector.targetCrashed Inspector.targetReloadedAfterCrash Log.entryAdded Network.dataReceived Network.eventSourceMessageReceived
Network.loadingFailed Network.loadingFinished Network.requestServedFromCache Network.requestWillBeSent Network.requestWillBeSentExtraInfo Network.responseReceived
Network.responseReceivedExtraInfo Network.webSocketCreated Page.backForwardCacheNotUsed Page.documentOpened Page.domContentEventFired Page.fileChooserOpened Page.frameAttached
Page.frameDetached Page.frameNavigated Page.frameRequestedNavigation Page.frameResized Page.frameStartedLoading Page.frameStartedNavigating Page.frameStoppedLoading
Page.frameSubtreeWillBeDetached Page.interstitialShown Page.javascriptDialogClosed Page.lifecycleEvent Page.loadEventFired Page.navigatedWithinDocument Page.windowOpen
Runtime.bindingCalled Runtime.consoleAPICalled Runtime.exceptionThrown Runtime.executionContextCreated Runtime.executionContextDestroyed Runtime.executionContextsCleared
Runtime.inspectRequested Target.attachedToTarget Target.receivedMessageFromTarget Target.targetCreated Target.targetInfoChanged Page.javascriptDialogOpening`

// A browser that was taken over can say anything. Nothing of it may end the
// process: a panic on any goroutine would fail this test.
func TestLiesDoNotEndTheProcess(t *testing.T) {
	b, f := fake(t)
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	for _, method := range strings.Fields(hostileEvents) {
		for _, params := range []string{``, `{}`, `null`, `{"frame":null,"context":null,"frameId":"F1","targetInfo":null}`, `{"frame":{},"context":{},"request":null,"response":null,"entry":null,"exceptionDetails":null,"args":[null]}`,
			`{"frame":{"id":"F1"},"context":{"auxData":{"frameId":"F1"}},"frameId":"F1","requestId":"1","type":"Document","request":{},"response":{},"node":null,"nodes":[null],"root":null,"targetInfo":{"type":"page","targetId":""}}`,
			`{"frame":{"id":"G","parentId":""},"args":[{"value":{}}],"exceptionDetails":{"exception":null},"entry":{"level":"error"},"guid":"../../etc","state":"completed","nodeIds":[],"type":"error"}`} {
			for _, session := range []string{"S1", ""} {
				msg := `{"method":"` + method + `"`
				if session != "" {
					msg += `,"sessionId":"` + session + `"`
				}
				if params != "" {
					msg += `,"params":` + params
				}
				f.raw([]byte(msg + "}\x00"))
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = b.Snapshot(ctx, SnapshotRequest{OnDialog: []byte(`"accept"`), Timeout: time.Second})
	t.Log(err)
}

func TestEmptyAnswersDoNotEndTheProcess(t *testing.T) {
	for _, answer := range []string{`{}`, `null`, `{"result":null,"object":null,"node":null,"frameTree":null,"nodes":[null,{}],"quads":[[1]],"root":null,"documents":[{}],"strings":null,"targetInfo":null,"entries":[],"data":""}`,
		`{"result":{"objectId":"1"},"object":{"objectId":"1"},"node":{"backendNodeId":3},"frameTree":{"frame":{"id":"F1"},"childFrames":[{}]},"quads":[[0,0,9,0,9,9,0,9]],"backendNodeId":3,"executionContextId":1,"sessionId":"S9","loaderId":"L"}`} {
		b, f := fake(t)
		_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
		require.NoError(t, err)
		for _, m := range []string{"DOM.getDocument", "Runtime.evaluate", "Runtime.callFunctionOn", "Runtime.getProperties", "DOM.resolveNode", "DOM.describeNode", "DOM.getContentQuads",
			"DOM.getNodeForLocation", "Page.getLayoutMetrics", "DOMSnapshot.captureSnapshot", "Accessibility.getFullAXTree", "Accessibility.getPartialAXTree", "Page.captureScreenshot", "Page.navigate",
			"Target.getTargetInfo", "Page.getNavigationHistory", "Page.createIsolatedWorld", "Target.createTarget", "Target.attachToTarget", "Target.getTargets"} {
			f.on(m, func(message) any { return json.RawMessage(answer) })
		}
		try := func(name string, call func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			assert.Less(t, time.Since(start), 2500*time.Millisecond, name)
			t.Log(name, err)
		}
		try("snapshot", func(ctx context.Context) error { _, err := b.Snapshot(ctx, SnapshotRequest{}); return err })
		for _, s := range []Step{{Do: "click", On: "e1"}, {Do: "click", On: "css=a"}, {Do: "fill", On: "e1", Text: str("x")}, {Do: "select", On: "e1", Values: []string{"x"}}, {Do: "upload", On: "e1", Files: []string{"x"}}, {Do: "drag", On: "e1", To: "xy=1,1"}, {Do: "scroll", To: "top"}} {
			try(s.Do, func(ctx context.Context) error {
				_, err := b.Act(ctx, ActRequest{Steps: []Step{s}, Timeout: 300 * time.Millisecond})
				return err
			})
		}
		try("screenshot", func(ctx context.Context) error {
			_, err := b.Screenshot(ctx, ScreenshotRequest{FullPage: true})
			return err
		})
		try("navigate", func(ctx context.Context) error {
			_, err := b.Navigate(ctx, NavigateRequest{URL: "http://localhost/", Timeout: 500 * time.Millisecond})
			return err
		})
		try("back", func(ctx context.Context) error {
			_, err := b.Navigate(ctx, NavigateRequest{Go: "back", Timeout: 300 * time.Millisecond})
			return err
		})
		try("new tab", func(ctx context.Context) error { _, err := b.Navigate(ctx, NavigateRequest{NewTab: true}); return err })
	}
}

// The end of one Chromium takes every process of its user, so the next one must
// not start before that is over.
func TestTheNextBrowserWaitsForTheEndOfTheLast(t *testing.T) {
	b, f := fake(t)
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	f.slowKill = func() {
		time.Sleep(100 * time.Millisecond) // an end that takes its time is the case
		assert.Equal(t, f.killed, f.launched, "another browser was started in the meantime")
	}
	f.out.Close()
	_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
	if err != nil { // the call met the old one
		_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
	}
	require.NoError(t, err)
	f.slowKill = nil
	assert.Equal(t, 2, f.launched)
}
