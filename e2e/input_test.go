//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

func TestBadInputIsATypedErrorAndTheNextCallWorks(t *testing.T) {
	c, _ := newWorld(t).stdio(t)
	for _, bad := range []struct {
		what, tool string
		args       map[string]any
		code       string
	}{
		{"wrong type", "shell_run", map[string]any{"command": 7}, "invalid_argument"},
		{"number in quotes", "shell_run", map[string]any{"command": "true", "timeout_ms": "90"}, "invalid_argument"},
		{"negative time", "shell_run", map[string]any{"command": "true", "timeout_ms": -1}, "invalid_argument"},
		{"unknown field", "shell_run", map[string]any{"command": "true", "sudo": true}, "invalid_argument"},
		{"missing field", "shell_run", map[string]any{}, "invalid_argument"},
		{"empty command", "shell_run", map[string]any{"command": ""}, "invalid_argument"},
		{"empty list", "shell_run", map[string]any{"command": []any{}}, "invalid_argument"},
		{"bad environment name", "shell_run", map[string]any{"command": "true", "env": map[string]any{"A=B": "1"}}, "invalid_argument"},
		{"missing folder", "shell_run", map[string]any{"command": "true", "cwd": "nowhere"}, "not_found"},
		{"missing binary", "shell_run", map[string]any{"command": []any{"no-such-command"}}, "not_found"},
		{"unknown process", "shell_output", map[string]any{"process": "p999"}, "not_found"},
		{"unknown session", "shell_run", map[string]any{"command": "true", "session": "ses_unknown"}, "not_found"},
		{"session of bad grammar", "shell_run", map[string]any{"command": "true", "session": "../../x"}, "not_found"},
		{"missing file", "file_read", map[string]any{"path": "nowhere"}, "not_found"},
		{"NUL in a path", "file_read", map[string]any{"path": "a\x00.png"}, "invalid_argument"},
		{"unknown template", "session_open", map[string]any{"template": "no-such"}, "not_found"},
		{"weaker isolation", "session_open", map[string]any{"template": "untrusted-code", "isolation": "container"}, "permission_denied"},
		{"bound folder", "session_open", map[string]any{"workspace": map[string]any{"mode": "bind", "path": "/tmp"}}, "failed_precondition"},
		{"unknown language", "code_run", map[string]any{"language": "cobol", "code": "1"}, "invalid_argument"},
		{"forbidden scheme", "browser_navigate", map[string]any{"url": "file:///etc/passwd"}, "permission_denied"},
		{"unknown step", "browser_act", map[string]any{"steps": []any{map[string]any{"do": "jump"}}}, "invalid_argument"},
	} {
		t.Run(bad.what, func(t *testing.T) {
			requireError(t, try(t, c, bad.tool, bad.args), bad.code)
			r := call(t, c, "shell_run", map[string]any{"command": "exit 3"})
			assert.Equal(t, "3", r.Str("exit_code"), "the next call works, and exiting 3 is a success")
		})
	}
	t.Run("unknown tool", func(t *testing.T) {
		_, err := c.Call(t.Context(), "shell_rum", map[string]any{})
		require.ErrorContains(t, err, "shell_rum")
		sh(t, c, "true")
	})
	session := call(t, c, "session_close", map[string]any{}).Str("session")
	requireNothingLeft(t, session)
}

func TestAMissingImageSaysWhatToDoAtOnce(t *testing.T) {
	w := newWorld(t)
	config := filepath.Join(w.dir, "config", "pinfold", "templates")
	require.NoError(t, os.MkdirAll(config, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(config, "absent.yaml"), []byte("version: 1\nname: absent\ndescription: An image that is not there.\nimage: localhost/pinfold-absent:none\n"), 0o644))
	c, _ := w.stdio(t, "--template", "absent")
	start := time.Now()
	r := try(t, c, "shell_run", map[string]any{"command": "true"})
	requireError(t, r, "not_found")
	assert.Equal(t, "image_missing", r.Str("error.reason"))
	assert.Contains(t, r.Text, "localhost/pinfold-absent:none")
	assert.Less(t, time.Since(start), 10*time.Second)
	ok := call(t, c, "session_open", map[string]any{"template": "offline"})
	assert.Equal(t, "0", call(t, c, "shell_run", map[string]any{"command": "true", "session": ok.Str("session")}).Str("exit_code"))
}

