package browser

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFirst(t *testing.T) {
	b, _ := use(t)
	start := time.Now()
	r := open(t, b, fixture("/"))
	t.Log(time.Since(start), r.StatusLine(), "\n"+r.Snapshot.Text, r.Snapshot.Footer())
	for range 3 {
		start = time.Now()
		r = open(t, b, fixture("/200"))
		t.Log("navigate", time.Since(start), r.StatusLine(), len(r.Snapshot.Text))
		start = time.Now()
		s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
		require.NoError(t, err)
		t.Log("snapshot", time.Since(start), len(s.Snapshot.Text), s.Snapshot.Footer())
		t.Log(cut(s.Snapshot.Text, 600))
		start = time.Now()
		p, err := b.Screenshot(callCtx(t), ScreenshotRequest{})
		require.NoError(t, err)
		t.Log("screenshot", time.Since(start), len(p.Picture.Data), p.Width, p.Height)
	}
	start = time.Now()
	r = open(t, b, fixture("/b1"))
	t.Log("navigate", time.Since(start), r.StatusLine(), len(r.Snapshot.Text), r.Snapshot.Footer())
	t.Log(r.Snapshot.Text[len(r.Snapshot.Text)-500:])
}

func TestTimings(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/200"))
	b.mu.Lock()
	tab := b.current
	b.mu.Unlock()
	o := &op{b: b, t: tab, base: callCtx(t), ctx: callCtx(t)}
	for range 4 {
		s := time.Now()
		_, err := o.frameDocs()
		require.NoError(t, err)
		_, _, err = o.metrics()
		require.NoError(t, err)
		t.Log("frames+metrics", time.Since(s))
		s = time.Now()
		var snap domSnapshot
		require.NoError(t, o.call("DOMSnapshot.captureSnapshot", map[string]any{"computedStyles": styles, "includeDOMRects": true}, &snap))
		t.Log("dom", time.Since(s))
		s = time.Now()
		f := &frame{frameInfo: frameInfo{ID: o.mainFrame()}}
		o.tree(f, 0)
		t.Log("ax", time.Since(s), len(f.ax))
		s = time.Now()
		p, err := o.look()
		require.NoError(t, err)
		t.Log("look", time.Since(s))
		s = time.Now()
		root, _ := o.build(p)
		t.Log("build", time.Since(s))
		s = time.Now()
		r := &renderer{mode: "compact"}
		r.render(root.kids, 0, -1, false)
		t.Log("render", time.Since(s))
		s = time.Now()
		choose(r.lines, 11000)
		t.Log("choose", time.Since(s))
	}
}
