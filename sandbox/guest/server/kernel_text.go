//go:build linux

package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// unquoted reads the inside of a JSON string that may be cut within an escape,
// or gives nothing.
func unquoted(s string) string {
	for range 12 { // an escape has at most twelve characters
		var out string
		if json.Unmarshal([]byte(`"`+s+`"`), &out) == nil {
			return out
		}
		s = s[:max(0, len(s)-1)]
	}
	return ""
}

func lastLineOf(text string) string {
	text = strings.TrimRight(text, "\r\n \t")
	return strings.TrimSpace(stripANSI(text[strings.LastIndexAny(text, "\r\n")+1:]))
}

// share cuts the longest texts until all of them fit.
func share(outs []*shown, most int) {
	total := 0
	var lengths []int
	for _, o := range outs {
		total += len(o.Text)
		lengths = append(lengths, len(o.Text))
	}
	if total <= most {
		return
	}
	slices.Sort(lengths)
	left, each := most, 0
	for i, n := range lengths {
		if each = left / (len(lengths) - i); n > each {
			break
		}
		left -= n
	}
	for _, o := range outs {
		if len(o.Text) > each {
			o.Text, o.Truncated = headTail(o.Text, max(each, 80)), true
		}
	}
}

// headTail keeps both ends of a text within about n bytes.
func headTail(s string, n int) string {
	keep := max(0, n-40)
	head := strings.ToValidUTF8(s[:keep/2], "")
	end := strings.ToValidUTF8(s[len(s)-keep/2:], "")
	return fmt.Sprintf("%s\n[… %d bytes omitted …]\n%s", head, len(s)-len(head)-len(end), end)
}

// capped is text of which both ends are kept. A carriage return takes back its
// line, as on a terminal: progress bars would fill it otherwise.
type capped struct {
	limit   int // streamKept when 0
	b       []byte
	cutAt   int // where the middle is missing
	omitted int64
	pending bool // the last line ends in a carriage return
}

func (c *capped) add(text string) {
	if c.pending || strings.Contains(text, "\r") {
		start := strings.LastIndexByte(string(c.b[c.cutAt:]), '\n') + 1 + c.cutAt
		text = string(c.b[start:]) + text
		c.b = c.b[:start]
		text = takeBack(text)
	}
	c.b = append(c.b, text...)
	c.pending = len(c.b) > 0 && c.b[len(c.b)-1] == '\r'
	limit := c.limit
	if limit == 0 {
		limit = streamKept
	}
	if len(c.b) > limit+limit/2 {
		if c.omitted == 0 {
			c.cutAt = limit / 2
		}
		from := len(c.b) - limit/2
		c.omitted += int64(from - c.cutAt)
		c.b = append(c.b[:c.cutAt], c.b[from:]...)
	}
}

// takeBack drops what a carriage return writes over.
func takeBack(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		body, end := strings.TrimRight(line, "\r\n"), ""
		switch {
		case strings.HasSuffix(line, "\n"):
			end = "\n"
		case len(body) < len(line):
			end = "\r" // what comes next writes over it
		}
		out.WriteString(body[strings.LastIndexByte(body, '\r')+1:])
		out.WriteString(end)
	}
	return out.String()
}

func (c *capped) String() string {
	if c.omitted == 0 {
		s, _ := validText(c.b)
		return stripANSI(strings.TrimSuffix(s, "\r"))
	}
	head, _ := validText([]byte(strings.ToValidUTF8(string(c.b[:c.cutAt]), "")))
	end, _ := validText([]byte(strings.ToValidUTF8(string(c.b[c.cutAt:]), "")))
	return stripANSI(fmt.Sprintf("%s\n[… %d bytes omitted …]\n%s", head, c.omitted, strings.TrimSuffix(end, "\r")))
}
