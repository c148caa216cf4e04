package podman

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/errorhandling"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pinfold.dev/pinfold/sandbox"
)

func TestMain(m *testing.M) {
	if os.Args[0] == sandbox.GuestPath {
		os.Exit(standInMain())
	}
	goleak.VerifyTestMain(m,
		// Idle connections of the bindings' client end by themselves.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
	)
}

func TestHostFaultsAreNamed(t *testing.T) {
	for text, reason := range map[string]string{
		`cannot find UID/GID for user x: No subuid ranges found for user "x" in /etc/subuid`: "no_subids",
		"potentially insufficient UIDs or GIDs available in user namespace":                  "no_subids",
		"Error: creating tmpdir: mkdir /run/user/1002: permission denied":                    "no_runtime_dir",
		"cannot clone: Operation not permitted\nError: cannot re-exec process":               "userns_forbidden",
		`exec: "newuidmap": executable file not found in $PATH`:                              "no_newuidmap",
		"mkdir /x: no space left on device":                                                  "no_space",
		"something new":                                                                      "other",
	} {
		e := hostError(errors.New(text), &sandbox.Error{Reason: "other"})
		assert.Equal(t, reason, e.Reason, text)
		if reason != "other" {
			assert.NotEmpty(t, e.Hint)
		}
	}
}

func TestUnreachableIsNotAnAnswer(t *testing.T) {
	assert.True(t, unreachable(&net.OpError{Op: "dial", Err: errors.New("refused")}))
	assert.True(t, unreachable(io.ErrUnexpectedEOF))
	assert.False(t, unreachable(&errorhandling.ErrorModel{Message: "no", ResponseCode: 500}))
	assert.False(t, unreachable(nil))
	assert.Equal(t, 404, status(&errorhandling.ErrorModel{ResponseCode: 404}))
}

// Desktop hosts, tests and odd homes: a socket's path never grows too long,
// and a name in /tmp that someone else took is refused (case A229).
func TestRuntimeFolder(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	dir, err := runtimeDir(long)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(filepath.Join(dir, "e", strings.Repeat("o", 32), "podman.sock")), socketPathMax)
	t.Cleanup(func() { os.Remove(dir) })

	taken := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	var typed *sandbox.Error
	require.ErrorAs(t, privateDir(taken), &typed)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.ErrorAs(t, privateDir(link), &typed, "a link in its place is refused")
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o777))
	require.NoError(t, privateDir(open))
	st, err := os.Stat(open)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())
}

// Podman's processes get what they need, and no credential.
func TestServiceEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("HTTPS_PROXY", "http://proxy")
	t.Setenv("NOTIFY_SOCKET", "/run/x")
	t.Setenv("CONTAINERS_CONF_OVERRIDE", "/evil")
	t.Setenv("PATH", "/opt/bin")
	env := serviceEnv("/conf")
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		assert.NotContains(t, []string{"AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "NOTIFY_SOCKET", "CONTAINERS_CONF_OVERRIDE"}, name)
	}
	assert.Contains(t, env, "CONTAINERS_CONF=/conf")
	assert.Contains(t, strings.Join(env, "\n"), "/usr/sbin", "where Debian keeps runc")
}

// A user without a storage gets a fast one; whoever has decided is left alone.
func TestStorageDriver(t *testing.T) {
	if exists("/etc/containers/storage.conf") || exists("/usr/share/containers/storage.conf") || !overlayWorks() {
		t.Skip("this host decides for its users")
	}
	home := t.TempDir()
	for _, name := range []string{"STORAGE_DRIVER", "CONTAINERS_STORAGE_CONF", "XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	assert.Equal(t, "overlay", storageDriver())
	assert.Contains(t, serviceEnv("/conf"), "STORAGE_DRIVER=overlay")
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".local/share/containers/storage/overlay"), 0o755))
	assert.Equal(t, "overlay", storageDriver(), "what is there already")
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".local/share/containers/storage/vfs"), 0o755))
	assert.Empty(t, storageDriver(), "a storage with images in it")
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "other"))
	assert.Equal(t, "overlay", storageDriver())
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".config/containers"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".config/containers/storage.conf"), nil, 0o644))
	assert.Empty(t, storageDriver(), "a configuration")
	major, minor := version("6.18.44-fc-v595")
	assert.Equal(t, []int{6, 18}, []int{major, minor})
}

