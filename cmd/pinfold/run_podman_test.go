//go:build podman

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallImage has a shell, coreutils and nothing of ours.
const smallImage = "localhost/pinfold-test:mini"

// people gives the test folders of its own, but the user's Podman.
func people(t *testing.T) {
	t.Helper()
	require.NotZero(t, os.Geteuid(), "tests that need Podman run as a plain user; make test arranges it")
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
}

// podmanSays runs the engine's own command.
func podmanSays(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("podman", args...).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// runProgram runs pinfold run in a process of its own, to its end.
func runProgram(t *testing.T, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"run", "--image", smallImage}, args...)...)
	cmd.Env = append(os.Environ(), asPinfold+"=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestRunPassesStreamsAndExitCode(t *testing.T) {
	people(t)
	code, out, errs := runProgram(t, strings.NewReader("in\n"), "--", "sh", "-c", "cat; id -u; pwd; echo err >&2; exit 3")
	assert.Equal(t, 3, code)
	assert.Equal(t, "in\n1000\n/workspace\n", out)
	assert.Equal(t, "err\n", errs)
}

func TestRunExitCodes(t *testing.T) {
	people(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"done":                    {[]string{"--", "true"}, 0, ""},
		"killed by a signal":      {[]string{"--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		"a command not there":     {[]string{"--", "nosuchprogram"}, exitNoCommand, "no program nosuchprogram"},
		"a command not runnable":  {[]string{"--", "/etc/passwd"}, exitCannotRun, "may not be executed"},
		"an image not there":      {[]string{"--image", "localhost/pinfold-none:none", "--", "true"}, exitRunFailed, "localhost/pinfold-none:none"},
		"a template not there":    {[]string{"--template", "none", "--", "true"}, exitRunFailed, `no template "none"`},
		"isolation not there":     {[]string{"--isolation", "cage", "--", "true"}, exitRunFailed, `no "cage"`},
		"a bound folder, not yet": {[]string{"--workspace", "/tmp:bind", "--", "true"}, exitRunFailed, "not available yet"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runProgram(t, nil, c.args...)
			assert.Equal(t, c.code, code)
			assert.Empty(t, out)
			assert.Contains(t, errs, c.says)
		})
	}
}

// Ten megabytes of any bytes go through unchanged in both directions, faster
// than the ring that holds output, and slower readers lose nothing.
func TestRunPassesEveryByte(t *testing.T) {
	people(t)
	data := make([]byte, 10<<20)
	seed := rand.NewChaCha8([32]byte{1})
	_, _ = seed.Read(data)
	code, out, errs := runProgram(t, bytes.NewReader(data), "--", "cat")
	require.Zero(t, code, errs)
	assert.Equal(t, sha256.Sum256(data), sha256.Sum256([]byte(out)))
}

func TestRunEndsQuietlyWhenItsReaderDoes(t *testing.T) {
	people(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0" run --image `+smallImage+` -- yes | head -n 2; wait`, exe)
	cmd.Env = append(os.Environ(), asPinfold+"=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "y\ny\n", string(out))
	assert.Empty(t, errs.String())
}

func TestRunShowsAFolderAndLeavesItAsItIs(t *testing.T) {
	people(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("mine\n"), 0o644))
	code, out, errs := runProgram(t, nil, "--workspace", dir, "--", "sh", "-c", "cat note; echo theirs > note; echo new > other; cat note")
	require.Zero(t, code, errs)
	assert.Equal(t, "mine\ntheirs\n", out)
	kept, err := os.ReadFile(filepath.Join(dir, "note"))
	require.NoError(t, err)
	assert.Equal(t, "mine\n", string(kept))
	assert.NoFileExists(t, filepath.Join(dir, "other"))
}

// ownerOf finds the instance whose lock a process holds.
func ownerOf(t *testing.T, pid int) string {
	t.Helper()
	var owner string
	require.Eventually(t, func() bool {
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		for _, fd := range fds {
			target, _ := os.Readlink(fd)
			if dir := filepath.Dir(target); filepath.Base(target) == "lock" && instanceForm.MatchString(filepath.Base(dir)) {
				owner = filepath.Base(dir)
			}
		}
		return owner != ""
	}, patience, 10*time.Millisecond)
	return owner
}

func containersOf(t *testing.T, owner string) string {
	t.Helper()
	return podmanSays(t, "ps", "-aq", "--filter", "label=pinfold.owner="+owner)
}

func TestASignalEndsARunAndLeavesNothing(t *testing.T) {
	people(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p := start(t, nil, "run", "--image", smallImage, "--", "sh", "-c", "trap '' INT TERM; echo up; sleep 600 & wait; wait")
			line, err := p.out.ReadString('\n')
			require.NoError(t, err, p.stderr)
			require.Equal(t, "up\n", line)
			owner := ownerOf(t, p.cmd.Process.Pid)
			require.NotEmpty(t, containersOf(t, owner), "the control: it is there while it runs")
			require.NoError(t, p.cmd.Process.Signal(sig))
			assert.Equal(t, exitSignal+int(sig), p.ended(t, 10*time.Second))
			assert.Empty(t, containersOf(t, owner))
		})
	}
}

