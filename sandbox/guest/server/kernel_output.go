//go:build linux

package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// run is one execution and what it has shown since the last answer.
type run struct {
	handle  string
	kernel  *kernel
	id      string // of the request
	began   time.Time
	replied chan struct{}
	once    sync.Once // closes replied
	done    chan struct{}

	mu       sync.Mutex
	status   string // running, then how it ended
	reason   string
	stopping string // how it will have ended: timed_out, interrupted
	ended    time.Time
	timer    *time.Timer
	idle     bool
	reply    string
	count    int
	fresh    bool
	note     string
	outs     []*shown
	dropped  int
	clear    bool // before the next output
	held     int  // bytes of pictures
	files    int
	last     string // last line printed
}

// shown is one output; stream text grows in text.
type shown struct {
	sandbox.CodeOutput
	text    capped
	display string
}

func newRun(kn *kernel, handle string) *run {
	return &run{handle: handle, kernel: kn, began: time.Now(), status: "running", replied: make(chan struct{}), done: make(chan struct{})}
}

// limit interrupts the run after d, and ends the kernel if that does not help.
func (r *run) limit(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		r.timer = time.AfterFunc(d, func() { r.stop("timed_out") })
	}
}

// stop interrupts the run; a kernel that does not react is ended.
func (r *run) stop(why string) {
	r.mu.Lock()
	over := !r.ended.IsZero()
	if r.stopping == "" {
		r.stopping = why
	}
	r.mu.Unlock()
	if over {
		return
	}
	r.kernel.interrupt()
	r.kernel.k.wg.Go(func() {
		select {
		case <-r.done:
		case <-time.After(interruptGrace):
			r.kernel.fail("it did not react to an interrupt and was ended")
		}
	})
}

// end ends the run once and gives the kernel's turn on.
func (r *run) end(status, reason string) {
	r.mu.Lock()
	if !r.ended.IsZero() {
		r.mu.Unlock()
		return
	}
	r.ended, r.status, r.reason = time.Now(), status, reason
	if r.stopping != "" {
		r.status = r.stopping
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.markReplied()
	close(r.done)
	if r.handle != "" {
		r.kernel.turn <- struct{}{}
	}
}

func (r *run) markReplied() { r.once.Do(func() { close(r.replied) }) }

func (r *run) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		return time.Since(r.began)
	}
	return r.ended.Sub(r.began)
}

func (r *run) lastLine() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clipLine([]byte(r.last), 0, 200)
}

// take takes one message of the run and reports whether it was the last.
func (r *run) take(m kernelMessage) bool {
	switch m.Type {
	case "execute_reply":
		var c replyContent
		_ = json.Unmarshal(m.Content, &c)
		r.mu.Lock()
		r.reply, r.count = c.Status, c.Count
		r.mu.Unlock()
		r.markReplied()
		return r.maybeEnd()
	case "status":
		var c stateContent
		_ = json.Unmarshal(m.Content, &c)
		r.mu.Lock()
		r.idle = r.idle || c.State == "idle"
		r.mu.Unlock()
		return r.maybeEnd()
	case "stream", "display_data", "execute_result", "update_display_data", "error", "clear_output":
		r.mu.Lock()
		defer r.mu.Unlock()
		r.output(m)
	}
	return false
}

func (r *run) maybeEnd() bool {
	r.mu.Lock()
	over, status := r.idle && r.reply != "", r.reply
	r.mu.Unlock()
	if !over {
		return false
	}
	switch status {
	case "ok", "error":
	case "aborted", "abort":
		status = "interrupted"
	default:
		status = "error"
	}
	r.end(status, "")
	return true
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

// result gives what came since the last answer, within most characters.
func (r *run) result(most int) sandbox.CodeResult {
	if most <= 0 || most > 200_000 {
		most = defaultShown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res := sandbox.CodeResult{Run: r.handle, Context: r.kernel.context, Language: "python", Status: r.status, Outputs: []sandbox.CodeOutput{}, Execution: r.count}
	end := r.ended
	if end.IsZero() {
		end = time.Now()
	}
	res.DurationMS = end.Sub(r.began).Milliseconds()
	if r.note != "" {
		res.Notes = append(res.Notes, r.note)
	}
	select {
	case <-r.kernel.dead:
		res.Kernel = "dead"
		res.Notes = append(res.Notes, "The kernel has ended: "+r.kernel.reason+". Its variables are gone; the next run starts a fresh one.")
	default:
		switch {
		case res.Status == "running":
			res.Kernel = "busy"
		case r.fresh:
			res.Kernel = "restarted"
		default:
			res.Kernel = "idle"
		}
	}
	if r.dropped > 0 {
		res.Notes = append(res.Notes, strconv.Itoa(r.dropped)+" more outputs were dropped.")
		res.Truncated = true
	}
	pictures := 0
	for _, o := range r.outs {
		if o.Type == "stdout" || o.Type == "stderr" {
			o.Text, o.Truncated = o.text.String(), o.Truncated || o.text.omitted > 0
		}
		if len(o.Data) > 0 {
			if pictures += len(o.Data); pictures > inlineImages {
				pictures -= len(o.Data)
				if o.Path == "" {
					o.Path = r.save(o.Data, o.MediaType)
				}
				o.Data = nil
				o.Text = strings.TrimSpace(o.Text + " (not shown: the answer holds enough pictures)")
			}
		}
	}
	share(r.outs, most)
	for _, o := range r.outs {
		res.Truncated = res.Truncated || o.Truncated
		res.Outputs = append(res.Outputs, o.CodeOutput)
	}
	r.outs, r.dropped, r.held = nil, 0, 0
	return res
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
