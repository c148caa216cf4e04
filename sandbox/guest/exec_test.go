//go:build linux

package guest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
	"pinfold.dev/pinfold/tools"
)

func TestMain(m *testing.M) { guesttest.Main(m) }

var _ tools.Sandbox = (*guest.Client)(nil)

// within is the time that a test gives what should take milliseconds.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func run(t testing.TB, g *guesttest.Guest, r sandbox.ExecRequest) sandbox.ExecResult {
	t.Helper()
	out, err := g.Exec(within(t), r, nil)
	require.NoError(t, err, g.Log())
	return out
}

func sh(t testing.TB, g *guesttest.Guest, command string) sandbox.ExecResult {
	t.Helper()
	return run(t, g, sandbox.ExecRequest{Command: command})
}

// ok runs a command that must exit 0 and returns what it printed.
func ok(t testing.TB, g *guesttest.Guest, command string) string {
	t.Helper()
	out := sh(t, g, command)
	require.Equal(t, sandbox.Exited, out.Status, "%+v", out)
	require.Equal(t, 0, *out.ExitCode, "%+v", out)
	return out.Stdout.Text
}

// left counts the living processes whose command line contains mark.
func left(t testing.TB, g *guesttest.Guest, mark string) int {
	t.Helper()
	s, err := g.Status(within(t))
	require.NoError(t, err)
	n := 0
	for _, p := range s.Table {
		if p.State != "Z" && strings.Contains(p.Command, mark) {
			n++
		}
	}
	return n
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
			assert.Equal(t, "on", g.Report().Filter)
			assert.Equal(t, 2, g.Report().Seccomp)
			assert.Equal(t, "refused", g.Report().Probes["keyctl"])
			assert.Equal(t, []string{"lo"}, g.Report().Interfaces)
		})
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{
		Config: guest.Config{Env: map[string]string{"FROM_TEMPLATE": "yes", "TERM": "vt100"}},
		Env:    []string{"FROM_IMAGE=secret"},
	})

	t.Run("exit codes are the command's own", func(t *testing.T) {
		for _, code := range []int{0, 1, 2, 3, 42, 125, 126, 127, 128, 130, 137, 255} {
			out := sh(t, g, fmt.Sprintf("exit %d", code))
			assert.Equal(t, sandbox.Exited, out.Status)
			require.NotNil(t, out.ExitCode)
			assert.Equal(t, code, *out.ExitCode)
		}
	})
	t.Run("a signal is a signal and no exit code", func(t *testing.T) {
		for _, sig := range []string{"SEGV", "KILL", "TERM", "ABRT"} {
			out := run(t, g, sandbox.ExecRequest{Argv: []string{"sh", "-c", "kill -" + sig + " $$"}})
			assert.Equal(t, sandbox.Signaled, out.Status, sig)
			assert.Nil(t, out.ExitCode)
			assert.Equal(t, "SIG"+sig, out.Signal)
		}
	})
	t.Run("who and where", func(t *testing.T) {
		assert.Equal(t, "1000 1000 agent\n", ok(t, g, "echo $(id -u) $(id -g) $(id -un)"))
		assert.Equal(t, "/workspace\n", ok(t, g, "pwd"))
		assert.Equal(t, "0022\n", ok(t, g, "umask"))
		assert.Equal(t, "/home/agent\n", ok(t, g, "cd && pwd"))
		assert.Equal(t, "bash\n", ok(t, g, "echo $0"))
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"pwd"}, Dir: "/tmp"})
		assert.Equal(t, "/tmp\n", out.Stdout.Text)
	})
	t.Run("no capability, no way to one", func(t *testing.T) {
		status := ok(t, g, "cat /proc/self/status")
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			assert.Contains(t, status, set+":\t0000000000000000\n")
		}
		assert.Contains(t, status, "NoNewPrivs:\t1\n")
		assert.Contains(t, status, "Seccomp:\t2\n")
	})
	t.Run("A61 a command has its three descriptors and no more", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"ls", "/proc/self/fd"}})
		assert.Equal(t, "0\n1\n2\n3\n", out.Stdout.Text, "3 is the folder that ls reads")
		for n := 3; n <= 30; n++ {
			_, err := g.Exec(within(t), sandbox.ExecRequest{Argv: []string{"true"}, Dir: fmt.Sprintf("/proc/self/fd/%d/..", n)}, nil)
			require.Error(t, err)
		}
	})
	t.Run("C4 C5 stdin is closed", func(t *testing.T) {
		began := time.Now()
		out := sh(t, g, `python3 -c "input('> ')"`)
		assert.Less(t, time.Since(began), 5*time.Second)
		assert.Equal(t, 1, *out.ExitCode)
		assert.Contains(t, out.Stderr.Text, "EOFError")
		assert.Equal(t, "0\n", ok(t, g, "wc -c"))
	})
	t.Run("stdin is what was given", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 64<<10)
		out := run(t, g, sandbox.ExecRequest{Command: "md5sum | cut -c1-4; wc -c", Stdin: []byte(big)})
		assert.Contains(t, out.Stdout.Text, "\n0\n")
		out = run(t, g, sandbox.ExecRequest{Command: "wc -c", Stdin: []byte(big)})
		assert.Equal(t, "1048576\n", out.Stdout.Text)
		out = run(t, g, sandbox.ExecRequest{Argv: []string{"true"}, Stdin: []byte(big)})
		assert.Equal(t, 0, *out.ExitCode, "a command need not read it")
	})
	t.Run("the environment is ours, the template's, the call's", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"env"}, Env: map[string]string{"OWN": "a=b\nc", "LANG": "de_DE.UTF-8"}})
		for _, want := range []string{"OWN=a=b\nc\n", "LANG=de_DE.UTF-8\n", "FROM_TEMPLATE=yes\n", "TERM=vt100\n", "HOME=/home/agent\n", "USER=agent\n"} {
			assert.Contains(t, out.Stdout.Text, want)
		}
		assert.NotContains(t, out.Stdout.Text, "FROM_IMAGE")
	})
	t.Run("PATH holds in a login shell", func(t *testing.T) {
		assert.True(t, strings.HasPrefix(ok(t, g, "echo $PATH"), "/home/agent/.local/bin:"))
		out := run(t, g, sandbox.ExecRequest{Command: "echo $PATH; env | grep -c PINFOLD", Env: map[string]string{"PATH": "/tmp:/usr/bin"}})
		assert.Equal(t, "/tmp:/usr/bin\n0\n", out.Stdout.Text)
		ok(t, g, "mkdir -p ~/.local/bin && printf '#!/bin/sh\necho mine\n' > ~/.local/bin/mytool && chmod +x ~/.local/bin/mytool")
		assert.Equal(t, "mine\n", ok(t, g, "mytool"))
		assert.Equal(t, "mine\n", run(t, g, sandbox.ExecRequest{Argv: []string{"mytool"}}).Stdout.Text)
	})
	t.Run("A88 names that are none are refused", func(t *testing.T) {
		for _, name := range []string{"", "A=B", "A\nB", "A\x00B"} {
			_, err := g.Exec(within(t), sandbox.ExecRequest{Argv: []string{"true"}, Env: map[string]string{name: "x"}}, nil)
			assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err), "%q: %v", name, err)
		}
		_, err := g.Exec(within(t), sandbox.ExecRequest{Argv: []string{"true"}, Env: map[string]string{"A": "x\x00"}}, nil)
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
	})
	t.Run("A91 C25 a bad start is a typed error and the next one works", func(t *testing.T) {
		ok(t, g, "printf '#!/no/such/interpreter\n' > /tmp/script; chmod +x /tmp/script; echo x > /tmp/plain; printf 'garbage' > /tmp/garbage; chmod +x /tmp/garbage; mkdir -p /tmp/gone")
		for _, c := range []struct {
			r    sandbox.ExecRequest
			code sandbox.Code
			says string
		}{
			{sandbox.ExecRequest{Argv: []string{"no-such-cmd"}}, sandbox.NotFound, "no program no-such-cmd in PATH"},
			{sandbox.ExecRequest{Argv: []string{"/no/such"}}, sandbox.NotFound, "/no/such does not exist"},
			{sandbox.ExecRequest{Argv: []string{"/tmp/script"}}, sandbox.NotFound, "interpreter"},
			{sandbox.ExecRequest{Argv: []string{"/tmp/plain"}}, sandbox.FailedPrecondition, "may not be executed"},
			{sandbox.ExecRequest{Argv: []string{"/tmp/garbage"}}, sandbox.FailedPrecondition, "no program for this machine"},
			{sandbox.ExecRequest{Argv: []string{"/tmp"}}, sandbox.FailedPrecondition, "may not be executed"},
			{sandbox.ExecRequest{Argv: []string{"true"}, Dir: "/no/such"}, sandbox.NotFound, "cwd: /no/such does not exist"},
			{sandbox.ExecRequest{Argv: []string{"true"}, Dir: "/tmp/plain"}, sandbox.FailedPrecondition, "not a folder"},
			{sandbox.ExecRequest{Argv: []string{"true"}, Dir: "/browser"}, sandbox.PermissionDenied, "cwd: /browser"},
			{sandbox.ExecRequest{}, sandbox.InvalidArgument, "exactly one"},
			{sandbox.ExecRequest{Command: "x", Argv: []string{"x"}}, sandbox.InvalidArgument, "exactly one"},
			{sandbox.ExecRequest{Argv: []string{"a\x00b"}}, sandbox.InvalidArgument, "NUL"},
			{sandbox.ExecRequest{Command: "a\x00b"}, sandbox.InvalidArgument, "NUL"},
			{sandbox.ExecRequest{Argv: []string{"echo", strings.Repeat("x", 200<<10)}}, sandbox.InvalidArgument, "longer than the system takes"},
			{sandbox.ExecRequest{Command: strings.Repeat("x", 2<<20)}, sandbox.InvalidArgument, "1 MiB"},
			{sandbox.ExecRequest{Argv: []string{"true"}, TTY: &sandbox.TermSize{Cols: -1, Rows: 3}}, sandbox.InvalidArgument, "between 1 and 1000"},
		} {
			_, err := g.Exec(within(t), c.r, nil)
			assert.Equal(t, c.code, sandbox.CodeOf(err), "%v", err)
			assert.ErrorContains(t, err, c.says)
		}
		assert.Equal(t, "ok\n", ok(t, g, "echo ok"))
		out := sh(t, g, "no-such-cmd")
		assert.Equal(t, 127, *out.ExitCode)
		assert.Contains(t, out.Stderr.Text, "no-such-cmd: command not found")
	})
	t.Run("/dev/stderr and /dev/stdout can be opened again", func(t *testing.T) {
		out := sh(t, g, "echo a > /dev/stderr; echo b > /dev/stdout; echo c | tee /dev/stderr")
		assert.Equal(t, "b\nc\n", out.Stdout.Text)
		assert.Equal(t, "a\nc\n", out.Stderr.Text)
	})
	t.Run("A78 there is no terminal unless asked for", func(t *testing.T) {
		out := sh(t, g, "echo x > /dev/tty; tty; stty size")
		assert.Contains(t, out.Stderr.Text, "/dev/tty: No such device or address")
		assert.Contains(t, out.Stdout.Text, "not a tty")
	})
	t.Run("A94 the clock is not theirs", func(t *testing.T) {
		assert.NotEqual(t, 0, *sh(t, g, "date -s 2001-01-01").ExitCode)
	})
	t.Run("A95 a crash leaves no core", func(t *testing.T) {
		out := sh(t, g, "mkdir -p crash && cd crash && python3 -c 'import os; os.abort()'; ls")
		assert.Empty(t, out.Stdout.Text)
		assert.Contains(t, out.Stderr.Text, "Aborted")
	})
	t.Run("twenty at a time", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 5 {
					out, err := g.Exec(within(t), sandbox.ExecRequest{Command: fmt.Sprintf("echo %d; echo %d >&2; exit %d", i, j, i+j)}, nil)
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, fmt.Sprintln(i), out.Stdout.Text)
					assert.Equal(t, fmt.Sprintln(j), out.Stderr.Text)
					assert.Equal(t, i+j, *out.ExitCode)
				}
			})
		}
		wg.Wait()
	})
	t.Run("progress is told while a command runs", func(t *testing.T) {
		var last []string
		out, err := g.Exec(within(t), sandbox.ExecRequest{Command: "echo one; sleep 0.4; echo two", ProgressMS: 100}, func(p sandbox.ExecProgress) {
			last = append(last, p.LastLine)
		})
		require.NoError(t, err)
		assert.Equal(t, "one\ntwo\n", out.Stdout.Text)
		assert.Contains(t, last, "one")
	})
}
