//go:build linux

package server

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"pinfold.dev/pinfold/sandbox"
)

// document is a text being edited. Everything that no edit touches stays byte
// for byte.
type document struct {
	text    []byte // UTF-8, or whatever bytes there are
	mark    []byte // byte-order mark, kept apart
	enc     string
	wideBOM bool
	crlf    bool // most lines end in CRLF
}

func openText(raw []byte, path string) (*document, error) {
	d := &document{text: raw, enc: sniff(raw[:min(len(raw), sniffBytes)], len(raw) <= sniffBytes)}
	switch d.enc {
	case encUTF8BOM:
		d.mark, d.text = raw[:len(utf8BOM)], raw[len(utf8BOM):]
	case encUTF16LE, encUTF16BE:
		text, bom, exact := decodeUTF16(raw, d.enc)
		if !exact {
			return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Use code_run to change its bytes.", "%s is broken UTF-16: an edit would change more than it says", path)
		}
		d.text, d.wideBOM = text, bom
	case encBinary:
		return nil, sandbox.Errorf(sandbox.FailedPrecondition, "Use shell_run or code_run to change its bytes.", "%s is not text", path)
	}
	var e endings
	e.add(d.text)
	d.crlf = e.crlf > e.lf
	return d, nil
}

func (d *document) bytes() []byte {
	if d.enc == encUTF16LE || d.enc == encUTF16BE {
		return encodeUTF16(d.text, d.enc, d.wideBOM)
	}
	return append(bytes.Clone(d.mark), d.text...)
}

// mismatch says why an edit does not apply; inEdit words it.
type mismatch struct {
	reason  string
	message string
	hint    string
	details map[string]any
}

func (m *mismatch) Error() string { return m.message }

// replace makes one edit and returns how often. It looks for the exact text,
// then for the same text with the file's line ends.
func (d *document) replace(e sandbox.Edit) (int, error) {
	want := e.Count
	if want == 0 {
		want = 1
	}
	switch {
	case e.Old == "":
		return 0, &mismatch{"empty_old", "old is empty.", "Give the text to replace; file_write makes files and appends.", map[string]any{}}
	case want < 0:
		return 0, &mismatch{"count", "count is negative.", "Give how often old occurs.", map[string]any{}}
	case e.Old == e.New:
		return 0, &mismatch{"same_text", fmt.Sprintf("old and new are the same (old occurs %d times).", bytes.Count(d.text, []byte(e.Old))), "There is nothing to do, or new is not what was meant.", map[string]any{"occurrences": bytes.Count(d.text, []byte(e.Old))}}
	}
	places := find(d.text, e.Old)
	if len(places) != want && strings.Contains(e.Old, "\n") {
		if loose := findLoose(d.text, e.Old); len(loose) > len(places) {
			places = loose
		}
	}
	switch {
	case len(places) == want:
	case len(places) == 0:
		return 0, nearest(d.text, e.Old)
	default:
		return 0, d.ambiguous(places, want)
	}
	var out []byte
	pos := 0
	for _, p := range places {
		out = append(out, d.text[pos:p[0]]...)
		out = append(out, d.fit(e.New, d.text[p[0]:p[1]])...)
		pos = p[1]
	}
	d.text = append(out, d.text[pos:]...)
	return len(places), nil
}

// fit gives the new text the line ends of the text it replaces, or where that
// has none, of the file.
func (d *document) fit(text string, old []byte) string {
	if !strings.Contains(text, "\n") || strings.Contains(text, "\r\n") {
		return text
	}
	crlf := d.crlf
	if i := bytes.IndexByte(old, '\n'); i >= 0 {
		crlf = i > 0 && old[i-1] == '\r'
	}
	if !crlf {
		return text
	}
	return strings.ReplaceAll(text, "\n", "\r\n")
}

// find returns where old occurs, as [start, end), without overlaps.
func find(text []byte, old string) [][2]int {
	var out [][2]int
	for pos := 0; ; {
		i := bytes.Index(text[pos:], []byte(old))
		if i < 0 {
			return out
		}
		out = append(out, [2]int{pos + i, pos + i + len(old)})
		pos += i + len(old)
	}
}

// findLoose finds old where line ends differ: both sides are compared with LF,
// and places are those of the real text.
func findLoose(text []byte, old string) [][2]int {
	if !bytes.Contains(text, []byte("\r\n")) && !strings.Contains(old, "\r\n") {
		return nil
	}
	flat := bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	places := find(flat, strings.ReplaceAll(old, "\r\n", "\n"))
	// One walk over the text maps flat offsets to real ones.
	next, real := 0, 0
	to := func(offset int) int {
		for next < offset {
			if text[real] == '\r' && real+1 < len(text) && text[real+1] == '\n' {
				real++
			}
			real++
			next++
		}
		return real
	}
	for i := range places {
		places[i] = [2]int{to(places[i][0]), to(places[i][1])}
	}
	return places
}

func (d *document) ambiguous(places [][2]int, want int) error {
	type spot struct {
		Line int    `json:"line"`
		Text string `json:"text"`
	}
	var spots []spot
	var lines []string
	line, pos := 1, 0
	for _, p := range places[:min(len(places), maxPlaces)] {
		line += bytes.Count(d.text[pos:p[0]], []byte{'\n'})
		pos = p[0]
		text := lineAt(d.text, p[0])
		spots = append(spots, spot{line, text})
		lines = append(lines, fmt.Sprintf("line %d: %s", line, text))
	}
	more := ""
	if len(places) > maxPlaces {
		more = fmt.Sprintf("\n… and %d more", len(places)-maxPlaces)
	}
	return &mismatch{"count", fmt.Sprintf("old occurs %d times, %d expected:\n%s%s\n", len(places), want, strings.Join(lines, "\n"), more),
		fmt.Sprintf("Put more of the lines around it into old, or set count to %d to replace all.", len(places)),
		map[string]any{"occurrences": len(places), "places": spots}}
}

// lineAt returns the line around an offset, shortened, as valid text.
func lineAt(text []byte, at int) string {
	start := bytes.LastIndexByte(text[:at], '\n') + 1
	end := len(text)
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		end = at + i
	}
	return clipLine(bytes.TrimRight(text[start:end], "\r"), at-start, 160)
}

// clipLine shortens a line to about limit bytes around an offset.
func clipLine(line []byte, at, limit int) string {
	if len(line) <= limit {
		s, _ := validText(line)
		return s
	}
	start := max(0, min(at-limit/4, len(line)-limit))
	end := min(len(line), start+limit)
	for start > 0 && !utf8.RuneStart(line[start]) {
		start--
	}
	for end < len(line) && !utf8.RuneStart(line[end]) {
		end++
	}
	s, _ := validText(line[start:end])
	if start > 0 {
		s = "…" + s
	}
	if end < len(line) {
		s += "…"
	}
	return s
}
