package browser

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func act(t testing.TB, b *Browser, steps ...Step) ActResult {
	t.Helper()
	r, err := b.Act(callCtx(t), ActRequest{Steps: steps})
	require.NoError(t, err)
	return r
}

func actErr(t testing.TB, b *Browser, steps ...Step) (*Error, ActResult) {
	t.Helper()
	r, err := b.Act(callCtx(t), ActRequest{Steps: steps})
	var e *Error
	require.ErrorAs(t, err, &e)
	return e, r
}

func look(t testing.TB, b *Browser) string {
	t.Helper()
	r, err := b.Snapshot(callCtx(t), SnapshotRequest{Mode: "full"})
	require.NoError(t, err)
	return r.Snapshot.Text
}

// refOf finds the ref of the first line that holds the text.
func refOf(t testing.TB, snapshot, text string) string {
	t.Helper()
	for l := range strings.Lines(snapshot) {
		if strings.Contains(l, text) {
			if m := regexp.MustCompile(`\be[0-9]+\b`).FindString(l); m != "" {
				return m
			}
		}
	}
	require.Failf(t, "no ref", "no line with a ref holds %q in:\n%s", text, snapshot)
	return ""
}

func str(s string) *string { return &s }

func TestAFormInOneCall(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/form")).Snapshot.Text
	r := act(t, b,
		Step{Do: "fill", On: refOf(t, s, `"Email"`), Text: str("ann@example.org")},
		Step{Do: "select", On: refOf(t, s, `"Country"`), Values: []string{"Spain"}},
		Step{Do: "check", On: refOf(t, s, `"Remember me"`)},
		Step{Do: "fill", On: "label=Born", Text: str("2001-02-03")},
		Step{Do: "click", On: refOf(t, s, `"Send"`)})
	t.Log(strings.Join(r.Steps, "\n"), "\n"+r.StatusLine()+"\n"+r.Snapshot.Text, r.Snapshot.Footer())
	assert.Equal(t, 5, r.Done)
	assert.Contains(t, r.URL, "email=ann%40example.org")
	assert.Contains(t, r.URL, "c=ES")
	assert.Contains(t, r.URL, "remember=on")
	assert.Contains(t, r.URL, "born=2001-02-03")
	assert.Contains(t, r.Steps[4], "went to")
}

func TestB7OnlyWhatChanged(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b7")).Snapshot.Text
	ref := refOf(t, s, `"Count: 0"`)
	start := time.Now()
	r := act(t, b, Step{Do: "click", On: ref})
	t.Log("click", time.Since(start))
	assert.True(t, r.Snapshot.Diff)
	assert.Contains(t, r.Snapshot.Text, `~ button `+ref+` "Count: 1"`)
	r = act(t, b, Step{Do: "click", On: ref}) // B22: refs stay when names count
	assert.Contains(t, r.Snapshot.Text, `~ button `+ref+` "Count: 2"`)
	assert.LessOrEqual(t, strings.Count(r.Snapshot.Text, "\n"), 4)
	t.Log(r.Snapshot.Text)
}

func TestB21RefOfAnotherPageIsStale(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/form")).Snapshot.Text
	ref := refOf(t, s, "button")
	open(t, b, fixture("/b7"))
	e, _ := actErr(t, b, Step{Do: "click", On: ref})
	assert.Equal(t, "stale_ref", e.Reason)
	e, _ = actErr(t, b, Step{Do: "click", On: "e99999"}) // B23
	assert.Equal(t, "not_found", e.Reason)
}

func TestB25VanishedFailsAtOnce(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b25")).Snapshot.Text
	victim := refOf(t, s, `"Victim"`)
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Remove"`)})
	start := time.Now()
	e, _ := actErr(t, b, Step{Do: "click", On: victim})
	assert.Equal(t, "stale_ref", e.Reason)
	assert.Less(t, time.Since(start), 2*time.Second)
}

