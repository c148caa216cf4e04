package tools

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

var codeTools = []*Tool{codeRun}

const (
	codeTimeoutMS = 600_000
	codeWaitMS    = 45_000 // below every client's own limit
	codeText      = 25_000 // characters of all outputs of one answer
	progressMS    = 2_000
)

type codeRunInput struct {
	Code     string `json:"code,omitempty"`
	Language string `json:"language,omitempty" enum:"python"`
	Context  string `json:"context,omitempty" doc:"Names a kernel."`
	Reset    bool   `json:"reset,omitempty" doc:"A fresh kernel first."`
	Timeout  int64  `json:"timeout_ms,omitempty" doc:"Hard; default 600000."`
	Wait     *int64 `json:"wait_ms,omitempty" doc:"Then answer with a run; default 45000."`
	Run      string `json:"run,omitempty" doc:"Wait on for it, instead of code."`
}

type codeRunOutput struct {
	Run        string       `json:"run,omitempty"`
	Status     string       `json:"status,omitempty"`
	Outputs    []codeOutput `json:"outputs"`
	Kernel     string       `json:"kernel,omitempty" schema:"-"`
	DurationMS int64        `json:"duration_ms" schema:"-"`
	Truncated  bool         `json:"truncated,omitempty" schema:"-"`
	TimedOut   bool         `json:"timed_out,omitempty" schema:"-"`
	Notes      []string     `json:"notes,omitempty" schema:"-"`

	images []Image
}

// codeOutput is one output without its picture, which goes as image content.
type codeOutput struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Path      string `json:"path,omitempty"`
	Rows      int    `json:"rows,omitempty"`
	Name      string `json:"name,omitempty"`
	Image     int    `json:"image,omitempty"` // its place among the images, from 1
}

func (o codeRunOutput) Text() string {
	var b strings.Builder
	for _, x := range o.Outputs {
		switch x.Type {
		case "stderr":
			b.WriteString("[stderr]\n")
		case "result":
			b.WriteString("[result]\n")
		}
		b.WriteString(x.Text)
		if x.Text != "" && !strings.HasSuffix(x.Text, "\n") {
			b.WriteByte('\n')
		}
		if x.Image > 0 {
			fmt.Fprintf(&b, "[image %d: %s]\n", x.Image, x.MediaType)
		}
		switch {
		case x.Path != "" && x.Rows > 0:
			fmt.Fprintf(&b, "[%d rows as CSV: %s]\n", x.Rows, x.Path)
		case x.Path != "":
			fmt.Fprintf(&b, "[%s: %s]\n", x.MediaType, x.Path)
		}
	}
	switch o.Status {
	case "ok":
		if len(o.Outputs) == 0 {
			b.WriteString("Done, without output.\n")
		}
	case "running":
		fmt.Fprintf(&b, "[still running after %d ms; go on with run %s]\n", o.DurationMS, o.Run)
	case "timed_out":
		fmt.Fprintf(&b, "[interrupted: its time was over after %d ms]\n", o.DurationMS)
	case "error":
	default:
		fmt.Fprintf(&b, "[%s after %d ms]\n", strings.ReplaceAll(o.Status, "_", " "), o.DurationMS)
	}
	for _, n := range o.Notes {
		fmt.Fprintf(&b, "[%s]\n", n)
	}
	return b.String()
}

func (o codeRunOutput) Images() []Image { return o.images }

func (o codeRunOutput) Facts() Facts {
	n := int64(0)
	for _, x := range o.Outputs {
		n += int64(len(x.Text))
	}
	return Facts{Bytes: n}
}

var codeRun = define(Tool{
	Name:  "code_run",
	Title: "Run code",
	Description: `Runs Python in a Jupyter kernel that keeps its variables between calls. Plots come back as images,
tables as text with a CSV file. For other languages use shell_run.`,
	Permission: policies.CodeRun,
	Hints:      Hints{Destructive: true, OpenWorld: true},
	Set:        Core,
	Timeout:    11 * time.Minute,
}, func(in codeRunInput) string { return in.Code },
	func(ctx context.Context, s *Session, in codeRunInput) (codeRunOutput, error) {
		switch {
		case in.Run == "" && strings.TrimSpace(in.Code) == "" && !in.Reset:
			return codeRunOutput{}, invalid("code", "Give code, or run to go on waiting for one.", "is empty")
		case in.Run != "" && (in.Code != "" || in.Reset || in.Context != "" || in.Timeout != 0):
			return codeRunOutput{}, invalid("run", "Give run alone, with wait_ms if need be.", "goes with no other argument: the run has its code, context and time already")
		}
		r := sandbox.CodeRequest{Code: in.Code, Language: "python", Context: in.Context, Reset: in.Reset, Run: in.Run,
			TimeoutMS: in.Timeout, WaitMS: codeWaitMS, MaxOutput: codeText, ProgressMS: progressMS}
		if err := within("timeout_ms", int(in.Timeout), 0, 86_400_000); err != nil {
			return codeRunOutput{}, err
		}
		if in.Wait != nil {
			if err := within("wait_ms", int(*in.Wait), 0, maxWait); err != nil {
				return codeRunOutput{}, err
			}
			r.WaitMS = cmp.Or(*in.Wait, startGlance) // to wait for nothing is to answer at once
		}
		if r.TimeoutMS == 0 {
			r.TimeoutMS = codeTimeoutMS
		}
		r.WaitMS = s.Remaining(r.WaitMS)
		got, err := s.Sandbox.RunCode(ctx, r, func(p sandbox.CodeProgress) {
			line := p.LastLine
			if line == "" {
				line = "running"
			}
			s.Progress(line)
		})
		if err != nil {
			return codeRunOutput{}, err
		}
		out := codeRunOutput{Run: got.Run, Status: got.Status, Outputs: []codeOutput{}, Kernel: got.Kernel,
			DurationMS: got.DurationMS, Truncated: got.Truncated, Notes: got.Notes}
		for _, o := range got.Outputs {
			x := codeOutput{Type: o.Type, Text: o.Text, MediaType: o.MediaType, Path: o.Path, Rows: o.Rows, Name: o.Name}
			if len(o.Data) > 0 {
				out.images = append(out.images, Image{MediaType: o.MediaType, Data: o.Data})
				x.Image = len(out.images)
			}
			out.Outputs = append(out.Outputs, x)
		}
		return out, codeEnd(&out, in.Timeout)
	})

// codeEnd makes an error of what kept the call from its job. Code that raised
// an exception did run: that is a result.
func codeEnd(o *codeRunOutput, limitMS int64) error {
	switch o.Status {
	case "timed_out":
		o.TimedOut = true
		return &Error{Code: sandbox.DeadlineExceeded, Retryable: true, Message: fmt.Sprintf("the code did not end within its %d ms and was interrupted", cmp.Or(limitMS, codeTimeoutMS)),
			Hint: "Raise timeout_ms, or do less at a time."}
	case "kernel_died":
		return &Error{Code: sandbox.Unavailable, Reason: "kernel_died", Retryable: true, Message: "the kernel ended while the code ran; its variables are gone. " + strings.Join(o.Notes, " "),
			Hint: "Run it again: a fresh kernel starts. If memory was short, work on less at a time."}
	}
	return nil
}
