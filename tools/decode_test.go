package tools

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

type probeIn struct {
	Path  string            `json:"path" doc:"Where."`
	Count int64             `json:"count,omitempty" min:"1" max:"10"`
	As    string            `json:"as,omitempty" enum:"text,hex"`
	Deep  bool              `json:"deep,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Steps []probeStep       `json:"steps,omitempty" max:"2"`
}

type probeStep struct {
	Do string `json:"do" enum:"click,fill"`
	At []int  `json:"at,omitempty"`
}

type probeOut struct {
	Saw   int64    `json:"saw"`
	Lines []string `json:"lines,omitempty"`
}

func (probeOut) Text() string { return "seen" }

var probe = define(Tool{Name: "probe"}, func(in probeIn) string { return in.Path },
	func(_ context.Context, _ *Session, in probeIn) (probeOut, error) { return probeOut{Saw: in.Count}, nil })

func TestArgumentsAreDecodedStrictly(t *testing.T) {
	for what, c := range map[string]struct{ args, field, says string }{
		"no object":                         {`[1]`, "arguments", "expected object"},
		"broken JSON":                       {`{"path":`, "arguments", "not valid JSON"},
		"two values":                        {`{"path":"a"} {}`, "arguments", "more after"},
		"missing required":                  {`{}`, "path", "is required"},
		"wrong type":                        {`{"path":1}`, "path", "expected string"},
		"number as string (C48)":            {`{"path":"a","count":"7"}`, "count", "expected integer, got string"},
		"fraction for a whole number":       {`{"path":"a","count":1.5}`, "count", "whole number"},
		"exponent for a whole number":       {`{"path":"a","count":1e3}`, "count", "whole number"},
		"below the bound":                   {`{"path":"a","count":-1}`, "count", "below 1"},
		"above the bound":                   {`{"path":"a","count":11}`, "count", "above 10"},
		"huge number":                       {`{"path":"a","count":99999999999999999999}`, "count", "whole number"},
		"none of the enumeration":           {`{"path":"a","as":"jpeg"}`, "as", "none of text, hex"},
		"null for a string":                 {`{"path":null}`, "path", "null"},
		"unknown argument":                  {`{"path":"a","nope":1}`, "nope", "no such argument"},
		"another case of a name (A171)":     {`{"Path":"a"}`, "Path", "did you mean path"},
		"long s folds to s in Go (A171)":    {`{"path":"a","ſteps":[]}`, "ſteps", "no such argument"},
		"a name given twice (A171)":         {`{"path":"a","path":"b"}`, "path", "given twice"},
		"a nested name given twice":         {`{"path":"a","steps":[{"do":"click","do":"fill"}]}`, "steps[0].do", "given twice"},
		"nested unknown":                    {`{"path":"a","steps":[{"do":"click","x":1}]}`, "steps[0].x", "no such argument"},
		"nested enumeration":                {`{"path":"a","steps":[{"do":"jump"}]}`, "steps[0].do", "none of click, fill"},
		"too many entries":                  {`{"path":"a","steps":[{"do":"click"},{"do":"click"},{"do":"click"}]}`, "steps", "at most 2"},
		"list entry of another type":        {`{"path":"a","steps":[{"do":"click","at":["x"]}]}`, "steps[0].at[0]", "expected integer"},
		"map value of another type":         {`{"path":"a","env":{"A":1}}`, "env.A", "expected string"},
		"NUL in a string (A5)":              {`{"path":"a\u0000.png"}`, "path", "NUL"},
		"session of another type":           {`{"path":"a","session":7}`, "session", "expected string"},
		"not a number (A170)":               {`{"path":"a","count":NaN}`, "arguments", "not valid JSON"},
		"a boolean in quotes":               {`{"path":"a","deep":"true"}`, "deep", "expected boolean"},
		"an object where a list is wanted":  {`{"path":"a","steps":{"do":"click"}}`, "steps", "expected array"},
		"a list where an object is wanted":  {`{"path":"a","env":[]}`, "env", "expected object"},
		"an open object at the end of data": {`{"path":"a","env":{"A":"b"`, "arguments", "not valid JSON"},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, err := probe.Check(json.RawMessage(c.args))
			require.NotNil(t, err)
			assert.Equal(t, sandbox.InvalidArgument, err.Code)
			assert.Equal(t, c.field, err.Details["field"])
			assert.Contains(t, err.Message, c.says)
			assert.NotEmpty(t, err.Hint, "the next step")
		})
	}
}

func TestGoodArgumentsReachTheHandlerUnchanged(t *testing.T) {
	session, rest, err := probe.Check(json.RawMessage(`{"session":"ses_x","path":"ä","count":9,"env":{"A":"1"},"steps":[{"do":"fill","at":[1,2]}]}`))
	require.Nil(t, err)
	assert.Equal(t, "ses_x", session)
	r, runErr := probe.Run(t.Context(), &Session{}, rest)
	require.NoError(t, runErr)
	assert.Equal(t, probeOut{Saw: 9}, r.Structured)
	res, resErr := probe.Resource(rest)
	require.NoError(t, resErr)
	assert.Equal(t, "ä", res)
	for _, none := range []string{"", "null", " {} "} {
		_, _, err := probe.Check(json.RawMessage(none))
		require.NotNil(t, err)
		assert.Equal(t, "path", err.Details["field"], "no arguments are an empty object: %q", none)
	}
}

func TestSchemasAreClosedAndPortable(t *testing.T) {
	for name, want := range map[string]string{
		string(probe.InputSchema): `{"type":"object","required":["path"],"additionalProperties":false,"properties":{
			"path":{"type":"string","description":"Where."},"count":{"type":"integer"},
			"as":{"type":"string","enum":["text","hex"]},"deep":{"type":"boolean"},
			"env":{"type":"object","additionalProperties":{"type":"string"}},
			"steps":{"type":"array","items":{"type":"object","required":["do"],"additionalProperties":false,"properties":{
				"do":{"type":"string","enum":["click","fill"]},"at":{"type":"array","items":{"type":"integer"}}}}},
			"session":{"type":"string"}}}`,
		string(probe.OutputSchema): `{"type":"object","properties":{"saw":{"type":"integer"},"lines":{"type":"array"},
			"error":{"type":"object"}}}`,
	} {
		assert.JSONEq(t, want, name)
	}
}

func FuzzArgumentsNeverPanicAndNeverDiffer(f *testing.F) {
	for _, s := range []string{`{}`, `{"path":"a"}`, `{"path":"a","Path":"b"}`, `{"path":"a","steps":[{"do":"click"}],"session":"s"}`, `[[[[`, `{"a":{"a":{"a":`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, rest, err := probe.Check(json.RawMessage(s))
		if err != nil {
			return
		}
		var in probeIn
		require.NoError(t, json.Unmarshal(rest, &in), "what passes the check decodes")
		_, again, err := probe.Check(rest)
		require.Nil(t, err, "what passed once passes again")
		assert.JSONEq(t, string(rest), string(again))
	})
}