func TestARunInATerminal(t *testing.T) {
	people(t)
	code, out, errs := runProgram(t, strings.NewReader("tty; stty size; exit 4\n"), "--tty", "--", "sh")
	assert.Equal(t, 4, code, errs)
	assert.Contains(t, out, "/dev/pts/")
	assert.Contains(t, out, "24 80")
}

func TestAServersSessionIsListedAndAttachedTo(t *testing.T) {
	people(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "pinfold", "templates")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mini.yaml"), []byte("version: 1\nname: mini\ndescription: Small.\nimage: "+smallImage+"\n"), 0o600))
	p := start(t, nil, "serve", "--template", "mini", "--tools", "all")
	p.say(t, initialize)
	answer := p.say(t, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"echo agents > note; id -u"}}}`)
	facts, ok := answer["result"].(map[string]any)["structuredContent"].(map[string]any)
	require.True(t, ok, answer)
	require.EqualValues(t, 0, facts["exit_code"], answer)
	session := facts["session"].(string)

	code, out, errs := pinfold(t, "sessions", "--json")
	require.Zero(t, code, errs)
	var list sessionList
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	found := false
	for _, s := range list.Servers {
		for _, x := range s.Sessions {
			found = found || x.ID == session && s.Server.PID == p.cmd.Process.Pid && x.State == "running"
		}
	}
	assert.True(t, found, out)

	code, out, errs = attachTo(t, session, "cat note; id -u; exit 9\n")
	assert.Equal(t, 9, code, errs)
	assert.Contains(t, out, "agents\r\n1000\r\n")

	answer = p.say(t, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"session_close","arguments":{}}}`)
	assert.NotEqual(t, true, answer["result"].(map[string]any)["isError"], answer)
	owner := ownerOf(t, p.cmd.Process.Pid)
	require.NoError(t, p.in.Close())
	assert.Zero(t, p.ended(t, 3*time.Second))
	assert.Empty(t, containersOf(t, owner))
}

func TestDoctorTriesWhatASessionNeeds(t *testing.T) {
	people(t)
	code, out, errs := pinfold(t, "doctor", "--json")
	var report struct {
		OK     bool    `json:"ok"`
		Checks []check `json:"checks"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, errs)
	assert.Equal(t, report.OK, code == 0)
	assert.True(t, report.OK, out)
	names := map[string]check{}
	for _, c := range report.Checks {
		names[c.Name] = c
		if c.Status != isOK && c.Status != isSkip {
			assert.NotEmpty(t, c.Cause, c.Name)
			assert.NotEmpty(t, c.Cure, c.Name)
		}
	}
	assert.Contains(t, names, "podman")
	assert.Contains(t, names, "image")
}

// enclosures runs doctor --posture and returns what it says of each template.
func enclosures(t *testing.T) (code int, all map[string]enclosure) {
	t.Helper()
	code, out, errs := pinfold(t, "doctor", "--posture", "--json")
	var said struct {
		Sessions []enclosure `json:"sessions"`
		Policy   []string    `json:"policy"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said), "%s%s", out, errs)
	assert.NotEmpty(t, said.Policy)
	all = map[string]enclosure{}
	for _, e := range said.Sessions {
		all[e.Template] = e
	}
	return code, all
}

func TestPostureReadsBackWhatEnclosesASession(t *testing.T) {
	people(t)
	code, all := enclosures(t)
	assert.Zero(t, code)
	offline := all["offline"]
	require.NotNil(t, offline.Posture, offline.Unavailable)
	assert.False(t, offline.Posture.HostUserMapped)
	assert.True(t, offline.Posture.NoNewPrivs)
	assert.Equal(t, noneEntered, offline.Credentials)
	if strong := all["untrusted-code"]; assert.NotNil(t, strong.Posture, strong.Unavailable) {
		assert.Equal(t, "runsc", strong.Runtime)
	}
}

// The control: a template that hands something over is found out.
func TestPostureFindsCredentialsThatEnter(t *testing.T) {
	people(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "pinfold", "templates")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leaky.yaml"), []byte("version: 1\nname: leaky\ndescription: Leaks.\nimage: "+smallImage+
		"\nenv: {SSH_AUTH_SOCK: /tmp/agent, TOKEN: "+canary+"}\n"), 0o600))
	code, all := enclosures(t)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, all["leaky"].Credentials, "SSH_AUTH_SOCK")
	assert.Contains(t, all["leaky"].Credentials, "TOKEN")
}

