//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// serve puts files into the sandbox and a server over them on a port.
func serve(t testing.TB, c story.Client, port string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		call(t, c, "file_write", map[string]any{"path": "site/" + name, "content": content})
	}
	call(t, c, "shell_run", map[string]any{"command": "cd site && exec python3 -m http.server " + port, "background": true})
}

// Downloads and uploads change sides between the browser's uid and the
// agent's: B70, B74, B75.
func TestBrowserFilesChangeSides(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		serve(t, c, "8000", map[string]string{
			"index.html": `<!doctype html><title>Files</title><a href=data.csv download="..%2F..%2Fevil.csv">Get</a><input type=file aria-label=Pick onchange="o.textContent=this.files[0].name+' '+this.files[0].size"><p id=o></p>`,
			"data.csv":   "a,b\n1,2\n",
		})
		call(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/", "wait_server_ms": 20000})
		for range 2 { // the second time under another name
			r := call(t, c, "browser_act", map[string]any{"steps": []any{map[string]any{"do": "click", "on": "text=Get"}}})
			assert.Contains(t, r.Text, "downloads/", r.Text)
		}
		out := sh(t, c, "stat -c '%u %h %A' /workspace/downloads/*; cat /workspace/downloads/*; ls /workspace/.. | grep -c evil; true")
		assert.Equal(t, 2, strings.Count(out, "1000 1 -rw"), "two files of the agent's: %s", out)
		assert.Equal(t, 2, strings.Count(out, "1,2"), out)
		sh(t, c, "printf hello > up.txt; ln -s /etc/passwd link.txt; mkdir dir")
		r := call(t, c, "browser_act", map[string]any{"steps": []any{map[string]any{"do": "upload", "on": "label=Pick", "files": []any{"up.txt"}}}})
		assert.Contains(t, r.Text, "up.txt 5")
		for _, bad := range []string{"none.txt", "dir", "link.txt", "../etc/passwd", "/etc/passwd", "/dev/zero"} {
			r := try(t, c, "browser_act", map[string]any{"steps": []any{map[string]any{"do": "upload", "on": "label=Pick", "files": []any{bad}}}})
			assert.True(t, r.IsError, "%s: %s", bad, r.Text)
		}
		r = call(t, c, "browser_snapshot", map[string]any{})
		assert.Contains(t, r.Text, "up.txt 5", "a refused upload changes nothing")
	})
}

// The browser's end, and a page that loops, cost one call: B58, B81.
func TestBrowserComesBack(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		serve(t, c, "8000", map[string]string{"index.html": `<!doctype html><title>Loop</title><button onclick="while(1){}">Loop</button>`})
		call(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/", "wait_server_ms": 20000})
		start := time.Now()
		r := try(t, c, "browser_act", map[string]any{"steps": []any{map[string]any{"do": "click", "on": "text=Loop"}}, "timeout_ms": 2000})
		assert.True(t, r.IsError)
		assert.Contains(t, r.Text, "tab_hung")
		assert.Less(t, time.Since(start), 8*time.Second)
		require.Eventually(t, func() bool {
			return strings.Contains(try(t, c, "browser_snapshot", map[string]any{}).Text, `"Loop"`)
		}, 20*time.Second, 10*time.Millisecond)
	})
}

// A refused connection names what does listen: B90.
func TestBrowserNamesThePorts(t *testing.T) {
	w := newWorld(t)
	c, _ := w.stdio(t)
	serve(t, c, "8123", map[string]string{"index.html": "<!doctype html><title>Here</title>"})
	call(t, c, "browser_navigate", map[string]any{"url": "http://127.0.0.1:8123/", "wait_server_ms": 20000})
	r := try(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8124/"})
	assert.True(t, r.IsError)
	assert.Contains(t, r.Text, "8123")
	call(t, c, "shell_run", map[string]any{"command": "cd site && exec python3 -m http.server --bind ::1 8125", "background": true})
	r = call(t, c, "browser_navigate", map[string]any{"url": "http://127.0.0.1:8125/", "wait_server_ms": 20000})
	assert.Contains(t, r.Text, "Here", "a server on the other loopback family is found")
}
