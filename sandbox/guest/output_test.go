//go:build linux

package guest_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

// rss is the resident memory of the guest, in bytes.
func rss(t testing.TB, g *guesttest.Guest) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", g.Cmd.Process.Pid))
	require.NoError(t, err)
	n, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	require.NoError(t, err)
	return n * int64(os.Getpagesize())
}

func TestOutput(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})

	t.Run("five megabytes arrive bounded, counted and whole in a file", func(t *testing.T) {
		out := sh(t, g, `python3 -c "
for i in range(100000): print('line %06d' % i, 'x' * 38)
"`)
		assert.Equal(t, int64(5_100_000), out.Stdout.Bytes)
		assert.Equal(t, int64(100_000), out.Stdout.Lines)
		assert.True(t, out.Stdout.Truncated)
		assert.LessOrEqual(t, utf8.RuneCountInString(out.Stdout.Text), 30_100)
		assert.True(t, strings.HasPrefix(out.Stdout.Text, "line 000000 "))
		assert.True(t, strings.HasSuffix(out.Stdout.Text, "line 099999 "+strings.Repeat("x", 38)+"\n"))
		assert.Contains(t, out.Stdout.Text, fmt.Sprintf("[… %d bytes omitted …]", out.Stdout.Omitted))
		require.NotEmpty(t, out.Stdout.Spill)
		assert.Equal(t, "5100000\n", ok(t, g, "wc -c < "+out.Stdout.Spill))
		assert.Equal(t, "line 054321\n", ok(t, g, "sed -n 54322p "+out.Stdout.Spill+" | cut -c1-11"))
		since := int64(-51)
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: &since})
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(got.Text, "line 099999"))
		assert.False(t, got.More)
		since = 2_000_000 // long gone from memory
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: &since, MaxOutput: 100})
		require.NoError(t, err)
		assert.Positive(t, got.Dropped)
		assert.Equal(t, since+got.Dropped, got.Offset)
		assert.True(t, got.More)
	})
	t.Run("C49 600 MB without a newline leave the guest small", func(t *testing.T) {
		before := rss(t, g)
		out := run(t, g, sandbox.ExecRequest{Command: "yes | tr -d '\\n' | head -c 600000000", TimeoutMS: 60_000})
		assert.Equal(t, int64(600_000_000), out.Stdout.Bytes)
		assert.Equal(t, int64(1), out.Stdout.Lines)
		assert.Less(t, rss(t, g)-before, int64(16<<20))
		assert.Equal(t, "67108864\n", ok(t, g, "wc -c < "+out.Stdout.Spill), "the file is bounded too")
	})
	t.Run("a flood of one stream leaves the other", func(t *testing.T) {
		out := sh(t, g, "echo first >&2; head -c 3000000 /dev/zero | tr '\\0' a; echo last >&2")
		assert.Equal(t, "first\nlast\n", out.Stderr.Text)
		assert.False(t, out.Stderr.Truncated)
		assert.True(t, out.Stdout.Truncated)
	})
	t.Run("A76 characters that come in pieces stay whole", func(t *testing.T) {
		out := sh(t, g, `for i in $(seq 200); do printf '\360\237'; sleep 0.001; printf '\230\200'; done`)
		assert.Equal(t, strings.Repeat("😀", 200), out.Stdout.Text)
		p := run(t, g, sandbox.ExecRequest{Command: `printf 'a\360\237'; sleep 0.4; printf '\230\200b'; sleep 0.2; printf '\303'`, WaitMS: 150})
		assert.Equal(t, "a", p.Stdout.Text, "the rest of the character has not come")
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: p.Process, WaitMS: 5000, Match: "b", Since: new(int64)})
		require.NoError(t, err)
		assert.Equal(t, "a😀b", got.Text)
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: p.Process, WaitMS: 5000, Match: "never"})
		require.NoError(t, err)
		assert.Equal(t, `\xc3`, got.Text, "an end that is none")
	})
	t.Run("A76 bytes that are no text are written out", func(t *testing.T) {
		out := sh(t, g, `printf 'a\377b\355\240\200c\0d\342\200\250e'`)
		assert.Equal(t, `a\xffb\xed\xa0\x80c`+"\x00d\u2028e", out.Stdout.Text)
		out = sh(t, g, "head -c 100000 /dev/urandom")
		assert.True(t, utf8.ValidString(out.Stdout.Text))
		assert.LessOrEqual(t, utf8.RuneCountInString(out.Stdout.Text), 30_100)
	})
	t.Run("wide characters are counted as characters", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: `printf '漢%.0s' $(seq 2000)`, MaxOutput: 2000})
		assert.False(t, out.Stdout.Truncated)
		out = run(t, g, sandbox.ExecRequest{Command: `printf '漢%.0s' $(seq 5000)`, MaxOutput: 1000})
		assert.True(t, out.Stdout.Truncated)
		assert.Equal(t, 1000, strings.Count(out.Stdout.Text, "漢"))
	})
	t.Run("both streams as they came, in parts", func(t *testing.T) {
		out := sh(t, g, "for i in 1 2 3; do echo out$i; sleep 0.03; echo err$i >&2; sleep 0.03; done")
		want := "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: new(int64)})
		require.NoError(t, err)
		assert.Equal(t, want, got.Text)
		var text string
		for since := int64(0); ; {
			got, err := g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: &since, MaxOutput: 4})
			require.NoError(t, err)
			text += got.Text
			since = got.Next
			if !got.More {
				break
			}
		}
		assert.Equal(t, want, text)
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Since: new(int64), Stream: "stderr"})
		require.NoError(t, err)
		assert.Equal(t, "err1\nerr2\nerr3\n", got.Text)
		_, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Stream: "stdin"})
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
		_, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, Match: "("})
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
		_, err = g.Output(within(t), sandbox.OutputRequest{Process: "p0"})
		assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
	})
	t.Run("a match that does not come ends with the wait", func(t *testing.T) {
		p := run(t, g, sandbox.ExecRequest{Command: "echo up; sleep 30", WaitMS: 100})
		began := time.Now()
		got, err := g.Output(within(t), sandbox.OutputRequest{Process: p.Process, WaitMS: 200, Match: "down", Since: new(int64)})
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 2*time.Second)
		assert.False(t, *got.Matched)
		assert.Equal(t, "up\n", got.Text)
	})
	t.Run("a full disk for long output is no failure of the command", func(t *testing.T) {
		ok(t, g, "chmod 0555 /session/output")
		out := sh(t, g, "head -c 100000 /dev/zero | tr '\\0' a")
		assert.Equal(t, 0, *out.ExitCode)
		assert.True(t, out.Stdout.Truncated)
		assert.Empty(t, out.Stdout.Spill)
		ok(t, g, "chmod 0755 /session/output; ln -s /etc/passwd /session/output/p9999.stdout")
	})
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	tty := &sandbox.TermSize{Cols: 91, Rows: 33}

	t.Run("a command has one of the size asked for", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "tty; stty size; echo $TERM; echo err >&2; ls -l /dev/pts/ | grep -c agent", TTY: tty})
		assert.Equal(t, sandbox.Exited, out.Status)
		assert.Equal(t, "/dev/pts/0\r\n33 91\r\nxterm-256color\r\nerr\r\n1\r\n", out.Stdout.Text)
	})
	t.Run("C5 a prompt is told, and answered", func(t *testing.T) {
		began := time.Now()
		out := run(t, g, sandbox.ExecRequest{Command: `python3 -c "print('hi ' + input('name> '))"`, TTY: tty, WaitMS: 20_000})
		assert.Less(t, time.Since(began), 10*time.Second, "it does not wait for the soft limit")
		assert.Equal(t, sandbox.Running, out.Status)
		assert.Equal(t, "name>", strings.TrimSpace(out.Waiting))
		got, err := g.Input(within(t), sandbox.InputRequest{Process: out.Process, Data: []byte("joe"), Keys: []string{"enter"}, WaitMS: 5000})
		require.NoError(t, err)
		assert.Contains(t, got.Text, "hi joe")
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: out.Process, WaitMS: 5000, Match: "never"})
		require.NoError(t, err)
		assert.Equal(t, 0, *got.ExitCode)
	})
	t.Run("ctrl-c, ctrl-d and a new size", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Argv: []string{"bash", "--norc"}, TTY: tty, WaitMS: 400})
		p := out.Process
		got, err := g.Input(within(t), sandbox.InputRequest{Process: p, Data: []byte("sleep 100\n"), WaitMS: 200})
		require.NoError(t, err)
		require.Equal(t, sandbox.Running, got.Status)
		_, err = g.Input(within(t), sandbox.InputRequest{Process: p, Keys: []string{"ctrl-c"}, Resize: &sandbox.TermSize{Cols: 50, Rows: 20}, WaitMS: 500})
		require.NoError(t, err)
		got, err = g.Input(within(t), sandbox.InputRequest{Process: p, Data: []byte("stty size\n"), WaitMS: 2000})
		require.NoError(t, err)
		assert.Contains(t, got.Text, "20 50")
		_, err = g.Input(within(t), sandbox.InputRequest{Process: p, Keys: []string{"hyper-x"}})
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
		_, err = g.Input(within(t), sandbox.InputRequest{Process: p, EOF: true, WaitMS: 2000})
		require.NoError(t, err)
		got, err = g.Output(within(t), sandbox.OutputRequest{Process: p, WaitMS: 5000, Match: "never"})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Exited, got.Status)
		_, err = g.Input(within(t), sandbox.InputRequest{Process: p, Data: []byte("x")})
		assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
	})
	t.Run("an open stdin without a terminal", func(t *testing.T) {
		out := run(t, g, sandbox.ExecRequest{Command: "while read x; do echo got $x; done; echo end", OpenStdin: true, Stdin: []byte("one\n"), WaitMS: 300})
		assert.Equal(t, "got one\n", out.Stdout.Text)
		got, err := g.Input(within(t), sandbox.InputRequest{Process: out.Process, Data: []byte("two\n"), WaitMS: 3000})
		require.NoError(t, err)
		assert.Equal(t, "got two\n", got.Text)
		_, err = g.Input(within(t), sandbox.InputRequest{Process: out.Process, Keys: []string{"up"}})
		assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
		got, err = g.Input(within(t), sandbox.InputRequest{Process: out.Process, EOF: true, WaitMS: 3000})
		require.NoError(t, err)
		assert.Equal(t, "end\n", got.Text)
	})
}

