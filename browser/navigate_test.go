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
