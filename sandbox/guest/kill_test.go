//go:build linux

package guest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

// treeOf starts what tries to get away: a child in the background, one in a
// session of its own, and one that forked twice.
func treeOf(mark string) string {
	return "sleep " + mark + "1 & setsid sleep " + mark + "2 & (setsid sh -c 'nohup sleep " + mark + "3 >/dev/null 2>&1 &' &) ; "
}

func TestEnds(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})

	t.Run("C20 A79 A80 a time-out ends the whole tree", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: treeOf("7100") + "echo up; sleep 71004", TimeoutMS: 700})
		assert.Equal(t, sandbox.TimedOut, out.Status)
		assert.Nil(t, out.ExitCode)
		assert.Empty(t, out.Signal)
		assert.Equal(t, "up\n", out.Stdout.Text)
		assert.Less(t, out.DurationMS, int64(2500))
		assert.Equal(t, 0, left(t, g, "sleep 7100"))
	})
	t.Run("a cancel ends the whole tree and the output stays", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		out, err := g.Exec(ctx, sandbox.ExecRequest{Command: treeOf("7200") + "echo up; sleep 72004", ProgressMS: 50}, func(p sandbox.ExecProgress) {
			if p.Bytes > 0 {
				cancel()
			}
		})
		assert.Equal(t, sandbox.Canceled, sandbox.CodeOf(err))
		assert.Equal(t, 0, left(t, g, "sleep 7200"))
		require.NotEmpty(t, out.Process)
		assert.Equal(t, sandbox.Killed, out.Status)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: new(int64)})
		require.NoError(t, err)
		assert.Equal(t, "up\n", got.Text)
		assert.Equal(t, sandbox.Killed, got.Status)
	})
	t.Run("the soft limit answers with a handle and the tree goes on", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "echo up; sleep 0.5; echo down; exit 4", WaitMS: 200})
		assert.Equal(t, sandbox.Running, out.Status)
		assert.Equal(t, "up\n", out.Stdout.Text)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, WaitMS: 10_000, Match: "do.n"})
		require.NoError(t, err)
		assert.True(t, *got.Matched)
		assert.Equal(t, "down\n", got.Text)
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, WaitMS: 10_000})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Exited, got.Status)
		assert.Equal(t, 4, *got.ExitCode)
	})
	t.Run("the hard limit holds after a handle was given", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: treeOf("7300") + "sleep 73004", WaitMS: 100, TimeoutMS: 600})
		assert.Equal(t, sandbox.Running, out.Status)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, WaitMS: 10_000, Match: "never"})
		require.NoError(t, err)
		assert.Equal(t, sandbox.TimedOut, got.Status)
		assert.Equal(t, 0, left(t, g, "sleep 7300"))
	})
	t.Run("A75 a drip ends at the limit with what came", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "while :; do printf x; sleep 0.05; done", TimeoutMS: 600})
		assert.Equal(t, sandbox.TimedOut, out.Status)
		assert.Greater(t, len(out.Stdout.Text), 2)
	})
	t.Run("C6 A86 a child that holds the pipe does not hold the call", func(t *testing.T) {
		began := time.Now()
		out := sh(t, g, "sleep 7401 & echo started")
		assert.Less(t, time.Since(began), time.Second)
		assert.Equal(t, 0, *out.ExitCode)
		assert.Equal(t, "started\n", out.Stdout.Text)
		require.Len(t, out.StillRunning, 1)
		assert.Contains(t, out.StillRunning[0].Command, "sleep 7401", "or the shell that is about to become it")
		killed, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Exited, killed.Processes[0].Status, "the command itself had ended")
		assert.Equal(t, 0, left(t, g, "sleep 7401"))
	})
	t.Run("background answers at once, and TERM ends it", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: treeOf("7500") + "echo up; sleep 75004", Background: true})
		assert.Equal(t, sandbox.Running, out.Status)
		_, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, WaitMS: 5000, Match: "up"})
		require.NoError(t, err)
		began := time.Now()
		killed, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process})
		require.NoError(t, err)
		assert.Less(t, time.Since(began), time.Second, "nothing ignores TERM here")
		require.Len(t, killed.Processes, 1)
		assert.Equal(t, sandbox.Killed, killed.Processes[0].Status)
		assert.Equal(t, 0, left(t, g, "sleep 7500"))
	})
	t.Run("A81 what ignores TERM is ended after the grace", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "trap '' TERM INT HUP; echo up; while :; do sleep 0.1; done", WaitMS: 300})
		began := time.Now()
		killed, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process, GraceMS: 400})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), 400*time.Millisecond)
		assert.Less(t, time.Since(began), 2*time.Second)
		assert.Equal(t, sandbox.Killed, killed.Processes[0].Status)
	})
	t.Run("TERM lets a command end as it wants", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done", WaitMS: 300})
		_, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process})
		require.NoError(t, err)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: new(int64)})
		require.NoError(t, err)
		assert.Contains(t, got.Text, "bye")
	})
	t.Run("other signals are only sent", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"sh", "-c", "trap 'echo got' USR1; echo up; while :; do sleep 0.05; done"}, WaitMS: 300})
		_, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process, Signal: "SIGHUP9"})
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
		out2 := run(t, g, sandbox.ExecRequest{Argv: []string{"sleep", "7601"}, Background: true})
		_, err = g.Kill(within(t), sandbox.KillRequest{Process: out2.Process, Signal: "STOP"})
		require.NoError(t, err)
		assert.Equal(t, 1, left(t, g, "sleep 7601"))
		killed, err := g.Kill(within(t), sandbox.KillRequest{All: true})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(killed.Processes), 2)
		assert.Equal(t, 0, left(t, g, "sleep 7601"), "a stopped one too")
	})
	t.Run("a handle that is none", func(t *testing.T) {
		_, err := g.Kill(within(t), sandbox.KillRequest{Process: "p999"})
		assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
		_, err = g.Kill(within(t), sandbox.KillRequest{})
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
	})
	t.Run("A84 whatever ends is reaped", func(t *testing.T) {
		ok(t, g, "for i in $(seq 2000); do (true &) ; done")
		require.Eventually(t, func() bool {
			s, err := g.Status(within(t))
			require.NoError(t, err)
			for _, p := range s.Table {
				if p.State == "Z" {
					return false
				}
			}
			return true
		}, 5*time.Second, 20*time.Millisecond)
	})
	t.Run("a fork bomb ends with its command", func(t *testing.T) {
		g := guesttest.Start(t, guesttest.Options{Config: guest.Config{Limits: sandbox.Limits{Pids: 200}}})
		out := run(t, g, sandbox.ExecRequest{Command: "b() { b | b & }; b; sleep 78001", TimeoutMS: 1500})
		assert.Equal(t, sandbox.TimedOut, out.Status)
		require.Eventually(t, func() bool { return left(t, g, "bash") == 0 }, 10*time.Second, 50*time.Millisecond)
		assert.Equal(t, "fine\n", ok(t, g, "echo fine"))
	})
}

