package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMalformedLinesGetTheRightErrorAndTheNextMessageWorks(t *testing.T) { // A170, A171
	for name, c := range map[string]struct {
		line string
		code int
		id   string
	}{
		"broken JSON":              {`{"jsonrpc":"2.0","id":1,`, -32700, "null"},
		"two values on a line":     {`{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":2,"method":"ping"}`, -32700, "null"},
		"a byte order mark":        {"\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, -32700, "null"},
		"NaN":                      {`{"jsonrpc":"2.0","id":NaN,"method":"ping"}`, -32700, "null"},
		"a NUL byte":               {"{\"jsonrpc\":\"2.0\",\"id\":1,\x00\"method\":\"ping\"}", -32700, "null"},
		"invalid UTF-8":            {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700, "null"},
		"a batch":                  {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600, "null"},
		"a number":                 {`7`, -32600, "null"},
		"method given twice":       {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, -32600, "1"},
		"Method beside method":     {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`, -32600, "1"},
		"a key that folds":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","paramſ":{"name":"file_read"}}`, -32600, "1"},
		"name given twice":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_read","name":"file_write"}}`, -32602, "1"},
		"Arguments":                {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_read","Arguments":{}}}`, -32602, "1"},
		"null as id":               {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, "null"},
		"an object as id":          {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, "null"},
		"a fraction as id":         {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600, "null"},
		"another version":          {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600, "1"},
		"params that are a list":   {`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, -32602, "1"},
		"no method":                {`{"jsonrpc":"2.0","id":1}`, -32600, "1"},
		"an unknown method":        {`{"jsonrpc":"2.0","id":1,"method":"tools/dance"}`, -32601, "1"},
		"a tool that there is not": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no_tool","arguments":{}}}`, -32602, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := dial(t, newWorld(t, nil).Edge)
			w.send(`%s`, c.line)
			m := w.until("an error", func(m message) bool { return m.Error != nil })
			assert.Equal(t, c.code, m.Error.Code, m.Error.Message)
			assert.Equal(t, c.id, string(m.ID))
			w.send(`{"jsonrpc":"2.0","id":"next","method":"ping","unknown":{"x":1}}`)
			assert.Nil(t, w.answer(`"next"`).Error, "unknown fields are ignored, and the connection lives")
		})
	}
}

func TestBlankLinesAreIgnored(t *testing.T) {
	w := dial(t, newWorld(t, nil).Edge)
	w.send("\n\r\n   \n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	w.answer("1")
	assert.Len(t, w.all(), 1)
}

func TestALineWithoutEndIsRefusedAndMemoryIsBounded(t *testing.T) { // A169
	w := dial(t, newWorld(t, nil).Edge)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		_, err := w.in.Write(chunk)
		require.NoError(t, err)
	}
	w.send("")
	m := w.until("an error", func(m message) bool { return m.Error != nil })
	assert.Equal(t, -32600, m.Error.Code)
	assert.Contains(t, m.Error.Message, fmt.Sprint(maxLine))
	w.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	w.answer("1")
	assert.Len(t, w.all(), 2, "one error for the line, not one for each piece")
}

func TestIDsComeBackAsTheyWere(t *testing.T) {
	w := dial(t, newWorld(t, nil).Edge)
	for _, id := range []string{"9007199254740993", "-9223372036854775807", `"9007199254740993"`, `"a\"b"`, `""`, "0", "123456789012345678901234567890"} {
		w.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
		assert.Nil(t, w.answer(id).Error)
	}
}

func TestPipedInputIsAnsweredInFull(t *testing.T) {
	world := newWorld(t, nil)
	w := dial(t, world.Edge)
	w.call("1", "file_write", `{"path":"a.txt","content":"hello"}`)
	_, err := w.in.WriteString(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"file_read","arguments":{"path":"a.txt"}}}`) // no line end
	require.NoError(t, err)
	require.NoError(t, w.in.Close())
	assert.False(t, w.result("1").IsError)
	w.answer("2")
	assert.NoError(t, <-w.done)
}

func TestABrokenStdoutEndsTheServer(t *testing.T) { // A174
	world := newWorld(t, nil)
	w := dial(t, world.Edge)
	w.initialize()
	begun := time.Now()
	require.NoError(t, w.out.Close())
	select {
	case err := <-w.done:
		assert.ErrorContains(t, err, "broken pipe")
	case <-time.After(patience):
		t.Fatal("the server did not notice that its reader is gone")
	}
	assert.Less(t, time.Since(begun), 3*time.Second)
}

func TestTheToolListIsTheSameAtAllTimes(t *testing.T) { // A195
	list := func(w *wire, id string) string {
		w.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/list"}`, id)
		return string(w.answer(id).Result)
	}
	a := dial(t, newWorld(t, nil).Edge)
	first := list(a, "1")
	a.do("2", "session_status", `{}`)
	assert.Equal(t, first, list(a, "3"))
	assert.Equal(t, first, list(dial(t, newWorld(t, nil).Edge), "1"))
	var l struct {
		Tools []struct {
			Name, Title  string
			Annotations  map[string]bool
			OutputSchema json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(first), &l))
	require.NotEmpty(t, l.Tools)
	for _, tool := range l.Tools {
		assert.Len(t, tool.Annotations, 4, tool.Name)
		assert.NotEmpty(t, tool.Title, tool.Name)
		assert.NotEmpty(t, tool.OutputSchema, tool.Name)
	}
}

func TestInitializeStartsNothing(t *testing.T) {
	world := newWorld(t, nil)
	w := dial(t, world.Edge)
	w.initialize()
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	w.answer("1")
	assert.Zero(t, world.launcher.launches())
	assert.NoDirExists(t, world.journalDir(), "nothing was recorded, for nothing was done")
}

func TestAModernClientOnStdio(t *testing.T) {
	w := dial(t, newWorld(t, nil).Edge)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"2"}}`
	w.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{%s}}`, meta)
	assert.Contains(t, string(w.answer("1").Result), "2026-07-28")
	w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"file_write","arguments":{"path":"a","content":"b"},%s}}`, meta)
	first := w.result("2")
	require.False(t, first.IsError)
	w.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"file_read","arguments":{"path":"a"},%s}}`, meta)
	assert.Equal(t, first.session(), w.result("3").session(), "one default session for the process")
	assert.True(t, strings.HasPrefix(first.session(), "ses_"))
}
