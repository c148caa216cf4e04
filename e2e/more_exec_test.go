//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// runs counts the processes of the session whose command line has this prefix.
func runs(t testing.TB, c story.Client, prefix string) int {
	t.Helper()
	return strings.Count("\n"+sh(t, c, "ps -eo args"), "\n"+prefix)
}

func TestATimeoutIsSaidAndEndsTheCommand(t *testing.T) { // C1 C8 C9
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		start := time.Now()
		r := try(t, c, "shell_run", map[string]any{"command": "echo so far; sleep 601", "timeout_ms": 2000})
		assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
		assert.Less(t, time.Since(start), 4*time.Second)
		requireError(t, r, "deadline_exceeded")
		assert.Equal(t, "timed_out", r.Str("status"))
		assert.Equal(t, "true", r.Str("timed_out"))
		assert.Empty(t, r.Str("exit_code"), "no exit code is invented")
		assert.Equal(t, "so far\n", r.Str("stdout.text"))
		assert.Zero(t, runs(t, c, "sleep 601"))
	})
}

func TestASoftLimitGivesAHandleAndBlocksNobody(t *testing.T) { // C8 C10
	c, _ := newWorld(t).stdio(t)
	sh(t, c, "true")
	r := call(t, c, "shell_run", map[string]any{"command": "echo begun; sleep 90", "wait_ms": 1500})
	assert.Equal(t, "running", r.Str("status"))
	assert.Equal(t, "begun\n", r.Str("stdout.text"))
	process := r.Str("process")
	require.NotEmpty(t, process)
	start := time.Now()
	assert.Equal(t, "second\n", sh(t, c, "echo second"))
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.Equal(t, 1, runs(t, c, "sleep 90"), "it runs on")
	call(t, c, "shell_kill", map[string]any{"process": process})
	assert.Zero(t, runs(t, c, "sleep 90"))
}

func TestSilenceIsNotTheEndOfACommand(t *testing.T) { // C2 C17 C40
	c, _ := newWorld(t).stdio(t)
	start := time.Now()
	r := call(t, c, "shell_run", map[string]any{"command": "sleep 47 > log 2>&1; echo done"})
	assert.Less(t, time.Since(start), 55*time.Second, "clients give up at 60 s")
	assert.Greater(t, time.Since(start), 40*time.Second)
	assert.Equal(t, "running", r.Str("status"), r.Text)
	assert.Contains(t, r.Text, "shell_output", "what to do next")
	r = call(t, c, "shell_output", map[string]any{"process": r.Str("process"), "match": "done", "wait_ms": 20000})
	assert.Equal(t, "true", r.Str("matched"))
	r = call(t, c, "shell_output", map[string]any{"process": r.Str("process"), "match": "never", "wait_ms": 5000})
	assert.Equal(t, "exited", r.Str("status"))
	assert.Equal(t, "0", r.Str("exit_code"))
	assert.Equal(t, "0\n", sh(t, c, "ps -eo stat | grep -c '^Z' || true"), "no zombie is left")
}

func TestAPromptWithoutATerminalEndsAtOnce(t *testing.T) { // C4 C5
	c, _ := newWorld(t).stdio(t)
	start := time.Now()
	r := call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", "while True: input('> ')"}})
	assert.Less(t, time.Since(start), 20*time.Second, "the first call starts the sandbox too")
	assert.Equal(t, "1", r.Str("exit_code"))
	assert.Contains(t, r.Str("stderr.text"), "EOFError")
	r = call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", "while True: input('> ')"}, "tty": map[string]any{"cols": 80, "rows": 24}})
	assert.Equal(t, "running", r.Str("status"))
	assert.Contains(t, r.Str("waiting_for_input"), ">")
	assert.Contains(t, r.Text, "shell_input")
	call(t, c, "shell_kill", map[string]any{"process": r.Str("process")})
}

