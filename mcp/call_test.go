package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

func TestACallGoesTheWholeWay(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.initialize()
	r := c.do("1", "shell_run", `{"command":"echo out; exit 3"}`)
	assert.False(t, r.IsError, "a command that exits 3 did its job as a call")
	assert.EqualValues(t, 3, r.Structured["exit_code"])
	assert.Contains(t, r.Content[0].Text, "out")
	id := r.session()
	require.Regexp(t, handleForm, id)
	r = c.do("2", "shell_run", `{"command":"true"}`)
	assert.Equal(t, id, r.session(), "one session for the client")
	assert.Equal(t, 1, w.launcher.launches(), "one sandbox for the session")

	events := w.events(t, id)
	kinds := make([]string, len(events))
	for i, e := range events {
		kinds[i] = string(e.Kind)
	}
	assert.Equal(t, []string{"session_start", "intent", "sandbox_start", "outcome", "intent", "outcome"}, kinds)
	assert.Contains(t, string(events[0].Detail), "policy_digest")
	assert.Equal(t, "echo out; exit 3", events[1].Resource)
	assert.Equal(t, "allow", events[1].Effect)
	assert.Equal(t, "wire 1", events[1].Client)
	assert.Equal(t, "uid:1", events[1].Principal)
	assert.Equal(t, "ok", events[3].Code)
	require.NotNil(t, events[3].ExitCode)
	assert.Equal(t, 3, *events[3].ExitCode)
	assert.Equal(t, events[1].Call, events[3].Call)

	var lines []map[string]any
	for _, l := range strings.Split(w.log.String(), "\n") {
		var m map[string]any
		if json.Unmarshal([]byte(l), &m) == nil && m["msg"] == "call" {
			lines = append(lines, m)
		}
	}
	require.Len(t, lines, 2, "one line a call")
	for _, key := range []string{"session", "call", "tool", "rule", "code", "dur_ms"} {
		assert.Contains(t, lines[0], key)
	}
	assert.NotContains(t, w.log.String(), "echo out", "no argument in the log")
}

func TestBadArgumentsRunNothingAndAreJournaled(t *testing.T) { // A194
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "shell_run", `{"command":"true"}`).session()
	for i, args := range []string{`{}`, `{"command":7}`, `{"command":"true","extra":1}`, `{"command":"true","command":"id"}`, `{"Command":"id"}`,
		`{"command":"touch x","timeout_ms":-1}`, `{"command":"touch x","timeout_ms":99999999999999999999}`, `{"command":"touch x","wait_ms":9007199254740993}`,
		`{"command":""}`, `[]`, `null`, `{"command":"a\u0000b"}`} {
		r := c.do(fmt.Sprint(i+1), "shell_run", args)
		assert.True(t, r.IsError, args)
		assert.Equal(t, "invalid_argument", r.code(), args)
	}
	outcomes := 0
	for _, e := range w.events(t, id) {
		if e.Kind == audit.Outcome && e.Code == "invalid_argument" {
			outcomes++
		}
	}
	assert.Equal(t, 12, outcomes)
	entries, err := os.ReadDir(w.launcher.box(id).dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing ran")
	assert.False(t, c.do("100", "shell_run", `{"command":"true"}`).IsError, "the next call works")
}

func TestLargeNumbersReachTheHandlerWhole(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	p := c.do("1", "shell_run", `{"command":"echo x"}`).Structured["process"]
	if p == nil {
		p = "p1"
	}
	w2 := w.events(t, c.do("2", "session_status", `{}`).session())
	require.NotEmpty(t, w2)
	c.do("3", "shell_output", fmt.Sprintf(`{"process":%q,"since":9007199254740993}`, p))
	// The exact digest of what was sent stands in the journal.
	events := w.events(t, c.do("4", "session_status", `{}`).session())
	var sizes []int
	for _, e := range events {
		if e.Tool == "shell_output" && e.Kind == audit.Intent {
			sizes = append(sizes, e.ArgsBytes)
		}
	}
	assert.Equal(t, []int{len(fmt.Sprintf(`{"process":%q,"since":9007199254740993}`, p))}, sizes)
}

type decider struct{ effects map[string]policies.Effect }

func (d decider) Decide(r policies.Request) policies.Decision {
	if e, ok := d.effects[r.Tool]; ok {
		return policies.Decision{Effect: e, Rule: "test-rule", Reason: "the test says so"}
	}
	return policies.Decision{Effect: policies.Allow, Rule: "rest"}
}