func TestThePodmanServiceGoneInMidSession(t *testing.T) {
	c, s := newWorld(t).stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "true"}).Str("session")
	var killed int
	for pid, line := range processes(t) {
		if strings.Contains(line, "system service") && parent(pid) == s.cmd.Process.Pid {
			p, err := os.FindProcess(pid)
			require.NoError(t, err)
			require.NoError(t, p.Kill())
			killed++
		}
	}
	require.Equal(t, 1, killed, "the server has one Podman service of its own")
	sh(t, c, "true") // the guest's link does not need the service
	r := try(t, c, "session_open", map[string]any{})
	if r.IsError {
		requireError(t, r, "unavailable")
		r = call(t, c, "session_open", map[string]any{}) // and the next call works
	}
	for _, id := range []string{r.Str("session"), session} {
		call(t, c, "session_close", map[string]any{"session": id})
		requireNothingLeft(t, id)
	}
}

func TestTheContainerKilledFromOutside(t *testing.T) {
	c, _ := newWorld(t).stdio(t)
	session := call(t, c, "shell_run", map[string]any{"command": "true"}).Str("session")
	done := make(chan *story.Reply, 1)
	go func() {
		r, _ := c.Call(t.Context(), "shell_run", map[string]any{"command": "sleep 60"})
		done <- r
	}()
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(processes(t)), "sleep 60") }, patience, 20*time.Millisecond)
	podman(t, "kill", strings.TrimSpace(podman(t, "ps", "-q", "--filter", "label=pinfold.session="+session)))
	select {
	case r := <-done:
		requireError(t, r, "unavailable")
		assert.Equal(t, "sandbox_lost", r.Str("error.reason"))
	case <-time.After(3 * time.Second):
		require.Fail(t, "the call hangs after its sandbox is gone")
	}
	requireError(t, try(t, c, "shell_run", map[string]any{"command": "true", "session": session}), "unavailable")
	call(t, c, "session_open", map[string]any{})
}

// The two tests below run the server where a prerequisite is missing, in a user
// namespace of their own: as a user without subordinate ids, and where no user
// namespaces can be made.
func TestMissingPrerequisitesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		wrap []string
		says string
	}{
		"no subordinate ids":        {[]string{"unshare", "--user", "--map-user=4242", "--map-group=4242"}, "subordinate"},
		"user namespaces forbidden": {[]string{"unshare", "--user", "--map-user=4242", "--map-group=4242", "--keep-caps", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"`, "sh"}, "user namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			runtime := filepath.Join(w.dir, "run")
			require.NoError(t, os.Mkdir(runtime, 0o700))
			// Podman's pause process outlives its server by design; this one's runtime folder is ours.
			t.Cleanup(func() { endPause(t, runtime) })
			argv := append(c.wrap[1:], binary(t), "serve")
			cmd := exec.Command(c.wrap[0], argv...)
			cmd.Env = append(w.env, "XDG_RUNTIME_DIR="+runtime, "HOME="+w.dir)
			s := run(t, cmd)
			client, err := story.DialMCPGo(t.Context(), transport.NewIO(s.out, s.in, nopReader{}))
			require.NoError(t, err, "stderr: %s", s.stderr)
			r := try(t, client, "shell_run", map[string]any{"command": "true"})
			requireError(t, r, "failed_precondition")
			assert.Contains(t, strings.ToLower(r.Text), c.says)
			_, err = client.Tools(t.Context())
			require.NoError(t, err, "the server itself lives")
		})
	}
}

// endPause ends the pause process of a runtime folder, if Podman got that far.
func endPause(t *testing.T, runtime string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(runtime, "libpod", "tmp", "pause.pid"))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	if strings.Contains(processes(t)[pid], "catatonit") {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ppid int
	_, _ = fmt.Sscan(f[1], &ppid)
	return ppid
}
