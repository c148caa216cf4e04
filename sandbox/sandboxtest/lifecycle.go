package sandboxtest

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

func (s *suite) badSpecs(t *testing.T) {
	e := s.engine(t)
	for name, change := range map[string]func(*sandbox.Spec){
		"session that climbs":       func(p *sandbox.Spec) { p.Session = "../x" },
		"session with a slash":      func(p *sandbox.Spec) { p.Session = "a/b" },
		"session like an option":    func(p *sandbox.Spec) { p.Session = "-rf" },
		"session in upper case":     func(p *sandbox.Spec) { p.Session = "SES_1" },
		"session with NUL":          func(p *sandbox.Spec) { p.Session = "ses\x00" },
		"session of 300 letters":    func(p *sandbox.Spec) { p.Session = strings.Repeat("a", 300) },
		"no session":                func(p *sandbox.Spec) { p.Session = "" },
		"resume that climbs":        func(p *sandbox.Spec) { p.Resume = "../x" },
		"owner with a line break":   func(p *sandbox.Spec) { p.Owner = "a\nb" },
		"no image":                  func(p *sandbox.Spec) { p.Image = "" },
		"image like an option":      func(p *sandbox.Spec) { p.Image = "--privileged" },
		"image with a shell":        func(p *sandbox.Spec) { p.Image = "x;touch /tmp/p" },
		"image that climbs":         func(p *sandbox.Spec) { p.Image = "../../containers/create" },
		"memory of one byte":        func(p *sandbox.Spec) { p.Limits.Memory = 1 },
		"negative pids":             func(p *sandbox.Spec) { p.Limits.Pids = -1 },
		"volume with a path":        func(p *sandbox.Spec) { p.Workspace.Path = "/tmp" },
		"unknown workspace":         func(p *sandbox.Spec) { p.Workspace.Mode = "nfs" },
		"overlay over nothing":      func(p *sandbox.Spec) { p.Workspace = overlayOf("/no/such/folder") },
		"overlay over a file":       func(p *sandbox.Spec) { p.Workspace = overlayOf("/etc/hosts") },
		"overlay over root":         func(p *sandbox.Spec) { p.Workspace = overlayOf("/") },
		"overlay over proc":         func(p *sandbox.Spec) { p.Workspace = overlayOf("/proc/self/root") },
		"overlay relative":          func(p *sandbox.Spec) { p.Workspace = overlayOf("project") },
		"overlay with an option":    func(p *sandbox.Spec) { p.Workspace = overlayOf("/tmp,upperdir=/etc") },
		"overlay over the home":     func(p *sandbox.Spec) { home, _ := os.UserHomeDir(); p.Workspace = overlayOf(home) },
		"overlay over ssh's folder": func(p *sandbox.Spec) { home, _ := os.UserHomeDir(); p.Workspace = overlayOf(home + "/.ssh") },
	} {
		spec := s.spec()
		change(&spec)
		_, err := e.Start(deadline(t, 20*time.Second), spec)
		require.Error(t, err, name)
		assert.Equal(t, sandbox.InvalidArgument, typed(t, err).Code, name)
		assert.NotEmpty(t, typed(t, err).Hint, name)
	}
	spec := s.spec()
	spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceBind, Path: "/srv"}
	_, err := e.Start(deadline(t, 20*time.Second), spec)
	assert.Equal(t, sandbox.FailedPrecondition, typed(t, err).Code, "bind is for later")
	spec = s.spec()
	spec.Isolation = "chroot"
	_, err = e.Start(deadline(t, 20*time.Second), spec)
	assert.Equal(t, "isolation_missing", typed(t, err).Reason)
}

func overlayOf(path string) sandbox.Workspace {
	return sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: path}
}

func (s *suite) missingImage(t *testing.T) {
	spec := s.spec()
	spec.Image = "localhost/pinfold-no-such-image:none"
	_, err := s.engine(t).Start(deadline(t, 20*time.Second), spec)
	require.Error(t, err)
	e := typed(t, err)
	assert.Equal(t, sandbox.NotFound, e.Code)
	assert.Equal(t, "image_missing", e.Reason)
	assert.Contains(t, e.Message, spec.Image)
	assert.NotEmpty(t, e.Hint)
	s.nothingLeft(t, spec.Session)
}