func TestB26RewriteNamesTheCandidate(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b26")).Snapshot.Text
	old := refOf(t, s, `"Save"`)
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Rewrite"`)})
	e, _ := actErr(t, b, Step{Do: "click", On: old})
	assert.Equal(t, "stale_ref", e.Reason)
	assert.Contains(t, e.Hint, "now")
	now, _ := e.Details["candidate"].(string)
	require.NotEmpty(t, now)
	assert.NotEqual(t, old, now)
	act(t, b, Step{Do: "click", On: now})
}

func TestB27ReusedNodeIsStale(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b27")).Snapshot.Text
	row := refOf(t, s, `"Row 3"`)
	_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, `"Next"`)}, {Do: "wait", Text: str("Row 53")}}, Snapshot: "none"})
	require.NoError(t, err)
	e, _ := actErr(t, b, Step{Do: "click", On: row})
	assert.Equal(t, "stale_ref", e.Reason)
	assert.Contains(t, e.Message, "Row 53")
}

func TestB30CoveredNamesTheBanner(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b30"))
	s := r.Snapshot.Text
	t.Log(s)
	start := time.Now()
	e, _ := actErr(t, b, Step{Do: "click", On: refOf(t, s, `"Buy"`)})
	t.Log(time.Since(start), e.Message, e.Hint)
	assert.Equal(t, "covered", e.Reason)
	assert.Contains(t, e.Hint, refOf(t, s, `"Accept cookies"`))
	out := act(t, b, Step{Do: "click", On: refOf(t, s, `"Accept cookies"`)}, Step{Do: "click", On: refOf(t, s, `"Buy"`)})
	assert.Contains(t, look(t, b), "bought")
	assert.Equal(t, 2, out.Done)
}

func TestB31NeverRestingButton(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b31")).Snapshot.Text
	r := act(t, b, Step{Do: "click", On: refOf(t, s, `"Pulse"`)})
	assert.Contains(t, r.Steps[0], "moves")
	assert.Contains(t, look(t, b), "pulsed")
}

func TestB33DragWithTheMouse(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b33")).Snapshot.Text
	act(t, b, Step{Do: "drag", On: refOf(t, s, "Canvas"), Offset: []float64{20, 20}, To: "xy=200,150"})
	assert.Contains(t, look(t, b), "drawn with button")
	r := act(t, b, Step{Do: "drag", On: "css=#src", To: "css=#dst"})
	assert.Contains(t, r.Steps[0], "drag and drop")
	assert.Contains(t, look(t, b), "dropped card")
}

func TestB34NoModifierStays(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b25")).Snapshot.Text
	victim := refOf(t, s, `"Victim"`)
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Remove"`)})
	actErr(t, b, Step{Do: "click", On: victim, Modifiers: []string{"Control"}})
	r := act(t, b, Step{Do: "type", On: refOf(t, s, "textbox"), Text: str("aB c")})
	assert.Contains(t, r.Steps[0], `"aB c"`)
}

func TestB35SelectOnARIACombobox(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b35")).Snapshot.Text
	r := act(t, b, Step{Do: "select", On: refOf(t, s, `combobox`), Values: []string{"Green"}})
	t.Log(r.Steps, r.Snapshot.Text)
	assert.Contains(t, look(t, b), "chose Green")
}

func TestB37RichEditor(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b37")).Snapshot.Text
	r := act(t, b, Step{Do: "fill", On: refOf(t, s, `textbox`), Text: str("Hello editor")})
	assert.Contains(t, r.Steps[0], `= "Hello editor"`)
	assert.Contains(t, look(t, b), "state: Hello editor")
}

func TestB38TypeKeyByKey(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b38")).Snapshot.Text
	act(t, b, Step{Do: "type", On: refOf(t, s, "textbox"), Text: str("Ab1é"), DelayMS: 5}, Step{Do: "press", Keys: []string{"Control+A", "Backspace", "x", "Enter"}})
	s = look(t, b)
	assert.Contains(t, s, "keys: A b 1")
	assert.Contains(t, s, "Enter")
	assert.Contains(t, s, `="x"`)
}

func TestB41ClickFarDown(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/b41"))
	act(t, b, Step{Do: "click", On: "text=Deep button"})
	assert.Contains(t, look(t, b), "hit deep")
}