func TestRefusedAndAskedCallsRunNothing(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Policy = decider{map[string]policies.Effect{"shell_run": policies.Deny, "file_write": policies.Ask, "file_list": "bogus"}}
	})
	c := dial(t, w.Edge)
	r := c.do("1", "shell_run", `{"command":"touch x"}`)
	assert.Equal(t, "permission_denied", r.code())
	assert.Contains(t, r.Content[0].Text, "test-rule")
	r = c.do("2", "file_write", `{"path":"x","content":"y"}`)
	assert.Equal(t, "permission_denied", r.code())
	assert.Equal(t, "approval_unavailable", r.reason())
	assert.Equal(t, "permission_denied", c.do("3", "file_list", `{}`).code(), "an effect that is none of the three is no permission")
	assert.Zero(t, w.launcher.launches(), "a refused call costs no sandbox")
	events := w.events(t, r.session())
	assert.Equal(t, "deny", events[1].Effect)
	assert.Equal(t, "permission_denied", events[2].Code)
	assert.Equal(t, "ask", events[3].Effect)
	status := c.do("4", "session_status", `{}`)
	assert.EqualValues(t, 3, status.Structured["usage"].(map[string]any)["refused"])
	open := c.do("5", "session_open", `{}`)
	assert.Contains(t, open.Structured["refuses"], "shell_run")
	assert.Contains(t, open.Structured["asks"], "file_write")
}

func TestNothingRunsWithoutAJournal(t *testing.T) { // A248
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "shell_run", `{"command":"true"}`).session()
	// The file is no longer writable through this descriptor, as with a full disk.
	w.Server.mu.Lock()
	ses := w.sessions[id]
	w.Server.mu.Unlock()
	require.NoError(t, ses.journal.Close())
	r := c.do("2", "shell_run", `{"command":"touch escaped"}`)
	assert.Equal(t, "unavailable", r.code())
	assert.Equal(t, "journal", r.reason())
	assert.NoFileExists(t, filepath.Join(w.launcher.box(id).dir, "escaped"))
	// No journal can be made at all.
	w = newWorld(t, nil)
	require.NoError(t, os.WriteFile(w.journalDir(), nil, 0o600))
	r = dial(t, w.Edge).do("1", "shell_run", `{"command":"true"}`)
	assert.Equal(t, "unavailable", r.code())
	assert.Zero(t, w.launcher.launches())
}

func TestAPanicIsThatCallsAlone(t *testing.T) { // A196
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.do("1", "file_write", `{"path":"a","content":"b"}`)
	r := c.do("2", "file_edit", `{"path":"a","edits":[{"old":"b","new":"c"}]}`)
	assert.True(t, r.IsError)
	assert.Equal(t, "internal", r.code())
	assert.NotContains(t, r.Content[0].Text, "guest's client", "the cause is for our log")
	assert.Contains(t, w.log.String(), "a fault in the guest's client")
	events := w.events(t, r.session())
	assert.Equal(t, "internal", events[len(events)-1].Code)
	assert.False(t, c.do("3", "file_read", `{"path":"a"}`).IsError)
}

func TestAnUntypedErrorStaysInside(t *testing.T) {
	w := newWorld(t, nil)
	r := dial(t, w.Edge).do("1", "file_search", `{"query":"x"}`)
	assert.Equal(t, "internal", r.code())
	assert.NotContains(t, r.Content[0].Text, "/home/user")
	assert.Contains(t, r.Content[0].Text, "call_", "the call's id leads to the log")
}

