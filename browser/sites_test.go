package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twoSites serves pages by path under two names, which are two sites to a
// browser: 127.0.0.1 and localhost. {other} in a page is the address of the
// other one.
func twoSites(t *testing.T, pages map[string]string, slow time.Duration) (here, other string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if to, found := strings.CutPrefix(body, "redirect "); found {
			w.Header().Set("Location", strings.ReplaceAll(to, "{other}", other))
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/slow") {
			select {
			case <-time.After(slow): // the server that is slow is the case
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html>"+strings.ReplaceAll(body, "{other}", other))
	}))
	t.Cleanup(s.Close)
	other = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return s.URL, other
}

func TestA148NoWayOfAPageLeadsToFiles(t *testing.T) {
	b, _ := use(t)
	here, _ := twoSites(t, map[string]string{
		"/redirect": "redirect file:///etc/passwd",
		"/refresh":  `<title>Refresh</title><meta http-equiv=refresh content="0;url=file:///etc/passwd"><p>stays</p>`,
		"/script":   `<title>Script</title><p>stays</p><script>location='file:///etc/passwd'</script>`,
		"/source":   `<title>Source</title><p>stays</p><script>location='view-source:file:///etc/passwd'</script>`,
		"/data":     `<title>Data</title><p>stays</p><script>location='data:text/html,<p>root:data</p>'</script>`,
		"/open":     `<title>Open</title><p>stays</p><button onclick="open('file:///etc/passwd')">Open</button>`,
		"/link":     `<title>Link</title><p>stays</p><a href="file:///etc/passwd">Link</a>`,
		"/chrome":   `<title>Chrome</title><p>stays</p><a href="chrome://version">Link</a><iframe src="chrome://version"></iframe>`,
		"/frames":   `<title>Frames</title><p>stays</p><iframe src="view-source:file:///etc/passwd"></iframe><iframe src="filesystem:http://x/"></iframe><object data="file:///etc/passwd"></object><embed src="file:///etc/passwd">`,
	}, 0)
	for _, page := range []string{"/redirect", "/refresh", "/script", "/source", "/data", "/open", "/link", "/chrome", "/frames"} {
		_, err := b.Navigate(callCtx(t), NavigateRequest{URL: here + page})
		if page == "/redirect" {
			assert.Error(t, err)
			continue
		}
		require.NoError(t, err, page)
		for _, press := range []string{"text=Open", "text=Link"} {
			_, _ = b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "click", On: press}}, Timeout: 3 * time.Second})
		}
		for _, tab := range b.Tabs() {
			s, err := b.Snapshot(callCtx(t), SnapshotRequest{Tab: tab.ID, Mode: "full"})
			require.NoError(t, err, page)
			assert.NotContains(t, s.Snapshot.Text, "root:", page)
			assert.NotContains(t, s.URL, "file:", page)
			if tab.Current && page != "/open" {
				assert.Contains(t, s.Snapshot.Text, "stays", page)
			}
			if !tab.Current {
				b.byName(tab.ID).cancel()
			}
		}
		require.Eventually(t, func() bool { return len(b.Tabs()) <= 1 }, 3*time.Second, 5*time.Millisecond)
	}
}

func TestB47B50FramesOfAnotherSite(t *testing.T) {
	b, _ := use(t)
	here, _ := twoSites(t, map[string]string{
		"/":     `<title>Outer</title><p>outer</p><iframe src="{other}/slow" style="border:7px solid;padding:5px"></iframe><button onclick="document.querySelector('iframe').remove()">Drop</button>`,
		"/slow": `<button onclick="this.nextElementSibling.textContent='pressed inside'">Inside</button><p></p>`,
	}, 800*time.Millisecond)
	_, err := b.Navigate(callCtx(t), NavigateRequest{URL: here + "/", Wait: "commit", Snapshot: "none"})
	require.NoError(t, err)
	act(t, b, Step{Do: "wait", On: "text=Inside"}, Step{Do: "click", On: "text=Inside"})
	s := look(t, b)
	assert.Contains(t, s, "pressed inside")
	assert.Contains(t, s, "outer")
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Drop"`)})
	s = look(t, b)
	assert.Contains(t, s, "outer", "the page survives its frame")
	assert.NotContains(t, s, "pressed inside")
}