func TestAServerStartedWithAnAmpersandDoesNotHoldTheCall(t *testing.T) { // C6 C18 A86
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		sh(t, c, "echo page > index.html")
		start := time.Now()
		r := call(t, c, "shell_run", map[string]any{"command": "python3 -m http.server 8123 & echo started"})
		assert.Less(t, time.Since(start), 2*time.Second)
		assert.Equal(t, "0", r.Str("exit_code"))
		assert.Contains(t, r.Text, "still running")
		assert.Contains(t, r.Text, "shell_kill")
		assert.Equal(t, "page\n", sh(t, c, "curl -s --retry 20 --retry-connrefused --retry-delay 1 localhost:8123"))
		call(t, c, "shell_kill", map[string]any{"process": r.Str("process")})
		assert.Zero(t, runs(t, c, "python3 -m http.server"))
		// Without the ampersand no flag is needed for safety either: a handle comes back.
		r = call(t, c, "shell_run", map[string]any{"command": "exec python3 -m http.server 8124", "wait_ms": 500})
		assert.Equal(t, "running", r.Str("status"))
		call(t, c, "shell_kill", map[string]any{"process": r.Str("process")})
	})
}

func TestEveryEndIsToldAsItWas(t *testing.T) { // A90
	c, _ := newWorld(t).stdio(t)
	sh(t, c, "true")
	var wg sync.WaitGroup
	for from := range 8 {
		wg.Go(func() {
			for code := from; code < 256; code += 8 {
				r := try(t, c, "shell_run", map[string]any{"command": fmt.Sprintf("exit %d", code)})
				assert.Equal(t, "exited", r.Str("status"))
				assert.Equal(t, strconv.Itoa(code), r.Str("exit_code"), "137 without a kill is 137")
				assert.Empty(t, r.Str("signal"))
			}
		})
	}
	wg.Wait()
	for _, signal := range strings.Fields("HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO SYS") {
		r := call(t, c, "shell_run", map[string]any{"command": []any{"python3", "-c", fmt.Sprintf(
			"import os, signal; s = signal.SIG%s\nif s not in (9,): signal.signal(s, signal.SIG_DFL)\nos.kill(os.getpid(), s)\nsignal.pause()", signal)}})
		assert.Equal(t, "signaled", r.Str("status"), "%s: %s", signal, r.Text)
		assert.Equal(t, "SIG"+signal, r.Str("signal"), r.Text)
		assert.Empty(t, r.Str("exit_code"), signal)
	}
}

func TestABadStartLeavesTheSessionAsItWas(t *testing.T) { // A91 C25
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		sh(t, c, "mkdir gone plain.d; echo x > plain")
		requireError(t, try(t, c, "shell_run", map[string]any{"command": []any{"no-such-cmd"}}), "not_found")
		requireError(t, try(t, c, "shell_run", map[string]any{"command": []any{"./plain"}}), "failed_precondition")
		requireError(t, try(t, c, "shell_run", map[string]any{"command": []any{"true"}, "cwd": "nowhere"}), "not_found")
		r := call(t, c, "shell_run", map[string]any{"command": "no-such-cmd"})
		assert.Equal(t, "127", r.Str("exit_code"))
		assert.Contains(t, r.Str("stderr.text"), "no-such-cmd: command not found")
		// A folder that goes while a command is in it is that command's trouble alone.
		sh(t, c, "cd gone && rmdir ../gone && (ls . || true)")
		requireError(t, try(t, c, "shell_run", map[string]any{"command": []any{"true"}, "cwd": "gone"}), "not_found")
		assert.Equal(t, "ok\n", sh(t, c, "echo ok"))
	})
}

