//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
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

// overHTTP connects one more client to a server; its Close says goodbye.
func overHTTP(t testing.TB, base, token string) story.Client {
	t.Helper()
	// The token goes by the HTTP client: the library's own header option leaves it out of the goodbye.
	h, err := transport.NewStreamableHTTP(base+"/mcp", transport.WithHTTPBasicClient(&http.Client{Transport: bearer{token}}))
	require.NoError(t, err)
	c, err := story.DialMCPGo(t.Context(), h)
	require.NoError(t, err)
	return c
}

func TestTenClientsOfFiftyCallsHaveTenSandboxesAndLeaveNone(t *testing.T) { // C30 C38 C44
	base, token, s := newWorld(t).http(t)
	sessions := make([]string, 10)
	var wg sync.WaitGroup
	for i := range sessions {
		c := overHTTP(t, base, token)
		wg.Go(func() {
			defer c.Close()
			for n := range 50 {
				mark := fmt.Sprintf("client-%d-call-%d", i, n)
				r := try(t, c, "shell_run", map[string]any{"command": "echo " + mark})
				if !assert.False(t, r.IsError, r.Text) || n > 0 && !assert.Equal(t, sessions[i], r.Str("session"), "one sandbox for one client, with no id carried by hand") {
					return
				}
				assert.Equal(t, mark+"\n", r.Str("stdout.text"))
				if n == 0 {
					sessions[i] = r.Str("session")
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, id := range sessions {
		assert.False(t, seen[id], "%s is shared", id)
		seen[id] = true
	}
	for _, id := range sessions {
		requireNothingLeft(t, id) // a client that leaves takes its sandbox along
	}
	s.kill(t, syscall.SIGTERM)
	s.ended(t, 10*time.Second)
}

func TestFiveSessionsInMidCommandDieWithTheirServer(t *testing.T) { // A211 C24 C29
	w := newWorld(t)
	c, s := w.stdio(t)
	var sessions []string
	for i := range 5 {
		id := call(t, c, "session_open", map[string]any{"isolation": []string{"container", "gvisor"}[i%2]}).Str("session")
		sessions = append(sessions, id)
		call(t, &inSession{c, id}, "shell_run", map[string]any{"command": "sleep 620", "background": true})
		go func() {
			_, _ = c.Call(context.Background(), "shell_run", map[string]any{"session": id, "command": "sleep 621"})
		}()
	}
	stranger := strings.TrimSpace(podman(t, "create", "--network=none", "--name", "not-ours-"+sessions[0][4:12], "--entrypoint=", "localhost/pinfold-test:mini", "true"))
	defer podman(t, "rm", "-f", stranger)
	s.kill(t, syscall.SIGKILL)
	s.ended(t, 5*time.Second)
	start := time.Now()
	next, _ := w.stdio(t)
	sh(t, next, "true")
	for _, id := range sessions {
		requireNothingLeft(t, id)
	}
	assert.Less(t, time.Since(start), 30*time.Second)
	t.Logf("all five were gone %v after the next start", time.Since(start).Round(time.Millisecond))
	assert.NotEmpty(t, podman(t, "ps", "-aq", "--filter", "id="+stranger), "what is not ours is not touched")
	call(t, next, "session_close", map[string]any{})
}

func TestClosingABusySessionEndsItCleanly(t *testing.T) { // A219
	eachIsolationOpen(t, func(t *testing.T, c story.Client, session string) {
		in := &inSession{c, session}
		sh(t, in, "true")
		replies := make(chan *story.Reply, 3)
		for _, busy := range []map[string]any{
			{"command": "trap '' TERM INT HUP; sleep 630"}, {"command": "yes"}, {"command": "dd if=/dev/zero of=big bs=1M count=100000 status=none"},
		} {
			go func() { replies <- try(t, in, "shell_run", busy) }()
		}
		require.Eventually(t, func() bool { return runs(t, in, "yes") > 0 && runs(t, in, "dd if") > 0 && runs(t, in, "sleep 630") > 0 }, patience, 50*time.Millisecond)
		start := time.Now()
		var wg sync.WaitGroup
		closed := make([]*story.Reply, 2)
		for i := range closed {
			wg.Go(func() { closed[i] = try(t, in, "session_close", map[string]any{}) })
		}
		wg.Wait()
		assert.False(t, closed[0].IsError && closed[1].IsError, "one of two closes does it: %s %s", closed[0].Text, closed[1].Text)
		for range 3 {
			r := <-replies
			require.True(t, r.IsError, r.Text)
			assert.NotEqual(t, "internal", r.Str("error.code"), r.Text)
		}
		requireNothingLeft(t, session)
		assert.Less(t, time.Since(start), 10*time.Second)
		requireError(t, try(t, in, "shell_run", map[string]any{"command": "true"}), "not_found")
	})
}

// eachIsolationOpen is eachIsolation for tests that close the session themselves.
func eachIsolationOpen(t *testing.T, test func(t *testing.T, c story.Client, session string)) {
	for _, isolation := range []string{"container", "gvisor"} {
		t.Run(isolation, func(t *testing.T) {
			c, session := openOn(t, isolation)
			test(t, c, session)
		})
	}
}

func TestOpenUseAndCloseInAnyOrderNeverLocks(t *testing.T) { // A218
	c, _ := newWorld(t).stdio(t)
	call(t, c, "shell_run", map[string]any{"command": "true"})
	var mu sync.Mutex
	used := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 12 {
				r := try(t, c, "session_open", map[string]any{"name": "shared"})
				if id := r.Str("session"); id != "" {
					mu.Lock()
					used[id] = true
					mu.Unlock()
				}
				mu.Lock()
				var one string
				for id := range used {
					one = id
				}
				mu.Unlock()
				for range 4 {
					tool, args := "shell_run", map[string]any{"command": "echo alive", "session": one}
					if rand.IntN(4) == 0 {
						tool, args = "session_close", map[string]any{"session": one}
					}
					r = try(t, c, tool, args)
					if r.IsError {
						assert.Contains(t, []string{"not_found", "unavailable", "failed_precondition", "canceled"}, r.Str("error.code"), r.Text)
					} else if tool == "shell_run" {
						assert.Equal(t, "alive\n", r.Str("stdout.text"))
					}
				}
			}
		})
	}
	wg.Wait()
	for id := range used {
		_ = try(t, c, "session_close", map[string]any{"session": id})
		requireNothingLeft(t, id)
	}
	t.Logf("%d sessions came and went", len(used))
	sh(t, c, "true")
}

func TestSessionsComeAndGoAndTheServerStaysAsItWas(t *testing.T) { // A233
	w := newWorld(t)
	c, s := w.stdio(t)
	pid := s.cmd.Process.Pid
	sh(t, c, "true")
	cycle := func(n int) {
		for range n {
			id := call(t, c, "session_open", map[string]any{}).Str("session")
			sh(t, &inSession{c, id}, "true")
			call(t, c, "session_close", map[string]any{"session": id})
			requireNothingLeft(t, id)
		}
	}
	state := func() (fds, children int) {
		e, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		require.NoError(t, err)
		for p := range processes(t) {
			if parent(p) == pid {
				children++
			}
		}
		return len(e), children
	}
	cycle(3)
	fds, children := state()
	memory := rss(t, pid)
	cycle(15)
	require.Eventually(t, func() bool { f, n := state(); return f <= fds+2 && n <= children }, 10*time.Second, 50*time.Millisecond, "descriptors or processes grow")
	t.Logf("%d descriptors, %d children, %d then %d MB", fds, children, memory>>20, rss(t, pid)>>20)
	assert.Less(t, rss(t, pid)-memory, int64(24<<20))
}

func TestAServerShortOfDescriptorsRecovers(t *testing.T) { // A221
	w := newWorld(t)
	cmd := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" serve --tools all --http 127.0.0.1:0`, binary(t))
	cmd.Env = w.env
	s := run(t, cmd)
	defer func() { s.kill(t, syscall.SIGTERM) }()
	base, token := address(t, s)
	var held []net.Conn
	for range 200 { // half a request each, which holds a descriptor
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(base, "http://"), 3*time.Second)
		if err != nil {
			break
		}
		defer conn.Close()
		_, _ = fmt.Fprint(conn, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		held = append(held, conn)
	}
	require.Eventually(t, func() bool {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		return err == nil && len(fds) >= 63
	}, 10*time.Second, 10*time.Millisecond, "the control: the limit is reached")
	t.Logf("%d connections hold all that the server may open", len(held))
	for _, conn := range held {
		conn.Close()
	}
	require.Eventually(t, func() bool {
		h, err := transport.NewStreamableHTTP(base+"/mcp", transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + token}))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := story.DialMCPGo(ctx, h)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Tools(ctx)
		return err == nil
	}, 30*time.Second, 200*time.Millisecond, "it recovers by itself")
}

