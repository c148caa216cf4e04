//go:build podman

package podman

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/templates"
)

// newTestService returns a service of its own over the user's storage.
func newTestService(t *testing.T) *service {
	t.Helper()
	podman, err := findPodman("")
	require.NoError(t, err)
	cache, run := t.TempDir(), t.TempDir()
	conf, err := writeConf(cache, findRuntimes(), "")
	require.NoError(t, err)
	s := &service{podman: podman, socket: run + "/p.sock", conf: conf, env: serviceEnv(conf), log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	t.Cleanup(s.close)
	return s
}

// The full image is made once for the whole machine, under the user's own
// lock: a second build of the same recipe, here or elsewhere, is instant.
func TestImageBuild(t *testing.T) {
	s := newTestService(t)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	b := &imageStore{s: s, dir: cache + "/pinfold"}
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	last, started := "", time.Now()
	ref, digest, err := b.build(ctx, recipe, func(stage string, percent int, line string) {
		if stage != last {
			t.Logf("%6.1fs %3d%% %s %s", time.Since(started).Seconds(), percent, stage, line)
			last = stage
		}
	})
	require.NoError(t, err)
	t.Log(ref, digest)

	started = time.Now()
	again, sameDigest, err := b.build(ctx, recipe, nil)
	require.NoError(t, err)
	require.Equal(t, ref, again)
	require.Equal(t, digest, sameDigest)
	require.Less(t, time.Since(started), 5*time.Second, "a second build has nothing to do")

	state, err := b.state(ctx, ref)
	require.NoError(t, err)
	require.True(t, state.Ready)
	require.False(t, state.Preparing)
}
