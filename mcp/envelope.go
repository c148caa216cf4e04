package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// envelope is a JSON-RPC message as far as a transport must know it. The
// library reads messages with encoding/json, which takes "Method" for "method"
// and the last of two equal keys; so what passes here has each key once and in
// its exact spelling, and the library and we see the same message.
type envelope struct {
	id       json.RawMessage // exact bytes; nil for a notification
	key      string          // id as a map key: equal ids have equal keys
	method   string
	response bool            // an answer to something we asked; we ask nothing
	tool     string          // of tools/call
	token    json.RawMessage // progress token; nil when none was sent
	cancels  string          // key of the request that notifications/cancelled names
	version  string          // _meta protocol version of the stateless revision
}

// rpcError is a JSON-RPC error that a transport answers itself.
type rpcError struct {
	id   json.RawMessage
	code int
	msg  string
}

func (e *rpcError) Error() string { return e.msg }

// bytes is the error as one message.
func (e *rpcError) bytes() []byte {
	id := e.id
	if id == nil {
		id = json.RawMessage("null")
	}
	b, _ := json.Marshal(struct {
		JSONRPC string                  `json:"jsonrpc"`
		ID      json.RawMessage         `json:"id"`
		Error   mcp.JSONRPCErrorDetails `json:"error"`
	}{"2.0", id, mcp.JSONRPCErrorDetails{Code: e.code, Message: e.msg}})
	return b
}

// The keys the library reads, by place.
var (
	topKeys    = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsKeys = []string{"name", "arguments", "_meta", "task", "requestId", "reason", "protocolVersion", "capabilities", "clientInfo",
		"uri", "cursor", "ref", "argument", "context", "level", "inputResponses", "requestState", "notifications"}
)

// parseEnvelope checks one message and reads what transports need.
func parseEnvelope(raw []byte) (envelope, *rpcError) {
	var env envelope
	bad := func(code int, format string, args ...any) (envelope, *rpcError) {
		return env, &rpcError{id: env.id, code: code, msg: fmt.Sprintf(format, args...)}
	}
	raw = bytes.TrimSpace(raw)
	switch {
	case !utf8.Valid(raw):
		return bad(mcp.PARSE_ERROR, "the message is not valid UTF-8")
	case !json.Valid(raw):
		return bad(mcp.PARSE_ERROR, "the message is not one valid JSON value")
	case raw[0] == '[':
		return bad(mcp.INVALID_REQUEST, "batches are not served: send one message at a time")
	case raw[0] != '{':
		return bad(mcp.INVALID_REQUEST, "the message is not a JSON object")
	}
	top, err := members(raw, topKeys)
	if id, ok := top["id"]; ok {
		if env.key = idKey(id); env.key == "" {
			return bad(mcp.INVALID_REQUEST, "id: must be a string or a whole number")
		}
		env.id = id
	}
	if err != nil {
		return bad(mcp.INVALID_REQUEST, "%v", err)
	}
	if m, ok := top["method"]; ok {
		if json.Unmarshal(m, &env.method) != nil || env.method == "" {
			return bad(mcp.INVALID_REQUEST, "method: must be a string")
		}
	}
	_, result := top["result"]
	_, failure := top["error"]
	if env.response = env.method == "" && env.id != nil && (result || failure); env.response {
		return env, nil
	}
	if env.method == "" {
		return bad(mcp.INVALID_REQUEST, "method: is required")
	}
	if result {
		return bad(mcp.INVALID_REQUEST, "a request has no result")
	}
	if v := top["jsonrpc"]; string(v) != `"2.0"` {
		return bad(mcp.INVALID_REQUEST, `jsonrpc: must be "2.0"`)
	}
	p, ok := top["params"]
	if !ok || p[0] != '{' {
		if ok {
			return bad(mcp.INVALID_PARAMS, "params: must be an object")
		}
		return env, nil
	}
	params, err := members(p, paramsKeys)
	if err != nil {
		return bad(mcp.INVALID_PARAMS, "params: %v", err)
	}
	if env.method == string(mcp.MethodToolsCall) {
		_ = json.Unmarshal(params["name"], &env.tool)
	}
	if id, ok := params["requestId"]; ok {
		env.cancels = idKey(id)
	}
	if m, ok := params["_meta"]; ok && m[0] == '{' {
		meta, err := members(m, []string{"progressToken", mcp.MetaKeyProtocolVersion})
		if err != nil {
			return bad(mcp.INVALID_PARAMS, "params._meta: %v", err)
		}
		if t, ok := meta["progressToken"]; ok && idKey(t) != "" {
			env.token = t
		}
		_ = json.Unmarshal(meta[mcp.MetaKeyProtocolVersion], &env.version)
	}
	return env, nil
}

// members splits an object. A key given twice, or one that only resembles a
// known key, is an error.
func members(obj json.RawMessage, known []string) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(obj))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	m := map[string]json.RawMessage{}
	var fault error
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return m, err
		}
		key, _ := t.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return m, err
		}
		if _, twice := m[key]; twice && fault == nil {
			fault = fmt.Errorf("%s is given twice", short(key))
		}
		if fault == nil && !slices.Contains(known, key) {
			for _, k := range known {
				if strings.EqualFold(k, key) {
					fault = fmt.Errorf("%s is no key; did you mean %s?", short(key), k)
				}
			}
		}
		m[key] = v
	}
	return m, fault
}

// idKey makes a request id comparable: a string and a number are never equal.
// It is empty for what is no id.
func idKey(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || len(raw) > 1024 {
		return ""
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return "s" + s
	}
	digits := strings.TrimPrefix(string(raw), "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "n" + string(raw)
}

// short bounds what an error quotes of a hostile message.
func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// restamp encodes an answer with the exact id of its request: the library
// carries ids through float64.
func restamp(id json.RawMessage, answer mcp.JSONRPCMessage) ([]byte, error) {
	switch a := answer.(type) {
	case mcp.JSONRPCResponse:
		return json.Marshal(struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  any             `json:"result"`
		}{mcp.JSONRPC_VERSION, id, a.Result})
	case mcp.JSONRPCError:
		return json.Marshal(struct {
			JSONRPC string                  `json:"jsonrpc"`
			ID      json.RawMessage         `json:"id"`
			Error   mcp.JSONRPCErrorDetails `json:"error"`
		}{mcp.JSONRPC_VERSION, id, a.Error})
	}
	return nil, fmt.Errorf("an answer of unknown type %T", answer)
}
