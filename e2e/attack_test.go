//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// vsock opens a socket of a family and says whether the kernel let it.
const vsock = `import socket, sys
for name, family, kind in (("AF_VSOCK", 40, 1), ("AF_ALG", 38, 5), ("AF_PACKET", 17, 3), ("AF_NETLINK audit", 16, 3)):
    try:
        socket.socket(family, kind, 9 if family == 16 else 0).close()
        print(name, "opened")
    except OSError as e:
        print(name, "refused", e.errno)`

// unguarded runs a command in a plain container of the session's own image with
// seccomp and no_new_privs left off: the control of the attacks below.
func unguarded(t *testing.T, session string, argv ...string) string {
	t.Helper()
	id := strings.TrimSpace(podman(t, "ps", "-q", "--filter", "label=pinfold.session="+session))
	require.NotEmpty(t, id)
	image := strings.TrimSpace(podman(t, "inspect", "--format", "{{.Image}}", id))
	return podman(t, append([]string{"--runtime", "runc", "run", "--rm", "--network=none", "--log-driver=none", "--label=pinfold.session=" + session,
		"--security-opt=seccomp=unconfined", "--user=0:0", "--entrypoint=", image}, argv...)...)
}

func openOn(t *testing.T, isolation string) (story.Client, string) {
	t.Helper()
	c, _ := newWorld(t).stdio(t)
	r := call(t, c, "session_open", map[string]any{"isolation": isolation})
	session := r.Str("session")
	t.Cleanup(func() { requireNothingLeft(t, session) })
	return c, session
}

// eachIsolation runs a test in a session of each wall.
func eachIsolation(t *testing.T, test func(t *testing.T, c story.Client, session, isolation string)) {
	for _, isolation := range []string{"container", "gvisor"} {
		t.Run(isolation, func(t *testing.T) {
			c, session := openOn(t, isolation)
			test(t, &inSession{c, session}, session, isolation)
			call(t, c, "session_close", map[string]any{"session": session})
		})
	}
}

// inSession adds the session to every call.

type inSession struct {
	story.Client
	session string
}

func (i *inSession) Call(ctx context.Context, tool string, args map[string]any) (*story.Reply, error) {
	args["session"] = i.session
	return i.Client.Call(ctx, tool, args)
}

func TestCommandsCannotMakeUserNamespacesOrForeignSockets(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, session, isolation string) {
		r := call(t, c, "shell_run", map[string]any{"command": "unshare -Ur true"})
		assert.NotEqual(t, "0", r.Str("exit_code"), "a user namespace was made")
		out := sh(t, c, "python3 -c '"+vsock+"'")
		assert.NotContains(t, out, "opened", out)
		assert.Equal(t, 4, strings.Count(out, "refused"), out)
		if isolation == "container" {
			assert.Equal(t, "made", strings.TrimSpace(unguarded(t, session, "unshare", "-Ur", "echo", "made")), "without the guard the attack works")
			control := unguarded(t, session, "python3", "-c", vsock)
			assert.Contains(t, control, "AF_VSOCK opened", "without the guard the attack works")
		}
	})
}

func TestCommandsAreWhoTheyShouldBe(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, session, isolation string) {
		status := sh(t, c, "cat /proc/self/status")
		field := func(name string) string {
			m := regexp.MustCompile(`(?m)^` + name + `:\s*(.*)$`).FindStringSubmatch(status)
			if m == nil {
				return "absent"
			}
			return strings.Join(strings.Fields(m[1]), " ")
		}
		assert.Equal(t, "1000 1000 1000 1000", field("Uid"))
		assert.Equal(t, "1000 1000 1000 1000", field("Gid"))
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if v := field(set); isolation == "container" || v != "absent" {
				assert.Equal(t, "0000000000000000", v, set)
			}
		}
		if isolation == "container" {
			assert.Equal(t, "1", field("NoNewPrivs"))
			assert.Equal(t, "2", field("Seccomp"))
			// The host sees no user of its own either.
			for pid, line := range processes(t) {
				if strings.HasPrefix(line, "/.pinfold/guest") {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
					require.NoError(t, err)
					assert.NotContains(t, string(b), fmt.Sprintf("Uid:\t%d\t", os.Getuid()), "pid 1 runs as the host user")
				}
			}
		}
		fds := sh(t, c, "ls /proc/self/fd | xargs")
		assert.Equal(t, "0 1 2 3", strings.TrimSpace(fds), "3 is ls's own")
	})
}

