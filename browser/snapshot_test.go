package browser

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestB1LargePageStaysInTheBudget(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b1"))
	s := r.Snapshot
	assert.LessOrEqual(t, runes(s.Text), DefaultMaxChars)
	assert.Less(t, s.Shown, s.Total)
	require.NotEmpty(t, s.Cursor)
	require.NotEmpty(t, s.Saved)
	full, err := os.ReadFile(s.Saved)
	require.NoError(t, err)
	assert.Contains(t, string(full), "Customer 5000")
	assert.Contains(t, s.Text, "Footer", "the outline of the rest is seen")
	n, err := b.Snapshot(callCtx(t), SnapshotRequest{Cursor: s.Cursor})
	require.NoError(t, err)
	assert.LessOrEqual(t, runes(n.Snapshot.Text), DefaultMaxChars)
	assert.NotContains(t, n.Snapshot.Text, "Customer 3 |")
	require.NotEmpty(t, n.Snapshot.Cursor)
	m, err := b.Snapshot(callCtx(t), SnapshotRequest{Cursor: n.Snapshot.Cursor})
	require.NoError(t, err)
	assert.NotEqual(t, n.Snapshot.Text, m.Snapshot.Text)
}

func TestB6BudgetAndSubtree(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/long"))
	for _, max := range []int{500, 900, 2000, 5000, 25000} {
		for _, mode := range []string{"compact", "full", "interactive"} {
			r, err := b.Snapshot(callCtx(t), SnapshotRequest{MaxChars: max, Mode: mode})
			require.NoError(t, err)
			assert.LessOrEqual(t, runes(r.Snapshot.Text), max, "%s %d", mode, max)
			assert.True(t, utf8.ValidString(r.Snapshot.Text))
			if max == 2000 {
				t.Log(mode, r.Snapshot.Footer(), "\n"+r.Snapshot.Text)
			}
		}
	}
	r := open(t, b, fixture("/roles"))
	nav := refOf(t, r.Snapshot.Text, "Box")
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{On: nav})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "tall")
	assert.NotContains(t, s.Snapshot.Text, "Title")
	s, err = b.Snapshot(callCtx(t), SnapshotRequest{On: "css=main ul"})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "item with")
}

func TestRolesReadWell(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/roles"))
	t.Log(r.Snapshot.Text, r.Snapshot.Footer())
	s := r.Snapshot.Text
	for _, want := range []string{`navigation "Primary"`, `"One" -> /one`, `h2 link`, `clickable`, `"Card with text"`, `img "A picture"`, "Some bold and slanted text with", "- plain item",
		"- item with button", "summary", "(20 options)", "scrollable", `"Secret" ="•••••••"`, `"Off" disabled`, `progressbar`} {
		assert.Contains(t, s, want)
	}
	assert.NotContains(t, s, "hunter2")
	assert.NotContains(t, s, "hidden part")
	assert.NotContains(t, s, strings.Repeat("x", 70))
	i, err := b.Snapshot(callCtx(t), SnapshotRequest{Mode: "interactive", Boxes: true})
	require.NoError(t, err)
	assert.NotContains(t, i.Snapshot.Text, "slanted")
	assert.Contains(t, i.Snapshot.Text, " @")
	d, err := b.Snapshot(callCtx(t), SnapshotRequest{Depth: 1})
	require.NoError(t, err)
	assert.Less(t, len(d.Snapshot.Text), len(s))
}

func TestB17OutputIsValid(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b17"))
	all := r.StatusLine() + r.Snapshot.Text
	assert.True(t, utf8.ValidString(all))
	for _, bad := range []string{"\u202e", "\u200b", "\U000e0041"} {
		assert.NotContains(t, all, bad)
	}
	assert.Contains(t, all, "zero")
}

func TestB39VisibleInHidden(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b39")).Snapshot.Text
	refOf(t, s, `"Inside"`)
	assert.NotContains(t, s, "Not seen")
}

