//go:build podman

package podman

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/templates"
)

// The full image is made once for the whole machine, under the user's own
// lock: a second build of the same recipe, here or elsewhere, is instant.
func TestImageBuild(t *testing.T) {
	e, err := New(Options{Owner: "imagetest"})
	require.NoError(t, err)
	defer e.Close()
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	last, started := "", time.Now()
	ref, digest, err := e.BuildImage(ctx, recipe, func(stage string, percent int, line string) {
		if stage != last {
			t.Logf("%6.1fs %3d%% %s %s", time.Since(started).Seconds(), percent, stage, line)
			last = stage
		}
	})
	require.NoError(t, err)
	t.Log(ref, digest)

	started = time.Now()
	again, sameDigest, err := e.BuildImage(ctx, recipe, nil)
	require.NoError(t, err)
	require.Equal(t, ref, again)
	require.Equal(t, digest, sameDigest)
	require.Less(t, time.Since(started), 5*time.Second, "a second build has nothing to do")

	state, err := e.ImageState(ctx, ref)
	require.NoError(t, err)
	require.True(t, state.Ready)
	require.False(t, state.Preparing)
}