func TestValuesAreDataAndNeverCommands(t *testing.T) { // A45 A46
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		marker := fmt.Sprintf("/tmp/pinfold-e2e-injected-%d", os.Getpid())
		defer os.Remove(marker)
		hostile := []string{"; touch " + marker + " #", "$(touch " + marker + ")", "`touch " + marker + "`", "a\ntouch " + marker + "\n", `"'; touch ` + marker + `; echo '"`,
			"--privileged", "-v/:/h", "--upload-pack=touch " + marker, "@/etc/passwd", "-rf", "*", "%s%n"}
		for _, v := range hostile {
			r := call(t, c, "shell_run", map[string]any{"command": []any{"printenv", "VALUE"}, "env": map[string]any{"VALUE": v}})
			assert.Equal(t, v+"\n", r.Str("stdout.text"), "as a variable")
			r = call(t, c, "shell_run", map[string]any{"command": []any{"printf", "%s", v}})
			assert.Equal(t, v, r.Str("stdout.text"), "as an argument")
			requireError(t, try(t, c, "shell_run", map[string]any{"command": []any{"true"}, "cwd": v}), "not_found")
			name := "f" + strings.ReplaceAll(v, "/", "_")
			call(t, c, "file_write", map[string]any{"path": name, "content": v})
			assert.Equal(t, strings.TrimSuffix(v, "\n"), strings.TrimSuffix(call(t, c, "file_read", map[string]any{"path": name}).Str("text"), "\n"), "as a file's name")
			for _, field := range []string{"template", "name"} {
				r = try(t, c, "session_open", map[string]any{field: v})
				assert.True(t, r.IsError, "%s %q: %s", field, v, r.Text)
			}
			r, err := c.(*inSession).Client.Call(t.Context(), "shell_run", map[string]any{"session": v, "command": "true"})
			require.NoError(t, err)
			requireError(t, r, "not_found")
		}
		assert.NoFileExists(t, marker, "on the host")
		assert.Equal(t, "", sh(t, c, "ls "+marker+" 2>/dev/null; true"), "inside")
	})
}