func TestB42ClickInsideAFrame(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b42")).Snapshot.Text
	t.Log(s)
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Inner"`)})
	assert.Contains(t, look(t, b), "inner hit")
}

func TestB43TransparentCheckbox(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b43")).Snapshot.Text
	t.Log(s)
	r := act(t, b, Step{Do: "check", On: refOf(t, s, `"Fancy"`)}, Step{Do: "check", On: refOf(t, s, `"Gone"`)})
	assert.Contains(t, r.Steps[0], "checked now")
	assert.Contains(t, r.Steps[1], "checked now")
	r = act(t, b, Step{Do: "check", On: refOf(t, s, `"Fancy"`)})
	assert.Contains(t, r.Steps[0], "already")
}

func TestB59DialogReturnsAtOnce(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b59")).Snapshot.Text
	start := time.Now()
	e, _ := actErr(t, b, Step{Do: "click", On: refOf(t, s, `"Confirm"`)})
	assert.Equal(t, "dialog_open", e.Reason)
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.Contains(t, e.Message, "Are you sure?")
	start = time.Now()
	_, err := b.Screenshot(callCtx(t), ScreenshotRequest{}) // B62
	assert.True(t, isReason(err, "dialog_open"), "%v", err)
	assert.Less(t, time.Since(start), time.Second)
	r, err := b.Act(callCtx(t), ActRequest{OnDialog: []byte(`"accept"`)})
	require.NoError(t, err)
	t.Log(r.StatusLine(), r.Snapshot.Text)
	assert.Contains(t, look(t, b), "confirmed true")
	// B61: an answer with text
	r, err = b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, `"Prompt"`)}}, OnDialog: []byte(`{"text":"Ada"}`)})
	require.NoError(t, err)
	assert.Contains(t, look(t, b), "prompted Ada")
	r = act(t, b, Step{Do: "click", On: refOf(t, s, `"Alert"`)})
	assert.Contains(t, r.StatusLine(), `alert accepted: "Attention"`)
	assert.Contains(t, look(t, b), "alerted")
	// a dialog on the press itself: the release follows the answer
	e, _ = actErr(t, b, Step{Do: "click", On: refOf(t, s, `"Down"`)})
	assert.Equal(t, "dialog_open", e.Reason)
	_, err = b.Act(callCtx(t), ActRequest{OnDialog: []byte(`"dismiss"`)})
	require.NoError(t, err)
	assert.Contains(t, look(t, b), "down false")
}

func TestB63BeforeUnloadIsAccepted(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b63")).Snapshot.Text
	act(t, b, Step{Do: "fill", On: refOf(t, s, "textbox"), Text: str("dirty")})
	r := open(t, b, fixture("/form"))
	assert.Contains(t, r.StatusLine(), "beforeunload accepted")
	assert.Contains(t, r.URL, "/form")
}

func TestB65B66PopupIsFollowedAndLeft(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b66")).Snapshot.Text
	r := act(t, b, Step{Do: "click", On: refOf(t, s, `"Sign in"`)})
	t.Log(r.StatusLine(), r.Snapshot.Text)
	assert.Contains(t, r.StatusLine(), "was opened by")
	require.Contains(t, r.Snapshot.Text, `"Allow"`)
	opener := ""
	for _, i := range b.Tabs() {
		if !i.Current {
			opener = i.ID
		}
	}
	require.NotEmpty(t, opener)
	r = act(t, b, Step{Do: "click", On: refOf(t, r.Snapshot.Text, `"Allow"`)})
	t.Log(r.StatusLine(), r.Steps)
	require.Eventually(t, func() bool { return len(b.Tabs()) == 1 }, 5*time.Second, 10*time.Millisecond)
	sn, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Equal(t, opener, sn.Tab)
	assert.Contains(t, sn.Snapshot.Text, "signed in: token")
}

