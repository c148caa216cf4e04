package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/mcp/audit"
	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

func TestAStartThatFailsIsTypedAndTriedAgain(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	missing := sandbox.ImageState{Reference: "localhost/pinfold:x", Preparing: true, Percent: 42, Stage: "fonts"}.Missing()
	w.launcher.fail = missing
	r := c.do("1", "shell_run", `{"command":"true"}`)
	assert.Equal(t, "unavailable", r.code())
	assert.Equal(t, "image_preparing", r.reason())
	assert.Contains(t, r.Content[0].Text, "42%")
	w.launcher.mu.Lock()
	w.launcher.fail = errors.New("runc: exit status 1 at /home/someone")
	w.launcher.mu.Unlock()
	r = c.do("2", "shell_run", `{"command":"true"}`)
	assert.Equal(t, "start_failed", r.reason())
	assert.NotContains(t, r.Content[0].Text, "/home/someone")
	assert.Contains(t, fmt.Sprint(c.do("3", "session_status", `{}`).Structured["why"]), "started")
	w.launcher.mu.Lock()
	w.launcher.fail = nil
	w.launcher.mu.Unlock()
	assert.False(t, c.do("4", "shell_run", `{"command":"true"}`).IsError)
}

func TestCallsShareOneStartWhichOutlivesACancel(t *testing.T) {
	w := newWorld(t, nil)
	w.launcher.hold = make(chan struct{})
	c := dial(t, w.Edge)
	for i := range 10 {
		c.call(fmt.Sprint(i), "shell_run", `{"command":"true"}`)
	}
	require.Eventually(t, func() bool { return w.launcher.launches() == 1 }, patience, time.Millisecond)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
	close(w.launcher.hold)
	for i := 1; i < 10; i++ {
		assert.False(t, c.result(fmt.Sprint(i)).IsError)
	}
	assert.Equal(t, 1, w.launcher.launches())
}

func TestALostSandboxIsSaidWithinTwoSecondsAndAtOnceAfterwards(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "file_write", `{"path":"kept.txt","content":"precious"}`).session()
	c.call("1", "shell_run", `{"command":"sleep 77"}`)
	require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
	begun := time.Now()
	w.launcher.box(id).die()
	r := c.result("1")
	assert.Less(t, time.Since(begun), 2*time.Second)
	assert.Equal(t, "unavailable", r.code())
	assert.Equal(t, "sandbox_lost", r.reason())
	r = c.do("2", "shell_run", `{"command":"true"}`)
	assert.Equal(t, "sandbox_lost", r.reason())
	assert.Contains(t, r.Content[0].Text, id, "what was written is not given up")
	assert.Equal(t, "lost", c.do("3", "session_status", `{}`).Structured["state"])
	// The workspace goes on in a fresh sandbox, under the same handle.
	r = c.do("4", "session_open", fmt.Sprintf(`{"session":%q}`, id))
	require.False(t, r.IsError, r.Content)
	assert.Equal(t, true, r.Structured["resumed"])
	assert.Equal(t, "precious", c.do("5", "file_read", `{"path":"kept.txt"}`).Structured["text"])
	assert.Equal(t, id, w.launcher.launched[1].Resume)
}

func TestAnotherSessionTakesThePlaceOfALostOne(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("0", "shell_run", `{"command":"true"}`).session()
	w.launcher.box(id).die()
	require.Eventually(t, func() bool {
		return c.do(fmt.Sprintf("%d", time.Now().UnixNano()), "shell_run", `{"command":"true"}`).IsError
	}, patience, time.Millisecond)
	next := c.do("1", "session_open", `{}`)
	require.False(t, next.IsError)
	assert.Equal(t, next.session(), c.do("2", "shell_run", `{"command":"true"}`).session())
}

