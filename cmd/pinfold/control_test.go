package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox"
)

// echoServer is a server whose one session has a shell that answers in capitals.
type echoServer struct{ sizes chan sandbox.TermSize }

func (echoServer) Sessions(context.Context) ([]mcp.SessionInfo, error) {
	return []mcp.SessionInfo{
		{ID: "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", Name: "first", Template: "offline", State: "running", LastUsed: time.Now()},
		{ID: "ses_bbbbbbbbbbbbbbbbbbbbbbbbbb", Template: "offline", State: parkedState, LastUsed: time.Now()},
	}, nil
}

func (echoServer) CloseSession(_ context.Context, session string, _ sandbox.Keep) error {
	return sandbox.Errorf(sandbox.NotFound, "List them.", "there is no session %s", session)
}

func (e echoServer) Attach(ctx context.Context, session string, size sandbox.TermSize, resize <-chan sandbox.TermSize, stream io.ReadWriter) (int, error) {
	if !strings.HasPrefix(session, "ses_a") {
		return 0, sandbox.Errorf(sandbox.NotFound, "List them.", "there is no session %s", session)
	}
	e.sizes <- size
	go func() {
		for {
			select {
			case s := <-resize:
				e.sizes <- s
			case <-ctx.Done():
				return
			}
		}
	}()
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if lines.Text() == "exit" {
			return 7, nil
		}
		if _, err := io.WriteString(stream, strings.ToUpper(lines.Text())+"\n"); err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}

// serveControl runs an echo server as an instance that the verbs find.
func serveControl(t *testing.T) (*instance, echoServer) {
	t.Helper()
	home(t)
	i, err := newInstance()
	require.NoError(t, err)
	e := echoServer{make(chan sandbox.TermSize, 8)}
	c, err := listenControl(i.socket(), serverInfo{ID: i.id, PID: os.Getpid(), Transport: "stdio"}, e, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		require.NoError(t, i.Close())
	})
	return i, e
}

func TestTheControlSocketIsPrivate(t *testing.T) {
	i, _ := serveControl(t)
	st, err := os.Stat(i.socket())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	dir, err := os.Stat(i.dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
}

func TestAPeerOfAnotherUserIsRefused(t *testing.T) {
	uid := os.Getuid()
	assert.NoError(t, checkPeer(&unix.Ucred{Uid: uint32(uid)}, uid))
	assert.Error(t, checkPeer(&unix.Ucred{Uid: uint32(uid + 1)}, uid))
	assert.Error(t, checkPeer(&unix.Ucred{Uid: 0xffffffff}, uid), "a peer whose id does not map into our namespace")

	// The real thing: the kernel's word on a socket pair of this process.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[0]), "a")
	defer f.Close()
	defer unix.Close(fds[1])
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	defer conn.Close()
	assert.NoError(t, samePeer(conn.(*net.UnixConn)))
}

func TestSessionsListsAllServers(t *testing.T) {
	i, _ := serveControl(t)
	code, out, stderr := pinfold(t, "sessions")
	require.Zero(t, code, stderr)
	assert.Contains(t, out, "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa (first)")
	assert.Contains(t, out, i.id)
	assert.Contains(t, out, parkedState)

	code, out, _ = pinfold(t, "sessions", "--json")
	require.Zero(t, code)
	assert.Contains(t, out, `"servers": [`)
	assert.Equal(t, 1, strings.Count(out, "ses_bbbb"), "a parked session is listed once, apart from the living")
}

func TestSessionsWithoutAServer(t *testing.T) {
	home(t)
	code, out, stderr := pinfold(t, "sessions")
	assert.Zero(t, code)
	assert.Empty(t, out)
	assert.Contains(t, stderr, "There is no session")
	code, out, _ = pinfold(t, "sessions", "--json")
	assert.Zero(t, code)
	assert.JSONEq(t, `{"servers": [], "parked": []}`, out)
}

// attachTo runs the verb with the given input.
func attachTo(t *testing.T, session, input string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), []string{"attach", session}, strings.NewReader(input), &out, &errs)
	return code, out.String(), errs.String()
}

