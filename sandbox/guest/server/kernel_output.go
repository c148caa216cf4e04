//go:build linux

package server

import (
	"encoding/json"
	"fmt"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

const (
	defaultShown  = 24_000 // characters of one answer
	maxOutputs    = 100    // outputs kept between two answers; the last error always is
	streamKept    = 96_000 // bytes kept of one text, half from each end
	laterKept     = 8_000  // and of those after the first fullOutputs, so that a run is bounded in all
	fullOutputs   = 10
	inlineImages  = 620_000 // bytes of pictures in one answer
	maxHeldImages = 4 << 20 // bytes of pictures held between two answers
)

// shown is one output; stream text grows in text.
type shown struct {
	sandbox.CodeOutput
	text    capped
	display string
}

// output adds one output, with mu held.
func (r *run) output(m kernelMessage) {
	if m.Type == "clear_output" {
		var c clearContent
		_ = json.Unmarshal(m.Content, &c)
		if r.clear = c.Wait; !c.Wait {
			r.outs, r.held = nil, 0
		}
		return
	}
	if r.clear {
		r.outs, r.held, r.clear = nil, 0, false
	}
	if m.cut > 0 {
		r.oversize(m)
		return
	}
	switch m.Type {
	case "stream":
		var c streamContent
		if json.Unmarshal(m.Content, &c) == nil {
			r.stream(c.Name, c.Text)
		}
	case "error":
		var c errorContent
		if json.Unmarshal(m.Content, &c) == nil {
			r.add(&shown{CodeOutput: sandbox.CodeOutput{Type: "error", Name: clipLine([]byte(c.Name), 0, 200), Text: traceback(c)}})
		}
	default:
		var c displayContent
		if json.Unmarshal(m.Content, &c) != nil {
			return
		}
		o := &shown{display: c.Transient.ID}
		if o.Type = "display"; m.Type == "execute_result" {
			o.Type = "result"
		}
		r.show(o, c.Data)
		if m.Type == "update_display_data" {
			for i, old := range r.outs {
				if o.display != "" && old.display == o.display {
					o.Type = old.Type
					r.held += len(o.Data) - len(old.Data)
					r.outs[i] = o
					return
				}
			}
		}
		r.add(o)
	}
}

func (r *run) stream(name, text string) {
	if name != "stderr" {
		name = "stdout"
	}
	if line := lastLineOf(text); line != "" {
		r.last = line
	}
	if n := len(r.outs); n == 0 || r.outs[n-1].Type != name {
		if !r.add(&shown{CodeOutput: sandbox.CodeOutput{Type: name}, text: capped{limit: r.room()}}) {
			return
		}
	}
	r.outs[len(r.outs)-1].text.add(text)
}

// room is how many bytes of the next text are kept.
func (r *run) room() int {
	if len(r.outs) >= fullOutputs {
		return laterKept
	}
	return streamKept
}

func (r *run) add(o *shown) bool {
	if len(r.outs) >= maxOutputs {
		if o.Type != "error" {
			r.dropped++
			return false
		}
		r.outs = r.outs[:maxOutputs-1]
		r.dropped++
	}
	r.held += len(o.Data)
	r.outs = append(r.outs, o)
	return true
}

// oversize stands for a message that was too large to take.
func (r *run) oversize(m kernelMessage) {
	size := int64(len(m.Content)) + m.cut
	o := &shown{CodeOutput: sandbox.CodeOutput{Type: "display", Truncated: true, Text: fmt.Sprintf("[an output of %d bytes was too large to take]", size)}}
	if m.Type == "error" {
		o.Type = "error"
	}
	if m.Type == "stream" {
		// Of {"name": "stdout", "text": "…"} both ends are there; the text in them is JSON's.
		half := len(m.Content) / 2
		head, end := string(m.Content[:half]), string(m.Content[half:])
		o.Type = "stdout"
		if strings.Contains(head[:min(half, 100)], "stderr") {
			o.Type = "stderr"
		}
		_, head, _ = strings.Cut(head, `"text": "`)
		_, end, _ = strings.Cut(end, `\n`)
		o.text.add(unquoted(head) + "\n" + o.Text + "\n" + unquoted(strings.TrimSuffix(end, `"}`)))
	}
	r.add(o)
}