func TestUntouchedSessionsGoAndChangedOnesAreParked(t *testing.T) {
	for name, c := range map[string]struct {
		tool, args string
		kept       bool
	}{
		"nothing was run":        {"session_status", `{}`, false},
		"only reading":           {"file_list", `{}`, false},
		"a command left nothing": {"shell_run", `{"command":"true"}`, false},
		"a file was written":     {"shell_run", `{"command":"echo x > .hidden"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			client := dial(t, w.Edge)
			id := client.do("1", c.tool, c.args).session()
			require.NoError(t, client.in.Close())
			require.NoError(t, <-client.done)
			require.NoError(t, w.Close(t.Context()))
			infos, err := w.Sessions(t.Context())
			require.NoError(t, err)
			entries, err := os.ReadDir(w.launcher.root)
			require.NoError(t, err)
			assert.Equal(t, c.kept, w.kept(id))
			if c.kept {
				require.Len(t, infos, 1)
				assert.Equal(t, "parked", infos[0].State)
				assert.Len(t, entries, 1)
			} else {
				assert.Empty(t, infos)
				assert.Empty(t, entries, "nothing is left")
			}
			rep, err := audit.Verify(filepath.Join(w.state, "journals", id+".jsonl"))
			require.NoError(t, err)
			assert.True(t, rep.Ended)
			assert.Empty(t, rep.Open)
		})
	}
}

func TestAParkedSessionIsResumedByHandleAndByName(t *testing.T) { // C37
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	open := c.do("1", "session_open", `{"name":"work"}`)
	id := open.session()
	c.do("2", "file_write", fmt.Sprintf(`{"session":%q,"path":"a","content":"from before"}`, id))
	closed := c.do("3", "session_close", fmt.Sprintf(`{"session":%q,"keep":"workspace"}`, id))
	require.False(t, closed.IsError)
	assert.Equal(t, "workspace", closed.Structured["kept"])
	assert.NotEmpty(t, closed.Structured["until"])

	// Another server of the same user.
	next := newWorld(t, func(o *Options) { o.StateDir = w.state; o.Launcher = w.launcher })
	n := dial(t, next.Edge)
	assert.Contains(t, fmt.Sprint(n.do("1", "session_status", `{"all":true}`).Structured["sessions"]), id)
	byName := n.do("2", "session_open", `{"name":"work"}`)
	require.False(t, byName.IsError, byName.Content)
	assert.Equal(t, id, byName.session())
	assert.Equal(t, "from before", n.do("3", "file_read", fmt.Sprintf(`{"session":%q,"path":"a"}`, id)).Structured["text"])
	// While one server has it, no other gets it.
	r := c.do("4", "file_read", fmt.Sprintf(`{"session":%q,"path":"a"}`, id))
	assert.Equal(t, "failed_precondition", r.code())
	assert.Equal(t, "already_exists", n.do("5", "session_open", `{"name":"work"}`).code())
	n.do("6", "session_close", fmt.Sprintf(`{"session":%q,"keep":"workspace"}`, id))
	assert.Equal(t, "from before", c.do("7", "file_read", fmt.Sprintf(`{"session":%q,"path":"a"}`, id)).Structured["text"], "any call by its handle resumes it")
	c.do("8", "session_close", fmt.Sprintf(`{"session":%q}`, id))
	assert.False(t, w.kept(id))
	assert.Equal(t, "not_found", c.do("9", "file_read", fmt.Sprintf(`{"session":%q,"path":"a"}`, id)).code())
}

func TestParkedSessionsOfOthersAreUnknown(t *testing.T) { // A185
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "session_open", `{"name":"work"}`).session()
	c.do("2", "session_close", fmt.Sprintf(`{"session":%q,"keep":"workspace"}`, id))
	other := newWorld(t, func(o *Options) {
		o.StateDir, o.Launcher, o.Principal = w.state, w.launcher, policies.Principal{Kind: "local", Name: "uid:2"}
	})
	o := dial(t, other.Edge)
	assert.Equal(t, "not_found", o.do("1", "shell_run", fmt.Sprintf(`{"session":%q,"command":"true"}`, id)).code())
	assert.NotContains(t, fmt.Sprint(o.do("2", "session_status", `{"all":true}`).Structured["sessions"]), id)
}

func TestParkedSessionsEndWithTheirTime(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "file_write", `{"path":"a","content":"b"}`).session()
	c.do("2", "session_close", `{"keep":"workspace"}`)
	w.reapOnce(t.Context(), time.Now())
	require.True(t, w.kept(id))
	w.reapOnce(t.Context(), time.Now().Add(365*24*time.Hour))
	assert.False(t, w.kept(id))
	assert.Equal(t, []string{id}, w.launcher.discards)
}

func TestIdleSessionsAreParked(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Idle = time.Hour })
	s := newSite(t, w.Edge, nil)
	h := s.open(t)
	call := func(tool, args string) result {
		return toolResult(t, s.do(t, post{header: h, body: fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)}))
	}
	call("file_write", `{"path":"a","content":"b"}`)
	r := call("shell_run", `{"command":"sleep 77","background":true}`)
	require.False(t, r.IsError)
	id := r.session()
	state := func() string {
		infos, _ := w.Sessions(t.Context())
		for _, i := range infos {
			if i.ID == id {
				return i.State
			}
		}
		return "gone"
	}
	w.reapOnce(t.Context(), time.Now().Add(2*time.Hour))
	assert.Equal(t, "running", state(), "a command that runs is use")
	call("shell_kill", fmt.Sprintf(`{"process":%q}`, r.Structured["process"]))
	require.Eventually(t, func() bool { return alive(w, id) == 0 }, patience, 5*time.Millisecond)
	w.reapOnce(t.Context(), time.Now().Add(2*time.Hour))
	assert.Equal(t, "parked", state())
	r = call("file_list", fmt.Sprintf(`{"session":%q}`, id))
	assert.False(t, r.IsError, "and is back with the next call")
	w.reapOnce(t.Context(), time.Now().Add(48*time.Hour))
	assert.Equal(t, "parked", state(), "no session outlives its longest time")
}

func TestWhatSessionOpenRefuses(t *testing.T) {
	project := t.TempDir()
	inside := filepath.Join(project, "sub")
	require.NoError(t, os.Mkdir(inside, 0o700))
	link := filepath.Join(project, "out")
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, link))
	w := newWorld(t, func(o *Options) { o.Roots = []string{project} })
	c := dial(t, w.Edge)
	for i, x := range []struct{ args, code string }{
		{`{"workspace":{"mode":"bind","path":"/tmp"}}`, "failed_precondition"},
		{`{"workspace":{"mode":"overlay"}}`, "invalid_argument"},
		{`{"workspace":{"mode":"overlay","path":"relative"}}`, "invalid_argument"},
		{`{"workspace":{"mode":"overlay","path":"/"}}`, "permission_denied"},
		{`{"workspace":{"mode":"overlay","path":"` + outside + `"}}`, "permission_denied"},
		{`{"workspace":{"mode":"overlay","path":"` + link + `"}}`, "permission_denied"},
		{`{"workspace":{"mode":"overlay","path":"` + project + `/../` + filepath.Base(outside) + `"}}`, "permission_denied"},
		{`{"workspace":{"mode":"volume","path":"/tmp"}}`, "invalid_argument"},
		{`{"template":"no-such"}`, "not_found"},
		{`{"isolation":"none"}`, "invalid_argument"},
		{`{"template":"untrusted-code","isolation":"container"}`, "permission_denied"},
		{`{"name":"../../etc"}`, "invalid_argument"},
		{`{"session":"ses_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`, "not_found"},
		{`{"session":"../../etc/passwd"}`, "not_found"},
		{`{"from_snapshot":"x"}`, "invalid_argument"},
	} {
		r := c.do(fmt.Sprint(i), "session_open", x.args)
		assert.Equal(t, x.code, r.code(), "%s: %v", x.args, r.Content)
	}
	assert.Zero(t, w.launcher.launches())
	r := c.do("100", "session_open", `{"template":"project","workspace":{"mode":"overlay","path":"`+inside+`"}}`)
	require.False(t, r.IsError, r.Content)
	assert.Contains(t, r.Structured["workspace"], inside)
	assert.Contains(t, fmt.Sprint(r.Structured["limits"]), "the host counts none", "which limits do not hold is said")
	assert.NotEmpty(t, r.Structured["policy"])
}

func TestAnUnknownSessionNamesTheClosest(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "shell_run", `{"command":"true"}`).session()
	r := c.do("2", "shell_run", fmt.Sprintf(`{"session":%q,"command":"true"}`, id[:12]))
	assert.Equal(t, "not_found", r.code())
	assert.Contains(t, r.Content[0].Text, id)
	assert.Contains(t, r.Content[0].Text, "session_status")
	r = c.do("3", "shell_run", `{"session":"ses_zzz","command":"true"}`)
	assert.Equal(t, "not_found", r.code())
	assert.NotContains(t, r.Content[0].Text, id)
}

func TestSessionCloseEndsCallsAndSealsTheJournal(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "file_write", `{"path":"a","content":"b"}`).session()
	c.call("2", "shell_run", `{"command":"sleep 77"}`)
	require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
	r := c.do("3", "session_close", `{}`)
	require.False(t, r.IsError, r.Content)
	assert.Equal(t, "nothing", r.Structured["kept"])
	assert.EqualValues(t, 3, r.Structured["calls"])
	assert.Equal(t, "session_closed", c.result("2").reason())
	events := w.events(t, id)
	last := events[len(events)-2:]
	assert.Equal(t, audit.Outcome, last[0].Kind, "the call that closed it has its outcome")
	assert.Equal(t, "session_close", last[0].Tool)
	assert.Equal(t, audit.SessionEnd, last[1].Kind)
	assert.NoDirExists(t, w.launcher.box(id).dir)
	assert.Equal(t, "not_found", c.do("4", "session_close", `{}`).code())
	next := c.do("5", "shell_run", `{"command":"true"}`)
	assert.NotEqual(t, id, next.session(), "the next call opens another")
}

