package tools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

// shellFake answers as a guest would and keeps what it was asked. Only the
// methods of the shell family exist.
type shellFake struct {
	Sandbox
	exec   sandbox.ExecRequest
	output sandbox.OutputRequest
	input  sandbox.InputRequest
	kill   sandbox.KillRequest

	result sandbox.ExecResult
	err    error
}

func (f *shellFake) Exec(_ context.Context, r sandbox.ExecRequest, progress func(sandbox.ExecProgress)) (sandbox.ExecResult, error) {
	f.exec = r
	progress(sandbox.ExecProgress{Process: "p1", LastLine: "compiling", Bytes: 10, ElapsedMS: 2100})
	return f.result, f.err
}

func (f *shellFake) Output(_ context.Context, r sandbox.OutputRequest) (sandbox.OutputResult, error) {
	f.output = r
	no := false
	return sandbox.OutputResult{Process: r.Process, Status: sandbox.Running, Text: "part", Offset: 10, Next: 14, Total: 20, Dropped: 3, Matched: &no}, f.err
}

func (f *shellFake) Input(_ context.Context, r sandbox.InputRequest) (sandbox.OutputResult, error) {
	f.input = r
	return sandbox.OutputResult{Process: r.Process, Status: sandbox.Running, Text: "> ", Waiting: "> "}, f.err
}

func (f *shellFake) Kill(_ context.Context, r sandbox.KillRequest) (sandbox.KillResult, error) {
	f.kill = r
	return sandbox.KillResult{Processes: []sandbox.ProcessInfo{{Process: "p1", Command: "sleep 9", Status: sandbox.Killed}}}, f.err
}

// use calls a tool as the call path does.
func (f *shellFake) use(t *testing.T, tool *Tool, args string) (Result, map[string]any, error) {
	t.Helper()
	_, rest, bad := tool.Check(json.RawMessage(args))
	if bad != nil {
		return Result{}, nil, bad
	}
	var said []string
	s := &Session{ID: "ses_1", Received: time.Now(), Sandbox: f, Progress: func(m string) { said = append(said, m) }}
	r, err := tool.Run(t.Context(), s, rest)
	b, merr := json.Marshal(r.Structured)
	require.NoError(t, merr)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	if tool == shellRun {
		assert.Equal(t, []string{"2 s, 10 bytes: compiling"}, said)
	}
	return r, m, err
}

func code(n int) *int { return &n }