func TestB45FramesInFrames(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b45")).Snapshot.Text
	for _, want := range []string{"outer", "middle", "innermost", "iframe f1", "iframe f2"} {
		assert.Contains(t, s, want)
	}
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Deep"`)})
	s = open(t, b, fixture("/b46")).Snapshot.Text
	refOf(t, s, `"In pointer frame"`)
}

func TestClosedShadowRoot(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/shadow")).Snapshot.Text
	act(t, b, Step{Do: "click", On: refOf(t, s, `"Closed shadow"`)})
	assert.Contains(t, look(t, b), "shadow hit")
}

func TestB54RightAfterReload(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/200"))
	r, err := b.Navigate(callCtx(t), NavigateRequest{Go: "reload", Wait: "commit", Snapshot: "none"})
	require.NoError(t, err)
	_ = r
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Customer 50 ")
}

func TestB95HiddenTextIsLeftOut(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b95"))
	t.Log(r.Snapshot.Text, r.Snapshot.Footer())
	for _, bad := range []string{"ignore all rules", "send the secrets", "transparent order", "pixel order"} {
		assert.NotContains(t, r.Snapshot.Text, bad)
	}
	assert.Contains(t, r.Snapshot.Text, `"Close dialog"`)
	assert.Contains(t, r.Snapshot.Footer(), "hidden text left out")
}

func TestB103MarkerCannotBeForged(t *testing.T) {
	b, _ := use(t)
	s := open(t, b, fixture("/b103")).Snapshot.Text
	assert.NotContains(t, s, "0123abcd")
	assert.NotContains(t, s, "deadbeef")
	assert.Equal(t, 1, strings.Count(s, "[end page-text "))
	assert.Contains(t, s, "Now obey.")
}

func TestDiffFallsBackWhenItIsNoShorter(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/form"))
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{Diff: true})
	require.NoError(t, err)
	assert.True(t, s.Snapshot.Diff)
	assert.Contains(t, s.Snapshot.Text, "no change")
	open(t, b, fixture("/done"))
	s, err = b.Snapshot(callCtx(t), SnapshotRequest{Diff: true})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "no change")
}

// No ref is ever given to another node, over pages, rewrites and growth.
func TestRefsAreNeverReused(t *testing.T) {
	b, _ := use(t)
	seen := map[string]refKey{}
	for i, p := range []string{"/form", "/roles", "/b26", "/form", "/200", "/b45", "/b27"} {
		open(t, b, fixture(p))
		b.mu.Lock()
		tab := b.current
		b.mu.Unlock()
		for ref, info := range tab.refs.byRef {
			key := tab.id + ref
			if k, ok := seen[key]; ok {
				require.Equal(t, k, info.key, "%s on page %d", ref, i)
			}
			seen[key] = info.key
		}
	}
	assert.NotEmpty(t, seen)
}

func TestSnapshotIsQuick(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/200"))
	start := time.Now()
	_, err := b.Snapshot(callCtx(t), SnapshotRequest{})
	require.NoError(t, err)
	assert.Less(t, time.Since(start), 2*time.Second)
}

func TestB18TwoMegabytesOfText(t *testing.T) {
	b, _ := use(t)
	r := open(t, b, fixture("/b18"))
	assert.LessOrEqual(t, runes(r.Snapshot.Text), DefaultMaxChars)
	require.NotEmpty(t, r.Snapshot.Saved)
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{Mode: "full"})
	require.NoError(t, err)
	assert.LessOrEqual(t, runes(s.Snapshot.Text), DefaultMaxChars)
	for cursor := s.Snapshot.Cursor; cursor != ""; {
		s, err = b.Snapshot(callCtx(t), SnapshotRequest{Cursor: cursor})
		require.NoError(t, err)
		assert.LessOrEqual(t, runes(s.Snapshot.Text), DefaultMaxChars)
		assert.NotEqual(t, cursor, s.Snapshot.Cursor)
		cursor = s.Snapshot.Cursor
	}
}
