package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

var shellTools = []*Tool{shellRun, shellOutput, shellInput, shellKill}

const (
	defaultTimeout = 600_000 // ms, ends the tree
	defaultWait    = 45_000  // ms, below every client's limit of 60 s
	maxWait        = 600_000 // ms
	shellOutMax    = 27_000  // characters of output in one answer, with room for what is said about it
	progressEvery  = 1_000   // ms
	startGlance    = 100     // ms a background command is watched, for an early end to show
	inputGlance    = 1_000   // ms an answer to input is waited for
	// shellTimeout bounds a call on our side; wait_ms ends it long before.
	shellTimeout = maxWait*time.Millisecond + 30*time.Second
)

// command is a line for a shell, or a program with its arguments.
type command struct {
	Line string
	Argv []string
}

// UnmarshalJSON takes a string or a list of strings.
func (c *command) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		return json.Unmarshal(b, &c.Argv)
	}
	return json.Unmarshal(b, &c.Line)
}

func (c command) String() string {
	if c.Line != "" {
		return c.Line
	}
	return strings.Join(c.Argv, " ")
}

func commandSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}},
	}}
}

type termSize struct {
	Cols int `json:"cols,omitempty"`
	Rows int `json:"rows,omitempty"`
}

func (t *termSize) size() *sandbox.TermSize {
	if t == nil {
		return nil
	}
	// A terminal of no stated size is that of the hardware of old.
	return &sandbox.TermSize{Cols: cmp.Or(t.Cols, 80), Rows: cmp.Or(t.Rows, 24)}
}

type shellRunInput struct {
	Command    command           `json:"command" doc:"Line for bash, or [program, arg, …]."`
	Cwd        string            `json:"cwd,omitempty" doc:"Default /workspace."`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      string            `json:"stdin,omitempty" doc:"Else closed."`
	TimeoutMS  int64             `json:"timeout_ms,omitempty" min:"1" doc:"Hard limit, ends its tree; default 600000, none in background."`
	WaitMS     *int64            `json:"wait_ms,omitempty" min:"0" max:"600000" doc:"Then answer with a handle; default 45000."`
	Background bool              `json:"background,omitempty" doc:"Answer at once with a handle."`
	TTY        *termSize         `json:"tty,omitempty" doc:"A terminal, for shell_input."`
	MaxOutput  int               `json:"max_output,omitempty" min:"1" max:"27000"`
}

type childInfo struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

type outputText struct {
	Text      string `json:"text"`
	Bytes     int64  `json:"bytes"`
	Lines     int64  `json:"lines"`
	Truncated bool   `json:"truncated,omitempty"`
	Omitted   int64  `json:"omitted_bytes,omitempty"`
	Spill     string `json:"spill,omitempty"`
}

func outputOf(o sandbox.Output) *outputText {
	if o.Bytes == 0 {
		return nil
	}
	return &outputText{Text: o.Text, Bytes: o.Bytes, Lines: o.Lines, Truncated: o.Truncated, Omitted: o.Omitted, Spill: o.Spill}
}

type shellRunOutput struct {
	Status     sandbox.Status `json:"status,omitempty"`
	ExitCode   *int           `json:"exit_code,omitempty"`
	Signal     string         `json:"signal,omitempty" schema:"-"`
	TimedOut   bool           `json:"timed_out,omitempty"`
	Stdout     *outputText    `json:"stdout,omitempty"`
	Stderr     *outputText    `json:"stderr,omitempty"`
	Process    string         `json:"process,omitempty"`
	DurationMS int64          `json:"duration_ms" schema:"-"`
	Running    []childInfo    `json:"still_running,omitempty" schema:"-"`
	Waiting    string         `json:"waiting_for_input,omitempty" schema:"-"`
}