// A process whose first thread has ended looks like a zombie, and one that forks
// and exits at once is in no list of processes that can be read.
func TestAKillMeetsWhatHides(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	if sh(t, g, "command -v gcc").Stdout.Text == "" {
		t.Skip("no C compiler here")
	}
	const dir = "/tmp/hides"
	ok(t, g, "mkdir -p "+dir)
	build := func(name, source string) {
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"gcc", "-w", "-O1", "-o", dir + "/" + name, "-x", "c", "-", "-lpthread"}, Stdin: []byte(source)})
		require.Equal(t, 0, *out.ExitCode, out.Stderr.Text)
	}
	// What a program writes as long as it lives.
	const head = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <sched.h>\n#include <unistd.h>\n#include <fcntl.h>\n#include <stdio.h>\n" +
		"#include <sys/syscall.h>\n#include <signal.h>\n#include <stdlib.h>\n" +
		"static void beat(char c){int fd=open(\"" + dir + "/beat\",O_WRONLY|O_CREAT|O_APPEND,0644);write(fd,&c,1);close(fd);}\n"
	build("headless", head+`
void *go(void *a) { for (;;) { beat('h'); usleep(2000); } }
int main() { pthread_t t; daemon(0, 0); pthread_create(&t, 0, go, 0); pthread_exit(0); }`)
	build("rabbit", head+`
static char st[2][65536]; static volatile long i;
int go(void *a) {
	long k = ++i;
	if (k % 100 == 0) beat('r');
	while (clone(go, st[k&1] + 65536 - 64, CLONE_VM | SIGCHLD, 0) < 0);
	syscall(SYS_exit_group, 0);
}
int main(int c, char **v) { for (int k = atoi(v[1]); k > 1; k--) if (!fork()) break; daemon(0, 0); go(0); }`)
	// quiet reports whether nothing beats any more.
	quiet := func() bool {
		a := ok(t, g, "cat "+dir+"/beat | wc -c; sleep 0.1; cat "+dir+"/beat | wc -c")
		f := strings.Fields(a)
		return f[0] == f[1]
	}
	starts := func(c string) string {
		return "rm -f " + dir + "/beat; " + c + "; until [ -s " + dir + "/beat ]; do :; done; "
	}
	t.Run("a time-out ends a process without its first thread", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: starts(dir+"/headless") + "echo up; sleep 70004", TimeoutMS: 700})
		assert.Equal(t, sandbox.TimedOut, out.Status)
		assert.Equal(t, "up\n", out.Stdout.Text)
		assert.True(t, quiet())
	})
	t.Run("it counts as still running, and a kill ends it", func(t *testing.T) {
		out := sh(t, g, starts(dir+"/headless"))
		assert.Len(t, out.StillRunning, 1)
		assert.False(t, quiet())
		_, err := g.Kill(within(t), sandbox.KillRequest{Process: out.Process})
		require.NoError(t, err)
		assert.True(t, quiet())
	})
	t.Run("a time-out ends what forks and exits at once", func(t *testing.T) {
		beats := 0
		for i := range 24 {
			out := run(t, g, sandbox.ExecRequest{Command: starts(dir+"/rabbit "+[]string{"1", "2", "8"}[i%3]) + "sleep 70005", TimeoutMS: 300})
			assert.Equal(t, sandbox.TimedOut, out.Status)
			assert.True(t, quiet(), "round %d", i)
			beats += len(strings.TrimSpace(sh(t, g, "[ -s "+dir+"/beat ] && echo x").Stdout.Text))
		}
		assert.Greater(t, beats, 12, "on a busy machine some time-outs strike before the first beat")
	})
	t.Run("what another command does goes on", func(t *testing.T) {
		other := run(t, g, sandbox.ExecRequest{Command: "while :; do (true); echo tick; done", Background: true})
		stopped := run(t, g, sandbox.ExecRequest{Command: "kill -STOP $$; echo woken", Background: true})
		run(t, g, sandbox.ExecRequest{Command: starts(dir+"/rabbit 8") + "sleep 70006", TimeoutMS: 300})
		assert.True(t, quiet())
		first, err := g.Output(within(t), sandbox.OutputRequest{Process: other.Process})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Running, first.Status)
		next, err := g.Output(within(t), sandbox.OutputRequest{Process: other.Process, WaitMS: 5000, Match: "tick"})
		require.NoError(t, err)
		assert.True(t, *next.Matched)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: stopped.Process})
		require.NoError(t, err)
		assert.Empty(t, got.Text, "what was stopped stays so")
		_, err = g.Kill(within(t), sandbox.KillRequest{All: true})
		require.NoError(t, err)
	})
}

