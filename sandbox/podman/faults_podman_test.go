//go:build podman

package podman

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	"github.com/containers/podman/v5/pkg/domain/entities"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"pinfold.dev/pinfold/sandbox"
)

// Case A216: the service is killed in mid-session. What hangs on it gets a
// typed error; the next call starts it anew.
func TestServiceKilledInMidSession(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.Runtime = runc })
	b := startTest(t, e, sandbox.Spec{Link: sandbox.LinkUnix})
	c := connectTest(t, b)
	st, err := b.Exec(minute(t), sandbox.ExecSpec{Argv: []string{"sleep", "60"}, UID: 1001, GID: 1001})
	require.NoError(t, err)
	defer st.Close()

	require.NoError(t, b.service.proc.Kill())
	<-b.service.exited
	_, err = io.ReadAll(st)
	assert.NoError(t, err, "the stream ends; it does not hang")
	out, code := shTest(t, c, "echo alive")
	assert.Equal(t, "alive\n", out, "a socket of our own does not run through the service")
	assert.Zero(t, code)

	st2, err := b.Exec(minute(t), sandbox.ExecSpec{Argv: []string{"echo", "again"}, UID: 1001, GID: 1001})
	require.NoError(t, err, "the next call starts the service")
	got, err := io.ReadAll(st2)
	require.NoError(t, err)
	assert.Equal(t, "again\n", string(got))
	st2.Close()
	require.NoError(t, b.Remove(minute(t)))
	nothingLeft(t, e, b.info.Session)
}

// A service of someone else's that is not there is named, with its cure.
func TestForeignServiceGone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	e := newTestEngine(t, func(o *Options) { o.Host = "unix://" + socket })
	_, err := e.Start(minute(t), sandbox.Spec{Session: newSession(), Image: testImage(t)})
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, sandbox.Unavailable, typed.Code)
	assert.Equal(t, "podman_gone", typed.Reason)
	assert.Contains(t, typed.Message, socket)
	assert.Contains(t, typed.Hint, "CONTAINER_HOST")
	_, err = New(Options{Owner: "x", Host: "tcp://127.0.0.1:1"})
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "bad_container_host", typed.Reason)
}

// A service that someone else runs is used as it is.
func TestForeignService(t *testing.T) {
	own := newTestEngine(t, func(o *Options) { o.Runtime = runc })
	require.NoError(t, own.Warm(minute(t)))
	e := newTestEngine(t, func(o *Options) { o.Host = "unix://" + own.service.socket })
	b := startTest(t, e, sandbox.Spec{})
	assert.Equal(t, runc, b.Info().Runtime)
	out, _ := shTest(t, connectTest(t, b), "id -u")
	assert.Equal(t, "1000\n", out)
	_, err := e.Start(minute(t), sandbox.Spec{Session: newSession(), Image: testImage(t), Isolation: sandbox.IsolationGVisor})
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "isolation_missing", typed.Reason, "runc is not gVisor, whatever the request said")
}

// ownerProbe is set in the process that TestOwnerKilled kills.
const ownerProbe = "PINFOLD_TEST_OWNER"

// TestOwnerProcess starts sandboxes and waits to be killed.
func TestOwnerProcess(t *testing.T) {
	owner := os.Getenv(ownerProbe)
	if owner == "" {
		t.Skip("runs as a child of TestOwnerKilled")
	}
	e := newTestEngine(t, func(o *Options) { o.Owner, o.StateDir = owner, os.Getenv("PINFOLD_TEST_STATE") })
	volume := startTest(t, e, sandbox.Spec{})
	c := connectTest(t, volume)
	_, err := c.Exec(minute(t), sandbox.ExecRequest{Argv: []string{"sleep", "300"}, Background: true}, nil)
	require.NoError(t, err)
	st, err := volume.Exec(minute(t), sandbox.ExecSpec{Argv: []string{"sleep", "300"}, UID: 1001, GID: 1001})
	require.NoError(t, err)
	defer st.Close()
	overlay := startTest(t, e, sandbox.Spec{Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: os.Getenv("PINFOLD_TEST_FOLDER")}, Link: sandbox.LinkStdio})
	connectTest(t, overlay)
	unread := startTest(t, e, sandbox.Spec{}) // nobody dialled its link
	parked := startTest(t, e, sandbox.Spec{})
	require.NoError(t, parked.Stop(minute(t), sandbox.KeepWorkspace))
	// Made, never started.
	p := &plan{spec: sandbox.Spec{Session: newSession(), Owner: owner, Image: testImage(t), Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceVolume}}, mapping: noMap, runtime: "runc", link: sandbox.LinkStdio}
	p.files, err = e.unpacker.get()
	require.NoError(t, err)
	call, err := e.service.call(minute(t))
	require.NoError(t, err)
	facts, err := e.facts(call, p.spec.Image)
	require.NoError(t, err)
	p.image = facts.id
	require.NoError(t, p.makeVolumes(call))
	_, err = p.create(call)
	require.NoError(t, err)
	fmt.Println("READY", volume.info.Session, overlay.info.Session, unread.info.Session, p.spec.Session, parked.info.Session)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// Cases A211, A213, B: the server is killed in mid-exec. Its service dies with
