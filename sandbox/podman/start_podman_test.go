//go:build podman

package podman

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

const miniImage = "localhost/pinfold-test:mini"

func newTestEngine(t *testing.T, change ...func(*Options)) *Engine {
	t.Helper()
	o := Options{
		Owner:     "t" + strings.ToLower(newToken()[:8]),
		GuestPath: os.Getenv("PINFOLD_TEST_STANDIN"),
		StateDir:  t.TempDir(),
		Log:       slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	e, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func newSession() string { return "ses_" + newToken()[:12] }

func TestSmoke(t *testing.T) {
	e := newTestEngine(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := time.Now()
	require.NoError(t, e.Warm(ctx))
	t.Log("warm", time.Since(at))
	for _, spec := range []sandbox.Spec{
		{Image: miniImage},
		{Image: miniImage},
		{Image: miniImage, Link: sandbox.LinkStdio},
		{Image: miniImage, Isolation: sandbox.IsolationGVisor},
	} {
		spec.Session = newSession()
		at = time.Now()
		box, err := e.Start(ctx, spec)
		require.NoError(t, err)
		t.Log("start", time.Since(at))
		at = time.Now()
		c, err := box.Dial(ctx)
		require.NoError(t, err)
		_, err = io.WriteString(c, "hello\n")
		require.NoError(t, err)
		buf := make([]byte, 6)
		_, err = io.ReadFull(c, buf)
		require.NoError(t, err)
		require.Equal(t, "hello\n", string(buf))
		t.Log("dial", time.Since(at))
		t.Logf("%+v", box.Info())
		if os.Getenv("PF_SHOW") != "" {
			out, _ := exec.Command("sh", "-c", "cat /proc/"+strconv.Itoa(box.Info().Pid)+"/mountinfo /proc/"+strconv.Itoa(box.Info().Pid)+"/status").CombinedOutput()
			t.Log(string(out))
		}
		at = time.Now()
		st, err := box.Exec(ctx, sandbox.ExecSpec{Argv: []string{"sh", "-c", "id; env; ls -la / /workspace /home/agent /tmp; cat /proc/self/status | grep -i cap"}, UID: 1001, GID: 1001})
		if err == nil {
			out, _ := io.ReadAll(st)
			t.Log(string(out), st.Stderr())
			code, err := st.Wait(ctx)
			t.Log(code, err)
			st.Close()
		} else {
			t.Log(err)
		}
		t.Log("exec", time.Since(at))
		at = time.Now()
		c.Close()
		require.NoError(t, box.Remove(ctx))
		t.Log("remove", time.Since(at))
	}
	_ = filepath.Join
}
