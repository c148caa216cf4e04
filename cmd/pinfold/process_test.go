package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	guestbin "pinfold.dev/pinfold/sandbox/guest/embed"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// program is a running pinfold, a process of its own.
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	pipe   *os.File
	stderr *lockedBuffer
	gone   chan struct{}
	rc     int
}

// start runs the program with the test's environment, or with env alone.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(env, asPinfold+"=1")
	if env == nil {
		cmd.Env = append(os.Environ(), asPinfold+"=1")
	}
	return startCommand(t, cmd)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, stderr: &lockedBuffer{}, gone: make(chan struct{})}
	var err error
	p.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, p.stderr
	require.NoError(t, cmd.Start())
	w.Close()
	p.pipe, p.out = r, bufio.NewReader(r)
	go func() {
		_ = cmd.Wait()
		p.rc = cmd.ProcessState.ExitCode()
		close(p.gone)
	}()
	t.Cleanup(func() {
		p.in.Close()
		select {
		case <-p.gone:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-p.gone
			t.Error("the program did not end")
		}
		r.Close()
		if t.Failed() {
			t.Logf("stderr:\n%s", p.stderr)
		}
	})
	return p
}

// say sends one line and returns the answer's line.
func (p *program) say(t *testing.T, line string) map[string]any {
	t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(t, err)
	answer, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(answer, &m), "stdout carries protocol only: %q", answer)
	return m
}

// ended waits for the program's end and requires that it came in time.
func (p *program) ended(t *testing.T, most time.Duration) int {
	t.Helper()
	begun := time.Now()
	select {
	case <-p.gone:
	case <-time.After(patience):
		require.Fail(t, "the program did not end")
	}
	assert.Less(t, time.Since(begun), most)
	return p.rc
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	listTools  = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

// folders of living servers under the test's runtime folder.
func serverFolders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "pinfold", "srv-*"))
	require.NoError(t, err)
	return found
}

// fakePodman has the program find scripts instead of Podman and its runtimes.
func fakePodman(t *testing.T, script string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"podman", "runc", "crun", "runsc"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho $$ >> "+dir+"/pids\n"+script+"\n"), 0o755))
	}
	t.Cleanup(func() { // a program that was ended at once leaves them behind
		pids, _ := os.ReadFile(filepath.Join(dir, "pids"))
		for _, field := range strings.Fields(string(pids)) {
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if pid, err := strconv.Atoi(field); err == nil && string(line) == "sleep\x0060\x00" {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	path = dir + ":" + os.Getenv("PATH")
	t.Setenv("PATH", path)
	return path
}

// quiet gives the test folders of its own and no Podman to touch.
func quiet(t *testing.T) string {
	t.Helper()
	dir := home(t)
	fakePodman(t, "exit 1")
	return dir
}

func TestInitializeAndListAnswerAtOnce(t *testing.T) {
	quiet(t)
	begun := time.Now()
	p := start(t, nil, "serve", "--log-level", "debug")
	answer := p.say(t, initialize)
	took := time.Since(begun)
	assert.Equal(t, "pinfold", answer["result"].(map[string]any)["serverInfo"].(map[string]any)["name"])
	list := p.say(t, listTools)
	assert.NotEmpty(t, list["result"].(map[string]any)["tools"])
	// 100 ms on an idle machine; others share this one.
	assert.Less(t, took, time.Second)
	t.Logf("from start to the answer of initialize: %s", took)
}

func TestListingToolsTouchesNoEngine(t *testing.T) {
	home(t)
	fakePodman(t, "exec sleep 60")
	begun := time.Now()
	p := start(t, nil, "serve")
	p.say(t, initialize)
	assert.NotEmpty(t, p.say(t, listTools)["result"].(map[string]any)["tools"])
	assert.Less(t, time.Since(begun), time.Second)
	require.NoError(t, p.in.Close())
	p.ended(t, lastWish+500*time.Millisecond)
}

func TestTheEndOfStdinEndsTheServer(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve")
	p.say(t, initialize)
	require.Len(t, serverFolders(t), 1)
	require.NoError(t, p.in.Close())
	assert.Zero(t, p.ended(t, 3*time.Second))
	assert.Empty(t, serverFolders(t), "nothing is left")
}

func TestPipedInputGetsItsAnswers(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve")
	_, err := io.WriteString(p.in, initialize+"\n"+listTools+"\n")
	require.NoError(t, err)
	require.NoError(t, p.in.Close())
	all, err := io.ReadAll(p.out)
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(all, []byte("\n")))
	assert.Zero(t, p.ended(t, 3*time.Second))
}

func TestABrokenStdoutEndsTheServer(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve")
	p.say(t, initialize)
	require.NoError(t, p.pipe.Close())
	p.ended(t, 3*time.Second)
	assert.Empty(t, serverFolders(t))
}

func TestTheParentsDeathEndsTheServer(t *testing.T) {
	quiet(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	fifo := filepath.Join(t.TempDir(), "in")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	// The shell is the host that dies; its server's stdin stays open in this process.
	cmd := exec.Command("sh", "-c", `"$0" serve < "$1" & echo "$!" >&2; wait`, exe, fifo)
	cmd.Env = append(os.Environ(), asPinfold+"=1")
	host := startCommand(t, cmd)
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer in.Close()
	_, err = io.WriteString(in, initialize+"\n")
	require.NoError(t, err)
	_, err = host.out.ReadBytes('\n')
	require.NoError(t, err)
	require.Len(t, serverFolders(t), 1)

	require.NoError(t, host.cmd.Process.Kill())
	require.Eventually(t, func() bool { return len(serverFolders(t)) == 0 }, 3*time.Second, 10*time.Millisecond)
	assert.Contains(t, host.stderr.String(), errParentGone.Error())
}

func TestASignalEndsTheServerInOrder(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			quiet(t)
			p := start(t, nil, "serve")
			p.say(t, initialize)
			require.NoError(t, p.cmd.Process.Signal(sig))
			assert.Zero(t, p.ended(t, 3*time.Second))
			assert.Empty(t, serverFolders(t))
		})
	}
}