func TestB70DownloadLandsInTheWorkspace(t *testing.T) {
	b, h := use(t)
	s := open(t, b, fixture("/b70")).Snapshot.Text
	r := act(t, b, Step{Do: "click", On: refOf(t, s, `"Report"`)})
	t.Log(r.StatusLine(), r.Steps)
	var where string
	for _, e := range r.Events {
		if e.Kind == "download" {
			where = e.Path
		}
	}
	require.NotEmpty(t, where)
	data, err := os.ReadFile(filepath.Join(h.dir, "workspace", where))
	require.NoError(t, err)
	assert.Equal(t, "a,b\n1,2\n", string(data))
	// again: unique
	r = act(t, b, Step{Do: "click", On: refOf(t, s, `"Report"`)})
	require.Len(t, r.Events, 1)
	assert.NotEqual(t, where, r.Events[0].Path)
	// navigating to one is a success
	n := open(t, b, fixture("/b70/file"))
	assert.True(t, n.Download)
	assert.Contains(t, n.StatusLine(), "downloaded")
	// B73: hostile names
	n = open(t, b, fixture("/b73"))
	require.NotEmpty(t, n.Events)
	assert.Regexp(t, `^downloads/[^/]+$`, n.Events[len(n.Events)-1].Path)
	t.Log(n.StatusLine())
}

func TestB71PDFIsSaved(t *testing.T) {
	b, _ := use(t)
	n := open(t, b, fixture("/b71.pdf"))
	t.Log(n.StatusLine(), n.Snapshot.Text)
	assert.True(t, n.Download)
}

func TestB74UploadThroughAButton(t *testing.T) {
	b, h := use(t)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "workspace", "in.csv"), []byte("x,y\n"), 0o644))
	s := open(t, b, fixture("/b74")).Snapshot.Text
	t.Log(s)
	r := act(t, b, Step{Do: "upload", On: refOf(t, s, `"Choose"`), Files: []string{"in.csv"}})
	t.Log(r.Steps)
	assert.Contains(t, look(t, b), "got in.csv 4")
	act(t, b, Step{Do: "upload", On: refOf(t, s, `"Direct"`), Files: []string{"in.csv"}})
	assert.Contains(t, look(t, b), "direct in.csv 4")
	e, _ := actErr(t, b, Step{Do: "upload", On: refOf(t, s, `"Direct"`), Files: []string{"none.csv"}}) // B75
	assert.Equal(t, "file_missing", e.Reason)
	for _, outside := range []string{"../session/x", "/etc/passwd", "a/../../x", "."} {
		e, _ = actErr(t, b, Step{Do: "upload", On: refOf(t, s, `"Direct"`), Files: []string{outside}})
		assert.Equal(t, "file_outside_workspace", e.Reason)
	}
	e, _ = actErr(t, b, Step{Do: "upload", On: "css=#plain", Files: []string{"in.csv"}}) // B77
	assert.Equal(t, "wrong_element", e.Reason)
	assert.Contains(t, look(t, b), "direct in.csv 4", "the tab lives")
}

func TestB29NothingHappenedIsSaid(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b29")).Snapshot.Text
	r := act(t, b, Step{Do: "click", On: refOf(t, s, `"Dead link"`)})
	t.Log(r.Steps, r.Snapshot.Text)
	assert.Contains(t, r.Snapshot.Text, "no change")
	assert.NotContains(t, r.Steps[0], "went to")
}

func TestB3NoSnapshotOnRequest(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b7")).Snapshot.Text
	r, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, "Count")}}, Snapshot: "none"})
	require.NoError(t, err)
	assert.Empty(t, r.Snapshot.Text)
}

func TestB2WaitIsOneLine(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/b7"))
	r, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "wait", MS: 50}}, Snapshot: "none"})
	require.NoError(t, err)
	assert.Len(t, r.Steps, 1)
}