func TestAttachPassesBothWaysAndTheExitCode(t *testing.T) {
	_, e := serveControl(t)
	for _, name := range []string{"ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", "first", "ses_aaaa", "aaaa"} {
		code, out, stderr := attachTo(t, name, "hello\nexit\n")
		assert.Equal(t, 7, code, stderr)
		assert.Equal(t, "HELLO\n", out)
		assert.Equal(t, sandbox.TermSize{Cols: 80, Rows: 24}, <-e.sizes)
	}
}

func TestTheDetachKeyLeavesAndNothingAfterItIsTyped(t *testing.T) {
	serveControl(t)
	code, out, _ := attachTo(t, "first", "hello\n\x1dsecret\n")
	assert.Zero(t, code)
	assert.NotContains(t, out, "SECRET")
}

func TestAttachNamesWhatIsWrong(t *testing.T) {
	serveControl(t)
	for name, says := range map[string]string{
		"ses_zzzz":                       `no running session is called "ses_zzzz"`,
		"ses_bbbbbbbbbbbbbbbbbbbbbbbbbb": "is parked",
	} {
		code, _, stderr := attachTo(t, name, "")
		assert.Equal(t, exitFailure, code)
		assert.Contains(t, stderr, says)
	}
}

func TestNewSizesReachTheSession(t *testing.T) {
	i, e := serveControl(t)
	conn, err := dialControl(t.Context(), i.dir)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, writeMessage(conn, frameRequest, controlRequest{Op: "attach", Session: "ses_a", Size: sandbox.TermSize{Cols: 1, Rows: 2}}))
	assert.Equal(t, sandbox.TermSize{Cols: 1, Rows: 2}, <-e.sizes)
	require.NoError(t, writeMessage(conn, frameSize, sandbox.TermSize{Cols: 100, Rows: 50}))
	assert.Equal(t, sandbox.TermSize{Cols: 100, Rows: 50}, <-e.sizes)
}

func TestTheControlSocketBoundsWhatItTakes(t *testing.T) {
	i, _ := serveControl(t)
	send := func(raw []byte) error {
		conn, err := dialControl(t.Context(), i.dir)
		require.NoError(t, err)
		defer conn.Close()
		_, _ = conn.Write(raw)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	huge := append([]byte{frameRequest}, binary.BigEndian.AppendUint32(nil, maxFrame+1)...)
	assert.ErrorIs(t, send(huge), io.EOF, "a frame that is too long ends the connection")
	assert.ErrorIs(t, send([]byte{'z', 0, 0, 0, 0}), io.EOF, "another frame than a request")
	assert.ErrorIs(t, send([]byte{frameRequest, 0, 0, 0, 1, '{'}), io.EOF, "no JSON")

	r, err := ask(t.Context(), i.dir, controlRequest{Op: "format"}, patience)
	assert.ErrorContains(t, err, `no request "format"`)
	assert.Equal(t, sandbox.InvalidArgument, r.Error.Code)
	_, err = ask(t.Context(), i.dir, controlRequest{Op: "close", Session: "ses_x"}, patience)
	assert.Equal(t, sandbox.NotFound, codeOf(err), "typed errors cross the socket")
}

func TestClosingTheControlSocketEndsItsConnections(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	home(t)
	i, err := newInstance()
	require.NoError(t, err)
	e := echoServer{make(chan sandbox.TermSize, 8)}
	c, err := listenControl(i.socket(), serverInfo{}, e, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	conn, err := dialControl(t.Context(), i.dir)
	require.NoError(t, err)
	require.NoError(t, writeMessage(conn, frameRequest, controlRequest{Op: "attach", Session: "ses_a"}))
	<-e.sizes
	c.Close()
	_, err = io.ReadAll(conn)
	_ = err // an end frame, or nothing
	conn.Close()
	require.NoError(t, i.Close())
	goleak.VerifyNone(t, ignore)
}

func TestFramesCarryAnyBytes(t *testing.T) {
	var b bytes.Buffer
	big := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, maxFrame/2)
	n, err := (&frameWriter{w: &b}).Write(big)
	require.NoError(t, err)
	require.Equal(t, len(big), n)
	var got []byte
	for b.Len() > 0 {
		typ, body, err := readFrame(&b)
		require.NoError(t, err)
		require.EqualValues(t, frameData, typ)
		got = append(got, body...)
	}
	assert.Equal(t, big, got)
}
