//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// Pages that ask for more than there is cost a typed error at most; the browser
// and the other tools go on.
func TestPagesThatAskForTooMuch(t *testing.T) { // A161 C113
	eachIsolation(t, func(t *testing.T, c story.Client, _, isolation string) {
		nodes := 1_000_000
		if isolation == "gvisor" {
			nodes = 20_000 // they are Chromium's trouble, not the wall's
		}
		serve(t, c, "8000", map[string]string{
			"canvas.html": `<!doctype html><title>Canvas</title><p>painted</p><canvas id=c width=8192 height=8192></canvas><script>const x=c.getContext('2d');for(let i=0;i<64;i++){x.fillStyle='hsl('+i*5+' 90% 50%)';x.fillRect(i*128,0,128,8192)}</script>`,
			"nodes.html":  fmt.Sprintf(`<!doctype html><title>Nodes</title><p>first</p><script>const f=document.createDocumentFragment();for(let i=0;i<%d;i++){const d=document.createElement('i');d.textContent='n'+i;f.append(d)}document.body.append(f)</script>`, nodes),
			"high.html":   `<!doctype html><title>High</title><p>top</p><div style="height:30000px;background:linear-gradient(red,blue)"></div>`,
			"popups.html": `<!doctype html><title>Popups</title><button onclick="for(let i=0;i<1000;i++)open('high.html?'+i)">Open</button>`,
			"small.html":  `<!doctype html><title>Small</title><p>still here</p>`,
		})
		bounded := func(r *story.Reply) {
			t.Helper()
			if r.IsError {
				assert.NotEqual(t, "internal", r.Str("error.code"), r.Text)
			}
			assert.LessOrEqual(t, len([]rune(r.Text)), 31_000)
			for _, i := range r.Images {
				assert.Less(t, len(i.Data), 2<<20)
			}
			assert.Equal(t, "alive\n", sh(t, c, "echo alive"), "the other tools go on")
		}
		for _, page := range []string{"canvas", "nodes", "high"} {
			bounded(try(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/" + page + ".html", "wait_server_ms": 20000, "timeout_ms": 12000}))
			if page == "nodes" {
				continue // a picture of it takes as long again
			}
			bounded(try(t, c, "browser_screenshot", map[string]any{"full_page": page == "high"}))
		}
		// A tab that hung may be gone, which is said; a new one is there at once.
		if r := try(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/popups.html"}); r.IsError {
			assert.Contains(t, []string{"tab_closed", "tab_hung"}, r.Str("error.reason"), r.Text)
			call(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/popups.html", "new_tab": true})
		}
		bounded(try(t, c, "browser_act", map[string]any{"steps": []any{map[string]any{"do": "click", "on": "text=Open"}}}))
		refused := 0
		for range 30 {
			r := try(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/small.html", "new_tab": true, "snapshot": "none"})
			if r.IsError {
				refused++
				assert.Contains(t, []string{"too_many_tabs", "timeout"}, r.Str("error.reason"), r.Text)
				break
			}
		}
		require.Positive(t, refused, "tabs are bounded")
		tabs := strings.Count(sh(t, c, "ps -eo args"), "--type=renderer")
		t.Logf("%d renderers", tabs)
		r := call(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/small.html"})
		assert.Contains(t, r.Text, "still here", "the browser is usable")
	})
}
