// Package sandboxtest is the contract that every engine keeps, as one suite of
// tests. It knows of sandboxes and guests, and of no engine.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// Options say how the suite uses an engine.
type Options struct {
	// Spec is the base of every sandbox: image, isolation and link.
	Spec sandbox.Spec
	// Left lists what is left of a session anywhere on the host: containers,
	// volumes, processes, sockets, folders.
	Left func(t *testing.T, session string) []string
	// Folder is a folder of the host that can be a workspace, for overlay; empty
	// skips what needs it.
	Folder func(t *testing.T) string
}

// Run runs the suite. newEngine returns an engine that is closed when its test
// ends.
func Run(t *testing.T, newEngine func(t *testing.T) sandbox.Engine, o Options) {
	s := &suite{Options: o, engine: newEngine}
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"commands run as uid 1000 with nothing to gain", s.identity},
		{"posture says what holds", s.posture},
		{"bad specs are refused by name", s.badSpecs},
		{"a missing image is said so", s.missingImage},
		{"a session has one sandbox", s.oneSandbox},
		{"sessions see nothing of each other", s.isolated},
		{"the link is for one", s.oneLink},
		{"the end of the guest is seen", s.guestEnds},
		{"exec has stdio, ids and exit code", s.exec},
		{"exec of what is not there", s.execMissing},
		{"a kept workspace is resumed", s.resume},
		{"an overlay leaves the host folder alone", s.overlay},
		{"removal copes with modes, owners and links", s.hardRemoval},
		{"removal with processes running", s.busyRemoval},
		{"a start that is cut off leaves nothing", s.cutOff},
		{"a read-only root is one", s.readOnly},
	} {
		t.Run(c.name, c.run)
	}
}

type suite struct {
	Options
	engine func(t *testing.T) sandbox.Engine
}

// NewSession returns a session id that nobody else has.
func NewSession() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return "ses_" + hex.EncodeToString(b[:])
}

// spec is the base with a session of its own.
func (s *suite) spec() sandbox.Spec {
	spec := s.Spec
	spec.Session, spec.Created = NewSession(), time.Now()
	if spec.Workspace.Mode == "" {
		spec.Workspace.Mode = sandbox.WorkspaceVolume
	}
	return spec
}

// run is one sandbox with its guest.
type run struct {
	sandbox.Sandbox
	guest *guest.Client
	t     *testing.T
	ctx   context.Context
}

// start makes a sandbox that is gone when the test ends, and proves it.
func (s *suite) start(t *testing.T, e sandbox.Engine, spec sandbox.Spec) *run {
	t.Helper()
	ctx := deadline(t, time.Minute)
	box, err := e.Start(ctx, spec)
	require.NoError(t, err)
	t.Cleanup(func() { s.gone(t, box, spec.Session) })
	return connect(ctx, t, box)
}

func connect(ctx context.Context, t *testing.T, box sandbox.Sandbox) *run {
	t.Helper()
	conn, err := box.Dial(ctx)
	require.NoError(t, err)
	client, err := guest.Connect(ctx, conn, guest.Expect{Token: box.Token(), Isolation: box.Info().Isolation})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return &run{box, client, t, ctx}
}

// gone removes a sandbox and checks that nothing of it is left.
func (s *suite) gone(t *testing.T, box sandbox.Sandbox, session string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute*slow())
	defer cancel()
	require.NoError(t, box.Remove(ctx))
	require.NoError(t, box.Remove(ctx), "removing what is gone is no error")
	s.nothingLeft(t, session)
}

func (s *suite) nothingLeft(t *testing.T, session string) {
	t.Helper()
	if s.Left == nil {
		return
	}
	var left []string
	require.Eventually(t, func() bool { left = s.Left(t, session); return len(left) == 0 }, 20*time.Second*slow(), 50*time.Millisecond,
		"nothing of %s may be left", session)
	require.Empty(t, left)
}

// sh runs a command line inside and returns its output; the exit code must be 0.
func (r *run) sh(command string) string {
	r.t.Helper()
	out, code := r.try(command)
	require.Zero(r.t, code, "%s: %s", command, out)
	return strings.TrimSpace(out)
}

// try runs a command line inside.
func (r *run) try(command string) (string, int) {
	r.t.Helper()
	res, err := r.guest.Exec(r.ctx, sandbox.ExecRequest{Argv: []string{"/bin/sh", "-c", command}, WaitMS: 30_000, MaxOutput: 100_000}, nil)
	require.NoError(r.t, err)
	require.NotNil(r.t, res.ExitCode, "%s: %s", command, res.Status)
	return res.Stdout.Text + res.Stderr.Text, *res.ExitCode
}

// deadline bounds a step. PINFOLD_TEST_SLOW stretches it for emulated machines.
func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d*slow())
	t.Cleanup(cancel)
	return ctx
}

func slow() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("PINFOLD_TEST_SLOW")); err == nil && n > 1 {
		return time.Duration(n)
	}
	return 1
}

// typed returns the sandbox.Error in err.
func typed(t *testing.T, err error) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	require.ErrorAs(t, err, &e)
	require.NotEmpty(t, e.Message)
	return e
}
