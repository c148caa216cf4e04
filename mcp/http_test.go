package mcp

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testToken = "0123456789abcdef0123456789abcdef"

// site is a front on a real listener.
type site struct {
	*httptest.Server
	front *front
}

func newSite(t testing.TB, e *Edge, change func(*front)) *site {
	t.Helper()
	f, err := e.newFront(HTTPOptions{Token: testToken, SSE: true})
	require.NoError(t, err)
	if change != nil {
		change(f)
	}
	s := &site{httptest.NewServer(f), f}
	t.Cleanup(s.Close)
	return s
}

type post struct {
	method, path, body string
	header             map[string]string
	host               string
	token              string
	ctx                context.Context
	reader             io.Reader
}

func (s *site) do(t testing.TB, p post) *http.Response {
	t.Helper()
	if p.method == "" {
		p.method = http.MethodPost
	}
	if p.path == "" {
		p.path = "/mcp"
	}
	if p.ctx == nil {
		p.ctx = t.Context()
	}
	if p.reader == nil {
		p.reader = strings.NewReader(p.body)
	}
	r, err := http.NewRequestWithContext(p.ctx, p.method, s.URL+p.path, p.reader)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	switch p.token {
	case "":
		r.Header.Set("Authorization", "Bearer "+testToken)
	case "-":
	default:
		r.Header.Set("Authorization", p.token)
	}
	for k, v := range p.header {
		r.Header.Set(k, v)
	}
	if p.host != "" {
		r.Host = p.host
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func text(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

const initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// open initializes a legacy MCP session.
func (s *site) open(t testing.TB) map[string]string {
	t.Helper()
	r := s.do(t, post{body: initializeBody})
	require.Equal(t, http.StatusOK, r.StatusCode)
	id := r.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	return map[string]string{"Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25"}
}

// modern is the headers and the body of a stateless call.
func modern(id, tool, args string) post {
	return post{header: map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool},
		body: fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t"}}}`, id, tool, args)}
}

// messages reads an answer in either form.
func messages(t testing.TB, r *http.Response) []message {
	t.Helper()
	body := text(t, r)
	var out []message
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		var m message
		require.NoError(t, json.Unmarshal([]byte(body), &m), body)
		return []message{m}
	}
	for _, line := range strings.Split(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var m message
			require.NoError(t, json.Unmarshal([]byte(data), &m), body)
			out = append(out, m)
		}
	}
	return out
}

func toolResult(t testing.TB, r *http.Response) result {
	t.Helper()
	all := messages(t, r)
	require.NotEmpty(t, all)
	last := all[len(all)-1]
	require.Nil(t, last.Error, "%+v", last.Error)
	var res result
	require.NoError(t, json.Unmarshal(last.Result, &res))
	return res
}

func TestWhoMayCall(t *testing.T) { // A178, A181
	s := newSite(t, newWorld(t, nil).Edge, nil)
	own := strings.TrimPrefix(s.URL, "http://")
	for name, c := range map[string]struct {
		p    post
		want int
	}{
		"no origin":                {post{}, 200},
		"the server's own origin":  {post{header: map[string]string{"Origin": "http://" + own}}, 200},
		"a foreign origin":         {post{header: map[string]string{"Origin": "http://evil.test"}}, 403},
		"the origin null":          {post{header: map[string]string{"Origin": "null"}}, 403},
		"a name that looks local":  {post{header: map[string]string{"Origin": "http://localhost.evil.test"}}, 403},
		"another port":             {post{header: map[string]string{"Origin": "http://127.0.0.1:1"}}, 403},
		"https of the same":        {post{header: map[string]string{"Origin": "https://" + own}}, 403},
		"a foreign host":           {post{host: "evil.test"}, 403},
		"a rebound host":           {post{host: "evil.test:" + strings.Split(own, ":")[1]}, 403},
		"localhost.evil.test":      {post{host: "localhost.evil.test"}, 403},
		"localhost as host":        {post{host: "localhost:" + strings.Split(own, ":")[1]}, 200},
		"no token":                 {post{token: "-"}, 401},
		"a wrong token":            {post{token: "Bearer 0123456789abcdef0123456789abcdeX"}, 401},
		"a longer token":           {post{token: "Bearer " + testToken + "0"}, 401},
		"another scheme":           {post{token: "Basic " + testToken}, 401},
		"the token in the address": {post{token: "-", path: "/mcp?access_token=" + testToken}, 401},
		"origin before token":      {post{token: "-", header: map[string]string{"Origin": "http://evil.test"}}, 403},
		"sse with foreign origin":  {post{method: "GET", path: "/sse", header: map[string]string{"Origin": "http://evil.test"}}, 403},
		"sse without token":        {post{method: "GET", path: "/sse", token: "-"}, 401},
		"message without token":    {post{path: "/message?sessionId=x", token: "-"}, 401},
		"another path":             {post{path: "/etc"}, 404},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.body = initializeBody
			r := s.do(t, c.p)
			assert.Equal(t, c.want, r.StatusCode)
			if c.want == 401 {
				assert.Contains(t, r.Header.Get("WWW-Authenticate"), "Bearer")
			}
			assert.Empty(t, r.Header.Get("Access-Control-Allow-Origin"))
		})
	}
}