func (s *suite) oneSandbox(t *testing.T) {
	e := s.engine(t)
	spec := s.spec()
	r := s.start(t, e, spec)
	r.sh("echo mine > /workspace/mine")
	_, err := e.Start(deadline(t, 20*time.Second), spec)
	require.Error(t, err)
	assert.Equal(t, sandbox.AlreadyExists, typed(t, err).Code)
	assert.Equal(t, "mine", r.sh("cat /workspace/mine"), "the living sandbox is not touched by the second start")
}

func (s *suite) oneLink(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	_, err := r.Dial(deadline(t, 5*time.Second))
	require.Error(t, err)
	assert.Equal(t, "sandbox_lost", typed(t, err).Reason)
	assert.NotEmpty(t, r.Token())
	out, _ := r.try("env; cat /proc/*/environ 2>/dev/null; cat /proc/*/cmdline 2>/dev/null; ls -la /.pinfold; cat /.pinfold/link/* 2>&1")
	assert.NotContains(t, out, r.Token())
	_, code := r.try("ls /.pinfold/link")
	assert.NotZero(t, code, "the link's folder is closed to commands")
}

func (s *suite) guestEnds(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	require.Equal(t, sandbox.StateRunning, r.Info().State)
	require.NoError(t, r.guest.Close())
	select {
	case <-r.Done():
	case <-time.After(20 * time.Second * slow()):
		t.Fatal("a guest that lost its host must end")
	}
	assert.Equal(t, sandbox.StateDead, r.Info().State)
	_, err := r.Exec(deadline(t, 5*time.Second), sandbox.ExecSpec{Argv: []string{"true"}, UID: 1000, GID: 1000})
	require.Error(t, err)
	assert.Equal(t, "sandbox_lost", typed(t, err).Reason)
}

func (s *suite) exec(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	st, err := r.Exec(r.ctx, sandbox.ExecSpec{
		Argv: []string{"/bin/sh", "-c", `id -u; id -g; id -G; pwd; echo "$A|$AWS_SECRET_ACCESS_KEY"; echo on stderr >&2; read l; echo "got $l"; exit 7`},
		UID:  sandbox.BrowserUID, GID: sandbox.BrowserGID, Dir: "/tmp", Env: []string{"A=b c=d"},
	})
	require.NoError(t, err)
	defer st.Close()
	_, err = io.WriteString(st, "a line\n")
	require.NoError(t, err)
	out, err := io.ReadAll(st)
	require.NoError(t, err)
	assert.Equal(t, "1001\n1001\n1001\n/tmp\nb c=d|\ngot a line\n", string(out))
	assert.Equal(t, "on stderr\n", st.Stderr())
	code, err := st.Wait(r.ctx)
	require.NoError(t, err)
	assert.Equal(t, 7, code)
}

func (s *suite) execMissing(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	st, err := r.Exec(r.ctx, sandbox.ExecSpec{Argv: []string{"/no/such/program"}, UID: 1000, GID: 1000})
	if err == nil { // an engine may learn of it only from the stream
		_, _ = io.ReadAll(st)
		code, werr := st.Wait(r.ctx)
		st.Close()
		assert.True(t, werr != nil || code != 0)
	} else {
		assert.Equal(t, sandbox.NotFound, typed(t, err).Code)
	}
	for name, spec := range map[string]sandbox.ExecSpec{
		"nothing":         {},
		"relative folder": {Argv: []string{"true"}, UID: 1000, GID: 1000, Dir: "x"},
		"variable":        {Argv: []string{"true"}, UID: 1000, GID: 1000, Env: []string{"=x"}},
		"negative uid":    {Argv: []string{"true"}, UID: -1, GID: 1000},
	} {
		_, err := r.Exec(r.ctx, spec)
		require.Error(t, err, name)
		assert.Equal(t, sandbox.InvalidArgument, typed(t, err).Code, name)
	}
	assert.Equal(t, "on", r.sh("echo on"), "the sandbox goes on")
}