func TestALostLinkEndsEverything(t *testing.T) {
	for _, link := range []sandbox.Link{sandbox.LinkUnix, sandbox.LinkStdio} {
		t.Run(string(link), func(t *testing.T) {
			t.Parallel()
			g := guesttest.Start(t, guesttest.Options{Config: guest.Config{Link: link}})
			out := run(t, g, sandbox.ExecRequest{Command: treeOf("7700") + "sleep 77004", WaitMS: 100})
			assert.Equal(t, sandbox.Running, out.Status)
			pending := make(chan error, 1)
			go func() {
				_, err := g.Exec(within(t), sandbox.ExecRequest{Command: "sleep 77005"}, nil)
				pending <- err
			}()
			require.Eventually(t, func() bool { return left(t, g, "sleep 77005") > 0 }, 5*time.Second, 10*time.Millisecond)
			began := time.Now()
			require.NoError(t, g.Conn.Close())
			select {
			case err := <-pending:
				assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))
				assert.ErrorContains(t, err, "has ended")
			case <-time.After(2 * time.Second):
				t.Fatal("the pending call hangs")
			}
			select {
			case <-g.Exited():
				assert.Less(t, time.Since(began), 2*time.Second)
			case <-time.After(4 * time.Second):
				t.Fatal("the guest lives on: " + g.Log())
			}
			<-g.Done()
			_, err := g.Exec(within(t), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
			assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))
		})
	}
}

func TestAKeptSessionWaitsForItsHost(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{Config: guest.Config{KeepMS: 3000}})
	out := run(t, g, sandbox.ExecRequest{Command: "echo up; sleep 76001", WaitMS: 200})
	lost := make(chan error, 1)
	go func() {
		_, err := g.Exec(within(t), sandbox.ExecRequest{Command: "sleep 76002; sleep 76002", WaitMS: 25_000}, nil)
		lost <- err
	}()
	require.Eventually(t, func() bool { return left(t, g, "sleep 76002") > 0 }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, g.Conn.Close())
	assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(<-lost))
	g.Redial(t)
	got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: new(int64)})
	require.NoError(t, err)
	assert.Equal(t, "up\n", got.Text)
	assert.Equal(t, sandbox.Running, got.Status)
	assert.Positive(t, left(t, g, "sleep 76002"), "the lost call's command too")

	require.NoError(t, g.Close())
	select {
	case <-g.Exited():
	case <-time.After(8 * time.Second):
		t.Fatal("it waits for ever")
	}
}

func TestAKilledGuestIsNoticed(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	pending := make(chan error, 1)
	go func() {
		_, err := g.Exec(within(t), sandbox.ExecRequest{Command: "sleep 79001"}, nil)
		pending <- err
	}()
	require.Eventually(t, func() bool { return left(t, g, "sleep 79001") > 0 }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, g.Cmd.Process.Kill())
	select {
	case err := <-pending:
		assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))
	case <-time.After(2 * time.Second):
		t.Fatal("the pending call hangs")
	}
}

func TestShutdownEndsTheGuest(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	run(t, g, sandbox.ExecRequest{Command: treeOf("7800"), Background: true})
	require.NoError(t, g.Shutdown(within(t)))
	<-g.Exited()
}
