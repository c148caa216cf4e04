//go:build linux

package guest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

// hostHasKernel tells whether the host's own Python, which is the guest's here,
// has ipykernel. Both answers have a test; the full image has it always.
func hostHasKernel() bool {
	return exec.Command("/usr/bin/python3", "-c", "import ipykernel").Run() == nil
}

func TestCodeRunsAsTheAgent(t *testing.T) {
	if !hostHasKernel() {
		t.Skip("no ipykernel here; the tests on Podman run it in the full image")
	}
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{Config: guest.Config{Env: map[string]string{"FROM_TEMPLATE": "yes"}}})
	runs := func(code string) sandbox.CodeResult {
		t.Helper()
		r, err := g.RunCode(within(t), sandbox.CodeRequest{Code: code}, nil)
		require.NoError(t, err, g.Log())
		return r
	}
	r := runs("import os\nprint(os.getuid(), os.geteuid(), os.getcwd(), os.environ['FROM_TEMPLATE'], os.environ['HOME'])")
	require.Equal(t, "ok", r.Status, "%+v", r)
	assert.Equal(t, "1000 1000 /workspace yes /home/agent\n", r.Outputs[0].Text)
	assert.Contains(t, runs("open('/proc/self/status').read()").Outputs[0].Text, `CapEff:\t0000000000000000`)

	s, err := g.Status(within(t))
	require.NoError(t, err)
	require.Len(t, s.Kernels, 1)
	assert.Equal(t, "default", s.Kernels[0].Context)
	assert.NotZero(t, s.Kernels[0].PID)

	// What code starts is ended with its kernel, whatever it does to get away.
	runs("import subprocess\nsubprocess.Popen(['setsid', 'sleep', '4321'])")
	require.Equal(t, 1, left(t, g, "sleep 4321"))
	_, err = g.RunCode(within(t), sandbox.CodeRequest{Reset: true}, nil)
	require.NoError(t, err)
	assert.Zero(t, left(t, g, "sleep 4321"))
	assert.Zero(t, left(t, g, "ipykernel"))
	assert.Empty(t, strings.Fields(ok(t, g, "ls -A /tmp")), "sockets are left")
	st, err := g.Status(within(t))
	require.NoError(t, err)
	for _, p := range st.Table {
		assert.NotEqual(t, "Z", p.State, "%+v", p)
	}

	// A cancel of the call interrupts what runs, and keeps the variables.
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{}, 100)
	time.AfterFunc(20*time.Second, cancel)
	go func() {
		<-started
		cancel()
	}()
	_, err = g.RunCode(ctx, sandbox.CodeRequest{Code: "x = 5\nimport time\nprint('in it', flush=True)\ntime.sleep(1000)", ProgressMS: 50}, func(p sandbox.CodeProgress) {
		if p.LastLine == "in it" {
			started <- struct{}{}
		}
	})
	assert.Equal(t, sandbox.Canceled, sandbox.CodeOf(err))
	assert.Equal(t, "5", runs("x").Outputs[0].Text)
}

func TestAnImageWithoutAKernelIsNamed(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{Config: guest.Config{Env: map[string]string{"PATH": "/nowhere"}}})
	_, err := g.RunCode(within(t), sandbox.CodeRequest{Code: "1"}, nil)
	assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
	var e *sandbox.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "image_lacks", e.Reason)
	assert.Equal(t, "python3", e.Details["image_lacks"])

	// A Python that is there and has no ipykernel.
	g = guesttest.Start(t, guesttest.Options{Config: guest.Config{}})
	write(t, g, "bin/python3", "#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n")
	ok(t, g, "chmod 755 bin/python3; mkdir -p ~/.local; ln -s /workspace/bin ~/.local/bin")
	_, err = g.RunCode(within(t), sandbox.CodeRequest{Code: "1"}, nil)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "image_lacks", e.Reason)
	assert.Equal(t, "ipykernel", e.Details["image_lacks"])
	assert.Contains(t, e.Hint, "shell_run")
}
