//go:build podman

package podman

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

func TestProbe(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.GuestPath = os.Getenv("PINFOLD_TEST_GUEST") })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := e.Probe(ctx)
	require.NoError(t, err)
	t.Logf("%+v", r)
	assert.Contains(t, r.Engine, "podman ")
	assert.NotEmpty(t, r.Storage)
	assert.Empty(t, r.Findings)
	works := map[sandbox.Isolation]bool{}
	for _, rt := range r.Runtimes {
		works[rt.Isolation] = works[rt.Isolation] || rt.Works
		if rt.Works {
			assert.Positive(t, rt.StartMS)
		} else {
			assert.NotEmpty(t, rt.Why)
		}
	}
	assert.True(t, works[sandbox.IsolationContainer])
	for _, name := range limitNames {
		assert.NotEmpty(t, r.Limits[name], name)
	}
}
