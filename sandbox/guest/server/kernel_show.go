//go:build linux

package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

const (
	tableType    = "application/vnd.pinfold.table+json" // see kernel_init.py
	maxTraceback = 8_000
)

// show picks what of an output's media types goes into the answer, richest
// first. What a model cannot look at goes to a file.
func (r *run) show(o *shown, data map[string]json.RawMessage) {
	plain := textOf(data["text/plain"])
	switch {
	case data[tableType] != nil:
		var t struct {
			Path       string
			Rows, Kept int
		}
		if json.Unmarshal([]byte(textOf(data[tableType])), &t) == nil && strings.HasPrefix(t.Path, r.kernel.k.out+"/") && len(t.Path) < 300 {
			o.Path, o.Rows, o.MediaType = encodeName(t.Path), t.Rows, "text/csv"
			if t.Kept < t.Rows {
				o.Truncated = true
			}
		}
		o.Text = bounded(plain, r.room(), &o.Truncated)
	case r.picture(o, data, "image/png"), r.picture(o, data, "image/jpeg"):
		o.Text = bounded(plain, r.room(), &o.Truncated)
	case data["image/svg+xml"] != nil:
		o.Path, o.MediaType, o.Text = r.save([]byte(textOf(data["image/svg+xml"])), "image/svg+xml"), "image/svg+xml", bounded(plain, r.room(), &o.Truncated)
	case data["text/markdown"] != nil:
		o.MediaType, o.Text = "text/markdown", bounded(textOf(data["text/markdown"]), r.room(), &o.Truncated)
	case data["application/json"] != nil:
		var b bytes.Buffer
		if json.Indent(&b, data["application/json"], "", " ") != nil {
			b.WriteString(plain)
		}
		o.MediaType, o.Text = "application/json", bounded(b.String(), r.room(), &o.Truncated)
	case data["text/html"] != nil:
		o.Path, o.MediaType, o.Text = r.save([]byte(textOf(data["text/html"])), "text/html"), "text/html", bounded(plain, r.room(), &o.Truncated)
	case data["application/pdf"] != nil:
		if b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(textOf(data["application/pdf"]), "\n", "")); err == nil {
			o.Path = r.save(b, "application/pdf")
		}
		o.MediaType, o.Text = "application/pdf", bounded(plain, r.room(), &o.Truncated)
	case data["text/latex"] != nil:
		o.MediaType, o.Text = "text/latex", bounded(textOf(data["text/latex"]), r.room(), &o.Truncated)
	default:
		o.Text = bounded(plain, r.room(), &o.Truncated)
	}
}

// textOf reads a value that is a string, a list of lines, or an object.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		return strings.Join(lines, "")
	}
	return string(raw)
}

func bounded(s string, most int, cut *bool) string {
	s = stripANSI(s)
	if len(s) > most {
		*cut = true
		return headTail(s, most)
	}
	return s
}

// picture takes a picture into the answer, made small enough. One that was
// larger is kept as it came in a file.
func (r *run) picture(o *shown, data map[string]json.RawMessage, mediaType string) bool {
	if data[mediaType] == nil {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(textOf(data[mediaType]), "\n", ""))
	if err != nil {
		return false
	}
	p, err := shrink(raw, mediaType)
	o.MediaType = mediaType
	if err != nil || r.held+len(p.data) > maxHeldImages {
		o.Path = r.save(raw, mediaType)
		return true
	}
	o.MediaType, o.Data = p.mediaType, p.data
	if len(p.data) != len(raw) {
		o.Path = r.save(raw, mediaType)
	}
	return true
}

var extensions = map[string]string{"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg", "text/html": "html", "application/pdf": "pdf"}

// save writes b to a file of its own, as the agent, and returns its path, or
// nothing when the disk is full: an output is not worth failing a run.
func (r *run) save(b []byte, mediaType string) string {
	r.files++
	path := fmt.Sprintf("%s/%s-%d.%s", r.kernel.k.out, r.handle, r.files, extensions[mediaType])
	if _, err := r.kernel.k.files.write(context.Background(), sandbox.WriteRequest{Path: path, CreateDirs: true}, bytes.NewReader(b)); err != nil {
		return ""
	}
	return path
}

// ansi are the escape sequences of terminals: CSI, OSC and two-character ones.
var ansi = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")

func stripANSI(s string) string {
	if !strings.Contains(s, "\x1b") {
		return s
	}
	return ansi.ReplaceAllString(s, "")
}

// traceback cleans what IPython made for a terminal; of a long one both ends
// are kept, where the call and the cause stand.
func traceback(c errorContent) string {
	text := stripANSI(strings.Join(c.Traceback, "\n"))
	if strings.TrimSpace(text) == "" {
		text = c.Name + ": " + c.Value
	}
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \r\n"); strings.Trim(line, "-") != "" || line == "" {
			out = append(out, line)
		}
	}
	text = strings.TrimSpace(strings.Join(out, "\n"))
	if len(text) > maxTraceback {
		text = headTail(text, maxTraceback)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
