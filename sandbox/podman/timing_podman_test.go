//go:build podman

package podman

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

func TestTiming(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.GuestPath = os.Getenv("PINFOLD_TEST_GUEST") })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, e.Warm(ctx))
	var starts, conns, removes []time.Duration
	for range 20 {
		at := time.Now()
		box, err := e.Start(ctx, sandbox.Spec{Session: newSession(), Image: miniImage})
		require.NoError(t, err)
		starts = append(starts, time.Since(at))
		conn, err := box.Dial(ctx)
		require.NoError(t, err)
		_, err = guest.Connect(ctx, conn, guest.Expect{Token: box.Token(), Isolation: box.Info().Isolation})
		require.NoError(t, err)
		conns = append(conns, time.Since(at))
		at = time.Now()
		require.NoError(t, box.Remove(ctx))
		removes = append(removes, time.Since(at))
	}
	for _, l := range [][]time.Duration{starts, conns, removes} {
		slices.Sort(l)
		t.Log(l[0], l[len(l)/2], l[len(l)-1])
	}
}
