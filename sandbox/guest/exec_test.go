//go:build linux

package guest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

func TestMain(m *testing.M) { guesttest.Main(m) }

// within is the time that a test gives what should take milliseconds.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func run(t testing.TB, g *guesttest.Guest, r sandbox.ExecRequest) sandbox.ExecResult {
	t.Helper()
	out, err := g.Exec(within(t), r, nil)
	require.NoError(t, err)
	return out
}

func sh(t testing.TB, g *guesttest.Guest, command string) sandbox.ExecResult {
	t.Helper()
	return run(t, g, sandbox.ExecRequest{Command: command})
}

func TestBothTransportsRunACommand(t *testing.T) {
	for _, link := range []sandbox.Link{sandbox.LinkUnix, sandbox.LinkStdio} {
		t.Run(string(link), func(t *testing.T) {
			t.Parallel()
			g := guesttest.Start(t, guesttest.Options{Config: guest.Config{Link: link}})
			out := sh(t, g, "echo hello; echo oops >&2; exit 3")
			assert.Equal(t, sandbox.Exited, out.Status)
			require.NotNil(t, out.ExitCode)
			assert.Equal(t, 3, *out.ExitCode)
			assert.Equal(t, "hello\n", out.Stdout.Text)
			assert.Equal(t, "oops\n", out.Stderr.Text)
			assert.Empty(t, g.Report().Notes)
		})
	}
}

func BenchmarkTrue(b *testing.B) {
	for _, link := range []sandbox.Link{sandbox.LinkUnix, sandbox.LinkStdio} {
		b.Run(string(link), func(b *testing.B) {
			g := guesttest.Start(b, guesttest.Options{Config: guest.Config{Link: link}})
			for b.Loop() {
				_, err := g.Exec(context.Background(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