// it, its guests end themselves, and the next server's reconciler removes the
// rest, but for the workspace that was kept.
func TestOwnerKilled(t *testing.T) {
	owner, state := "test-"+newToken()[:8], t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnerProcess$", "-test.v")
	cmd.Env = append(os.Environ(), ownerProbe+"="+owner, "PINFOLD_TEST_STATE="+state, "PINFOLD_TEST_FOLDER="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var sessions []string
	lines := bufio.NewScanner(out)
	for sessions == nil && lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "READY "); ok {
			sessions = strings.Fields(rest)
		} else {
			t.Log(lines.Text())
		}
	}
	require.Len(t, sessions, 5)
	e := newTestEngine(t, func(o *Options) { o.StateDir = state })
	stranger := startTest(t, e, sandbox.Spec{})
	connectTest(t, stranger)
	foreign := foreignThings(t, e)
	require.NoError(t, e.Reconcile(minute(t), func(string) bool { return true }))
	for _, s := range sessions {
		require.NotEmpty(t, leftOf(t, e, s), "while its owner lives nothing of it is touched")
	}

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool { return !serviceRuns(owner) }, 10*time.Second, 20*time.Millisecond, "the service dies with its server")
	require.Eventually(t, func() bool { return !guestRuns(t, sessions[0]) && !guestRuns(t, sessions[1]) }, 20*time.Second, 50*time.Millisecond, "guests end when their host is gone")

	began := time.Now()
	require.NoError(t, e.Reconcile(minute(t), func(o string) bool { return o != owner }))
	assert.Less(t, time.Since(began), 30*time.Second)
	for _, s := range sessions[:4] {
		nothingLeft(t, e, s)
	}
	assert.NoDirExists(t, filepath.Join(filepath.Dir(e.dir), owner))
	foreign(t)

	b, err := e.Start(minute(t), sandbox.Spec{Session: sessions[4], Resume: sessions[4], Image: testImage(t)})
	require.NoError(t, err, "the kept workspace outlives its server")
	require.NoError(t, b.Remove(minute(t)))
	nothingLeft(t, e, sessions[4])
	select {
	case <-stranger.Done():
		t.Fatal("a living server's sandbox was ended")
	default:
	}
}

// Two servers of one user can have state folders of their own; what the one
// keeps, the other must not take for a rest.
func TestAServerWithAnotherStateFolderLeavesKeptWorkspaces(t *testing.T) {
	first := newTestEngine(t)
	b := startTest(t, first, sandbox.Spec{})
	connectTest(t, b)
	session := b.Info().Session
	require.NoError(t, b.Stop(minute(t), sandbox.KeepWorkspace))
	before := leftOf(t, first, session)
	require.NotEmpty(t, before)

	other := newTestEngine(t)
	onlyFirstIsGone := func(o string) bool { return o != first.opts.Owner }
	require.NoError(t, other.Reconcile(minute(t), onlyFirstIsGone))
	assert.Equal(t, before, leftOf(t, first, session))

	require.NoError(t, os.RemoveAll(first.sessionDir(session)))
	require.NoError(t, other.Reconcile(minute(t), onlyFirstIsGone))
	nothingLeft(t, first, session) // without a record no one can resume it
}