func TestNothingIsServedWithoutAToken(t *testing.T) {
	e := newWorld(t, nil).Edge
	_, err := e.Handler(HTTPOptions{})
	require.Error(t, err)
	_, err = e.Handler(HTTPOptions{Token: "short"})
	require.Error(t, err)
	h, err := e.Handler(HTTPOptions{NoAuth: true})
	require.NoError(t, err)
	// A connection of which it is not known that it is local.
	r := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(initializeBody))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, 401, w.Code)
	s := httptest.NewServer(h)
	defer s.Close()
	resp, err := s.Client().Post(s.URL+"/mcp", "application/json", strings.NewReader(initializeBody))
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 200, resp.StatusCode, "on loopback it may be switched off")
}

func TestListenOnLoopbackOnly(t *testing.T) { // A179
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "example.test:80", "nonsense"} {
		_, err := Listen(t.Context(), addr)
		assert.Error(t, err, addr)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Listen(t.Context(), l.Addr().String())
	assert.ErrorContains(t, err, "address already in use", "a taken port is said")
	l2, err := Listen(t.Context(), "localhost:0")
	require.NoError(t, err)
	l2.Close()
}

func TestWhatABodyMayBe(t *testing.T) { // A180, A191
	s := newSite(t, newWorld(t, nil).Edge, nil)
	impatient := newSite(t, newWorld(t, nil).Edge, func(f *front) { f.bodyFor = 200 * time.Millisecond })
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 10<<20))
	_ = z.Close()
	for name, c := range map[string]struct {
		p    post
		want int
	}{
		"plain text":       {post{body: initializeBody, header: map[string]string{"Content-Type": "text/plain"}}, 415},
		"a form":           {post{body: "a=b", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}, 415},
		"none":             {post{body: initializeBody, header: map[string]string{"Content-Type": ""}}, 415},
		"with a charset":   {post{body: initializeBody, header: map[string]string{"Content-Type": "application/json; charset=utf-8"}}, 200},
		"gzip":             {post{reader: &bomb, header: map[string]string{"Content-Encoding": "gzip"}}, 415},
		"too large":        {post{body: strings.Repeat(" ", maxBody+1)}, 413},
		"endless chunks":   {post{reader: io.LimitReader(zeros{}, 2*maxBody)}, 413},
		"slow":             {post{reader: &slowReader{}}, 408},
		"a get":            {post{method: "GET"}, 405},
		"a put":            {post{method: "PUT", body: initializeBody}, 405},
		"broken JSON":      {post{body: `{"jsonrpc"`}, 400},
		"a batch":          {post{body: `[` + initializeBody + `]`}, 400},
		"a doubled method": {post{body: `{"jsonrpc":"2.0","id":1,"method":"ping","method":"initialize"}`}, 400},
		"to a stream":      {post{path: "/message?sessionId=x", body: initializeBody}, 404},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			if name == "slow" {
				s = impatient
			}
			if strings.Contains(name, "endless") || strings.Contains(name, "slow") || strings.Contains(name, "large") {
				assert.Equal(t, c.want, s.rawStatus(t, c.p.reader, c.p.body))
				return
			}
			assert.Equal(t, c.want, s.do(t, c.p).StatusCode)
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// slowReader gives one byte, then nothing until the test is over.
type slowReader struct{ n int }

func (s *slowReader) Read(b []byte) (int, error) {
	if s.n++; s.n > 1 {
		time.Sleep(2 * time.Second)
		return 0, io.EOF
	}
	b[0] = '{'
	return 1, nil
}

// rawStatus posts over a bare connection and reads the status while it still
// writes, as the library's client does not.
func (s *site) rawStatus(t testing.TB, body io.Reader, text string) int {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	head := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer " + testToken + "\r\n"
	go func() {
		if body == nil {
			_, _ = io.WriteString(c, head+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text))
			return
		}
		_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
		buf := make([]byte, 64<<10)
		for {
			n, err := body.Read(buf)
			if n > 0 {
				if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", n, buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer r.Body.Close()
	return r.StatusCode
}

func TestLegacySessionIDs(t *testing.T) { // A185, C37, C38
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	a, b := s.open(t), s.open(t)
	assert.NotEqual(t, a["Mcp-Session-Id"], b["Mcp-Session-Id"])
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	assert.Equal(t, 200, s.do(t, post{body: list, header: a}).StatusCode)
	assert.Equal(t, 200, s.do(t, post{body: list, header: b}).StatusCode, "a second client's initialize evicts no one")
	assert.Equal(t, 400, s.do(t, post{body: list}).StatusCode, "without an id")
	assert.Equal(t, 404, s.do(t, post{body: list, header: map[string]string{"Mcp-Session-Id": "made-up"}}).StatusCode)
	assert.Equal(t, 204, s.do(t, post{method: "DELETE", header: a}).StatusCode)
	assert.Equal(t, 404, s.do(t, post{body: list, header: a}).StatusCode, "after its end")
	assert.Equal(t, 404, s.do(t, post{method: "DELETE", header: a}).StatusCode)
	assert.Equal(t, 200, s.do(t, post{body: list, header: b}).StatusCode)
	// Another server, as after a restart.
	again := newSite(t, newWorld(t, nil).Edge, nil)
	assert.Equal(t, 404, again.do(t, post{body: list, header: b}).StatusCode, "404 makes a client initialize anew")
}

func TestSessionIDsHaveNoPattern(t *testing.T) { // A185
	seen := map[string]bool{}
	for range 100_000 {
		id := newSessionID()
		require.False(t, seen[id])
		seen[id] = true
		require.Regexp(t, handleForm, id)
	}
}

func TestModernHeadersMustAgree(t *testing.T) { // A188, A189
	s := newSite(t, newWorld(t, nil).Edge, nil)
	good := modern("1", "session_status", `{}`)
	assert.Equal(t, 200, s.do(t, good).StatusCode)
	for name, header := range map[string]map[string]string{
		"another name":     {"Mcp-Name": "file_read"},
		"no name":          {"Mcp-Name": ""},
		"another method":   {"Mcp-Method": "tools/list"},
		"no method":        {"Mcp-Method": ""},
		"an older version": {"MCP-Protocol-Version": "2025-11-25"},
		"no version":       {"MCP-Protocol-Version": ""},
		"a base64 name":    {"Mcp-Name": "=?base64?ZmlsZV9yZWFk?="},
	} {
		t.Run(name, func(t *testing.T) {
			p := modern("1", "session_status", `{}`)
			for k, v := range header {
				p.header[k] = v
				if v == "" {
					delete(p.header, k)
				}
			}
			r := s.do(t, p)
			assert.Equal(t, 400, r.StatusCode)
			m := messages(t, r)
			require.Len(t, m, 1)
			require.NotNil(t, m[0].Error)
			assert.Equal(t, -32020, m[0].Error.Code, m[0].Error.Message)
		})
	}
	p := modern("1", "session_status", `{}`)
	p.header["MCP-Protocol-Version"] = "2027-01-01"
	p.body = strings.ReplaceAll(p.body, "2026-07-28", "2027-01-01")
	r := s.do(t, p)
	assert.Equal(t, 400, r.StatusCode)
	assert.Equal(t, -32022, messages(t, r)[0].Error.Code)
}

func TestModernNotificationsAreDropped(t *testing.T) {
	s := newSite(t, newWorld(t, nil).Edge, nil)
	r := s.do(t, post{body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		header: map[string]string{"MCP-Protocol-Version": "2026-07-28"}})
	assert.Equal(t, 202, r.StatusCode, "without _meta, as a client of the Go SDK sends it")
	assert.Empty(t, text(t, r))
}

func TestIDsComeBackAsTheyWereOverHTTP(t *testing.T) {
	s := newSite(t, newWorld(t, nil).Edge, nil)
	h := s.open(t)
	for _, id := range []string{"9007199254740993", "-9223372036854775807", `"id"`, "7"} {
		m := messages(t, s.do(t, post{body: `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`, header: h}))
		require.Len(t, m, 1)
		assert.Equal(t, id, string(m[0].ID))
		m = messages(t, s.do(t, modern(id, "session_status", `{}`)))
		assert.Equal(t, id, string(m[len(m)-1].ID))
	}
}

func TestSSEServesAndTellsItsEnd(t *testing.T) {
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, func(f *front) { f.silence = 50 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := s.do(t, post{method: "GET", path: "/sse", ctx: ctx})
	require.Equal(t, 200, r.StatusCode)
	assert.Empty(t, r.Header.Get("Access-Control-Allow-Origin"))
	in := bufio.NewReader(r.Body)
	next := func(prefix string) string {
		for {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest)
			}
		}
	}
	path := next("data: ")
	send := func(body string) {
		assert.Equal(t, 202, s.do(t, post{path: path, body: body}).StatusCode)
	}
	send(initializeBody)
	assert.Contains(t, next("data: "), `"id":1`)
	send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"file_write","arguments":{"path":"a","content":"b"}}}`)
	assert.Contains(t, next("data: "), `"id":2`)
	next(": keep-alive")
	infos, err := w.Sessions(t.Context())
	require.NoError(t, err)
	require.Len(t, infos, 1)
	cancel()
	require.Eventually(t, func() bool {
		infos, _ := w.Sessions(t.Context())
		return len(infos) == 1 && infos[0].State == "parked"
	}, patience, 10*time.Millisecond, "a client that left leaves its work parked")
}

func TestFiftyClientsDoNotCross(t *testing.T) { // A186
	w := newWorld(t, func(o *Options) { o.MaxSessions = 100 })
	s := newSite(t, w.Edge, nil)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			h := s.open(t)
			canary := fmt.Sprintf("canary-%d", i)
			call := func(tool, args string) result {
				return toolResult(t, s.do(t, post{header: h, body: fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"same"}}}`, tool, args)}))
			}
			assert.False(t, call("file_write", `{"path":"note","content":"`+canary+`"}`).IsError)
			r := call("file_read", `{"path":"note"}`)
			assert.Equal(t, canary, r.Structured["text"])
		})
	}
	wg.Wait()
}

