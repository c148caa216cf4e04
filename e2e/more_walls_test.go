//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// python runs a program in the sandbox and returns what it printed.
func python(t testing.TB, c story.Client, program string) string {
	t.Helper()
	r := call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", program}})
	require.Equal(t, "0", r.Str("exit_code"), r.Text)
	return r.Str("stdout.text")
}

// setuid starts the image's setuid programs, none of which ends by itself without
// input, and prints the effective uid that each has.
const setuid = `import os, subprocess, sys
found = subprocess.run(['find', '/usr/bin', '/usr/sbin', '-perm', '-4000', '-user', 'root'], capture_output=True, text=True).stdout.split()
for path in found:
    if path.rsplit('/', 1)[-1] not in ('su', 'passwd', 'newgrp', 'chsh', 'chfn', 'gpasswd'): continue
    r, w = os.pipe()
    p = subprocess.Popen([path], stdin=r, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    uid = [l.split()[2] for l in open('/proc/%d/status' % p.pid) if l.startswith('Uid')][0]
    p.kill(); p.wait()
    print('euid', uid, path)
`

func TestSetuidProgramsGainNothing(t *testing.T) { // A54
	eachIsolation(t, func(t *testing.T, c story.Client, session, isolation string) {
		seen := python(t, c, setuid)
		assert.NotContains(t, seen, "euid 0", seen)
		// A setuid copy of a shell, made by the agent, is the agent's own and no more.
		assert.Equal(t, "1000\n", sh(t, c, "cp /bin/sh own && chmod 6755 own && ./own -p -c 'id -u'"))
		r := call(t, c, "shell_run", map[string]any{"command": "chown 0 own || setcap cap_setuid+ep own || python3 -c 'import os; os.setuid(0)'"})
		assert.NotEqual(t, "0", r.Str("exit_code"), r.Text)
		if isolation == "container" && strings.Contains(seen, "euid") {
			control := unguarded(t, session, "setpriv", "--reuid=1000", "--clear-groups", "python3", "-c", setuid)
			assert.Contains(t, control, "euid 0", "without no_new_privs the programs do gain")
		}
	})
}

func TestCommandsHaveNoWayBackThroughDescriptors(t *testing.T) { // A61
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		for n := 3; n <= 30; n++ {
			r := try(t, c, "shell_run", map[string]any{"command": []any{"pwd"}, "cwd": fmt.Sprintf("/proc/self/fd/%d/..", n)})
			require.True(t, r.IsError, "descriptor %d led to %s", n, r.Text)
		}
		assert.Equal(t, "0 1 2 3", strings.TrimSpace(sh(t, c, "ls /proc/self/fd | xargs")), "3 is ls's own")
	})
}

// peek tries to trace pid 1 and to read its memory, then the same with a child.
const peek = `import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
word = ctypes.create_string_buffer(b'readable')
def read(pid):
    into = ctypes.create_string_buffer(8)
    a, b = iovec(ctypes.addressof(into), 8), iovec(ctypes.addressof(word), 8)
    return libc.process_vm_readv(pid, ctypes.byref(a), 1, ctypes.byref(b), 1, 0)
def trace(pid):
    r = libc.ptrace(16, pid, 0, 0)
    if r == 0: os.waitpid(pid, 0); libc.ptrace(17, pid, 0, 0)
    return r
child = os.fork()
if child == 0: signal.pause()
print('child', trace(child), read(child))
os.kill(child, 9)
print('guest', trace(1), read(1))
try: open('/proc/1/mem', 'rb').read(1); print('mem opened')
except OSError as e: print('mem refused')
`

func TestTheGuestCannotBeTracedOrRead(t *testing.T) { // A63
	eachIsolation(t, func(t *testing.T, c story.Client, _, isolation string) {
		out := python(t, c, peek)
		assert.Contains(t, out, "guest -1 -1\nmem refused")
		if isolation == "container" {
			assert.Contains(t, out, "child 0 8", "the control: a program may trace and read what is its own")
		}
	})
}

