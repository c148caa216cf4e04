package mcp

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIDsOfDifferentTypesDiffer(t *testing.T) {
	assert.NotEqual(t, idKey(json.RawMessage(`1`)), idKey(json.RawMessage(`"1"`)))
	assert.Equal(t, idKey(json.RawMessage(`"a"`)), idKey(json.RawMessage(`"\u0061"`)))
	for _, bad := range []string{``, `null`, `true`, `1.5`, `1e3`, `{}`, `[]`, `-`, `"`, `9 9`} {
		assert.Empty(t, idKey(json.RawMessage(bad)), bad)
	}
}

// What passes is seen by the library as we saw it.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1},"_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":"x","result":{}}`,
		`{"jsonrpc":"2.0","Id":1,"method":"ping"}`, `[]`, `{"paramſ":1}`, "\ufeff{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		env, fault := parseEnvelope(raw)
		if fault != nil {
			require.True(t, json.Valid(fault.bytes()))
			return
		}
		var seen struct {
			Method string `json:"method"`
			ID     any    `json:"id"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if json.Unmarshal(raw, &seen) != nil {
			return // the library refuses it
		}
		assert.Equal(t, env.method, seen.Method)
		assert.Equal(t, env.id != nil, seen.ID != nil)
		if env.method == "tools/call" {
			assert.Equal(t, env.tool, seen.Params.Name)
		}
	})
}
