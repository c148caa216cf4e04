//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

func TestTwentyParallelCallsInOneSession(t *testing.T) {
	c, _ := newWorld(t).stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "true"}).Str("session")
	start := time.Now()
	var wg sync.WaitGroup
	replies := make([]*story.Reply, 20)
	for i := range replies {
		wg.Go(func() {
			replies[i] = try(t, c, "shell_run", map[string]any{"command": fmt.Sprintf("echo out%d; echo err%d >&2; sleep 1; exit %d", i, i, i)})
		})
	}
	wg.Wait()
	t.Logf("20 calls of one second each took %v", time.Since(start).Round(time.Millisecond))
	assert.Less(t, time.Since(start), 10*time.Second, "one after the other they would take 20 s")
	for i, r := range replies {
		assert.False(t, r.IsError, "a command that exits %d is a success: %s", i, r.Text)
		assert.Equal(t, session, r.Str("session"))
		assert.Equal(t, fmt.Sprint(i), r.Str("exit_code"))
		assert.Equal(t, fmt.Sprintf("out%d\n", i), r.Str("stdout.text"))
		assert.Equal(t, fmt.Sprintf("err%d\n", i), r.Str("stderr.text"))
	}
	call(t, c, "session_close", map[string]any{})
	requireNothingLeft(t, session)
}

func TestACancelEndsTheCommandsWholeTree(t *testing.T) {
	w := newWorld(t)
	s := w.start(t, "serve", "--tools", "all")
	r := newRaw(s)
	r.initialize(t)
	// One child in the group, one in a session of its own, one twice forked.
	r.callTool(t, "1", "shell_run", `{"command":"sleep 7001 & setsid sleep 7002 & (setsid nohup sleep 7003 >/dev/null 2>&1 &); echo up; sleep 7004"}`)
	sleepers := func() (n int) {
		for _, line := range processes(t) {
			if strings.HasPrefix(line, "sleep 700") {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return sleepers() == 4 }, patience, 20*time.Millisecond)
	r.send(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}`)
	require.Eventually(t, func() bool { return sleepers() == 0 }, 5*time.Second, 20*time.Millisecond)
	r.callTool(t, "2", "session_status", `{}`)
	status := decode[toolResult](t, string(r.answer(t, "2").Result))
	assert.False(t, status.IsError)
	assert.False(t, r.has(func(m message) bool { return string(m.ID) == "1" }), "nothing more is sent for a cancelled call")
	assert.Contains(t, mustString(t, status.Structured), "shell_run", "the output of the cancelled call can still be reached")
	session, _ := status.Structured["session"].(string)
	r.callTool(t, "3", "session_close", `{}`)
	r.answer(t, "3")
	requireNothingLeft(t, session)
	assert.Empty(t, r.stray())
}

func TestFiveMegabytesArriveBounded(t *testing.T) {
	c, _ := newWorld(t).stdio(t)
	r := call(t, c, "shell_run", map[string]any{"command": `python3 -c "
for i in range(100000): print('line %06d' % i, 'x' * 38)
"`})
	assert.LessOrEqual(t, len(r.Text), 30_000)
	out := r.Str("stdout.text")
	assert.Contains(t, out, "line 000000", "the head is kept")
	assert.Contains(t, out, "line 099999", "the tail is kept")
	assert.Equal(t, "5.1e+06", r.Str("stdout.bytes"))
	assert.Equal(t, "100000", r.Str("stdout.lines"))
	assert.Equal(t, "true", r.Str("stdout.truncated"))
	spill := r.Str("stdout.spill")
	require.NotEmpty(t, spill, "the whole text has a name")
	assert.Equal(t, "5100000", strings.TrimSpace(sh(t, c, "wc -c < "+spill)))
	part := call(t, c, "shell_output", map[string]any{"process": r.Str("process"), "since": -51})
	assert.Contains(t, part.Text, "line 099999", "the rest is read by offset")
	call(t, c, "session_close", map[string]any{})
}

func TestAKilledServerLeavesNothingThatTheNextStartDoesNotRemove(t *testing.T) {
	w := newWorld(t)
	c, s := w.stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "true"}).Str("session")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = c.Call(ctx, "shell_run", map[string]any{"command": "sleep 600"}) }()
	require.Eventually(t, func() bool {
		return strings.Contains(fmt.Sprint(processes(t)), "sleep 600")
	}, patience, 20*time.Millisecond)
	s.kill(t, syscall.SIGKILL)
	s.ended(t, 5*time.Second)

	next, _ := w.stdio(t)
	second := call(t, next, "shell_run", map[string]any{"command": "true"}).Str("session")
	assert.NotEqual(t, session, second)
	requireNothingLeft(t, session)
	call(t, next, "session_close", map[string]any{})
	requireNothingLeft(t, second)
}

