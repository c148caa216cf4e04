package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"pinfold.dev/pinfold/tools"
)

// Limits of one answer: hosts drop larger ones, or cut them without a word.
const (
	maxText       = 30_000  // characters of the text form
	maxStructured = 60_000  // characters of all strings in the structured form
	maxImage      = 700_000 // base64 bytes of one picture
	maxAnswer     = 900_000 // bytes of the whole message
	envelopeRoom  = 4_096   // what the message has beside content
)

// render makes the result of a call: structured content, a text form that
// suffices alone, and pictures.
func (c *call) render(out outcome) *mcp.CallToolResult {
	typed := tools.AsError(out.err, c.id)
	text := out.result.Text
	structured, has := object(out.result.Structured)
	if typed != nil {
		if !has {
			text = ""
		}
		head := fmt.Sprintf("Error %s: %s", typed.Code, typed.Message)
		if typed.Reason != "" {
			head = fmt.Sprintf("Error %s (%s): %s", typed.Code, typed.Reason, typed.Message)
		}
		if typed.Hint != "" {
			head += "\n" + typed.Hint
		}
		text = strings.TrimRight(head+"\n\n"+text, "\n")
		structured["error"] = mustMarshal(typed)
	}
	if id := c.sessionID(); id != "" && structured["session"] == nil {
		structured["session"] = mustMarshal(id)
	}
	text, cut := clipText(text)
	body, shrunk := shrink(structured)
	if (cut || shrunk) && structured["truncated"] == nil {
		structured["truncated"] = json.RawMessage("true")
		body = mustMarshal(structured)
	}
	content, dropped := pictures(out.result.Images, maxAnswer-envelopeRoom-jsonSize(text)-len(body))
	if dropped > 0 {
		text += fmt.Sprintf("\n[%d pictures are left out: the answer would be too large for clients. Read them from their files one at a time.]", dropped)
	}
	return &mcp.CallToolResult{IsError: typed != nil, StructuredContent: body,
		Content: append([]mcp.Content{mcp.NewTextContent(text)}, content...)}
}

// object is the JSON of an output as an object. has is false for what a
// failed handler left at its zero value.
func object(v any) (m map[string]json.RawMessage, has bool) {
	m = map[string]json.RawMessage{}
	if v == nil || reflect.ValueOf(v).IsZero() {
		return m, false
	}
	b, err := json.Marshal(v)
	if err != nil || json.Unmarshal(b, &m) != nil {
		return map[string]json.RawMessage{}, false
	}
	for k, v := range m {
		if string(v) == "null" { // a list that a failed handler did not come to; no schema takes it
			delete(m, k)
		}
	}
	return m, true
}

func mustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`{"code":"internal","message":"a detail could not be encoded","retryable":false}`)
	}
	return b
}

// clipText bounds the text form: the head and the tail stay.
func clipText(s string) (string, bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= maxText {
		return s, false
	}
	r := []rune(s)
	const room = 200
	head, tail := (maxText-room)*2/3, (maxText-room)/3
	return string(r[:head]) + fmt.Sprintf("\n[… %d characters are left out here; ask for less, or read on by offset or from the file …]\n", len(r)-head-tail) +
		string(r[len(r)-tail:]), true
}

// shrink bounds the strings of the structured form, the longest first. Tools
// bound their outputs themselves; this holds when one does not.
func shrink(m map[string]json.RawMessage) (json.RawMessage, bool) {
	body := mustMarshal(m)
	if len(body) <= maxStructured {
		return body, false
	}
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return body, false
	}
	var lengths []int
	total := 0
	walkStrings(v, func(s string) string {
		lengths = append(lengths, len(s))
		total += len(s)
		return s
	})
	if total <= maxStructured && len(body) <= maxAnswer/2 {
		return body, false
	}
	// The cap at which all strings together fit.
	slices.Sort(lengths)
	limit, left := 0, maxStructured
	for i, n := range lengths {
		if share := left / (len(lengths) - i); n > share {
			limit = max(share, 16)
			break
		}
		left -= n
		limit = n
	}
	cutAny := false
	walked := walkStrings(v, func(s string) string {
		if len(s) <= limit {
			return s
		}
		cutAny = true
		return strings.ToValidUTF8(s[:limit], "") + "…"
	})
	obj := walked.(map[string]any)
	for k := range m {
		m[k] = mustMarshal(obj[k])
	}
	body = mustMarshal(m)
	if len(body) > maxAnswer/2 { // an endless list: keep who and why
		for k := range m {
			if k != "session" && k != "error" && len(m[k]) > 1024 {
				delete(m, k)
			}
		}
		return mustMarshal(m), true
	}
	return body, cutAny
}

func walkStrings(v any, f func(string) string) any {
	switch t := v.(type) {
	case string:
		return f(t)
	case map[string]any:
		for k, e := range t {
			t[k] = walkStrings(e, f)
		}
	case []any:
		for i, e := range t {
			t[i] = walkStrings(e, f)
		}
	}
	return v
}

// pictures takes the images that fit; the first ones win.
func pictures(images []tools.Image, room int) (content []mcp.Content, dropped int) {
	for _, i := range images {
		n := base64.StdEncoding.EncodedLen(len(i.Data)) + 100
		if n > room || n > maxImage || (i.MediaType != "image/png" && i.MediaType != "image/jpeg") {
			dropped++
			continue
		}
		room -= n
		content = append(content, mcp.NewImageContent(base64.StdEncoding.EncodeToString(i.Data), i.MediaType))
	}
	return content, dropped
}

// jsonSize is how many bytes a text takes in a message.
func jsonSize(s string) int { return len(mustMarshal(s)) }