// rss is what a process of ours holds in memory, in bytes.
func rss(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

func TestAFloodOnOneLineLeavesServerAndGuestSmall(t *testing.T) { // C49 C50 A73
	w := newWorld(t)
	c, s := w.stdio(t)
	sh(t, c, "true")
	before := rss(t, s.cmd.Process.Pid)
	done := make(chan *story.Reply, 1)
	go func() {
		done <- try(t, c, "shell_run", map[string]any{"command": "echo head; yes | tr -d '\\n' | head -c 600000000; echo; echo tail"})
	}()
	var most int64
	for r := (*story.Reply)(nil); r == nil; {
		select {
		case r = <-done:
			assert.False(t, r.IsError, r.Text)
			assert.Equal(t, "6.00000011e+08", r.Str("stdout.bytes"))
			assert.True(t, strings.HasPrefix(r.Str("stdout.text"), "head\n"))
			assert.True(t, strings.HasSuffix(r.Str("stdout.text"), "tail\n"))
			assert.NotEmpty(t, r.Str("stdout.omitted_bytes"))
		case <-time.After(20 * time.Millisecond): // a sample, while it runs and not after it
			most = max(most, rss(t, s.cmd.Process.Pid))
		}
	}
	t.Logf("server: %d MB before, %d MB at most", before>>20, most>>20)
	assert.Less(t, most-before, int64(48<<20), "the bound holds while it runs")
}

func TestProgressOfAFloodIsBounded(t *testing.T) { // A74
	s := newWorld(t).start(t, "serve", "--tools", "all")
	r := newRaw(s)
	r.initialize(t)
	start := time.Now()
	r.callTool(t, "1", "shell_run", `{"command":"timeout 3 yes \"$(head -c 100000 /dev/zero | tr '\\\\0' x)\"; true"}`)
	answer := decode[toolResult](t, string(r.answer(t, "1").Result))
	require.False(t, answer.IsError)
	most := 2 + int(time.Since(start)/(250*time.Millisecond))
	n := 0
	for _, m := range r.all() {
		if m.Method == "notifications/progress" {
			n++
			assert.Less(t, len(m.Params), 2000)
		}
	}
	t.Logf("%d progress messages in %v", n, time.Since(start).Round(time.Millisecond))
	assert.Positive(t, n)
	assert.LessOrEqual(t, n, most)
}

func TestADripEndsWithItsTime(t *testing.T) { // A75
	c, _ := newWorld(t).stdio(t)
	r := try(t, c, "shell_run", map[string]any{"command": "while :; do printf x; sleep 0.2; done", "timeout_ms": 2500})
	requireError(t, r, "deadline_exceeded")
	assert.Regexp(t, regexp.MustCompile(`^x{5,14}$`), r.Str("stdout.text"), "what came is kept")
}

func TestTenThousandUnreapedChildrenAreReaped(t *testing.T) { // A84
	eachIsolation(t, func(t *testing.T, c story.Client, _, isolation string) {
		rounds := 25
		if isolation == "gvisor" {
			rounds = 2 // its forks are slow
		}
		out := sh(t, c, fmt.Sprintf(`for i in $(seq %d); do python3 -c "
import os
for _ in range(400):
    if os.fork() == 0: os._exit(0)
print(400)"; done | wc -l`, rounds))
		assert.Equal(t, strconv.Itoa(rounds)+"\n", out)
		assert.Equal(t, "0\n", sh(t, c, "ps -eo stat | grep -c '^Z' || true"))
	})
}

func TestAForkBombIsThatSessionsAlone(t *testing.T) { // A66 A68
	c, _ := newWorld(t).stdio(t)
	open := func() (story.Client, string) {
		s := call(t, c, "session_open", map[string]any{}).Str("session")
		return &inSession{c, s}, s
	}
	s, bombed := open()
	other, untouched := open()
	sh(t, other, "true")
	bomb := call(t, s, "shell_run", map[string]any{"command": "b() { b | b & }; b; sleep 600", "background": true}).Str("process")
	for range 5 {
		start := time.Now()
		assert.Equal(t, "fine\n", sh(t, other, "echo fine"))
		assert.Less(t, time.Since(start), 5*time.Second, "the sibling answers while it goes on")
		call(t, s, "session_status", map[string]any{})
	}
	start := time.Now()
	call(t, s, "shell_kill", map[string]any{"process": bomb, "signal": "KILL"})
	require.Eventually(t, func() bool {
		r := try(t, s, "shell_run", map[string]any{"command": "ps -eo args | grep -c '^bash' || true"})
		n, err := strconv.Atoi(strings.TrimSpace(r.Str("stdout.text")))
		return err == nil && n < 10
	}, 10*time.Second, 100*time.Millisecond)
	t.Logf("the bomb was gone after %v", time.Since(start).Round(time.Millisecond))
	for _, id := range []string{bombed, untouched} {
		call(t, c, "session_close", map[string]any{"session": id})
		requireNothingLeft(t, id)
	}
}

func TestABusyLoopLeavesTheServerResponsive(t *testing.T) { // A68
	c, _ := newWorld(t).stdio(t)
	p := call(t, c, "shell_run", map[string]any{"command": "for i in $(seq $(nproc)); do (while :; do :; done) & done; wait", "background": true}).Str("process")
	for range 5 {
		start := time.Now()
		assert.Equal(t, "hi\n", sh(t, c, "echo hi"))
		assert.Less(t, time.Since(start), 3*time.Second)
	}
	call(t, c, "shell_kill", map[string]any{"process": p})
}

func TestAHeavyImportAndMuchOutputArriveBounded(t *testing.T) { // C14
	c, _ := newWorld(t).stdio(t)
	r := call(t, c, "code_run", map[string]any{"language": "python", "code": "import pandas\nfor i in range(100000): print('line %06d' % i, 'x' * 38)\n'the value'"})
	assert.Contains(t, r.Text, "line 000000")
	assert.Contains(t, r.Text, "the value")
	assert.LessOrEqual(t, len(r.Text), 31_000)
	r = call(t, c, "code_run", map[string]any{"language": "python", "code": "len(str(pandas.__version__)) > 2"})
	assert.Contains(t, r.Text, "True", "the kernel lives on, with its state")
}

func TestTextOfTheWholeWorldArrivesUnchanged(t *testing.T) { // C57
	eachIsolation(t, func(t *testing.T, c story.Client, _, _ string) {
		const text = "Grüße, 漢字, العربية, 👨\u200d👩\u200d👧, e\u0301, \u202eטקסט, ₿ and \u2028 end"
		assert.Equal(t, text, strings.TrimSuffix(sh(t, c, "printf '%s' '"+text+"'"), "\n"), "through the shell")
		call(t, c, "file_write", map[string]any{"path": "ü 漢.txt", "content": text})
		assert.Equal(t, text, call(t, c, "file_read", map[string]any{"path": "ü 漢.txt"}).Str("text"), "through a file")
		assert.Equal(t, text+"\n", sh(t, c, "cat 'ü 漢.txt'; echo"))
		r := call(t, c, "code_run", map[string]any{"language": "python", "code": "print(open('ü 漢.txt').read())"})
		assert.Contains(t, r.Text, text, "through the kernel")
	})
}

func TestEveryToolKeepsStdoutToTheProtocol(t *testing.T) { // C28 C46 B94
	s := newWorld(t).start(t, "serve", "--tools", "all", "--log-level", "debug")
	r := newRaw(s)
	r.initialize(t)
	r.send(t, `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	list := decode[struct{ Tools []struct{ Name string } }](t, string(r.answer(t, `"list"`).Result))
	good := map[string]string{"shell_run": `{"command":"echo x; echo y >&2"}`, "shell_output": `{"process":"p1"}`, "shell_input": `{"process":"p1","data":"x"}`, "shell_kill": `{"all":true}`,
		"file_read": `{"path":"a"}`, "file_write": `{"path":"a","content":"b"}`, "file_edit": `{"path":"a","edits":[{"old":"b","new":"c"}]}`, "file_search": `{"query":"c"}`,
		"code_run": `{"language":"python","code":"print(1)"}`, "browser_navigate": `{"url":"about:blank"}`, "browser_act": `{"steps":[{"do":"wait","ms":1}]}`, "session_close": `{}`}
	id := 0
	tryTool := func(tool, args string) toolResult {
		id++
		r.callTool(t, strconv.Itoa(id), tool, args)
		m := r.answer(t, strconv.Itoa(id))
		require.Nil(t, m.Error, "%s %s", tool, args)
		return decode[toolResult](t, string(m.Result))
	}
	// Browser tools come before any page: each does its work, or says what to call.
	for _, tool := range []string{"browser_snapshot", "browser_screenshot", "browser_act"} {
		answer := tryTool(tool, `{}`)
		if answer.IsError {
			assert.NotContains(t, mustString(t, answer.Structured), `"code":"internal"`, tool)
		}
	}
	for _, tool := range list.Tools {
		if tool.Name == "session_close" {
			continue
		}
		tryTool(tool.Name, `{}`)
		if args := good[tool.Name]; args != "" {
			tryTool(tool.Name, args)
		}
	}
	tryTool("session_close", `{}`)
	assert.Empty(t, r.stray())
	assert.Contains(t, s.stderr.String(), `DEBUG`, "the control: it did log at this level")
}

func TestVenvAndPipWorkForThePlainUserOnAReadOnlyRoot(t *testing.T) { // C80
	w := newWorld(t)
	templates := filepath.Join(w.dir, "config", "pinfold", "templates")
	require.NoError(t, os.MkdirAll(templates, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(templates, "tight.yaml"), []byte("version: 1\nname: tight\ndescription: A root that no one can write.\nread_only_filesystem: true\n"), 0o644))
	c, _ := w.stdio(t, "--template", "tight")
	r := call(t, c, "shell_run", map[string]any{"command": "touch /usr/x /x"})
	require.NotEqual(t, "0", r.Str("exit_code"), "the root is read-only")
	call(t, c, "file_write", map[string]any{"path": "pkg/setup.py", "content": "from setuptools import setup\nsetup(name='seven', version='1', py_modules=['seven'])\n"})
	call(t, c, "file_write", map[string]any{"path": "pkg/seven.py", "content": "value = 7\n"})
	assert.Equal(t, "7\n", sh(t, c, "python3 -m venv v && v/bin/pip install -q --no-index --no-build-isolation ./pkg >&2 && v/bin/python -c 'import seven; print(seven.value)'"), "in a venv")
	assert.Equal(t, "7\n", sh(t, c, "pip install -q --no-index --no-build-isolation ./pkg >&2 && python3 -c 'import seven; print(seven.value)'"), "for the user, with no flag")
	session := call(t, c, "session_close", map[string]any{}).Str("session")
	requireNothingLeft(t, session)
}