func TestAKilledServersFolderIsSweptByTheNext(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve")
	p.say(t, initialize)
	first := serverFolders(t)
	require.Len(t, first, 1)
	require.NoError(t, p.cmd.Process.Kill())
	p.ended(t, patience)
	require.DirExists(t, first[0])

	next := start(t, nil, "serve")
	next.say(t, initialize)
	require.Eventually(t, func() bool { _, err := os.Stat(first[0]); return os.IsNotExist(err) }, patience, 10*time.Millisecond)
	assert.Len(t, serverFolders(t), 1, "and its own stays")
}

func TestStdoutCarriesProtocolOnly(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve", "--log-level", "debug")
	for range 50 {
		p.say(t, listTools)
	}
	require.NoError(t, p.in.Close())
	rest, err := io.ReadAll(p.out)
	require.NoError(t, err)
	assert.Empty(t, rest)
	assert.Contains(t, p.stderr.String(), "server starts")
}

func TestWorksWithAlmostNoEnvironment(t *testing.T) {
	dir := quiet(t)
	fallback := fmt.Sprintf("/tmp/pinfold-%d", os.Getuid())
	if _, err := os.Stat(fallback); os.IsNotExist(err) {
		t.Cleanup(func() { os.RemoveAll(fallback) }) // where a user has no runtime folder
	}
	p := start(t, []string{"HOME=" + dir, "PATH=" + strings.Split(os.Getenv("PATH"), ":")[0]}, "serve")
	p.say(t, initialize)
	assert.NotEmpty(t, p.say(t, listTools)["result"])
	require.NoError(t, p.in.Close())
	assert.Zero(t, p.ended(t, 3*time.Second))
}