func TestStatusTellsWhatRuns(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.do("1", "shell_run", `{"command":"sleep 77","background":true}`)
	r := c.do("2", "session_status", `{"all":true}`)
	assert.Equal(t, "running", r.Structured["state"])
	assert.Contains(t, fmt.Sprint(r.Structured["processes"]), "sleep 77")
	assert.Contains(t, fmt.Sprint(r.Structured["ports"]), "8000")
	assert.Contains(t, fmt.Sprint(r.Structured["degraded"]), "pids")
	assert.Equal(t, "not started", r.Structured["chromium_sandbox"])
	assert.Contains(t, fmt.Sprint(r.Structured["sessions"]), r.session())
	assert.FileExists(t, r.Structured["journal"].(string))
}

func TestADroppedLegacyCallGoesOn(t *testing.T) { // A175
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	h := s.open(t)
	body := func(tool, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)
	}
	id := toolResult(t, s.do(t, post{header: h, body: body("shell_run", `{"command":"true"}`)})).session()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/mcp", strings.NewReader(body("shell_run", `{"command":"sleep 0.4; echo done > result"}`)))
		if err != nil {
			return
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + testToken}, "Mcp-Session-Id": {h["Mcp-Session-Id"]}}
		if resp, err := s.Client().Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
	cancel()
	<-gone
	assert.Equal(t, 1, alive(w, id), "the work goes on")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(w.launcher.box(id).dir, "result"))
		return err == nil
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		r := toolResult(t, s.do(t, post{header: h, body: body("session_status", `{}`)}))
		return strings.Contains(fmt.Sprint(r.Structured["calls"]), "dropped")
	}, patience, 10*time.Millisecond, "and is listed")
}