// foreignThings makes a container and volumes that look a little like ours,
// and returns the check that they are still there.
func foreignThings(t *testing.T, e *Engine) func(t *testing.T) {
	t.Helper()
	name := "not-ours-" + newToken()[:8]
	labels := []string{"--label", labelMark + "=1", "--label", labelOwner + "=gone", "--label", labelSession + "=ses_x"}
	out, err := exec.Command("podman", append(append([]string{"create", "--network=none", "--name", name}, labels...), testImage(t), "true")...).CombinedOutput()
	require.NoError(t, err, string(out))
	call, err := e.service.call(minute(t))
	require.NoError(t, err)
	_, err = volumes.Create(call, entities.VolumeCreateOptions{Name: name, Label: map[string]string{labelMark: "1", labelOwner: "gone", labelSession: "ses_x", labelVolume: "workspace"}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, exec.Command("podman", "rm", "-f", name).Run())
		require.NoError(t, exec.Command("podman", "volume", "rm", name).Run())
	})
	return func(t *testing.T) {
		call, err := e.service.call(minute(t))
		require.NoError(t, err)
		ok, err := containers.Exists(call, name, nil)
		require.NoError(t, err)
		assert.True(t, ok, "a container that only carries our label is not ours")
		ok, err = volumes.Exists(call, name, nil)
		require.NoError(t, err)
		assert.True(t, ok, "neither is such a volume")
	}
}

func serviceRuns(owner string) bool {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), "system\x00service") && strings.Contains(string(b), "/"+owner+"/") {
			return true
		}
	}
	return false
}

// guestRuns reports whether the first process of a session lives.
func guestRuns(t *testing.T, session string) bool {
	out, err := exec.Command("podman", "inspect", "--format", "{{.State.Pid}}", containerName(session)).Output()
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	return pid > 0 && syscall.Kill(pid, 0) != syscall.ESRCH
}

// Case A214: the monitor or the first process is killed.
func TestMonitorAndGuestKilled(t *testing.T) {
	e := newTestEngine(t)
	for _, which := range []string{"guest", "monitor"} {
		b := startTest(t, e, sandbox.Spec{})
		connectTest(t, b)
		pid := b.info.Pid
		if which == "monitor" {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			require.NoError(t, err)
			fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			parent, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(parent, syscall.SIGKILL))
		}
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		select {
		case <-b.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the end was not seen")
		}
		assert.Equal(t, sandbox.StateDead, b.Info().State, which)
		require.NoError(t, b.Remove(minute(t)), which)
		nothingLeft(t, e, b.info.Session)
		assert.False(t, e.service.stateLeft(b.info.Runtime, b.info.ID), "%s: the runtime has forgotten it", which)
		assert.Empty(t, monitorsOf(b.info.ID))
	}
}

// The link takes nobody but the guest: a guest that never dials is not waited
// for past its death, and a caller's deadline holds.
func TestDialOfAGuestThatDoesNot(t *testing.T) {
	e := newTestEngine(t, standIn(t), func(o *Options) { o.Runtime = runc })
	b := startTest(t, e, sandbox.Spec{Link: sandbox.LinkUnix, Env: map[string]string{"STANDIN": "deaf"}})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := b.Dial(ctx)
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, sandbox.DeadlineExceeded, typed.Code)

	b = startTest(t, e, sandbox.Spec{Link: sandbox.LinkUnix, Env: map[string]string{"STANDIN": "die"}})
	_, err = b.Dial(minute(t))
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "sandbox_lost", typed.Reason)
	assert.ErrorContains(t, err, "told to die", "the guest's last words are in the cause")
}

