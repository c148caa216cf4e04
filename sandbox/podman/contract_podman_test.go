//go:build podman

package podman

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/sandboxtest"
)

// TestContract runs the suite that every engine passes with each isolation and
// link, on the runtimes that start here.
func TestContract(t *testing.T) {
	image := testImage(t)
	for name, c := range map[string]struct {
		runtime string
		spec    sandbox.Spec
	}{
		"runc over a socket":  {runc, sandbox.Spec{Link: sandbox.LinkUnix}},
		"runc over stdio":     {runc, sandbox.Spec{Link: sandbox.LinkStdio}},
		"crun over a socket":  {crun, sandbox.Spec{Link: sandbox.LinkUnix}},
		"gVisor":              {"", sandbox.Spec{Isolation: sandbox.IsolationGVisor}},
		"the host's own /usr": {runc, sandbox.Spec{Image: sandbox.ImageHost}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.runtime == crun && !starts(t, crun) {
				t.Skip("crun does not start containers on this host")
			}
			if c.spec.Image == "" {
				c.spec.Image = image
			}
			state := t.TempDir()
			var last *Engine
			sandboxtest.Run(t, func(t *testing.T) sandbox.Engine {
				last = newTestEngine(t, func(o *Options) { o.Runtime, o.StateDir = c.runtime, state })
				return last
			}, sandboxtest.Options{
				Spec:   c.spec,
				Left:   func(t *testing.T, session string) []string { return leftOf(t, last, session) },
				Folder: func(t *testing.T) string { return t.TempDir() },
			})
		})
	}
}

// starts reports whether a runtime starts containers here.
func starts(t *testing.T, runtime string) bool {
	e := newTestEngine(t, func(o *Options) { o.Runtime = runtime })
	b, err := e.Start(minute(t), sandbox.Spec{Session: sandboxtest.NewSession(), Image: testImage(t)})
	if err != nil {
		return false
	}
	require.NoError(t, b.Remove(minute(t)))
	return true
}