func (s *suite) resume(t *testing.T) {
	e := s.engine(t)
	spec := s.spec()
	r := s.start(t, e, spec)
	r.sh("echo kept > /workspace/f; echo home > ~/h; echo gone > /session/s")
	require.NoError(t, r.Stop(r.ctx, sandbox.KeepWorkspace))
	info, ok := find(t, e, spec.Session)
	require.True(t, ok, "a kept session is listed")
	assert.Equal(t, sandbox.StateStopped, info.State)
	assert.Equal(t, spec.Workspace, info.Workspace)

	again := spec
	again.Resume, again.Epoch = spec.Session, spec.Epoch+1
	box, err := e.Start(r.ctx, again)
	require.NoError(t, err)
	r2 := connect(r.ctx, t, box)
	assert.Equal(t, "kept home", r2.sh("echo $(cat /workspace/f ~/h)"))
	_, code := r2.try("cat /session/s")
	assert.NotZero(t, code, "the session's own folder starts anew")
	s.gone(t, box, spec.Session)

	_, err = e.Start(deadline(t, 20*time.Second), again)
	require.Error(t, err, "what was removed cannot be resumed")
	assert.Equal(t, "workspace_gone", typed(t, err).Reason)
	s.nothingLeft(t, spec.Session)
}

func find(t *testing.T, e sandbox.Engine, session string) (sandbox.Info, bool) {
	t.Helper()
	list, err := e.List(deadline(t, 20*time.Second))
	require.NoError(t, err)
	for _, i := range list {
		if i.Session == session {
			return i, true
		}
	}
	return sandbox.Info{}, false
}

func (s *suite) overlay(t *testing.T) {
	if s.Folder == nil {
		t.Skip("this engine has no host folders")
	}
	dir := s.Folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "theirs"), []byte("as it was"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	e := s.engine(t)
	spec := s.spec()
	spec.Workspace = overlayOf(dir)
	r := s.start(t, e, spec)
	assert.Equal(t, "as it was 1000", r.sh("echo $(cat theirs) $(stat -c %u theirs)"))
	r.sh("echo changed > theirs && echo new > sub/new && rm -rf sub && mkdir -m 000 closed")
	have, err := os.ReadFile(filepath.Join(dir, "theirs"))
	require.NoError(t, err)
	assert.Equal(t, "as it was", string(have))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "the host's folder has what it had")

	require.NoError(t, r.Stop(r.ctx, sandbox.KeepWorkspace))
	again := spec
	again.Resume = spec.Session
	box, err := e.Start(r.ctx, again)
	require.NoError(t, err)
	r2 := connect(r.ctx, t, box)
	assert.Equal(t, "changed", r2.sh("cat theirs"), "the layer outlives the sandbox")
	s.gone(t, box, spec.Session)
}

func (s *suite) hardRemoval(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	r.sh(`cd /workspace && mkdir -p a/b/c && echo x > a/b/c/f && ln -s / root && ln -s /etc/passwd a/p && touch -- -rf '*' "$(printf 'new\nline')" &&
		chmod 000 a/b/c/f a/b/c a/b a && mkdir -m 000 shut && chmod 3000 shut`)
	st, err := r.Exec(r.ctx, sandbox.ExecSpec{Argv: []string{"/bin/sh", "-c", "cd /browser && mkdir -p x/y && echo 1 > x/y/z && chmod 000 x/y/z x/y x"}, UID: 1001, GID: 1001})
	require.NoError(t, err)
	_, err = io.ReadAll(st)
	require.NoError(t, err)
	code, err := st.Wait(r.ctx)
	require.NoError(t, err)
	require.Zero(t, code, st.Stderr())
	st.Close()
}

func (s *suite) busyRemoval(t *testing.T) {
	spec := s.spec()
	r := s.start(t, s.engine(t), spec)
	st, err := r.Exec(r.ctx, sandbox.ExecSpec{Argv: []string{"/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"}, UID: 1001, GID: 1001})
	require.NoError(t, err)
	defer st.Close()
	_, err = r.guest.Exec(r.ctx, sandbox.ExecRequest{Argv: []string{"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, Background: true}, nil)
	require.NoError(t, err)
	at := time.Now()
	s.gone(t, r.Sandbox, spec.Session)
	assert.Less(t, time.Since(at), 20*time.Second*slow())
}

func (s *suite) cutOff(t *testing.T) {
	e := s.engine(t)
	var sessions []string
	for range 12 {
		spec := s.spec()
		sessions = append(sessions, spec.Session)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(150))*time.Millisecond)
		box, err := e.Start(ctx, spec)
		cancel()
		if err == nil {
			s.gone(t, box, spec.Session)
			continue
		}
		assert.Equal(t, sandbox.DeadlineExceeded, typed(t, err).Code, "%v", err)
	}
	for _, id := range sessions {
		s.nothingLeft(t, id)
	}
	_, err := e.Start(canceled(), s.spec())
	assert.Equal(t, sandbox.Canceled, typed(t, err).Code)
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