func TestCommandsCannotReachTheLinkOrItsToken(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		for _, attack := range []string{
			"ls /.pinfold/link/guest.sock", "touch /.pinfold/link/x", "cat /proc/1/environ", "ls /proc/1/fd", "cat /proc/1/mem", "cat /proc/1/maps", "readlink /proc/1/cwd/x/..",
			"mv /.pinfold /tmp/x", "rm -rf /.pinfold/guest", "echo x > /.pinfold/guest", "kill -9 1 && kill -0 1 && exit 1",
			"python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect('/.pinfold/link/guest.sock')\"",
			"head -c1 /proc/1/fd/0", "cat /browser/profile/Default/Cookies", "ls /browser",
		} {
			r := call(t, c, "shell_run", map[string]any{"command": attack, "timeout_ms": 5000})
			assert.NotEqual(t, "0", r.Str("exit_code"), "%s: %s", attack, r.Text)
		}
		// The controls: the same commands on what is the caller's own.
		sh(t, c, "cat /proc/self/environ >/dev/null; ls /proc/self/fd; touch /tmp/own && rm /tmp/own")
		assert.NotContains(t, strings.ToLower(sh(t, c, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")), "token")
		assert.Equal(t, "alive\n", sh(t, c, "echo alive"), "the guest lives")
	})
}

func TestNoSecretOfTheServersEnvironmentComesIn(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.env = append(w.env, fmt.Sprintf("SECRET_%d=canary-%d-7d1f", i, i))
	}
	w.env = append(w.env, "AWS_SECRET_ACCESS_KEY=canary-aws-7d1f", "HTTPS_PROXY=http://user:canary-proxy-7d1f@127.0.0.1:1")
	c, _ := w.stdio(t)
	seen := sh(t, c, "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; grep -rs canary- /etc /home /run /session /workspace; true")
	assert.Contains(t, seen, "HOME=/home/agent")
	assert.NotContains(t, seen, "7d1f")
	session := call(t, c, "session_close", map[string]any{}).Str("session")
	requireNothingLeft(t, session)
}

func TestTheSandboxHasNoNetworkButLoopback(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		assert.Equal(t, "lo", strings.TrimSpace(sh(t, c, "ls /sys/class/net 2>/dev/null | xargs || true; [ -d /sys/class/net ] || echo lo")))
		r := call(t, c, "shell_run", map[string]any{"command": `python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('192.0.2.1', 9))"`})
		assert.NotEqual(t, "0", r.Str("exit_code"), "there is a route out")
	})
}

func TestOnlyTheWorkspaceOfTheHostIsMounted(t *testing.T) {
	c, session := openOn(t, "container")
	c = &inSession{c, session}
	for line := range strings.Lines(sh(t, c, "cat /proc/self/mountinfo")) {
		f := strings.Fields(line)
		at, opts := f[4], f[5]
		if at == "/" || strings.HasPrefix(at, "/proc") || strings.HasPrefix(at, "/sys") || strings.HasPrefix(at, "/dev") {
			continue
		}
		assert.Contains(t, opts, "nosuid", line)
		assert.Contains(t, opts, "nodev", line)
		assert.Contains(t, []string{"/workspace", "/home/agent", "/session", "/browser", "/tmp", "/.pinfold/guest", "/.pinfold/link",
			"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run", "/run/.containerenv", "/run/lock", "/var/tmp"}, at, line)
	}
	call(t, c, "session_close", map[string]any{})
}

func TestChromiumRunsInItsOwnSandbox(t *testing.T) {
	eachIsolation(t, func(t *testing.T, c story.Client, session, isolation string) {
		call(t, c, "file_write", map[string]any{"path": "page/index.html", "content": "<!doctype html><title>Here</title><h1>Here</h1>"})
		call(t, c, "shell_run", map[string]any{"command": "cd page && python3 -m http.server 8000", "background": true})
		page := call(t, c, "browser_navigate", map[string]any{"url": "http://localhost:8000/", "wait_server_ms": 20000})
		assert.Contains(t, page.Text, "Here")
		// Another uid, another profile, closed to commands.
		table := sh(t, c, "ps -eo uid,args | grep -F -- --type=renderer | grep -v grep | head -1")
		assert.Equal(t, "1001", strings.Fields(table)[0], table)
		assert.NotContains(t, sh(t, c, "ps -eo args"), "--no-sandbox")
		r := call(t, c, "shell_run", map[string]any{"command": "kill -9 $(pgrep -u 1001 | head -1)"})
		assert.NotEqual(t, "0", r.Str("exit_code"), "commands can signal the browser")
		status := call(t, c, "session_status", map[string]any{})
		assert.True(t, strings.HasPrefix(status.Str("chromium_sandbox"), "on"), "session_status reports it: %s", status.Text)
		if isolation != "container" {
			return
		}
		var renderers int
		for pid, line := range processes(t) {
			if !strings.Contains(line, "--type=renderer") || !ofSession(pid, session) {
				continue
			}
			renderers++
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			require.NoError(t, err)
			s := string(b)
			assert.Regexp(t, `(?m)^NoNewPrivs:\s+1$`, s)
			assert.Regexp(t, `(?m)^Seccomp:\s+2$`, s)
			assert.Regexp(t, `(?m)^CapEff:\s+0+$`, s)
			nspid := regexp.MustCompile(`(?m)^NSpid:(.*)$`).FindStringSubmatch(s)
			assert.GreaterOrEqual(t, len(strings.Fields(nspid[1])), 3, "host, sandbox and Chromium's own process namespaces")
		}
		assert.NotZero(t, renderers)
	})
}

// ofSession reports whether a process has a parent whose command line names the
// session (its monitor).
func ofSession(pid int, session string) bool {
	for range 16 {
		b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
		if err != nil {
			return false
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if _, err := fmt.Sscan(f[1], &pid); err != nil || pid <= 1 {
			return false
		}
		line, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "cmdline"))
		if strings.Contains(string(line), session) {
			return true
		}
	}
	return false
}
