package browser

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestB81KilledInMidCallStartsAgain(t *testing.T) {
	b, h := fresh(t)
	open(t, b, fixture("/form"))
	done := make(chan error, 1)
	go func() {
		_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "wait", MS: 30000}}})
		done <- err
	}()
	b.mu.Lock()
	tab := b.current
	b.mu.Unlock()
	require.Eventually(t, func() bool { return len(tab.lock) == 1 }, 2*time.Second, time.Millisecond)
	require.NoError(t, h.Kill(callCtx(t)))
	select {
	case err := <-done:
		assert.True(t, isReason(err, "browser_gone"), "%v", err)
	case <-time.After(5 * time.Second):
		require.Fail(t, "the call did not end with the browser")
	}
	r := open(t, b, fixture("/form"))
	assert.Contains(t, r.StatusLine(), "browser_restarted")
	assert.Equal(t, "t2", r.Tab, "ids go on")
	r = open(t, b, fixture("/form"))
	assert.NotContains(t, r.StatusLine(), "browser_restarted", "said once")
}

func TestB82NothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		h := newLocalHost(t)
		b := New(h, h.options())
		_, err := b.Snapshot(callCtx(t), SnapshotRequest{}) // B94: any call may be the first
		require.NoError(t, err)
		require.NotEmpty(t, h.processes(t))
		require.NoError(t, b.Close(callCtx(t)))
		h.gone(t)
		_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
		require.True(t, isReason(err, "browser_gone"))
		require.NoError(t, os.RemoveAll(h.dir))
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 5*time.Second, 10*time.Millisecond)
}

func TestManyCallsLeaveNoGoroutines(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/b7"))
	s := look(t, b)
	ref := refOf(t, s, "Count")
	before := runtime.NumGoroutine()
	for range 25 {
		_, err := b.Act(callCtx(t), ActRequest{Steps: []Step{{Do: "hover", On: ref}}, Snapshot: "none"})
		require.NoError(t, err)
		_, err = b.Snapshot(callCtx(t), SnapshotRequest{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+3 }, 5*time.Second, 10*time.Millisecond)
}

// The container isolates, and so does Chromium: its renderers run in their own
// user and process namespaces under a seccomp filter.
func TestChromiumsOwnSandboxIsOn(t *testing.T) {
	b, h := use(t)
	open(t, b, fixture("/form"))
	found := 0
	for _, p := range h.processes(t) {
		assert.NotContains(t, p, "--no-sandbox")
		pid := strings.Fields(p)[0]
		cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil || !strings.Contains(string(cmdline), "--type=renderer") {
			continue
		}
		found++
		status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^Seccomp:\s+2$`, string(status))
		assert.Regexp(t, `(?m)^NoNewPrivs:\s+1$`, string(status))
		assert.Regexp(t, `(?m)^CapEff:\s+0+$`, string(status))
		ns := regexp.MustCompile(`(?m)^NSpid:\s+(.*)$`).FindStringSubmatch(string(status))
		require.NotNil(t, ns)
		assert.GreaterOrEqual(t, len(strings.Fields(ns[1])), 2, "its own process namespace: %s", ns[1])
	}
	assert.Positive(t, found, "no renderer found")
}

func TestImageWithoutChromium(t *testing.T) {
	h := newLocalHost(t)
	h.env = []string{"PATH=/nonexistent", "HOME=" + filepath.Join(h.dir, "home")}
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "bin"), 0o755))
	for _, tool := range []string{"mkdir", "rm"} {
		require.NoError(t, os.Symlink("/bin/"+tool, filepath.Join(h.dir, "bin", tool)))
	}
	h.env[0] = "PATH=" + filepath.Join(h.dir, "bin")
	b := New(h, h.options())
	start := time.Now()
	_, err := b.Navigate(callCtx(t), NavigateRequest{URL: "about:blank"})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "image_lacks", e.Reason)
	assert.Equal(t, "failed_precondition", e.Code)
	assert.Contains(t, e.Message, "Chromium")
	assert.NotEmpty(t, e.Hint)
	assert.Less(t, time.Since(start), 5*time.Second)
	require.NoError(t, b.Close(callCtx(t)))
	require.NoError(t, os.RemoveAll(h.dir))
}

func TestB67TabsRunInParallel(t *testing.T) {
	b, _ := use(t)
	one := open(t, b, fixture("/form")).Tab
	two, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/b7"), NewTab: true})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, tab := range []string{one, two.Tab} {
		wg.Go(func() {
			for range 5 {
				s, err := b.Snapshot(callCtx(t), SnapshotRequest{Tab: tab})
				assert.NoError(t, err)
				assert.Equal(t, tab, s.Tab)
				want := map[bool]string{true: "Email", false: "Count"}[tab == one]
				assert.Contains(t, s.Snapshot.Text, want)
			}
		})
	}
	start := time.Now()
	go func() {
		_, _ = b.Act(callCtx(t), ActRequest{Tab: one, Steps: []Step{{Do: "wait", MS: 1500}}})
	}()
	wg.Wait()
	s, err := b.Snapshot(callCtx(t), SnapshotRequest{Tab: two.Tab})
	require.NoError(t, err)
	assert.Contains(t, s.Snapshot.Text, "Count")
	_ = start
	b.byName(two.Tab).cancel()
	require.Eventually(t, func() bool { return len(b.Tabs()) == 1 }, 3*time.Second, 5*time.Millisecond)
}

func (b *Browser) byName(id string) *Tab {
	t, _ := b.pick(id)
	return t
}

func TestCancelledCallEndsAtOnce(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/form"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := b.Act(ctx, ActRequest{Steps: []Step{{Do: "wait", MS: 20000}}})
		done <- err
	}()
	time.AfterFunc(100*time.Millisecond, cancel)
	select {
	case err := <-done:
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "canceled", e.Code)
	case <-time.After(3 * time.Second):
		require.Fail(t, "the call went on after it was cancelled")
	}
	assert.Contains(t, look(t, b), "Email")
}

func TestTooManyTabs(t *testing.T) {
	b, _ := fresh(t)
	open(t, b, fixture("/form"))
	for range maxTabs - 1 {
		_, err := b.Navigate(callCtx(t), NavigateRequest{NewTab: true})
		require.NoError(t, err)
	}
	_, err := b.Navigate(callCtx(t), NavigateRequest{URL: fixture("/form"), NewTab: true})
	assert.True(t, isReason(err, "too_many_tabs"), "%v", err)
	assert.Len(t, b.Tabs(), maxTabs)
}
