//go:build podman

package podman

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

func TestRealGuest(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.GuestPath = os.Getenv("PINFOLD_TEST_GUEST") })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, e.Warm(ctx))
	for _, spec := range []sandbox.Spec{
		{Image: miniImage},
		{Image: miniImage},
		{Image: miniImage, Link: sandbox.LinkStdio},
		{Image: miniImage, Isolation: sandbox.IsolationGVisor},
		{Image: sandbox.ImageHost},
		{Image: sandbox.ImageHost, Isolation: sandbox.IsolationGVisor},
		{Image: miniImage, ReadOnlyRoot: true},
	} {
		spec.Session = newSession()
		at := time.Now()
		box, err := e.Start(ctx, spec)
		require.NoError(t, err)
		t.Log("start", time.Since(at))
		t.Cleanup(func() { require.NoError(t, box.Remove(context.Background())) })
		conn, err := box.Dial(ctx)
		require.NoError(t, err)
		c, err := guest.Connect(ctx, conn, guest.Expect{Token: box.Token(), Isolation: box.Info().Isolation})
		require.NoError(t, err)
		t.Log("connected", time.Since(at))
		res, err := c.Exec(ctx, sandbox.ExecRequest{Argv: []string{"sh", "-c", "id; cat /proc/self/status | grep -iE 'cap|seccomp|newpriv'; cat /proc/self/uid_map; touch x; ls -lan / /tmp; mount"}, WaitMS: 5000}, nil)
		require.NoError(t, err)
		t.Log("exec", time.Since(at))
		t.Log(res.Stdout.Text, res.Stderr.Text)
		at = time.Now()
		require.NoError(t, box.Remove(ctx))
		t.Log("remove", time.Since(at))
	}
}