func TestLegacyCancelAndDeleteEndTheWork(t *testing.T) {
	for name, end := range map[string]post{
		"cancelled": {body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`},
		"deleted":   {method: "DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			s := newSite(t, w.Edge, nil)
			h, other := s.open(t), s.open(t)
			call := func(args string) post {
				return post{header: h, body: fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"shell_run","arguments":%s}}`, args)}
			}
			id := toolResult(t, s.do(t, call(`{"command":"true"}`))).session()
			ended := make(chan *http.Response, 1)
			go func() { ended <- s.do(t, call(`{"command":"sleep 77"}`)) }()
			require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
			foreign := end
			foreign.header = other
			s.do(t, foreign)
			assert.Equal(t, 1, alive(w, id), "another client's cancel does nothing")
			end.header = h
			s.do(t, end)
			r := <-ended
			assert.Equal(t, 200, r.StatusCode)
			assert.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
			assert.Empty(t, text(t, r), "an empty stream, which no client takes amiss")
			require.Eventually(t, func() bool { return alive(w, id) <= 0 }, patience, 5*time.Millisecond)
		})
	}
}

func TestClosingAModernStreamCancels(t *testing.T) { // A176
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	id := toolResult(t, s.do(t, modern("1", "session_open", `{}`))).session()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p := modern("1", "shell_run", fmt.Sprintf(`{"session":%q,"command":"sleep 77"}`, id))
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/mcp", strings.NewReader(p.body))
		if err != nil {
			return
		}
		for k, v := range p.header {
			r.Header.Set(k, v)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+testToken)
		if resp, err := s.Client().Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return alive(w, id) == 1 }, patience, 5*time.Millisecond)
	// Another client guesses the id; ids are 1, 2, 3.
	s.do(t, post{body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, header: map[string]string{"MCP-Protocol-Version": "2026-07-28"}})
	assert.Equal(t, 1, alive(w, id))
	cancel()
	<-gone
	require.Eventually(t, func() bool { return alive(w, id) == 0 }, patience, 5*time.Millisecond)
}