func TestShellRunTakesALineOrAList(t *testing.T) {
	f := &shellFake{result: sandbox.ExecResult{Process: "p1", Status: sandbox.Exited, ExitCode: code(0)}}
	_, _, err := f.use(t, shellRun, `{"command":"make -j2 && ls"}`)
	require.NoError(t, err)
	assert.Equal(t, "make -j2 && ls", f.exec.Command)
	assert.Empty(t, f.exec.Argv)
	assert.Equal(t, int64(defaultTimeout), f.exec.TimeoutMS)
	assert.InDelta(t, defaultWait, f.exec.WaitMS, 500)

	_, _, err = f.use(t, shellRun, `{"command":["ls","a b"],"cwd":"x","env":{"A":"1"},"stdin":"in","timeout_ms":5,"wait_ms":7000,"tty":{"cols":80,"rows":24},"max_output":9}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"ls", "a b"}, f.exec.Argv)
	assert.Empty(t, f.exec.Command)
	assert.Equal(t, "x", f.exec.Dir)
	assert.Equal(t, map[string]string{"A": "1"}, f.exec.Env)
	assert.Equal(t, "in", string(f.exec.Stdin))
	assert.Equal(t, int64(5), f.exec.TimeoutMS)
	assert.Equal(t, &sandbox.TermSize{Cols: 80, Rows: 24}, f.exec.TTY)
	assert.Equal(t, 9, f.exec.MaxOutput)

	_, _, err = f.use(t, shellRun, `{"command":"serve","background":true}`)
	require.NoError(t, err)
	assert.True(t, f.exec.Background)
	assert.Zero(t, f.exec.TimeoutMS, "a server has no end")

	_, _, err = f.use(t, shellRun, `{"command":"serve","wait_ms":0}`)
	require.NoError(t, err)
	assert.Equal(t, int64(startGlance), f.exec.WaitMS, "a wait of nothing is answered at once, not after the default")

	for _, bad := range []string{`{}`, `{"command":7}`, `{"command":["a",7]}`, `{"command":"x","timeout_ms":-1}`, `{"command":"x","wait_ms":-1}`, `{"command":"x","shell":"a"}`, `{"command":"x","tty":{"cells":1}}`, `{"command":{"a":1}}`} {
		_, _, err := f.use(t, shellRun, bad)
		require.Error(t, err, bad)
		assert.Equal(t, sandbox.InvalidArgument, AsError(err, "c").Code, bad)
	}
	what, err := shellRun.Resource(json.RawMessage(`{"command":["git","push"]}`))
	require.NoError(t, err)
	assert.Equal(t, "git push", what, "the policy judges the words")
}

func TestShellRunTellsHowItEnded(t *testing.T) {
	out := func(s string) sandbox.Output {
		return sandbox.Output{Text: s, Bytes: int64(len(s)), Lines: int64(strings.Count(s, "\n"))}
	}
	long := out("head\n[… 5 bytes omitted …]\ntail\n")
	long.Truncated, long.Omitted, long.Spill, long.Bytes = true, 5, "/session/output/p1.stdout", 900
	for name, c := range map[string]struct {
		in    sandbox.ExecResult
		text  string
		field map[string]any
		code  sandbox.Code
	}{
		"exit 3 is a success": {
			in:   sandbox.ExecResult{Process: "p1", Status: sandbox.Exited, ExitCode: code(3), Stdout: out("a\n"), Stderr: out("b"), DurationMS: 12},
			text: "a\n[stderr]\nb\n[exit code 3, 12 ms]", field: map[string]any{"exit_code": 3.0},
		},
		"a time-out is an error with what was printed and no exit code": {
			in:   sandbox.ExecResult{Process: "p1", Status: sandbox.TimedOut, Stdout: out("so far\n"), DurationMS: 600},
			text: "so far\n[timed out after 600 ms and was ended with all it started]", field: map[string]any{"timed_out": true, "exit_code": nil},
			code: sandbox.DeadlineExceeded,
		},
		"a signal": {
			in:   sandbox.ExecResult{Process: "p1", Status: sandbox.Signaled, Signal: "SIGSEGV", DurationMS: 1},
			text: "[ended by SIGSEGV, 1 ms]", field: map[string]any{"signal": "SIGSEGV", "exit_code": nil},
		},
		"it runs on": {
			in:   sandbox.ExecResult{Process: "p4", Status: sandbox.Running, Stdout: out("up\n")},
			text: "up\n[running as p4; go on with shell_output, end with shell_kill]", field: map[string]any{"process": "p4"},
		},
		"it waits for input": {
			in:   sandbox.ExecResult{Process: "p4", Status: sandbox.Running, Stdout: out("name> "), Waiting: "name> "},
			text: "name> \n[p4 waits for input after \"name> \"; answer with shell_input]", field: map[string]any{"waiting_for_input": "name> "},
		},
		"children live on": {
			in:   sandbox.ExecResult{Process: "p1", Status: sandbox.Exited, ExitCode: code(0), StillRunning: []sandbox.ChildInfo{{PID: 9, Command: "sleep 99"}}},
			text: "[exit code 0, 0 ms]\n[still running, ended by shell_kill p1: 9 sleep 99;]",
		},
		"long output names its file": {
			in:   sandbox.ExecResult{Process: "p1", Status: sandbox.Exited, ExitCode: code(0), Stdout: long},
			text: long.Text + "[exit code 0, 0 ms]\n[stdout: 900 bytes, 3 lines, 5 bytes left out; the whole is in /session/output/p1.stdout]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &shellFake{result: c.in}
			r, m, err := f.use(t, shellRun, `{"command":"x","timeout_ms":600}`)
			assert.Equal(t, c.text, r.Text)
			for k, v := range c.field {
				assert.Equal(t, v, m[k], k)
			}
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			e := AsError(err, "c")
			assert.Equal(t, c.code, e.Code)
			assert.NotEmpty(t, e.Hint)
		})
	}
}

func TestShellRunKeepsWhatACancelledCommandPrinted(t *testing.T) {
	f := &shellFake{
		result: sandbox.ExecResult{Process: "p2", Status: sandbox.Killed, Stdout: sandbox.Output{Text: "up\n", Bytes: 3, Lines: 1}},
		err:    &sandbox.Error{Code: sandbox.Canceled, Message: "the call was cancelled"},
	}
	r, m, err := f.use(t, shellRun, `{"command":"x"}`)
	assert.Equal(t, sandbox.Canceled, AsError(err, "c").Code)
	assert.Equal(t, "p2", m["process"])
	assert.Contains(t, r.Text, "up\n[was ended with all it started")

	f = &shellFake{err: sandbox.Lost(nil)}
	r, _, err = f.use(t, shellRun, `{"command":"x"}`)
	require.Error(t, err)
	assert.Equal(t, "The command was not run.", r.Text)
}

func TestShellOutputInputAndKill(t *testing.T) {
	f := &shellFake{}
	r, m, err := f.use(t, shellOutput, `{"process":"p1","since":-5,"wait_ms":2000,"match":"up","stream":"stdout"}`)
	require.NoError(t, err)
	assert.Equal(t, "part\n[running; bytes 10 to 14 of 20; 3 bytes before are no longer held; no match yet; more from since 14 on]", r.Text)
	assert.Equal(t, 14.0, m["next_offset"])
	assert.Equal(t, int64(-5), *f.output.Since)
	assert.Equal(t, "stdout", f.output.Stream)
	assert.InDelta(t, 2000, f.output.WaitMS, 200)

	r, _, err = f.use(t, shellInput, `{"process":"p1","data":"y\n","keys":["enter"],"eof":true,"resize":{"cols":9,"rows":9}}`)
	require.NoError(t, err)
	assert.Contains(t, r.Text, `waits for input after "> "`)
	assert.Equal(t, "y\n", string(f.input.Data))
	assert.Equal(t, []string{"enter"}, f.input.Keys)
	assert.True(t, f.input.EOF)
	assert.InDelta(t, inputGlance, f.input.WaitMS, 200)

	r, _, err = f.use(t, shellKill, `{"process":"p1","signal":"INT","grace_ms":10}`)
	require.NoError(t, err)
	assert.Equal(t, "p1 killed: sleep 9", r.Text)
	assert.Equal(t, sandbox.KillRequest{Process: "p1", Signal: "INT", GraceMS: 10}, f.kill)
	for _, bad := range []string{`{}`, `{"process":"p1","all":true}`} {
		_, _, err = f.use(t, shellKill, bad)
		assert.Equal(t, sandbox.InvalidArgument, AsError(err, "c").Code, bad)
	}
}