func TestNoControlSocketIsInside(t *testing.T) { // A64
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		// The control: the search finds a socket that is there.
		python(t, c, "import socket; socket.socket(socket.AF_UNIX).bind('/tmp/found.sock'); socket.socket(socket.AF_UNIX).bind('/tmp/podman.sock')")
		found := sh(t, c, "find / -xdev -type s 2>/dev/null; find /run /var/run /tmp /workspace /home /dev -type s 2>/dev/null; true")
		assert.Contains(t, found, "/tmp/found.sock")
		for line := range strings.Lines(found) {
			assert.Contains(t, []string{"/tmp/found.sock", "/tmp/podman.sock"}, strings.TrimSpace(line), "a socket that nobody put there")
		}
		assert.NotContains(t, sh(t, c, "cat /proc/net/unix 2>/dev/null; true"), "@", "abstract sockets of others")
		assert.Equal(t, "", sh(t, c, "ls /run/user 2>/dev/null; env | grep -i -e DBUS -e _HOST= -e SSH_AUTH; true"))
	})
}

// share makes a System V memory segment, an abstract socket and a POSIX queue;
// find looks for them.
const (
	share = `import ctypes, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
assert libc.shmget(0x70696e66, 4096, 0o1666) >= 0
s = socket.socket(socket.AF_UNIX); s.bind('\0pinfold-sibling'); s.listen()
t = socket.socket(); t.bind(('127.0.0.1', 4711)); t.listen()
print('up', flush=True); signal.pause()`
	find = `import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
print('shm', libc.shmget(0x70696e66, 4096, 0) >= 0)
def reach(family, where):
    try: socket.socket(family).connect(where); return True
    except OSError: return False
print('abstract', reach(socket.AF_UNIX, '\0pinfold-sibling'))
print('tcp', [p for p in range(1, 5000) if reach(socket.AF_INET, ('127.0.0.1', p))])
print('processes', 'pinfold-sibling' in ''.join(open('/proc/%s/cmdline' % p).read() for p in __import__('os').listdir('/proc') if p.isdigit() and p != str(__import__('os').getpid())))`
)

func TestASiblingIsInvisible(t *testing.T) { // A65
	for _, isolation := range []string{"container", "gvisor"} {
		t.Run(isolation, func(t *testing.T) {
			c, _ := newWorld(t).stdio(t)
			open := func() (story.Client, string) {
				s := call(t, c, "session_open", map[string]any{"isolation": isolation}).Str("session")
				return &inSession{c, s}, s
			}
			one, first := open()
			two, second := open()
			p := call(t, one, "shell_run", map[string]any{"command": []any{"python3", "-c", share}, "background": true}).Str("process")
			require.Equal(t, "true", call(t, one, "shell_output", map[string]any{"process": p, "match": "up", "wait_ms": 10000, "since": 0}).Str("matched"))
			assert.Equal(t, "shm False\nabstract False\ntcp []\nprocesses False\n", python(t, two, find))
			assert.Equal(t, "shm True\nabstract True\ntcp [4711]\nprocesses True\n", python(t, one, find), "the control: in the same session all is found")
			for _, s := range []string{first, second} {
				call(t, c, "session_close", map[string]any{"session": s})
				requireNothingLeft(t, s)
			}
		})
	}
}

func TestCommandsHaveNoControllingTerminal(t *testing.T) { // A78
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		const try = `import fcntl, os, termios
def say(name, f):
    try: f(); print(name, 'done')
    except OSError as e: print(name, 'refused')
say('open', lambda: os.open('/dev/tty', os.O_RDWR))
say('size', lambda: os.get_terminal_size(0))
say('inject', lambda: fcntl.ioctl(0, termios.TIOCSTI, b'x'))
say('console', lambda: open('/dev/console', 'wb').write(b'x'))`
		assert.Equal(t, "open refused\nsize refused\ninject refused\nconsole refused\n", python(t, c, try))
		r := call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", try}, "tty": map[string]any{"cols": 80, "rows": 24}})
		assert.Contains(t, r.Str("stdout.text"), "open done", "the control: with a terminal it is there")
		assert.Contains(t, r.Str("stdout.text"), "inject refused", "typing into it is refused all the same")
	})
}