func TestForwardReachesAServerInside(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	ok(t, g, "echo content > /tmp/page")
	run(t, g, sandbox.ExecRequest{Command: "cd /tmp && python3 -u -m http.server --bind 127.0.0.1 8123", Background: true})
	require.Eventually(t, func() bool {
		s, err := g.Status(within(t))
		require.NoError(t, err)
		for _, l := range s.Listening {
			if l.Port == 8123 && l.Address == "127.0.0.1" {
				return true
			}
		}
		return false
	}, 10*time.Second, 20*time.Millisecond)
	c, err := g.Forward(within(t), "tcp", "127.0.0.1:8123")
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /page HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Contains(t, string(b), "content\n")

	// A socket that only the agent may use.
	run(t, g, sandbox.ExecRequest{Background: true, Argv: []string{"python3", "-c", `
import os, socket
os.umask(0o177)
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/own.sock'); s.listen()
c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()`}})
	ok(t, g, "until [ -S /tmp/own.sock ]; do sleep 0.01; done")
	u, err := g.Forward(within(t), "unix", "/tmp/own.sock")
	require.NoError(t, err)
	defer u.Close()
	_, err = io.WriteString(u, "shout")
	require.NoError(t, err)
	b, err = io.ReadAll(u)
	require.NoError(t, err)
	assert.Equal(t, "SHOUT", string(b))

	_, err = g.Forward(within(t), "tcp", "127.0.0.1:1")
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
	for _, addr := range []string{"10.0.0.1:80", "localhost:80", "127.0.0.1", ""} {
		_, err = g.Forward(within(t), "tcp", addr)
		assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err), addr)
	}
}
