package tools

import (
	"context"
	"encoding/json"
	"time"

	"pinfold.dev/pinfold/policies"
)

// Set is the smallest tool set that a tool belongs to.
type Set int

// Each set holds the ones before it.
const (
	Minimal Set = iota
	Core
	Full
)

// Hints are MCP's four annotations; all are set on purpose.
type Hints struct {
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Needs says what has to run before the handler.
type Needs int

const (
	NeedsSandbox Needs = iota // the default: the session's sandbox
	NeedsNothing              // the session family
)

// Tool is one tool, whole: everything about it stands here.
type Tool struct {
	Name        string
	Title       string
	Description string
	Permission  policies.Permission
	Hints       Hints
	Set         Set
	Needs       Needs
	// Timeout bounds the call on our side, from receipt.
	Timeout time.Duration

	InputSchema  json.RawMessage // closed object, with the optional session argument
	OutputSchema json.RawMessage // nothing required, with session and error

	resource func(args json.RawMessage) (string, error)
	run      func(ctx context.Context, s *Session, args json.RawMessage) (Result, error)
	check    func(args json.RawMessage) (session string, rest json.RawMessage, err *Error)
}

// texter is what every output must have: its text form, which suffices alone.
type texter interface{ Text() string }

// imager is an output that brings pictures.
type imager interface{ Images() []Image }

// facter is an output with facts for the journal.
type facter interface{ Facts() Facts }

// define makes a tool from its input and output structs. resource names what
// the policy judges (a path, a command, a URL).
func define[In any, Out texter](t Tool, resource func(in In) string, run func(ctx context.Context, s *Session, in In) (Out, error)) *Tool {
	in := inputSchema[In]()
	t.InputSchema = mustJSON(published(in))
	t.OutputSchema = mustJSON(outputSchema[Out]())
	t.check = func(args json.RawMessage) (string, json.RawMessage, *Error) { return checkArgs(in, args) }
	t.resource = func(args json.RawMessage) (string, error) {
		var v In
		if err := json.Unmarshal(args, &v); err != nil {
			return "", err
		}
		return resource(v), nil
	}
	t.run = func(ctx context.Context, s *Session, args json.RawMessage) (Result, error) {
		var v In
		if err := json.Unmarshal(args, &v); err != nil {
			return Result{}, err
		}
		out, err := run(ctx, s, v)
		r := Result{Structured: out}
		// An output that an error left at its zero value has a text all the same; the edge decides.
		r.Text = out.Text()
		if i, ok := any(out).(imager); ok {
			r.Images = i.Images()
		}
		if f, ok := any(out).(facter); ok {
			r.Facts = f.Facts()
		}
		return r, err
	}
	return &t
}

// Check decodes the arguments strictly: exact names, no duplicates, types and
// bounds by the schema. It returns the session argument and the rest.
func (t *Tool) Check(args json.RawMessage) (session string, rest json.RawMessage, err *Error) {
	return t.check(args)
}

// Resource names what the policy judges; args must have passed Check.
func (t *Tool) Resource(args json.RawMessage) (string, error) { return t.resource(args) }

// Run calls the handler; args must have passed Check.
func (t *Tool) Run(ctx context.Context, s *Session, args json.RawMessage) (Result, error) {
	return t.run(ctx, s, args)
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