func TestTooManySessionsAreRefused(t *testing.T) { // A193
	w := newWorld(t, func(o *Options) { o.MaxSessions = 3 })
	s := newSite(t, w.Edge, nil)
	for range 10 {
		s.do(t, post{body: initializeBody, token: "-"})
	}
	assert.Zero(t, w.launcher.launches(), "no token, no sandbox")
	var last result
	for i := range 5 {
		last = toolResult(t, s.do(t, modern(fmt.Sprint(i), "file_write", `{"path":"a","content":"b"}`)))
	}
	assert.Equal(t, "resource_exhausted", last.code())
	assert.Equal(t, "too_many_sessions", last.reason())
	assert.Equal(t, 3, w.launcher.launches())
}

func TestARefusedStatelessCallLeavesNoSession(t *testing.T) {
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	for i := range 40 {
		r := toolResult(t, s.do(t, modern(fmt.Sprint(i), "file_read", `{"path":7}`)))
		assert.Equal(t, "invalid_argument", r.code())
	}
	infos, err := w.Sessions(t.Context())
	require.NoError(t, err)
	assert.Empty(t, infos)
}

func TestTheTokenGoesNowhere(t *testing.T) { // A183
	w := newWorld(t, nil)
	s := newSite(t, w.Edge, nil)
	h := s.open(t)
	toolResult(t, s.do(t, post{header: h, body: `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"session_status","arguments":{}}}`}))
	assert.NotContains(t, w.log.String(), testToken)
}

func TestEachRevisionIsServed(t *testing.T) { // A189
	s := newSite(t, newWorld(t, nil).Edge, nil)
	for asked, got := range map[string]string{"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25", "1999-01-01": "2025-11-25"} {
		r := s.do(t, post{body: strings.Replace(initializeBody, "2025-11-25", asked, 1)})
		require.Equal(t, 200, r.StatusCode)
		id := r.Header.Get("Mcp-Session-Id")
		m := messages(t, r)
		assert.Contains(t, string(m[0].Result), `"protocolVersion":"`+got+`"`, asked)
		list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
		for _, header := range []string{"", got, "2025-11-25"} { // absent; negotiated; what some clients always send
			h := map[string]string{"Mcp-Session-Id": id}
			if header != "" {
				h["MCP-Protocol-Version"] = header
			}
			assert.Equal(t, 200, s.do(t, post{body: list, header: h}).StatusCode, "%s after %s", header, asked)
		}
		assert.Equal(t, 400, s.do(t, post{body: list, header: map[string]string{"Mcp-Session-Id": id, "MCP-Protocol-Version": "1999-01-01"}}).StatusCode)
	}
}
