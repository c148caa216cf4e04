package tools

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/browser"
)

// recordingBrowser answers every call with one page and keeps what it was asked.
type recordingBrowser struct {
	asked any
	err   error
}

var onePage = browser.Reply{Tab: "t1", Title: "Shop", URL: "http://localhost/", Status: 200,
	Events: []browser.Event{{Kind: "download", Tab: "t1", Text: "downloaded downloads/a.csv", Path: "downloads/a.csv", Bytes: 9}}}

func (b *recordingBrowser) Navigate(_ context.Context, r browser.NavigateRequest) (browser.NavigateResult, error) {
	b.asked = r
	return browser.NavigateResult{Reply: onePage, Redirects: []string{"302 http://localhost/old"}, Snapshot: browser.SnapshotText{Text: "page", Shown: 1, Total: 9, Cursor: "c1.0"}}, b.err
}

func (b *recordingBrowser) Snapshot(_ context.Context, r browser.SnapshotRequest) (browser.SnapshotResult, error) {
	b.asked = r
	return browser.SnapshotResult{Reply: onePage, Snapshot: browser.SnapshotText{Text: "page", Shown: 1, Total: 1}}, b.err
}

func (b *recordingBrowser) Act(_ context.Context, r browser.ActRequest) (browser.ActResult, error) {
	b.asked = r
	return browser.ActResult{Reply: onePage, Steps: []string{"1 click: button e1"}, Done: 1, Left: 2}, b.err
}

func (b *recordingBrowser) Screenshot(_ context.Context, r browser.ScreenshotRequest) (browser.ScreenshotResult, error) {
	b.asked = r
	return browser.ScreenshotResult{Reply: onePage, Picture: browser.Picture{MediaType: "image/png", Data: []byte("PNG")}, Width: 5, Height: 6, Scale: 0.5, Files: []string{"/session/browser/x.png"}}, b.err
}

func (b *recordingBrowser) Tabs() []browser.TabInfo { return nil }

func runBrowser(t *testing.T, tool *Tool, b *recordingBrowser, args string) Result {
	t.Helper()
	_, rest, e := tool.Check(json.RawMessage(args))
	require.Nil(t, e, "%v", e)
	s := &Session{Received: time.Now(), Browser: func(context.Context) (Browser, error) { return b, nil }}
	r, err := tool.Run(t.Context(), s, rest)
	require.NoError(t, err)
	return r
}

// Every argument of a step reaches the browser: none is accepted and ignored.
func TestEveryArgumentOfAStepArrives(t *testing.T) {
	b := &recordingBrowser{}
	runBrowser(t, browserAct, b, `{"tab":"t2","steps":[{"do":"click","on":"e1","button":"right","count":2,"modifiers":["Alt"],"offset":[1,2],"force":true,"text":"x","submit":true,"delay_ms":5,
		"keys":["Enter"],"hold_ms":6,"values":["v"],"checked":true,"to":"e2","steps":7,"files":["f"],"by":[3,4],"action":"move","at":[5,6],"text_gone":"g","state":"hidden","url":"u","download":true,"ms":8}],
		"stop_on_error":false,"follow":false,"on_dialog":"accept","expect":{"text":"t","text_gone":"g","url":"u","on":"e3","state":"enabled","download":true},"snapshot":"none","max_chars":900,"timeout_ms":1000}`)
	r, ok := b.asked.(browser.ActRequest)
	require.True(t, ok)
	for _, v := range []any{r, r.Steps[0], *r.Expect} {
		noneZero(t, reflect.ValueOf(v))
	}
	assert.Equal(t, time.Second, r.Timeout)
}

// noneZero asserts that every field was set.
func noneZero(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if v.Type().Field(i).Anonymous {
			noneZero(t, f)
			continue
		}
		assert.False(t, f.IsZero(), "%s.%s did not arrive", v.Type().Name(), name)
	}
}

func TestBrowserResultsReadWell(t *testing.T) {
	b := &recordingBrowser{}
	r := runBrowser(t, browserNavigate, b, `{"url":"http://localhost/"}`)
	assert.Equal(t, "t1 \"Shop\" http://localhost/ 200\n! download t1: downloaded downloads/a.csv\nredirected: 302 http://localhost/old\npage\nshown 1 of 9 lines; rest: browser_snapshot cursor=\"c1.0\"", r.Text)
	structured, err := json.Marshal(r.Structured)
	require.NoError(t, err)
	assert.Contains(t, string(structured), `"snapshot":"page"`)
	assert.Contains(t, string(structured), `"path":"downloads/a.csv"`)
	r = runBrowser(t, browserAct, b, `{"steps":[{"do":"click","on":"e1"}]}`)
	assert.Contains(t, r.Text, "1 click: button e1\n2 steps were not run")
	r = runBrowser(t, browserScreenshot, b, `{"inline":true}`)
	require.Len(t, r.Images, 1)
	assert.NotContains(t, r.Text, "PNG", "a picture is never text")
	assert.Contains(t, r.Text, "/session/browser/x.png")
	r = runBrowser(t, browserSnapshot, b, `{"mode":"full"}`)
	assert.Contains(t, r.Text, "page")
}

func TestBrowserArgumentsAreStrict(t *testing.T) {
	for tool, args := range map[*Tool][]string{
		browserNavigate:   {`{"url":5}`, `{"go":"up"}`, `{"URL":"x"}`, `{"wait":"networkidle"}`},
		browserSnapshot:   {`{"mode":"all"}`, `{"tab":2}`},
		browserAct:        {`{}`, `{"steps":[{"on":"e1"}]}`, `{"steps":[{"do":"dance"}]}`, `{"steps":[{"do":"click","ref":"e1"}]}`, `{"steps":{"do":"click"}}`},
		browserScreenshot: {`{"format":"gif"}`, `{"full_page":"yes"}`},
	} {
		for _, a := range args {
			_, _, e := tool.Check(json.RawMessage(a))
			assert.NotNil(t, e, "%s %s", tool.Name, a)
		}
	}
}