func TestSilentCallsAreKeptAlive(t *testing.T) { // C16
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, func(f *front) { f.silence = 50 * time.Millisecond })
	assert.Less(t, keepAlive, 10*time.Second)
	h := s.open(t)
	for name, p := range map[string]post{
		"legacy": {header: h, body: `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"sleep 0.3; echo ok"}}}`},
		"modern": modern("9007199254740993", "shell_run", `{"command":"sleep 0.3; echo ok"}`),
	} {
		t.Run(name, func(t *testing.T) {
			r := s.do(t, p)
			body := text(t, r)
			assert.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
			assert.GreaterOrEqual(t, strings.Count(body, ": keep-alive\n\n"), 2)
			assert.Equal(t, 1, strings.Count(body, `"result"`))
			assert.Contains(t, body, `"id":9007199254740993`)
			r.Body = io.NopCloser(strings.NewReader(body))
			assert.Contains(t, toolResult(t, r).Content[0].Text, "ok")
		})
	}
}

func TestProgressOverHTTPIsOnItsOwnStreamAndWhole(t *testing.T) { // A186
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	h := s.open(t)
	id := toolResult(t, s.do(t, post{header: h, body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"true"}}}`})).session()
	results := make(chan error, 16)
	for i := range 16 {
		go func() {
			args := fmt.Sprintf(`{"session":%q,"command":"for n in 1 2 3; do echo mark-%d-end; sleep 0.3; done"}`, id, i)
			p := post{header: h, body: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":%s,"_meta":{"progressToken":"t%d"}}}`, args, i)}
			if i%2 == 1 {
				p = modern("1", "shell_run", args)
				p.body = strings.Replace(p.body, `"progressToken":"t"`, fmt.Sprintf(`"progressToken":"t%d"`, i), 1)
			}
			all := messages(t, s.do(t, p))
			n := 0
			for k, m := range all {
				if m.Method == "" {
					if k != len(all)-1 {
						results <- fmt.Errorf("%d: something follows the answer", i)
						return
					}
					continue
				}
				n++
				// The first may come before the first line.
				if text := fmt.Sprint(m.Params["message"]); m.Params["progressToken"] != fmt.Sprintf("t%d", i) ||
					(strings.Contains(text, "mark-") && !strings.Contains(text, fmt.Sprintf("mark-%d-end", i))) {
					results <- fmt.Errorf("%d: got %v", i, m.Params)
					return
				}
			}
			if n == 0 {
				results <- fmt.Errorf("%d: no progress", i)
				return
			}
			results <- nil
		}()
	}
	for range 16 {
		assert.NoError(t, <-results)
	}
}

func TestAttachIsAShellThatIsJournaled(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	id := c.do("1", "shell_run", `{"command":"true"}`).session()
	in, typed := io.Pipe()
	var out syncBuffer
	type end struct {
		code int
		err  error
	}
	done := make(chan end, 1)
	t.Setenv("SHELL", "/bin/sh")
	go func() {
		code, err := w.Attach(t.Context(), id, sandbox.TermSize{Cols: 80, Rows: 24}, nil, struct {
			io.Reader
			io.Writer
		}{in, &out})
		done <- end{code, err}
	}()
	_, err := io.WriteString(typed, "echo he''llo\nexit 5\n")
	require.NoError(t, err)
	e := <-done
	require.NoError(t, e.err)
	assert.Equal(t, 5, e.code)
	assert.Contains(t, out.String(), "hello")
	_ = typed.Close()
	n := 0
	for _, e := range w.events(t, id) {
		if e.Kind == audit.Attach {
			n++
		}
	}
	assert.Equal(t, 2, n)
	_, err = w.Attach(t.Context(), "ses_none", sandbox.TermSize{}, nil, &bytes.Buffer{})
	require.Error(t, err)
}

func TestCloseKeepsToItsTime(t *testing.T) {
	w := newWorld(t, nil)
	c := dial(t, w.Edge)
	c.do("1", "shell_run", `{"command":"true"}`)
	id := c.do("2", "session_status", `{}`).session()
	box := w.launcher.box(id)
	box.mu.Lock() // its removal hangs, as that of a stuck engine
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	box.mu.Unlock()
}
