//go:build podman

package guest_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/podman"
)

// miniImage is made by `make test` for tests: Debian with Python and little else.
const miniImage = "localhost/pinfold-test:mini"

// TestInRealSandboxes runs what depends on the kernel and the engine: in a
// container over both transports, and under gVisor.
func TestInRealSandboxes(t *testing.T) {
	e, err := podman.New(podman.Options{Owner: "guest" + strings.ToLower(rand.Text()[:8]), StateDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	for name, spec := range map[string]sandbox.Spec{
		"container, socket": {Image: miniImage, Link: sandbox.LinkUnix},
		"container, stdio":  {Image: miniImage, Link: sandbox.LinkStdio},
		"gVisor":            {Image: miniImage, Isolation: sandbox.IsolationGVisor},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			spec.Session = "ses_" + strings.ToLower(rand.Text()[:12])
			box, err := e.Start(ctx, spec)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, box.Remove(context.WithoutCancel(ctx))) })
			conn, err := box.Dial(ctx)
			require.NoError(t, err)
			c, err := guest.Connect(ctx, conn, guest.Expect{Token: box.Token(), Isolation: box.Info().Isolation})
			require.NoError(t, err)
			t.Logf("%+v", c.Report())
			inRealSandbox(ctx, t, c)
			require.NoError(t, c.Close())
			select {
			case <-box.Done():
			case <-time.After(5 * time.Second):
				t.Error("the sandbox outlives its link")
			}
		})
	}
}

func inRealSandbox(ctx context.Context, t *testing.T, c *guest.Client) {
	exec := func(r sandbox.ExecRequest) sandbox.ExecResult {
		t.Helper()
		out, err := c.Exec(ctx, r, nil)
		require.NoError(t, err)
		return out
	}
	assert.Empty(t, c.Report().Notes)
	out := exec(sandbox.ExecRequest{Command: "id -u; id -un; pwd; touch /workspace/a /session/b ~/c && echo wrote; echo x > /dev/stderr"})
	assert.Equal(t, "1000\nagent\n/workspace\nwrote\n", out.Stdout.Text, out.Stderr.Text)
	assert.Equal(t, "x\n", out.Stderr.Text)

	// A command lives on after the time of the start watchdog.
	out = exec(sandbox.ExecRequest{Argv: []string{"sleep", "2.5"}})
	assert.Equal(t, sandbox.Exited, out.Status, "%+v", out)

	out = exec(sandbox.ExecRequest{Command: treeOf("8100") + "echo up; sleep 81004", TimeoutMS: 1500})
	assert.Equal(t, sandbox.TimedOut, out.Status)
	assert.Equal(t, "up\n", out.Stdout.Text)
	s, err := c.Status(ctx)
	require.NoError(t, err)
	for _, p := range s.Table {
		if p.State != "Z" {
			assert.NotContains(t, p.Command, "sleep 8100")
		}
	}
	out = exec(sandbox.ExecRequest{Argv: []string{"perl", "-e", calls + `
call("unshare_user", 272, 0x10000000);
call("mount", 165, 0, 0, 0, 0, 0);
call("keyctl", 250, 6, -3, 0);
call("io_uring_setup", 425, 1, 0);
call("socket_vsock", 41, 40, 1, 0);
call("socket_audit", 41, 16, 3, 9);
call("socket_inet", 41, 2, 1, 0);
`}})
	assert.Equal(t, "unshare_user EPERM\nmount EPERM\nkeyctl EPERM\nio_uring_setup EPERM\nsocket_vsock EAFNOSUPPORT\nsocket_audit EAFNOSUPPORT\nsocket_inet OK\n", out.Stdout.Text, out.Stderr.Text)

	out = exec(sandbox.ExecRequest{Command: "tty; stty size", TTY: &sandbox.TermSize{Cols: 91, Rows: 33}})
	assert.Contains(t, out.Stdout.Text, "/dev/pts/")
	assert.Contains(t, out.Stdout.Text, "33 91")

	out = exec(sandbox.ExecRequest{Command: "cat /proc/1/environ /proc/1/mem 2>&1; ls -la /.pinfold/link 2>&1; env"})
	assert.NotContains(t, out.Stdout.Text, "guest.sock")

	// A311: what stops everything it may does not hold the guest.
	exec(sandbox.ExecRequest{Command: "while :; do kill -STOP -1; done", Background: true})
	frozen := 0
	for range 20 {
		began := time.Now()
		if _, err := c.Exec(ctx, sandbox.ExecRequest{Argv: []string{"true"}, WaitMS: 20, TimeoutMS: 5000}, nil); err != nil {
			require.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err), "%v", err)
			frozen++
		}
		require.Less(t, time.Since(began), 4*time.Second)
	}
	t.Logf("%d of 20 starts were frozen", frozen)
	_, err = c.Kill(ctx, sandbox.KillRequest{All: true, Signal: "KILL"})
	require.NoError(t, err)

	began := time.Now()
	const n = 100
	for range n {
		exec(sandbox.ExecRequest{Argv: []string{"true"}})
	}
	t.Logf("[\"true\"]: %v a call", time.Since(began)/n)
}