// A hundred megabytes each way over the attach stream, the reader slow at
// first: nothing is lost, doubled or mixed with stderr.
func TestStdioLinkCarriesBulk(t *testing.T) {
	for _, isolation := range []sandbox.Isolation{sandbox.IsolationContainer, sandbox.IsolationGVisor} {
		e := newTestEngine(t, standIn(t))
		b := startTest(t, e, sandbox.Spec{Link: sandbox.LinkStdio, Isolation: isolation})
		c, err := b.Dial(minute(t))
		require.NoError(t, err)
		const total = 64 << 20
		sent := make(chan error, 1)
		go func() {
			buf := make([]byte, 64<<10)
			for n := 0; n < total; n += len(buf) {
				for i := range buf {
					buf[i] = byte((n + i) * 7 >> 3)
				}
				if _, err := c.Write(buf); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		buf, n := make([]byte, 256<<10), 0
		began := time.Now()
		for n < total {
			k, err := c.Read(buf)
			for i := range k {
				if want := byte((n + i) * 7 >> 3); buf[i] != want {
					require.Equal(t, want, buf[i], "byte %d", n+i)
				}
			}
			n += k
			if os.IsTimeout(err) {
				require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
				continue
			}
			require.NoError(t, err, "after %d bytes", n)
		}
		require.NoError(t, <-sent)
		t.Logf("%s: %.0f MB/s", isolation, total/1e6/time.Since(began).Seconds())
	}
}

// Case A215: a service that takes calls and never answers. The call ends with
// its deadline, and closing does not wait for it.
func TestServiceHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "p.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if strings.HasSuffix(req.URL.Path, "/_ping") {
						fmt.Fprint(c, "HTTP/1.1 200 OK\r\nLibpod-API-Version: 4.3.1\r\nContent-Length: 0\r\n\r\n")
					}
				}
			}()
		}
	}()
	e, err := New(Options{Owner: "test-" + newToken()[:8], Host: "unix://" + socket, StateDir: t.TempDir(), GuestPath: os.Getenv("PINFOLD_TEST_GUEST")})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	at := time.Now()
	_, err = e.Start(ctx, sandbox.Spec{Session: newSession(), Image: "localhost/x"})
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, sandbox.DeadlineExceeded, typed.Code)
	assert.Less(t, time.Since(at), time.Second)
	at = time.Now()
	require.NoError(t, e.Close())
	assert.Less(t, time.Since(at), 3*time.Second)
}

// Case A234: many at once all come up, and all go.
func TestBurst(t *testing.T) {
	e := newTestEngine(t)
	const n = 12
	boxes := make([]sandbox.Sandbox, n)
	took := make([]time.Duration, n)
	var g errgroup.Group
	ctx := minute(t)
	image := testImage(t)
	for i := range n {
		g.Go(func() error {
			at := time.Now()
			b, err := e.Start(ctx, sandbox.Spec{Session: newSession(), Image: image})
			boxes[i], took[i] = b, time.Since(at)
			return err
		})
	}
	require.NoError(t, g.Wait())
	slices.Sort(took)
	t.Logf("%d at once: first %s, median %s, last %s", n, took[0], took[n/2], took[n-1])
	for i := range n {
		g.Go(func() error { return boxes[i].Remove(ctx) })
	}
	require.NoError(t, g.Wait())
	for _, b := range boxes {
		nothingLeft(t, e, b.Info().Session)
	}
}

// Case A213: the service is killed at any moment of a start. The call gets a
// typed error or a sandbox, and nothing is left either way.
func TestServiceKilledInMidStart(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.Runtime = runc })
	require.NoError(t, e.Warm(minute(t)))
	image := testImage(t)
	startTest(t, e, sandbox.Spec{}) // the image's layers are shifted once
	var sessions []string
	for i := range 12 {
		session := newSession()
		sessions = append(sessions, session)
		_, err := e.service.call(minute(t))
		require.NoError(t, err)
		proc, after := e.service.proc, time.Duration(i*12)*time.Millisecond
		killed := time.AfterFunc(after, func() { _ = proc.Kill() })
		b, err := e.Start(minute(t), sandbox.Spec{Session: session, Image: image, Link: sandbox.LinkUnix})
		killed.Stop()
		if err == nil {
			require.NoError(t, b.Remove(minute(t)))
			continue
		}
		var typed *sandbox.Error
		require.ErrorAs(t, err, &typed)
		assert.Contains(t, []string{"podman_gone", "podman_failed", "runtime_broken"}, typed.Reason, "%v", err)
		t.Log(after, typed.Reason, err)
	}
	for _, s := range sessions {
		nothingLeft(t, e, s)
	}
}