// Text is the output as a terminal would show it, and a last line that says how
// the command stands.
func (o shellRunOutput) Text() string {
	if o.Status == "" {
		return "The command was not run."
	}
	var b strings.Builder
	section := func(s *outputText, head string) {
		if s == nil {
			return
		}
		b.WriteString(head + s.Text)
		if !strings.HasSuffix(s.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	section(o.Stdout, "")
	section(o.Stderr, "[stderr]\n")
	b.WriteString("[" + o.state() + "]")
	for _, s := range []struct {
		name string
		out  *outputText
	}{{"stdout", o.Stdout}, {"stderr", o.Stderr}} {
		if s.out == nil || !s.out.Truncated {
			continue
		}
		fmt.Fprintf(&b, "\n[%s: %d bytes, %d lines, %d bytes left out; ", s.name, s.out.Bytes, s.out.Lines, s.out.Omitted)
		if s.out.Spill != "" {
			fmt.Fprintf(&b, "the whole is in %s]", s.out.Spill)
		} else {
			fmt.Fprintf(&b, "shell_output %s reads by offset]", o.Process)
		}
	}
	if len(o.Running) > 0 {
		b.WriteString("\n[still running, ended by shell_kill " + o.Process + ":")
		for _, c := range o.Running {
			fmt.Fprintf(&b, " %d %s;", c.PID, clip(c.Command))
		}
		b.WriteString("]")
	}
	return b.String()
}

func (o shellRunOutput) state() string {
	switch {
	case o.TimedOut:
		return fmt.Sprintf("timed out after %d ms and was ended with all it started", o.DurationMS)
	case o.ExitCode != nil:
		return fmt.Sprintf("exit code %d, %d ms", *o.ExitCode, o.DurationMS)
	case o.Status == sandbox.Signaled:
		return fmt.Sprintf("ended by %s, %d ms", o.Signal, o.DurationMS)
	case o.Status == sandbox.Killed:
		return fmt.Sprintf("was ended with all it started, %d ms", o.DurationMS)
	case o.Waiting != "":
		return fmt.Sprintf("%s waits for input after %q; answer with shell_input", o.Process, o.Waiting)
	}
	return fmt.Sprintf("running as %s; go on with shell_output, end with shell_kill", o.Process)
}

func (o shellRunOutput) Facts() Facts {
	f := Facts{ExitCode: o.ExitCode}
	for _, s := range []*outputText{o.Stdout, o.Stderr} {
		if s != nil {
			f.Bytes += s.Bytes
		}
	}
	return f
}

var shellRun = define(Tool{
	Name:  "shell_run",
	Title: "Run a command",
	Description: `Runs a command and returns exit code and output; a non-zero exit code is a result, not an error.
cd and exports do not persist. Start servers with background. If still running, go on with shell_output.`,
	Permission: policies.ShellExec,
	Hints:      Hints{Destructive: true, OpenWorld: true},
	Set:        Minimal,
	Timeout:    shellTimeout,
}, func(in shellRunInput) string { return in.Command.String() },
	func(ctx context.Context, s *Session, in shellRunInput) (shellRunOutput, error) {
		r := sandbox.ExecRequest{
			Command: in.Command.Line, Argv: in.Command.Argv, Dir: in.Cwd, Env: in.Env, Stdin: []byte(in.Stdin), TTY: in.TTY.size(),
			TimeoutMS: in.TimeoutMS, Background: in.Background, MaxOutput: in.MaxOutput, ProgressMS: progressEvery,
		}
		if r.MaxOutput == 0 {
			r.MaxOutput = shellOutMax
		}
		switch {
		case in.WaitMS != nil && *in.WaitMS > 0:
			r.WaitMS = s.Remaining(*in.WaitMS)
		case in.Background, in.WaitMS != nil: // to wait for nothing is to answer at once
			r.WaitMS = startGlance
		default:
			r.WaitMS = s.Remaining(defaultWait)
		}
		if r.TimeoutMS == 0 && !in.Background {
			r.TimeoutMS = defaultTimeout
		}
		got, err := s.Sandbox.Exec(ctx, r, func(p sandbox.ExecProgress) {
			s.Progress(fmt.Sprintf("%d s, %d bytes: %s", p.ElapsedMS/1000, p.Bytes, p.LastLine))
		})
		out := shellRunOutput{
			Status: got.Status, ExitCode: got.ExitCode, Signal: got.Signal, TimedOut: got.Status == sandbox.TimedOut,
			Stdout: outputOf(got.Stdout), Stderr: outputOf(got.Stderr), Process: got.Process,
			DurationMS: got.DurationMS, Waiting: got.Waiting,
		}
		for _, c := range got.StillRunning {
			out.Running = append(out.Running, childInfo(c))
		}
		if err == nil && out.TimedOut {
			err = &Error{Code: sandbox.DeadlineExceeded, Retryable: true,
				Message: fmt.Sprintf("the command did not end within %d ms and was ended with all it started; what it printed is kept", r.TimeoutMS),
				Hint:    "Raise timeout_ms, or run it in the background."}
		}
		return out, err
	})

// processOutput is what shell_output and shell_input answer.
type processOutput struct {
	Process  string         `json:"process,omitempty"`
	Status   sandbox.Status `json:"status,omitempty"`
	ExitCode *int           `json:"exit_code,omitempty"`
	Signal   string         `json:"signal,omitempty" schema:"-"`
	Output   string         `json:"text"`
	Offset   int64          `json:"offset" schema:"-"`
	Next     int64          `json:"next_offset"`
	Total    int64          `json:"total_bytes" schema:"-"`
	Dropped  int64          `json:"dropped_bytes,omitempty" schema:"-"`
	Matched  *bool          `json:"matched,omitempty" schema:"-"`
	Waiting  string         `json:"waiting_for_input,omitempty" schema:"-"`
}

func processOutputOf(r sandbox.OutputResult) processOutput {
	return processOutput{Process: r.Process, Status: r.Status, ExitCode: r.ExitCode, Signal: r.Signal, Output: r.Text, Offset: r.Offset,
		Next: r.Next, Total: r.Total, Dropped: r.Dropped, Matched: r.Matched, Waiting: r.Waiting}
}

// Text is the output and a line that says where it stands.
func (o processOutput) Text() string {
	if o.Process == "" {
		return "Nothing was read."
	}
	state := string(o.Status)
	switch {
	case o.ExitCode != nil:
		state = fmt.Sprintf("exit code %d", *o.ExitCode)
	case o.Signal != "":
		state = "ended by " + o.Signal
	case o.Waiting != "":
		state = fmt.Sprintf("waits for input after %q", o.Waiting)
	}
	notes := []string{state, fmt.Sprintf("bytes %d to %d of %d", o.Offset, o.Next, o.Total)}
	if o.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d bytes before are no longer held", o.Dropped))
	}
	if o.Matched != nil && !*o.Matched {
		notes = append(notes, "no match yet")
	}
	if o.Next < o.Total {
		notes = append(notes, fmt.Sprintf("more from since %d on", o.Next))
	}
	text := o.Output
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "[" + strings.Join(notes, "; ") + "]"
}

func (o processOutput) Facts() Facts {
	return Facts{ExitCode: o.ExitCode, Bytes: o.Next - o.Offset}
}

type shellOutputInput struct {
	Process string `json:"process"`
	Since   *int64 `json:"since,omitempty" doc:"Byte offset, negative from the end; default: after the last read."`
	WaitMS  int64  `json:"wait_ms,omitempty" min:"0" max:"600000"`
	Match   string `json:"match,omitempty" doc:"RE2: wait for it."`
	Stream  string `json:"stream,omitempty" enum:"stdout,stderr"`
}

var shellOutput = define(Tool{
	Name:  "shell_output",
	Title: "Read a command's output",
	Description: `Returns what a command printed since the last read, and its status.
Wait for a server with match and wait_ms instead of asking again.`,
	Permission: policies.ShellControl,
	Hints:      Hints{ReadOnly: true},
	Set:        Minimal,
	Timeout:    shellTimeout,
}, func(in shellOutputInput) string { return in.Process },
	func(ctx context.Context, s *Session, in shellOutputInput) (processOutput, error) {
		r := sandbox.OutputRequest{Process: in.Process, Since: in.Since, Match: in.Match, Stream: in.Stream, MaxOutput: shellOutMax}
		if in.WaitMS > 0 {
			r.WaitMS = s.Remaining(in.WaitMS)
		}
		got, err := s.Sandbox.Output(ctx, r)
		return processOutputOf(got), err
	})

type shellInputInput struct {
	Process string    `json:"process"`
	Data    string    `json:"data,omitempty" doc:"End a line with \\n."`
	Keys    []string  `json:"keys,omitempty" max:"100" doc:"ctrl-c, enter, up, tab, esc, …"`
	EOF     bool      `json:"eof,omitempty"`
	Resize  *termSize `json:"resize,omitempty"`
	WaitMS  int64     `json:"wait_ms,omitempty" min:"0" max:"600000" doc:"Default 1000."`
}

var shellInput = define(Tool{
	Name:        "shell_input",
	Title:       "Type into a command",
	Description: `Types into a command that shell_run started with tty, and returns what appears.`,
	Permission:  policies.ShellControl,
	Hints:       Hints{Destructive: true, OpenWorld: true},
	Set:         Core,
	Timeout:     shellTimeout,
}, func(in shellInputInput) string { return in.Process },
	func(ctx context.Context, s *Session, in shellInputInput) (processOutput, error) {
		r := sandbox.InputRequest{Process: in.Process, Data: []byte(in.Data), Keys: in.Keys, EOF: in.EOF, Resize: in.Resize.size(), WaitMS: in.WaitMS}
		if r.WaitMS == 0 {
			r.WaitMS = inputGlance
		}
		r.WaitMS = s.Remaining(r.WaitMS)
		got, err := s.Sandbox.Input(ctx, r)
		return processOutputOf(got), err
	})

type shellKillInput struct {
	Process string `json:"process,omitempty"`
	All     bool   `json:"all,omitempty"`
	Signal  string `json:"signal,omitempty" doc:"Default TERM."`
	GraceMS int64  `json:"grace_ms,omitempty" min:"1" max:"60000" doc:"Before KILL; default 2000."`
}

type killedInfo struct {
	Process  string         `json:"process"`
	Command  string         `json:"command"`
	Status   sandbox.Status `json:"status"`
	ExitCode *int           `json:"exit_code,omitempty"`
	Signal   string         `json:"signal,omitempty" schema:"-"`
	Children int            `json:"children,omitempty"`
}

type shellKillOutput struct {
	Processes []killedInfo `json:"processes"`
}

// Text is one line for each command.
func (o shellKillOutput) Text() string {
	if len(o.Processes) == 0 {
		return "No command was running."
	}
	var b strings.Builder
	for _, p := range o.Processes {
		fmt.Fprintf(&b, "%s %s: %s", p.Process, p.Status, clip(p.Command))
		if p.ExitCode != nil {
			fmt.Fprintf(&b, ", exit code %d", *p.ExitCode)
		}
		if p.Signal != "" {
			b.WriteString(", " + p.Signal)
		}
		if p.Children > 0 {
			fmt.Fprintf(&b, ", %d processes still run", p.Children)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var shellKill = define(Tool{
	Name:        "shell_kill",
	Title:       "End a command",
	Description: `Ends a command with everything it started, or all commands. TERM, INT and QUIT are followed by KILL; other signals are only sent.`,
	Permission:  policies.ShellControl,
	Hints:       Hints{Destructive: true, Idempotent: true},
	Set:         Core,
	Timeout:     2 * time.Minute,
}, func(in shellKillInput) string {
	if in.All {
		return "all"
	}
	return in.Process
},
	func(ctx context.Context, s *Session, in shellKillInput) (shellKillOutput, error) {
		if (in.Process == "") == !in.All {
			return shellKillOutput{}, invalid("process", "Give a handle such as p1, or all.", "exactly one of process and all is needed")
		}
		got, err := s.Sandbox.Kill(ctx, sandbox.KillRequest{Process: in.Process, All: in.All, Signal: in.Signal, GraceMS: in.GraceMS})
		out := shellKillOutput{}
		for _, p := range got.Processes {
			out.Processes = append(out.Processes, killedInfo{Process: p.Process, Command: p.Command, Status: p.Status, ExitCode: p.ExitCode, Signal: p.Signal, Children: p.Children})
		}
		return out, err
	})