func TestAWorkspaceOfVeryManyFilesIsRemoved(t *testing.T) { // A230
	w := newWorld(t)
	kept := filepath.Join(w.dir, "kept")
	require.NoError(t, os.WriteFile(kept, []byte("kept"), 0o600))
	c, _ := w.stdio(t)
	r := call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", `import os
for d in range(200):
    os.mkdir('d%d' % d)
    for f in range(1000): os.close(os.open('d%d/f%d' % (d, f), os.O_CREAT | os.O_WRONLY, 0o400))
os.symlink('/', 'root'); os.symlink('/etc/passwd', 'd0/passwd'); os.mkfifo('fifo'); os.makedirs('shut/shut'); os.chmod('shut', 0)
print('made')`}, "wait_ms": 50000})
	require.Equal(t, "made\n", r.Str("stdout.text"), r.Text)
	start := time.Now()
	call(t, c, "session_close", map[string]any{})
	t.Logf("200,000 files were removed in %v", time.Since(start).Round(time.Millisecond))
	requireNothingLeft(t, r.Str("session"))
	assert.FileExists(t, kept)
}

func TestLimitsThatDoNotHoldAreSaid(t *testing.T) { // A69
	c, _ := newWorld(t).stdio(t)
	r := call(t, c, "session_open", map[string]any{})
	limits, _ := r.Structured["limits"].([]any)
	require.Len(t, limits, 5)
	in := &inSession{c, r.Str("session")}
	status := call(t, in, "session_status", map[string]any{})
	for _, l := range limits {
		limit := l.(map[string]any)
		name := fmt.Sprint(limit["limit"])
		if limit["holds"] == true {
			assert.NotContains(t, status.Str("degraded"), name+":")
			continue
		}
		assert.NotEmpty(t, limit["note"], name)
		assert.Contains(t, r.Text, "not held", "the text says it too")
		assert.Contains(t, fmt.Sprint(status.Structured["degraded"]), name)
	}
	// What stands in for a limit of the whole holds for each process.
	assert.Equal(t, "512\n", sh(t, in, "ulimit -u"))
	out := call(t, in, "shell_run", map[string]any{"command": []any{"python3", "-c", "x = bytearray(4 << 30)"}})
	assert.NotEqual(t, "0", out.Str("exit_code"), out.Text)
	call(t, in, "session_close", map[string]any{})
}

func TestNothingInAProjectLoosensItsPolicy(t *testing.T) { // A30 A208
	w := newWorld(t)
	policies := filepath.Join(w.dir, "config", "pinfold", "policies")
	require.NoError(t, os.MkdirAll(policies, 0o700))
	const strict = "version: 1\nname: %s\nrules:\n  - {name: reading, effect: allow, permissions: [file.read, session.read, session.manage]}\n  - {name: writing, effect: %s, permissions: [file.write, shell.exec], reason: only reading here}\n"
	require.NoError(t, os.WriteFile(filepath.Join(policies, "strict.yaml"), []byte(fmt.Sprintf(strict, "strict", "deny")), 0o600))
	project := filepath.Join(w.dir, "project")
	for _, name := range []string{"config.yaml", "pinfold.yaml", ".pinfold.yaml", ".pinfold/config.yaml", ".pinfold/policies/strict.yaml", "policies/strict.yaml", ".config/pinfold/policies/strict.yaml", ".mcp.json"} {
		path := filepath.Join(project, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(fmt.Sprintf(strict, "strict", "allow"), "version", "policy: loose\nversion", 1)), 0o644))
	}
	cmd := exec.Command(binary(t), "serve", "--tools", "all", "--policy", "strict", "--workspace", project+":overlay")
	cmd.Env, cmd.Dir = w.env, project
	s := run(t, cmd)
	c, err := story.DialMCPGo(t.Context(), transport.NewIO(s.out, s.in, nopReader{}))
	require.NoError(t, err, "stderr: %s", s.stderr)
	r := try(t, c, "shell_run", map[string]any{"command": "true"})
	requireError(t, r, "permission_denied")
	assert.Contains(t, r.Text, "only reading here")
	requireError(t, try(t, c, "file_write", map[string]any{"path": "x", "content": "y"}), "permission_denied")
	r = call(t, c, "file_read", map[string]any{"path": ".pinfold/config.yaml"})
	assert.Contains(t, r.Str("text"), "loose", "the control: the session does see the file")
	session := r.Str("session")
	call(t, c, "session_close", map[string]any{})
	requireNothingLeft(t, session)
}

func TestADamagedRecordDeletesNothing(t *testing.T) { // A226
	w := newWorld(t)
	c, s := w.stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "echo precious > note"}).Str("session")
	in := &inSession{c, session}
	call(t, in, "session_close", map[string]any{"keep": "workspace"})
	var record string
	require.NoError(t, filepath.WalkDir(filepath.Join(w.dir, "state"), func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == session+".json" {
			record = path
		}
		return err
	}))
	require.NotEmpty(t, record)
	whole, err := os.ReadFile(record)
	require.NoError(t, err)
	volumes := func() string {
		return podman(t, "volume", "ls", "-q", "--filter", "label=pinfold.session="+session)
	}
	before := volumes()
	require.NotEmpty(t, before)
	for name, damaged := range map[string]string{
		"cut": string(whole[:len(whole)/2]), "zeroed": strings.Repeat("\x00", len(whole)), "empty": "",
		"newer": strings.Replace(string(whole), `"version":1`, `"version":99`, 1), "another's": strings.ReplaceAll(string(whole), session, "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
	} {
		require.NotEqual(t, string(whole), damaged, name)
		require.NoError(t, os.WriteFile(record, []byte(damaged), 0o600))
		r := try(t, in, "shell_run", map[string]any{"command": "cat note"})
		assert.True(t, r.IsError, "%s: %s", name, r.Text)
		assert.NotEmpty(t, r.Str("error.message"), name)
		assert.Equal(t, before, volumes(), name)
	}
	// The next server does not sweep it either.
	require.NoError(t, s.in.Close())
	s.ended(t, 10*time.Second)
	next, _ := w.stdio(t)
	sh(t, next, "true")
	require.Equal(t, before, volumes())
	require.NoError(t, os.WriteFile(record, whole, 0o600))
	again := &inSession{next, session}
	assert.Equal(t, "precious\n", sh(t, again, "cat note"), "the control: with its record whole it is resumed")
	call(t, again, "session_close", map[string]any{})
	requireNothingLeft(t, session)
}