func TestTheEndOfStdinEndsServerAndSandbox(t *testing.T) {
	w := newWorld(t)
	c, s := w.stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "sleep 800 & true"}).Str("session")
	require.NoError(t, s.in.Close())
	s.ended(t, 3*time.Second)
	requireNothingLeft(t, session)
}

func TestABrokenStdoutEndsServerAndSandbox(t *testing.T) {
	w := newWorld(t)
	s := w.start(t, "serve", "--tools", "all")
	r := newRaw(s)
	r.initialize(t)
	r.callTool(t, "1", "shell_run", `{"command":"true"}`)
	session, _ := decode[toolResult](t, string(r.answer(t, "1").Result)).Structured["session"].(string)
	require.NoError(t, s.out.Close())
	r.callTool(t, "2", "shell_run", `{"command":"true"}`)
	s.ended(t, 5*time.Second)
	requireNothingLeft(t, session)
}

func TestADeadParentEndsServerAndSandbox(t *testing.T) {
	w := newWorld(t)
	// The shell is the client that dies; the protocol goes through a FIFO, which this test keeps open.
	fifo := filepath.Join(w.dir, "in")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	parent := exec.Command("sh", "-c", `"$0" serve --tools all < "$1" & echo "child $!" >&2; wait`, binary(t), fifo)
	parent.Env = w.env
	p := run(t, parent)
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer in.Close()
	c, err := story.DialMCPGo(t.Context(), transport.NewIO(p.out, in, nopReader{}))
	require.NoError(t, err)
	session := call(t, c, "shell_run", map[string]any{"command": "true"}).Str("session")
	p.kill(t, syscall.SIGKILL)
	requireNothingLeft(t, session)
}

type nopReader struct{}

func (nopReader) Read([]byte) (int, error) { return 0, os.ErrClosed }
func (nopReader) Close() error             { return nil }

func TestTwoSessionsSeeNothingOfEachOther(t *testing.T) {
	c, _ := newWorld(t).stdio(t)
	one := call(t, c, "session_open", map[string]any{}).Str("session")
	two := call(t, c, "session_open", map[string]any{}).Str("session")
	require.NotEqual(t, one, two)
	in := func(session, line string) *story.Reply {
		return call(t, c, "shell_run", map[string]any{"session": session, "command": line})
	}
	in(one, "echo secret > /workspace/note; echo secret > /tmp/note; echo secret > /dev/shm/note; python3 -m http.server 8000 & sleep 7777 &")
	require.Eventually(t, func() bool { return in(one, "curl -sf localhost:8000/note").Str("stdout.text") == "secret\n" }, patience, 50*time.Millisecond)
	assert.NotEqual(t, "0", in(two, "cat /workspace/note").Str("exit_code"))
	assert.NotEqual(t, "0", in(two, "cat /tmp/note /dev/shm/note").Str("exit_code"))
	assert.NotEqual(t, "0", in(two, "curl -sf --max-time 2 localhost:8000/note").Str("exit_code"))
	assert.NotContains(t, in(two, "cat /proc/*/cmdline | tr '\\0' ' '").Str("stdout.text"), "sleep 7777")
	// The control: within one session all of it is seen.
	assert.Contains(t, in(one, "cat /proc/*/cmdline | tr '\\0' ' '").Str("stdout.text"), "sleep 7777")
	in(two, "python3 -m http.server 8000 >/dev/null 2>&1 & sleep 0.5; kill -0 $!") // the port is free there
	for _, s := range []string{one, two} {
		call(t, c, "session_close", map[string]any{"session": s})
		requireNothingLeft(t, s)
	}
}

func TestWorksWithAlmostNoEnvironment(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(binary(t), "serve", "--tools", "all")
	cmd.Env = []string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH")}
	cmd.Dir = w.dir
	s := run(t, cmd)
	c, err := story.DialMCPGo(t.Context(), transport.NewIO(s.out, s.in, nopReader{}))
	require.NoError(t, err)
	r := call(t, c, "shell_run", map[string]any{"command": "id -u; pwd; env | cut -d= -f1 | sort | xargs"})
	assert.True(t, strings.HasPrefix(r.Str("stdout.text"), "1000\n/workspace\n"), r.Text)
	session := r.Str("session")
	call(t, c, "session_close", map[string]any{})
	requireNothingLeft(t, session)
}

func TestStdoutCarriesProtocolOnly(t *testing.T) {
	w := newWorld(t)
	s := w.start(t, "serve", "--tools", "all", "--log-level", "debug")
	r := newRaw(s)
	r.initialize(t)
	for i := range 200 {
		r.callTool(t, fmt.Sprint(i), "shell_run", `{"command":"echo noise; echo more >&2; printf '{\"jsonrpc\":\"2.0\"}'"}`)
	}
	for i := range 200 {
		r.answer(t, fmt.Sprint(i))
	}
	assert.Empty(t, r.stray())
}

func mustString(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