func TestExpectAndWait(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/late")).Snapshot.Text
	r, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, `"Go"`)}, {Do: "wait", Text: str("arrived late")}}, Expect: &Expect{Text: str("arrived")}})
	require.NoError(t, err)
	t.Log(r.Steps, r.Expected)
	_, err = b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "scroll", To: "bottom"}}, Expect: &Expect{Text: str("never there")}, Timeout: 300 * time.Millisecond})
	assert.True(t, isReason(err, "expectation_failed"), "%v", err)
	e, _ := actErr(t, b, Step{Do: "click", On: refOf(t, s, `"Off"`)})
	assert.Equal(t, "disabled", e.Reason)
	e, _ = actErr(t, b, Step{Do: "click", On: "text=Twin"})
	assert.Equal(t, "ambiguous", e.Reason)
	assert.Len(t, e.Details["candidates"], 2)
	_, err = b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "scroll", By: []float64{0, 100}}, {Do: "hover", On: "text=Go"}, {Do: "focus", On: "text=Go"}, {Do: "mouse", Action: "click", At: []float64{5, 5}}}})
	require.NoError(t, err)
}

func TestB58EndlessScriptIsStopped(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b58")).Snapshot.Text
	start := time.Now()
	_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, `"Loop"`)}}, Timeout: 1500 * time.Millisecond})
	t.Log(time.Since(start), err)
	require.True(t, isReason(err, "tab_hung"), "%v", err)
	assert.Less(t, time.Since(start), 3*time.Second)
	assert.Contains(t, look(t, b), "Loop")
}

func TestCrashIsRepaired(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/b7"))
	b.mu.Lock()
	tab := b.current
	b.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "wait", MS: 20000}}})
		done <- err
	}()
	require.Eventually(t, func() bool { return len(tab.lock) == 1 }, 2*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = tab.sess.Call(ctx, "Page.crash", nil, nil)
	err := <-done
	assert.True(t, isReason(err, "tab_crashed"), "%v", err)
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Count")
	t.Log(s.StatusLine())
}

func TestB79DownloadThatGoesOn(t *testing.T) {
	b, h := use(t)
	r, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/b79"), Timeout: 1500 * time.Millisecond})
	require.NoError(t, err)
	assert.True(t, r.Download)
	assert.Contains(t, r.StatusLine(), "goes on")
	close(fixtures.release)
	a, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "wait", Conditions: Conditions{Download: true}}}, Snapshot: "none"})
	require.NoError(t, err)
	require.Len(t, a.Events, 1)
	assert.Equal(t, int64(2000), a.Events[0].Bytes)
	assert.FileExists(t, filepath.Join(h.dir, "workspace", a.Events[0].Path))
}

func TestB89PostThatRedirectsToAnotherSite(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b89")).Snapshot.Text
	r := act(t, b, Step{Do: "fill", On: refOf(t, s, "textbox"), Text: str("ann")}, Step{Do: "click", On: refOf(t, s, `"Post"`)})
	assert.Contains(t, r.URL, "localhost")
	assert.Contains(t, r.URL, "by=ann")
	assert.Contains(t, r.Snapshot.Text, "Thank you")
}

func TestB57FrozenTabIsWoken(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b57")).Snapshot.Text
	tab := b.byName("")
	require.NoError(t, tab.sess.Call(callCtx(t), "Page.setWebLifecycleState", map[string]any{"state": "frozen"}, nil))
	start := time.Now()
	_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: refOf(t, s, `"Press"`)}}, Timeout: 3 * time.Second})
	assert.Less(t, time.Since(start), 6*time.Second)
	if err != nil {
		assert.True(t, isReason(err, "timeout") || isReason(err, "tab_hung"), "%v", err)
	}
	require.NoError(t, tab.sess.Call(callCtx(t), "Page.setWebLifecycleState", map[string]any{"state": "active"}, nil))
	assert.Contains(t, look(t, b), "Press")
}

func TestPointsAreForTheMouse(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/form"))
	for _, do := range []Step{{Do: "fill", Text: str("x")}, {Do: "check"}, {Do: "focus"}, {Do: "scroll_to"}, {Do: "select", Values: []string{"x"}}} {
		do.On = "xy=10,10"
		e, _ := actErr(t, b, do)
		assert.Equal(t, "bad_value", e.Reason, do.Do)
	}
	act(t, b, Step{Do: "click", On: "xy=60,20"}, Step{Do: "type", Text: str("hi")})
}