func TestTheClockCannotBeSet(t *testing.T) { // A94
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		out := python(t, c, `import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(208)
ctypes.c_int.from_buffer(buf).value = 1  # ADJ_OFFSET
print(libc.adjtimex(buf) >= 0)
for f in (lambda: time.clock_settime(time.CLOCK_REALTIME, 0),):
    try: f(); print('set')
    except OSError: print('refused')`)
		assert.Equal(t, "False\nrefused\n", out)
		r := call(t, c, "shell_run", map[string]any{"command": "date -s '2000-01-01'"})
		assert.NotEqual(t, "0", r.Str("exit_code"), r.Text)
		assert.NotContains(t, sh(t, c, "date +%Y"), "2000")
	})
}

func TestACrashLeavesNoCoreFile(t *testing.T) { // A95
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		r := call(t, c, "shell_run", map[string]any{"command": []any{"sh", "-c", "ulimit -c unlimited; exit 5"}})
		assert.NotEqual(t, "0", r.Str("exit_code"), "the limit cannot be raised")
		assert.Equal(t, "0\n", sh(t, c, "ulimit -c"))
		r = call(t, c, "shell_run", map[string]any{"command": "for i in 1 2 3; do python3 -c 'import os; x = bytearray(64 << 20); os.abort()'; done 2>/dev/null; kill -SEGV $$"})
		assert.Equal(t, "signaled", r.Str("status"), r.Text)
		assert.Equal(t, "", sh(t, c, "find /workspace /tmp /home/agent /session -name '*core*' -size +1k 2>/dev/null; true"))
	})
}

func TestWhatAnEnginesExecWouldSeeHoldsNoSecret(t *testing.T) { // A306
	c, session := openOn(t, "container")
	c = &inSession{c, session}
	sh(t, c, "true")
	id := strings.TrimSpace(podman(t, "ps", "-q", "--filter", "label=pinfold.session="+session))
	env := podman(t, "--runtime", "runc", "exec", "--user", "1000", id, "env")
	assert.Contains(t, env, "PATH=")
	for line := range strings.Lines(env) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		assert.NotRegexp(t, `(?i)token|secret|pinfold|link`, name)
		assert.NotRegexp(t, `^[0-9a-f]{32,}$`, value, "%s looks like a secret", name)
	}
	call(t, c, "session_close", map[string]any{})
}

func TestAnOverlayGivesNoWayToTheHost(t *testing.T) { // A60 A309
	for _, isolation := range []string{"container", "gvisor"} {
		t.Run(isolation, func(t *testing.T) {
			work := t.TempDir() // which the operator opened whole
			project := filepath.Join(work, "project")
			require.NoError(t, os.Mkdir(project, 0o755))
			l, err := net.Listen("unix", filepath.Join(project, "host.sock"))
			require.NoError(t, err)
			defer l.Close()
			heard := make(chan struct{}, 1)
			go func() {
				if conn, err := l.Accept(); err == nil {
					conn.Close()
					heard <- struct{}{}
				}
			}()
			secret := filepath.Join(work, "outside")
			require.NoError(t, os.Mkdir(secret, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(secret, "note"), []byte("outside\n"), 0o644))
			require.NoError(t, os.Symlink(secret, filepath.Join(project, "out")))
			c, _ := newWorld(t).stdio(t, "--roots", work)
			open := map[string]any{"template": "project", "isolation": isolation, "name": "mine", "workspace": map[string]any{"mode": "overlay", "path": project}}
			session := call(t, c, "session_open", open).Str("session")
			in := &inSession{c, session}
			const dial = "import socket; socket.socket(socket.AF_UNIX).connect('/workspace/host.sock')"
			r := call(t, in, "shell_run", map[string]any{"command": []any{"python3", "-c", dial}})
			assert.NotEqual(t, "0", r.Str("exit_code"), "a socket of the host answers")
			assert.Empty(t, heard)
			r = call(t, in, "shell_run", map[string]any{"command": "cat out/note"})
			assert.NotEqual(t, "0", r.Str("exit_code"), "a link leads out")
			sh(t, in, "echo mine > file")

			// Between two sessions the folder becomes a link to elsewhere.
			call(t, in, "session_close", map[string]any{"keep": "workspace"})
			require.NoError(t, os.Rename(project, project+".old"))
			require.NoError(t, os.Symlink(secret, project))
			r = try(t, in, "shell_run", map[string]any{"command": "cat note"})
			assert.True(t, r.IsError, "resumed over another folder: %s", r.Text)
			assert.NotContains(t, r.Str("stdout.text"), "outside")
			require.NoError(t, os.Remove(project))
			require.NoError(t, os.Rename(project+".old", project))
			assert.Equal(t, "mine\n", sh(t, in, "cat file"), "the control: with the folder back it is resumed")
			call(t, in, "session_close", map[string]any{})
			requireNothingLeft(t, session)
		})
	}
}