func TestBadSettingsStartNothing(t *testing.T) {
	dir := quiet(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "config/pinfold"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config/pinfold/config.yaml"), []byte("tools: core\nhttpp: x\n"), 0o600))
	p := start(t, nil, "serve")
	assert.Equal(t, exitFailure, p.ended(t, patience))
	assert.Contains(t, p.stderr.String(), "config.yaml: [2:1] unknown key \"httpp\"")
	assert.Contains(t, p.stderr.String(), ">  2 | httpp: x", "the library's snippet, untouched")
	assert.Empty(t, serverFolders(t))
}

// Every window of a client starts a server: they come and go at once, and none
// takes another's folder for a dead one's.
func TestManyServersStartAndEndAtOnce(t *testing.T) {
	quiet(t)
	var all []*program
	for range 8 {
		all = append(all, start(t, nil, "serve"))
	}
	for _, p := range all {
		p.say(t, initialize)
	}
	assert.Len(t, serverFolders(t), len(all))
	assert.Len(t, instances(), len(all))
	for _, p := range all {
		require.NoError(t, p.in.Close())
	}
	for _, p := range all {
		assert.Zero(t, p.ended(t, patience), p.stderr)
	}
	assert.Empty(t, serverFolders(t))
}

func TestTheLogFileGetsEachLineToo(t *testing.T) {
	dir := quiet(t)
	file := filepath.Join(dir, "logs", "pinfold.log")
	p := start(t, nil, "serve", "--log-file", file)
	p.say(t, initialize)
	require.NoError(t, p.in.Close())
	p.ended(t, 3*time.Second)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	assert.Contains(t, string(data), `"msg":"server starts"`)
	st, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
}

// refusal calls shell_run and returns the error of its result.
func (p *program) refusal(t *testing.T, command string) map[string]any {
	t.Helper()
	answer := p.say(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"`+command+`"}}}`)
	result := answer["result"].(map[string]any)
	require.Equal(t, true, result["isError"], answer)
	return result["structuredContent"].(map[string]any)["error"].(map[string]any)
}

func TestTheNamedPolicyIsTheOneThatHolds(t *testing.T) {
	dir := quiet(t)
	policies := filepath.Join(dir, "config", "pinfold", "policies")
	require.NoError(t, os.MkdirAll(policies, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(policies, "look-only.yaml"), []byte(`version: 1
name: look-only
rules:
  - name: reading
    effect: allow
    permissions: [file.read, session.read, session.manage]
  - name: no shell
    effect: deny
    tools: [shell_*, code_run]
    reason: This task reads; it runs nothing.
`), 0o600))
	p := start(t, nil, "serve", "--policy", "look-only")
	p.say(t, initialize)
	e := p.refusal(t, "id")
	assert.Equal(t, "permission_denied", e["code"])
	assert.Contains(t, e["message"], "no shell")
	assert.Contains(t, e["message"], "This task reads; it runs nothing.")
}

func TestWhatEverySessionWouldBeRefusedForIsSaidAtTheStart(t *testing.T) {
	dir := quiet(t)
	for says, args := range map[string][]string{
		`there is no template "none"`: {"--template", "none"},
		`there is none named "none"`:  {"--policy", "none"},
		`"../x" is not a name`:        {"--policy", "../x"},
		"cannot be opened":            {"--workspace", "/nowhere/at/all:overlay"},
		"not available yet":           {"--workspace", "/tmp:bind"},
		"the whole home folder":       {"--workspace", dir},
		"the host's settings":         {"--roots", "/etc/ssl"},
	} {
		p := start(t, nil, append([]string{"serve"}, args...)...)
		assert.Equal(t, exitFailure, p.ended(t, patience), args)
		assert.Contains(t, p.stderr.String(), says)
		assert.Empty(t, serverFolders(t))
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	if _, err := guestbin.Binary(); err != nil {
		t.Skip("a run needs the guest, which make build makes (make test does)")
	}
	home(t)
	fakePodman(t, "exec sleep 60")
	p := start(t, nil, "run", "--image", "localhost/none:none", "--", "true")
	// It waits for a Podman that never answers, once its folder is there.
	require.Eventually(t, func() bool { return len(serverFolders(t)) == 1 }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return childOf(t, p.cmd.Process.Pid) }, patience, 5*time.Millisecond)
	// Signals that come too close together are one to the kernel.
	require.Eventually(t, func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-p.gone:
			return true
		default:
			return false
		}
	}, 3*time.Second, 100*time.Millisecond)
	assert.Equal(t, 130, p.rc)
}

// childOf reports whether a process has a child.
func childOf(t *testing.T, pid int) bool {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, f := range tasks {
		if b, err := os.ReadFile(f); err == nil && len(b) > 0 {
			return true
		}
	}
	return false
}

func TestPathsAreThoseOfThePersonWhoStartedIt(t *testing.T) {
	home(t)
	dir := t.TempDir()
	t.Setenv(originFolder, dir)
	t.Setenv(originProgram, "/opt/pinfold/bin/pinfold")
	ws, err := parseWorkspace(".:overlay")
	require.NoError(t, err)
	assert.Equal(t, dir, ws.Path)
	_, out, _ := pinfold(t, "config", "json", "-q")
	assert.Equal(t, "/opt/pinfold/bin/pinfold", parseSnippet(t, "json", out).Command)
}