func TestConf(t *testing.T) {
	cache := t.TempDir()
	path, err := writeConf(cache, map[string]string{runc: "/usr/bin/runc", runsc: "/opt/it's/runsc"}, runsc, "systrap")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, want := range []string{`log_driver = "none"`, `runtime = "runsc"`, "exit_command_delay = 1", "hooks_dir = []", `runc = ["/usr/bin/runc"]`} {
		assert.Contains(t, string(text), want)
	}
	wrappers, err := filepath.Glob(filepath.Join(cache, "engine", "*-runsc"))
	require.NoError(t, err)
	require.Len(t, wrappers, 1)
	script, err := os.ReadFile(wrappers[0])
	require.NoError(t, err)
	assert.Equal(t, "#!/bin/sh\nexec '/opt/it'\\''s/runsc' --ignore-cgroups --network=none --platform='systrap' \"$@\"\n", string(script))
}

// What lies in the cache is compared, not trusted.
func TestCacheFileIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	path, err := cacheFile(dir, "guest", []byte("right"), 0o755)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("wrong"), 0o755))
	again, err := cacheFile(dir, "guest", []byte("right"), 0o755)
	require.NoError(t, err)
	assert.Equal(t, path, again)
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "right", string(have))
	past := time.Now().Add(-2 * cacheAge)
	require.NoError(t, os.Chtimes(path, past, past))
	_, err = cacheFile(dir, "guest", []byte("right"), 0o755)
	require.NoError(t, err)
	pruneCache(dir)
	assert.FileExists(t, path, "what is used stays")
	require.NoError(t, os.Chtimes(path, past, past))
	pruneCache(dir)
	assert.NoFileExists(t, path)
	require.NoError(t, os.Symlink("/bin/sh", path))
	_, err = cacheFile(dir, "guest", []byte("right"), 0o755)
	require.NoError(t, err)
	st, err := os.Lstat(path)
	require.NoError(t, err)
	assert.True(t, st.Mode().IsRegular())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestRuntimesAreRemembered(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "runtimes.json")
	bin := t.TempDir()
	paths := map[string]string{crun: filepath.Join(bin, "crun"), runc: filepath.Join(bin, "runc")}
	for _, p := range paths {
		require.NoError(t, os.WriteFile(p, []byte("v1"), 0o755))
	}
	r := &runtimes{cache: cache, paths: paths}
	names, err := r.candidates(sandbox.IsolationContainer)
	require.NoError(t, err)
	assert.Equal(t, []string{crun, runc}, names, "crun first")
	r.saw(crun, false)
	r.saw(runc, true)
	again := &runtimes{cache: cache, paths: paths}
	names, err = again.candidates(sandbox.IsolationContainer)
	require.NoError(t, err)
	assert.Equal(t, []string{runc, crun}, names, "what started last time, in a new process too")
	require.NoError(t, os.WriteFile(paths[crun], []byte("version 2"), 0o755))
	fresh := &runtimes{cache: cache, paths: paths}
	names, err = fresh.candidates(sandbox.IsolationContainer)
	require.NoError(t, err)
	assert.Equal(t, []string{crun, runc}, names, "another program is tried anew")
	_, err = fresh.candidates(sandbox.IsolationGVisor)
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "isolation_missing", typed.Reason)
	assert.Contains(t, typed.Hint, "make setup")
}

func TestSubordinateIDs(t *testing.T) {
	file := []byte("# comment\nalice:100000:65536\n1001:200000:1000\nbob:1:x\nalice:300000:10\n")
	assert.Equal(t, 65546, countIDs(file, "alice", "1000"))
	assert.Equal(t, 1000, countIDs(file, "carol", "1001"))
	assert.Zero(t, countIDs(file, "bob", "1002"))
	path := filepath.Join(t.TempDir(), "subuid")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	if nss, err := os.ReadFile("/etc/nsswitch.conf"); err != nil || !bytes.Contains(nss, []byte("subid:")) {
		assert.Contains(t, subordinateIDs(path), "0 ids")
	}
	assert.Contains(t, subordinateIDs(path+".none"), "cannot be read")
}

func TestFoldersThatOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		closed, path string
		below, want  bool
	}{
		"the same":           {"/home/u", "/home/u", false, true},
		"what holds it":      {"/home/u", "/home", false, true},
		"root":               {"/home/u", "/", false, true},
		"a project below":    {"/home/u", "/home/u/p", false, false},
		"below a closed one": {"/home/u/.ssh", "/home/u/.ssh/x", true, true},
		"a name that begins": {"/home/u/.ssh", "/home/u/.sshx", true, false},
	} {
		assert.Equal(t, c.want, overlaps(c.closed, c.path, c.below), name)
	}
	for _, bad := range []string{"/a:b", "/a,b", `/a\b`, "/a\nb", "/a\"b"} {
		assert.Error(t, mountable(bad), bad)
	}
	assert.NoError(t, mountable("/home/u/ein Ordner & more 'quoted'"))
}

