package browser

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func navErr(t testing.TB, b *Browser, r NavigateRequest) *Error {
	t.Helper()
	_, err := b.Navigate(callCtx(t), r)
	var e *Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestNavigateTellsWhereItLed(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/redirect"))
	assert.Equal(t, 200, r.Status)
	assert.Equal(t, "Form", r.Title)
	require.Len(t, r.Redirects, 1)
	assert.Contains(t, r.Redirects[0], "302 ")
	r = open(t, b, fixture("/404"))
	assert.Equal(t, 404, r.Status)
	assert.Contains(t, r.Snapshot.Text, "Not here")
	r, err := b.Navigate(callCtx(t), NavigateRequest{Go: "back"})
	require.NoError(t, err)
	assert.Equal(t, "Form", r.Title)
	assert.Contains(t, r.Snapshot.Text, "Email")
	r, err = b.Navigate(callCtx(t), NavigateRequest{Go: "forward"})
	require.NoError(t, err)
	assert.Equal(t, "Not here", r.Title)
	e := navErr(t, b, NavigateRequest{Go: "forward"})
	assert.Equal(t, "not_found", e.Reason)
	r = open(t, b, fixture("/form#part"))
	r = open(t, b, fixture("/form#other"))
	assert.True(t, strings.HasSuffix(r.URL, "#other"))
	e = navErr(t, b, NavigateRequest{URL: fixture("/204")})
	assert.Equal(t, "navigation_failed", e.Reason)
}

func TestB51DeadImageDoesNotHold(t *testing.T) {
	b, _ := use(t)
	start := time.Now()
	r := open(t, b, fixture("/b51"))
	t.Log(time.Since(start), r.StatusLine())
	assert.Less(t, time.Since(start), 6*time.Second)
	assert.Contains(t, r.Loading, "1 request open")
	assert.Contains(t, r.Snapshot.Text, "Usable")
}

// A document that is left while it is still being read was open for ever, so
// that every later page counted as loading.
func TestAnEndlessDocumentIsNotHeldAgainstTheNextPage(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/endless"))
	assert.Contains(t, r.Loading, "/endless")
	assert.Contains(t, r.Snapshot.Text, "start")
	r = open(t, b, fixture("/form"))
	assert.Empty(t, r.Loading)
}

func TestB53WaitsForWhatStartsAfterLoad(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b53"))
	assert.Contains(t, r.Snapshot.Text, "fetched after load")
}

func TestB55StreamsDoNotKeepThePageBusy(t *testing.T) {
	b, _ := use(t)
	start := time.Now()
	r := open(t, b, fixture("/b55"))
	t.Log(time.Since(start), r.StatusLine())
	assert.Less(t, time.Since(start), 8*time.Second)
	assert.Contains(t, r.Snapshot.Text, "Live")
}

func TestServerThatNeverAnswers(t *testing.T) {
	b, _ := use(t)
	start := time.Now()
	e := navErr(t, b, NavigateRequest{URL: fixture("/silent"), Timeout: time.Second})
	assert.Equal(t, "timeout", e.Reason)
	assert.Less(t, time.Since(start), 3*time.Second)
	open(t, b, fixture("/form"))
}

func TestB90BothLoopbackFamilies(t *testing.T) {
	b, h := use(t)
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Skipf("no %s here", listen)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<title>Dev</title>"))
		})}
		go func() { _ = s.Serve(l) }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
			r := open(t, b, "http://"+host+":"+port+"/")
			assert.Equal(t, "Dev", r.Title, "%s on %s", host, listen)
		}
		r := open(t, b, "localhost:"+port) // no scheme
		assert.Equal(t, "Dev", r.Title)
		require.NoError(t, s.Close())
		h.ports = []int{4242}
		e := navErr(t, b, NavigateRequest{URL: "http://localhost:" + port + "/"})
		assert.Equal(t, "navigation_failed", e.Reason)
		assert.Contains(t, e.Hint, "4242")
		h.ports = nil
	}
}

func TestWaitServer(t *testing.T) {
	b, _ := use(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	s := &http.Server{Addr: addr, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>Late server</title>"))
	})}
	go func() { time.Sleep(600 * time.Millisecond); _ = s.ListenAndServe() }() // the server that is slow to start is the case
	defer s.Close()
	r, err := b.Navigate(callCtx(t), NavigateRequest{URL: "http://" + addr, WaitServer: 10 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, "Late server", r.Title)
}

func TestB102SchemesThatAreNotOpened(t *testing.T) {
	b, _ := use(t)
	for _, u := range []string{"file:///etc/passwd", "view-source:file:///etc/passwd", "chrome://version", "devtools://x", "javascript:alert(1)", "data:text/html,x",
		"FILE:///etc/passwd", " file:///etc/passwd", "blob:http://x/y", "about:srcdoc", "http://user@localhost/"} {
		e := navErr(t, b, NavigateRequest{URL: u})
		assert.Equal(t, "blocked_by_policy", e.Reason, u)
	}
	for _, u := range []string{"", "http://", "ht!tp:x", "::"} {
		e := navErr(t, b, NavigateRequest{URL: u})
		assert.Equal(t, "bad_value", e.Reason, u)
	}
	r := open(t, b, "about:blank")
	assert.Equal(t, "about:blank", r.URL)
}

func TestB102PagesCannotReadFiles(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/file-frame"))
	assert.NotContains(t, r.Snapshot.Text, "root:")
}

func TestNewTabsAndTheirEnd(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/form"))
	r, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/done"), NewTab: true})
	require.NoError(t, err)
	assert.NotEqual(t, "", r.Tab)
	assert.Equal(t, "Done", r.Title)
	first := ""
	for _, i := range b.Tabs() {
		if i.ID != r.Tab {
			first = i.ID
		}
	}
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{Tab: first})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Email")
	_, err = b.Snapshot(callCtx(t), SnapshotRequest{Tab: "t999"})
	assert.True(t, isReason(err, "tab_closed"))
	b.mu.Lock()
	tab := b.current
	b.mu.Unlock()
	tab.cancel()
	require.Eventually(t, func() bool { return len(b.Tabs()) == 1 }, 3*time.Second, 5*time.Millisecond)
}

func TestB58PageThatLoopsByItself(t *testing.T) {
	b, _ := use(t)
	_, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/b58loop"), Snapshot: "none", Timeout: 2 * time.Second})
	if err == nil {
		require.Eventually(t, func() bool {
			_, err = b.Snapshot(callCtx(t), SnapshotRequest{Timeout: 700 * time.Millisecond})
			return err != nil
		}, 10*time.Second, time.Millisecond)
	}
	require.True(t, isReason(err, "tab_hung"), "%v", err)
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Timer")
	t.Log(s.StatusLine())
	start := time.Now()
	_, err = b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/b58log"), Timeout: 1500 * time.Millisecond})
	t.Log(time.Since(start), err)
	assert.Less(t, time.Since(start), 4*time.Second)
	require.Eventually(t, func() bool {
		r, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), Timeout: 5 * time.Second})
		t.Log(time.Since(start), err, r.StatusLine())
		return err == nil && r.Title == "Form"
	}, 20*time.Second, 10*time.Millisecond)
}