func TestACancelledCallEndsAndIsNotAnswered(t *testing.T) { // C41
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "shell_run", `{"command":"true"}`).session()
	c.call("1", "shell_run", `{"command":"echo started; sleep 77"}`)
	require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	require.Eventually(t, func() bool { return alive(w, id) == 0 }, patience, 5*time.Millisecond)
	r := c.do("2", "session_status", `{}`)
	assert.Contains(t, fmt.Sprint(r.Structured["calls"]), "canceled", "what it printed can be found")
	for _, m := range c.all() {
		assert.NotEqual(t, "1", string(m.ID))
	}
	require.Eventually(t, func() bool {
		for _, e := range w.events(t, id) {
			if e.Kind == audit.Outcome && e.Code == "canceled" {
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond)
}

// alive counts the processes of a session that run.
func alive(w *world, session string) int {
	st, err := fakeGuest{w.launcher.box(session)}.Status(context.Background())
	if err != nil {
		return -1
	}
	n := 0
	for _, p := range st.Processes {
		if p.Status == sandbox.Running {
			n++
		}
	}
	return n
}

func TestBlockedCallsDoNotBlockOthers(t *testing.T) { // C42
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "shell_run", `{"command":"true"}`).session()
	for i := range maxParallel {
		c.call(fmt.Sprint(i+1), "shell_run", `{"command":"sleep 77"}`)
	}
	require.Eventually(t, func() bool { return alive(w, id) == maxParallel }, patience, 10*time.Millisecond)
	begun := time.Now()
	c.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	c.answer(`"ping"`)
	assert.Less(t, time.Since(begun), time.Second)
	// One more waits, and can be cancelled while it does.
	c.call("1000", "shell_run", `{"command":"touch queued"}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1000}}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	require.Eventually(t, func() bool { return alive(w, id) == maxParallel-1 }, patience, 10*time.Millisecond)
	assert.False(t, c.do("1001", "file_list", `{}`).IsError)
	assert.NoFileExists(t, filepath.Join(w.launcher.box(id).dir, "queued"))
}

func TestEightBlockingCallsThenEcho(t *testing.T) { // C42
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	for i := range 8 {
		c.call(fmt.Sprint(i+1), "shell_run", `{"command":"sleep 77"}`)
	}
	begun := time.Now()
	assert.Contains(t, c.do("9", "shell_run", `{"command":"echo hi"}`).Content[0].Text, "hi")
	assert.Less(t, time.Since(begun), time.Second)
}

func TestProgressIsOrderedBoundedAndEndsWithTheAnswer(t *testing.T) { // C40
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.do("0", "shell_run", `{"command":"true"}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i %s; sleep 0.1; done"},"_meta":{"progressToken":9007199254740993}}}`, strings.Repeat("long ", 100))
	c.answer("1")
	c.do("2", "shell_run", `{"command":"sleep 0.6"}`) // nothing may follow the answer
	var last float64
	n, answered := 0, false
	for _, m := range c.all() {
		if string(m.ID) == "1" {
			answered = true
		}
		if m.Method != "notifications/progress" {
			continue
		}
		n++
		assert.False(t, answered, "progress after the answer")
		p, _ := m.Params["progress"].(float64)
		assert.Greater(t, p, last)
		last = p
		assert.LessOrEqual(t, len([]rune(m.Params["message"].(string))), progressMessage)
	}
	assert.GreaterOrEqual(t, n, 2)
	assert.LessOrEqual(t, n, 7, "at most one in 250 ms over 1.1 s")
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Contains(t, fmt.Sprintf("%s", c.lines), `"progressToken":9007199254740993`, "the token comes back as it was")
}

func TestNoProgressWithoutAToken(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.do("1", "shell_run", `{"command":"for i in 1 2 3; do echo $i; sleep 0.3; done"}`)
	for _, m := range c.all() {
		assert.NotEqual(t, "notifications/progress", m.Method)
	}
}

func TestOutputsKeepToTheirSchemas(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	schemas := map[string]*jsonschema.Schema{}
	for _, tool := range tools.All() {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(tool.OutputSchema)))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		require.NoError(t, compiler.AddResource(tool.Name, doc))
		schemas[tool.Name], err = compiler.Compile(tool.Name)
		require.NoError(t, err)
	}
	for i, call := range [][2]string{
		{"shell_run", `{"command":"echo x"}`}, {"shell_run", `{"command":"sleep 7","wait_ms":1}`}, {"shell_run", `{}`}, {"shell_run", `{"command":["/no/such"]}`},
		{"shell_output", `{"process":"p1"}`}, {"shell_output", `{"process":"nope"}`}, {"shell_kill", `{"process":"p2"}`},
		{"file_write", `{"path":"a","content":"b"}`}, {"file_read", `{"path":"a"}`}, {"file_read", `{"path":"none"}`}, {"file_list", `{}`}, {"file_search", `{"query":"x"}`},
		{"file_edit", `{"path":"a","edits":[{"old":"b","new":"c"}]}`}, {"session_status", `{"all":true}`}, {"session_open", `{}`},
		{"session_open", `{"workspace":{"mode":"bind","path":"/tmp"}}`}, {"session_close", `{}`},
	} {
		r := c.do(fmt.Sprint(i), call[0], call[1])
		assert.NoError(t, schemas[call[0]].Validate(any(r.Structured)), "%s %s: %v", call[0], call[1], r.Structured)
		assert.NotEmpty(t, r.Content[0].Text)
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "file_write", `{"path":"a","content":"b"}`).session()
	dir := w.launcher.box(id).dir
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big.txt"), []byte(strings.Repeat("äöü\x01\n", 400_000)), 0o600))
	r := c.do("1", "file_read", `{"path":"big.txt"}`)
	assert.LessOrEqual(t, len([]rune(r.Content[0].Text)), maxText)
	assert.Equal(t, true, r.Structured["truncated"], "nothing is cut without a word")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big.png"), make([]byte, 2_000_000), 0o600))
	r = c.do("2", "file_read", `{"path":"big.png"}`)
	assert.Len(t, r.Content, 1)
	assert.Contains(t, r.Content[0].Text, "left out")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		assert.Less(t, len(l), maxAnswer)
	}
}
