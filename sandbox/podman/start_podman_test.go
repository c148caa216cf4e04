//go:build podman

package podman

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/sandboxtest"
)

// testImage is what tests start; any image with a shell and Python does. The
// tests of the image's own metadata derive theirs from it.
func testImage(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("PINFOLD_TEST_IMAGE"), miniImage} {
		if name == sandbox.ImageHost {
			return name
		}
		if name != "" && exec.Command("podman", "image", "exists", name).Run() == nil {
			return name
		}
	}
	out, err := exec.Command("podman", "images", "--format", "{{.Repository}}:{{.Tag}}", sandbox.ImageRepository).Output()
	require.NoError(t, err)
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	require.NotEmpty(t, name, "there is no image to test with: run make image")
	return name
}

// newTestEngine returns an engine under an owner of its own, with the embedded
// guest or the one that PINFOLD_TEST_GUEST names.
func newTestEngine(t *testing.T, change ...func(*Options)) *Engine {
	t.Helper()
	o := Options{
		Owner:     "test-" + newToken()[:8],
		GuestPath: os.Getenv("PINFOLD_TEST_GUEST"),
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

// standIn puts this test binary in the guest's place. Its copy goes with the
// test: it is many times a guest's size.
func standIn(t *testing.T) func(*Options) {
	self, err := os.Executable()
	require.NoError(t, err)
	return func(o *Options) { o.GuestPath, o.CacheDir = self, t.TempDir() }
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func minute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startTest starts a sandbox that is removed at the end of the test.
func startTest(t *testing.T, e *Engine, spec sandbox.Spec) *box {
	t.Helper()
	if spec.Session == "" {
		spec.Session = sandboxtest.NewSession()
	}
	if spec.Image == "" {
		spec.Image = testImage(t)
	}
	b, err := e.Start(minute(t), spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Remove(minute(t))) })
	return b.(*box)
}

func connectTest(t *testing.T, b sandbox.Sandbox) *guest.Client {
	t.Helper()
	conn, err := b.Dial(minute(t))
	require.NoError(t, err)
	c, err := guest.Connect(minute(t), conn, guest.Expect{Token: b.Token(), Isolation: b.Info().Isolation})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// shTest runs a command line as a command of the agent.
func shTest(t *testing.T, c *guest.Client, command string) (string, int) {
	t.Helper()
	res, err := c.Exec(minute(t), sandbox.ExecRequest{Argv: []string{"/bin/sh", "-c", command}, WaitMS: 30_000, MaxOutput: 100_000}, nil)
	require.NoError(t, err)
	require.NotNil(t, res.ExitCode, "%s", res.Status)
	return res.Stdout.Text + res.Stderr.Text, *res.ExitCode
}

// leftOf lists what is left of a session, as seen by the podman program, the
// process table and the file system: not by the engine under test.
func leftOf(t *testing.T, e *Engine, session string) []string {
	t.Helper()
	var left []string
	note := func(kind string, lines []byte) {
		for line := range strings.Lines(string(lines)) {
			if strings.Contains(line, session) {
				left = append(left, kind+" "+strings.TrimSpace(line))
			}
		}
	}
	out, err := exec.Command("podman", "ps", "--all", "--external", "--format", "{{.Names}} {{.Status}}").Output()
	if err != nil { // things are going away under its eyes
		left = append(left, "podman ps: "+err.Error())
	}
	note("container", out)
	out, err = exec.Command("podman", "volume", "ls", "--format", "{{.Name}}").Output()
	if err != nil {
		left = append(left, "podman volume ls: "+err.Error())
	}
	note("volume", out)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range lines {
		if b, err := os.ReadFile(p); err == nil && p != "/proc/self/cmdline" && strings.Contains(string(b), session) {
			left = append(left, "process "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", e.service.pausePid()))
	require.NoError(t, err)
	note("mount", mounts)
	for _, p := range []string{filepath.Join(e.linkFolder(), session), e.sessionDir(session)} {
		if exists(p) {
			left = append(left, "folder "+p)
		}
	}
	return left
}

// nothingLeft waits for the last monitors to go, and fails when anything stays.
func nothingLeft(t *testing.T, e *Engine, session string) {
	t.Helper()
	var left []string
	if !assert.Eventually(t, func() bool { left = leftOf(t, e, session); return len(left) == 0 }, 15*time.Second, 50*time.Millisecond) {
		t.Log("left:", left)
	}
}

func newSession() string { return sandboxtest.NewSession() }

// miniImage is a small image that the test machine may have.
const miniImage = "localhost/pinfold-test:mini"