// Labels prove nothing without the name: an image can carry them.
func TestOwnThingsAreKnownByNameAndLabel(t *testing.T) {
	spec := sandbox.Spec{Session: "ses_1", Owner: "srv-1", Labels: map[string]string{"pinfold.owner": "other", "team": "a"}}
	labels, err := ownLabels(spec, runc, sandbox.LinkUnix)
	require.NoError(t, err)
	assert.Equal(t, "srv-1", labels[labelOwner], "a caller's label cannot replace ours")
	assert.Equal(t, "a", labels["team"])
	got, ok := specOf([]string{"pinfold-ses_1"}, labels)
	assert.True(t, ok)
	assert.Equal(t, spec, got)
	_, ok = specOf([]string{"someone-elses"}, labels)
	assert.False(t, ok)
	labels[labelOwner] = "srv-2"
	_, ok = specOf([]string{"pinfold-ses_1"}, labels)
	assert.False(t, ok, "labels that disagree with the spec")
}

// frames feeds a hijacked stream from the far end of a socket pair.
func frames(t *testing.T) (*hijacked, *net.UnixConn) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err == nil {
			far <- c.(*net.UnixConn)
		}
	}()
	near, err := l.AcceptUnix()
	require.NoError(t, err)
	f := <-far
	t.Cleanup(func() { near.Close(); f.Close() })
	return &hijacked{conn: near, r: newReader(near), stderr: &tail{max: 16}}, f
}

var far = make(chan *net.UnixConn, 1)

func frame(kind byte, data string) []byte {
	head := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	return append(head, data...)
}

func TestStreamSurvivesDeadlinesInsideFrames(t *testing.T) {
	h, f := frames(t)
	all := append(frame(1, "hello "), append(frame(2, "0123456789abcdefXYZ"), frame(1, "world")...)...)
	got := make([]byte, 0, 16)
	buf := make([]byte, 4)
	for i := range all { // one byte at a time, a deadline after each
		_, err := f.Write(all[i : i+1])
		require.NoError(t, err)
		require.NoError(t, h.SetReadDeadline(time.Now().Add(2*time.Millisecond)))
		for {
			n, err := h.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				require.True(t, os.IsTimeout(err), "%v", err)
				break
			}
		}
	}
	assert.Equal(t, "hello world", string(got))
	assert.Equal(t, "3456789abcdefXYZ", h.stderr.String(), "the last 16 bytes")
	f.Close()
	require.NoError(t, h.SetReadDeadline(time.Time{}))
	_, err := h.Read(buf)
	assert.ErrorIs(t, err, io.EOF)
}

func TestStreamIsBounded(t *testing.T) {
	h, f := frames(t)
	_, err := f.Write([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	require.NoError(t, err)
	_, err = h.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "a frame of 4294967295 bytes")
	h, f = frames(t)
	_, err = f.Write(frame(3, "conmon died"))
	require.NoError(t, err)
	_, err = h.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "conmon died")
}

func TestUpgradeRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"cause":"x","message":"container is not running","response":409}`)
	}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	c, err := net.Dial("unix", socket)
	require.NoError(t, err)
	defer c.Close()
	_, err = upgrade(c, "/containers/x/attach", nil, nil)
	assert.Equal(t, 409, status(err))
	assert.ErrorContains(t, err, "not running")
}

func TestOptions(t *testing.T) {
	for _, owner := range []string{"../x", "A", "a b", strings.Repeat("a", 33), "-a"} {
		_, err := New(Options{Owner: owner, RuntimeDir: t.TempDir(), CacheDir: t.TempDir(), StateDir: t.TempDir()})
		var typed *sandbox.Error
		require.ErrorAs(t, err, &typed, owner)
		assert.Equal(t, sandbox.InvalidArgument, typed.Code)
	}
	_, err := New(Options{Owner: "a", RuntimeDir: t.TempDir(), CacheDir: "relative", StateDir: t.TempDir()})
	assert.Error(t, err)
}

// No Podman on the machine: a typed error with the cure, and nothing left.
func TestPodmanMissing(t *testing.T) {
	guest := filepath.Join(t.TempDir(), "guest")
	require.NoError(t, os.WriteFile(guest, []byte("x"), 0o755))
	run := t.TempDir()
	e, err := New(Options{Owner: "a", RuntimeDir: run, CacheDir: t.TempDir(), StateDir: t.TempDir(), Podman: "/no/such/podman", GuestPath: guest, Runtime: runc})
	require.NoError(t, err)
	e.runtimes.paths[runc] = "/usr/bin/runc"
	_, err = e.Start(t.Context(), sandbox.Spec{Session: "ses_1", Image: "localhost/x"})
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "podman_missing", typed.Reason)
	assert.Contains(t, typed.Hint, "make setup")
	require.NoError(t, e.Close())
	entries, err := os.ReadDir(filepath.Join(run, "e"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}