func TestNothingReachesANetwork(t *testing.T) { // A101 A124 A150
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the host") }))
	defer host.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(host.URL, "http://"))
	require.NoError(t, err)
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		out := python(t, c, `import socket
def say(name, family, kind, proto, where):
    try:
        s = socket.socket(family, kind, proto); s.settimeout(3)
        if kind == socket.SOCK_STREAM: s.connect(where)
        else: s.sendto(b'x', where)
        print(name, 'SENT')
    except OSError as e: print(name, 'failed')
I4, I6, T, U, R = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
for ip in ('192.0.2.1', '10.0.2.2', '169.254.169.254', '169.254.1.2', '8.8.8.8'):
    say('tcp ' + ip, I4, T, 0, (ip, 80)); say('udp ' + ip, I4, U, 0, (ip, 53))
say('tcp6', I6, T, 0, ('2001:db8::1', 80)); say('udp6', I6, U, 0, ('2001:db8::1', 53)); say('metadata6', I6, T, 0, ('fd00:ec2::254', 80))
say('icmp', I4, U, 1, ('192.0.2.1', 0)); say('raw', I4, R, 1, ('192.0.2.1', 0)); say('multicast', I4, U, 0, ('224.0.0.251', 5353))
for name in ('secret123.example.test', 'host.containers.internal', 'example.org'):
    try: socket.getaddrinfo(name, 80); print(name, 'RESOLVED')
    except OSError: print(name, 'failed')
`)
		assert.NotContains(t, out, "SENT", out)
		assert.NotContains(t, out, "RESOLVED", out)
		assert.Equal(t, 19, strings.Count(out, "failed"), out)
		// Loopback is the sandbox's own: the host's server is not behind it.
		r := call(t, c, "shell_run", map[string]any{"command": "curl -s --max-time 5 http://127.0.0.1:" + port + "/"})
		assert.Equal(t, "7", r.Str("exit_code"), "connection refused")
		page := try(t, c, "browser_navigate", map[string]any{"url": "http://127.0.0.1:" + port + "/"})
		assert.True(t, page.IsError, page.Text)
		assert.NotContains(t, page.Text, "the host")
	})
}