// tool calls one tool and returns its structured content; the call must succeed.
func (p *program) tool(t *testing.T, name, args string) map[string]any {
	t.Helper()
	answer := p.say(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":`+args+`}}`)
	result := answer["result"].(map[string]any)
	require.NotEqual(t, true, result["isError"], answer)
	return result["structuredContent"].(map[string]any)
}

// A client that goes away in mid-call, with changes in the workspace: the server
// ends in time, nothing runs on, and what was written is kept until someone
// throws it away.
func TestTheClientsEndParksWhatItWrote(t *testing.T) {
	people(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "pinfold", "templates")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mini.yaml"), []byte("version: 1\nname: mini\ndescription: Small.\nimage: "+smallImage+"\n"), 0o600))
	p := start(t, nil, "serve", "--template", "mini")
	p.say(t, initialize)
	session := p.tool(t, "shell_run", `{"command":"echo kept > note; sleep 700 >/dev/null 2>&1 &"}`)["session"].(string)
	owner := ownerOf(t, p.cmd.Process.Pid)
	require.NotEmpty(t, containersOf(t, owner))
	_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"sleep 600"}}}`+"\n")
	require.NoError(t, err)
	require.NoError(t, p.in.Close())
	p.ended(t, lastWish)
	assert.Empty(t, containersOf(t, owner), "nothing runs on")

	code, out, _ := pinfold(t, "sessions")
	require.Zero(t, code)
	assert.Contains(t, out, session)
	assert.Contains(t, out, parkedState)

	next := start(t, nil, "serve", "--template", "mini")
	next.say(t, initialize)
	resumed := next.tool(t, "shell_run", `{"session":"`+session+`","command":"cat note"}`)
	assert.Equal(t, "kept\n", resumed["stdout"].(map[string]any)["text"])
	require.NoError(t, next.in.Close())
	next.ended(t, lastWish)

	code, _, errs := pinfold(t, "sessions", "close", session)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "--discard")
	code, _, errs = pinfold(t, "sessions", "close", "--discard", session)
	assert.Zero(t, code, errs)
	_, out, _ = pinfold(t, "sessions")
	assert.NotContains(t, out, session)
	assert.Empty(t, podmanSays(t, "volume", "ls", "-q", "--filter", "label=pinfold.session="+session), "nothing is left")
}

// Closing a running session from outside keeps what it wrote, and says so; one
// that wrote nothing is gone.
func TestClosingFromOutsideKeepsOnlyChanges(t *testing.T) {
	people(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "pinfold", "templates")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mini.yaml"), []byte("version: 1\nname: mini\ndescription: Small.\nimage: "+smallImage+"\n"), 0o600))
	p := start(t, nil, "serve", "--template", "mini")
	p.say(t, initialize)
	for command, kept := range map[string]bool{"id": false, "echo kept > note": true} {
		session := p.tool(t, "shell_run", `{"command":"`+command+`"}`)["session"].(string)
		code, out, errs := pinfold(t, "sessions", "close", session)
		require.Zero(t, code, errs)
		_, list, _ := pinfold(t, "sessions")
		if !kept {
			assert.Contains(t, out, "Nothing is kept")
			assert.NotContains(t, list, session)
			continue
		}
		assert.Contains(t, out, "--discard "+session)
		assert.Contains(t, list, parkedState)
		code, out, errs = pinfold(t, "sessions", "close", "--discard", session)
		require.Zero(t, code, errs)
		assert.Contains(t, out, "Removed the workspace")
		assert.Empty(t, podmanSays(t, "volume", "ls", "-q", "--filter", "label=pinfold.session="+session))
	}
	require.NoError(t, p.in.Close())
	p.ended(t, lastWish)
}

// A signal to an HTTP server in mid-call ends the sandboxes of all its clients.
func TestASignalEndsAnHTTPServersSandboxes(t *testing.T) {
	people(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "pinfold", "templates")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mini.yaml"), []byte("version: 1\nname: mini\ndescription: Small.\nimage: "+smallImage+"\n"), 0o600))
	p := start(t, nil, "serve", "--http", "127.0.0.1:0", "--template", "mini")
	url, _, token := p.served(t)
	owner := ownerOf(t, p.cmd.Process.Pid)
	for range 2 {
		auth := map[string]string{"Authorization": "Bearer " + token}
		a, _ := post(t, url, initialize, auth)
		require.Equal(t, 200, a.StatusCode)
		auth["Mcp-Session-Id"] = a.Header.Get("Mcp-Session-Id")
		_, body := post(t, url, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"true"}}}`, auth)
		require.Contains(t, body, `"exit_code":0`)
		_, body = post(t, url, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"sleep 600","background":true}}}`, auth)
		require.Contains(t, body, "running")
	}
	require.Len(t, strings.Fields(containersOf(t, owner)), 2, "the control: two clients, two sandboxes")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Zero(t, p.ended(t, endHTTP))
	assert.Empty(t, containersOf(t, owner))
}