func TestTheBrowserOpensNoDoor(t *testing.T) { // A153 A156
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		call(t, c, "browser_navigate", map[string]any{"url": "about:blank"})
		assert.Equal(t, "1001\n", sh(t, c, "ps -eo uid,args | awk '/chrom/ && !/awk/ {print $1}' | sort -u"), "the control: it runs")
		const listening = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == \"0A\" {print $2}'"
		assert.Equal(t, "", sh(t, c, listening), "it listens nowhere")
		sh(t, c, "(python3 -m http.server 8000 >/dev/null 2>&1 &) ; until curl -s localhost:8000 >/dev/null; do sleep 0.05; done")
		assert.Contains(t, sh(t, c, listening), ":1F40", "the control: what listens is found")
		for _, attack := range []string{"ls -R /browser", "find / -name DevToolsActivePort 2>/dev/null | grep .", "cat /browser/*/Default/Cookies",
			"for p in $(pgrep -u 1001); do ls /proc/$p/fd/0 && exit 0; done; exit 1", "for p in $(pgrep -u 1001); do head -c1 /proc/$p/mem && exit 0; done; exit 1",
			"for p in $(pgrep -u 1001); do cat /proc/$p/environ && exit 0; done; exit 1", "kill -9 $(pgrep -u 1001)"} {
			r := call(t, c, "shell_run", map[string]any{"command": attack})
			assert.NotEqual(t, "0", r.Str("exit_code"), "%s: %s", attack, r.Text)
		}
		call(t, c, "browser_navigate", map[string]any{"url": "about:blank"})
	})
}

func TestTheJournalIsOutOfReach(t *testing.T) { // A245
	w := newWorld(t)
	c, _ := w.stdio(t)
	for _, isolation := range []string{"container", "gvisor"} {
		session := call(t, c, "session_open", map[string]any{"isolation": isolation}).Str("session")
		in := &inSession{c, session}
		sh(t, in, "true")
		journal := call(t, in, "session_status", map[string]any{}).Str("journal")
		require.FileExists(t, journal, "the control: it is on the host")
		for _, attack := range []string{"ls '%s'", "cat '%s'", "echo x >> '%s'", "ls \"$(dirname '%s')\"", "find / -maxdepth 4 -name '*.jsonl' 2>/dev/null | grep '%s'", "ln '%s' /workspace/l"} {
			r := call(t, in, "shell_run", map[string]any{"command": fmt.Sprintf(attack, journal)})
			assert.NotEqual(t, "0", r.Str("exit_code"), attack)
		}
		requireError(t, try(t, in, "file_read", map[string]any{"path": journal}), "not_found")
		call(t, in, "session_close", map[string]any{})
		requireNothingLeft(t, session)
	}
	// Nor can the folder that holds them be opened for workspaces, or one above it.
	for _, path := range []string{filepath.Join(w.dir, "state", "pinfold"), filepath.Join(w.dir, "state")} {
		refused := w.start(t, "serve", "--roots", path)
		refused.ended(t, patience)
		assert.Error(t, refused.err, path)
		assert.Contains(t, refused.stderr.String(), "would show the sandbox Pinfold's")
	}
}

// watches takes all the inotify instances it gets and says how many.
const watches = `import ctypes, time
libc, n = ctypes.CDLL(None, use_errno=True), 0
while n < 2000 and libc.inotify_init() >= 0: n += 1
print(n, flush=True)
time.sleep(%d)`

func TestUnderGVisorAHogOfTheUsersInotifyHurtsNobody(t *testing.T) { // A313
	c, _ := newWorld(t).stdio(t)
	open := func(isolation string) (story.Client, string) {
		s := call(t, c, "session_open", map[string]any{"isolation": isolation}).Str("session")
		return &inSession{c, s}, s
	}
	weak, hog := open("container")
	strong, calm := open("gvisor")
	once := fmt.Sprintf(watches, 0)
	p := call(t, weak, "shell_run", map[string]any{"command": []any{"python3", "-c", fmt.Sprintf(watches, 600)}, "background": true}).Str("process")
	r := call(t, weak, "shell_output", map[string]any{"process": p, "match": `\d`, "wait_ms": 10000, "since": 0})
	require.Equal(t, "true", r.Str("matched"), r.Text)
	require.Equal(t, "0\n", python(t, weak, once), "the control: container sessions of one user share what the kernel counts per user")
	assert.NotEqual(t, "0\n", python(t, strong, once))
	call(t, weak, "shell_kill", map[string]any{"process": p})
	for _, s := range []string{hog, calm} {
		call(t, c, "session_close", map[string]any{"session": s})
		requireNothingLeft(t, s)
	}
}
