package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SnapshotRequest asks what is on the page.
type SnapshotRequest struct {
	Tab      string
	Mode     string // compact, full, interactive; default compact
	On       string // only what is in this target
	Depth    int    // at most so many levels; 0: all
	Diff     bool   // only what changed since the last snapshot that was seen
	Cursor   string // go on where a snapshot was cut
	Boxes    bool
	MaxChars int
	OnDialog json.RawMessage
	Timeout  time.Duration
}

// SnapshotText is a page as text.
type SnapshotText struct {
	Text   string // fenced; page text is data
	Shown  int    // lines shown
	Total  int    // lines there are
	Frames int
	Cursor string // for the rest, when something was left out
	Saved  string // file in the sandbox with the full text, when something was left out
	Diff   bool   // Text lists changes only
	Notes  []string
}

// SnapshotResult is the answer to a SnapshotRequest.
type SnapshotResult struct {
	Reply
	Snapshot SnapshotText
}

const (
	// DefaultMaxChars is the budget of a snapshot that names none.
	DefaultMaxChars = 12_000
	// MinMaxChars is the smallest budget.
	MinMaxChars = 500
	// MaxMaxChars keeps one result below what clients take.
	MaxMaxChars = 25_000
	// DefaultSnapshotTimeout is used when a request has none.
	DefaultSnapshotTimeout = 20 * time.Second

	keepSaved = 20 // files under /session/browser
)

// shown is what the caller last saw of a tab.
type shown struct {
	seq    int
	loader string
	lines  []line
	seen   []bool
}

// Snapshot tells what is on the page.
func (b *Browser) Snapshot(ctx context.Context, r SnapshotRequest) (SnapshotResult, error) {
	var out SnapshotResult
	answer, err := parseAnswer(r.OnDialog)
	if err != nil {
		return out, err
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultSnapshotTimeout
	}
	if r.Cursor != "" && (r.On != "" || r.Diff || r.Depth > 0) {
		return out, fail("unsupported_arg", "Give cursor alone, with max_chars at most.", "cursor goes on with an earlier snapshot and takes no other argument")
	}
	if r.Diff && r.On != "" {
		return out, fail("unsupported_arg", "Give one of the two.", "diff is of the whole page and takes no on")
	}
	err = b.on(ctx, common{tab: r.Tab, timeout: r.Timeout, answer: answer}, &out.Reply, func(o *op) error {
		if r.Cursor != "" {
			out.Snapshot, err = o.goOn(r.Cursor, r.MaxChars)
			return err
		}
		if err := o.settleBriefly(); err != nil {
			return err
		}
		out.Snapshot, err = o.snapshot(snapOptions{mode: r.Mode, on: r.On, depth: r.Depth, diff: r.Diff, boxes: r.Boxes, max: r.MaxChars})
		return err
	})
	return out, err
}

// settleBriefly waits for a document that is still being read: right after a
// reload the tree can be a single node.
func (o *op) settleBriefly() error {
	o.t.mu.Lock()
	d := o.t.docs[o.t.loader]
	reading := d != nil && !d.load
	o.t.mu.Unlock()
	if reading {
		return o.settle(settleNavigation)
	}
	return nil
}

type snapOptions struct {
	mode  string
	on    string
	depth int
	diff  bool
	boxes bool
	max   int
}

func (s *snapOptions) fill() {
	if s.mode == "" {
		s.mode = "compact"
	}
	if s.max <= 0 {
		s.max = DefaultMaxChars
	}
	s.max = min(max(s.max, MinMaxChars), MaxMaxChars)
}

// snapshot looks at the page and renders it within the budget.
func (o *op) snapshot(s snapOptions) (SnapshotText, error) {
	s.fill()
	var out SnapshotText
	var want *refKey
	p, err := o.look()
	if err != nil {
		return out, err
	}
	root, built := o.build(p)
	if s.on != "" {
		hit, err := o.locate(s.on, p, root)
		if err != nil {
			return out, err
		}
		want = &hit.key
	}
	o.overlay(p, root)
	kids := root.kids
	if want != nil {
		if sub := findNode(root.kids, *want); sub != nil {
			kids = []*node{sub}
		} else if kids = inside(p, root, *want); len(kids) == 0 {
			return out, fail("not_found", "Name a part that shows something.", "there is nothing to read in %s", quote(cut(cleanText(s.on), 60)))
		}
	}
	r := &renderer{mode: s.mode, boxes: s.boxes, depth: s.depth}
	r.render(kids, 0, -1, false)
	out.Frames, out.Total, out.Notes = len(p.frames), len(r.lines), p.notes
	for _, f := range p.more {
		if len(out.Notes) < 6 {
			out.Notes = append(out.Notes, "not read, more than 20 frames: "+cut(shortURL(f.URL, ""), 80))
		}
	}
	if built.hidden > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("hidden text left out: %d", built.hidden))
	}
	if r.hidden > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d nodes lie deeper", r.hidden))
	}
	before := o.t.shown
	whole := want == nil && s.depth == 0
	now := &shown{loader: p.frames[0].LoaderID, lines: r.lines, seq: 1}
	if before != nil {
		now.seq = before.seq + 1
	}
	if s.diff && whole && before != nil && before.loader == now.loader {
		if text, ok := changes(before.lines, r.lines, s.max-fenceLen); ok {
			out.Text, out.Diff = wrapPage(token(), text), true
			now.seen = make([]bool, len(r.lines))
			o.t.shown = now
			o.saw(r.lines, nil)
			return out, nil
		}
	}
	now.seen = choose(r.lines, s.max-fenceLen)
	for _, ok := range now.seen {
		if ok {
			out.Shown++
		}
	}
	o.saw(r.lines, now.seen)
	out.Text = wrapPage(token(), assemble(r.lines, now.seen, func(i int) string { return o.container(r.lines, i) }))
	if whole || o.t.shown == nil {
		o.t.shown = now
	} else {
		keep := *before
		keep.seq = now.seq
		if out.Shown < len(r.lines) {
			keep = *now // the cursor belongs to what was cut last
		}
		o.t.shown = &keep
	}
	if out.Shown < len(r.lines) {
		out.Cursor = fmt.Sprintf("c%d.0", now.seq)
	}
	if out.Shown < len(r.lines) || wasCut(r.lines) {
		out.Saved = o.save(r.lines)
	}
	return out, nil
}

// saw refreshes the fingerprints of what the caller sees; nil: of everything.
func (o *op) saw(lines []line, seen []bool) {
	for i, l := range lines {
		if l.node == nil || seen != nil && !seen[i] {
			continue
		}
		o.t.refs.saw(l.node)
		if l.whole {
			var walk func(ks []*node)
			walk = func(ks []*node) {
				for _, k := range ks {
					o.t.refs.saw(k)
					walk(k.kids)
				}
			}
			walk(l.node.kids)
		}
	}
}

// fenceLen is what the lines around page text take.
const fenceLen = 64

func wasCut(lines []line) bool {
	for i := range lines {
		if lines[i].full != "" {
			return true
		}
	}
	return false
}

// container returns a ref for the line that holds left-out lines.
func (o *op) container(lines []line, i int) string {
	for ; i >= 0; i = lines[i].parent {
		if lines[i].ref != "" && lines[i].node != nil && lines[i].ref == lines[i].node.ref {
			return lines[i].ref
		}
		if n := lines[i].node; n != nil && n.key.backend != 0 {
			ref := o.t.refs.assign(n.key, n.role, n.name, false)
			n.ref = ref
			return ref
		}
	}
	return ""
}

// goOn lists what a snapshot left out, from a line on.
func (o *op) goOn(cursor string, max int) (SnapshotText, error) {
	s := snapOptions{max: max}
	s.fill()
	var out SnapshotText
	seqText, fromText, ok := strings.Cut(strings.TrimPrefix(cursor, "c"), ".")
	seq, err1 := strconv.Atoi(seqText)
	from, err2 := strconv.Atoi(fromText)
	if !ok || err1 != nil || err2 != nil || from < 0 {
		return out, fail("bad_value", "Use the cursor of the last snapshot.", "cursor: %s is none", quote(cut(cleanText(cursor), 30))).with("field", "cursor")
	}
	last := o.t.shown
	if last == nil || last.seq != seq {
		return out, fail("stale_ref", "Take a new browser_snapshot.", "the cursor belongs to an older snapshot")
	}
	var text strings.Builder
	used, next := 0, len(last.lines)
	for i := from; i < len(last.lines); i++ {
		if last.seen[i] {
			continue
		}
		l := last.lines[i].indent()
		if n := runes(l) + 1; used+n > s.max-fenceLen {
			if used == 0 { // one line alone is above the budget
				l = cut(l, s.max-fenceLen-20)
				text.WriteString(l + "\n")
				out.Shown++
				i++
			}
			next = i
			break
		} else {
			used += n
		}
		text.WriteString(l + "\n")
		out.Shown++
	}
	out.Total = len(last.lines)
	if next < len(last.lines) {
		out.Cursor = fmt.Sprintf("c%d.%d", seq, next)
	}
	out.Text = wrapPage(token(), text.String())
	return out, nil
}

// save keeps the full text in the sandbox.
func (o *op) save(lines []line) string {
	var text strings.Builder
	for _, l := range lines {
		if l.full != "" {
			l.text = l.full
		}
		text.WriteString(l.indent() + "\n")
		if text.Len() > 2<<20 {
			text.WriteString("(cut here: the page is larger than 2 MB of text)\n")
			break
		}
	}
	path, err := o.b.host.Save(o.ctx, o.b.fileName("snapshot", "txt"), []byte(text.String()))
	if err != nil {
		o.b.opts.Logf("browser: saving a snapshot: %v", err)
		return ""
	}
	return path
}

// fileName numbers saved files so that only the last ones are kept.
func (b *Browser) fileName(kind, ext string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved++
	return fmt.Sprintf("%s-%02d.%s", kind, b.saved%keepSaved, ext)
}

// Footer says what was left out and how to get it.
func (s SnapshotText) Footer() string {
	var parts []string
	if s.Diff {
		parts = append(parts, "changes since the last snapshot; all other refs stay valid")
	} else if s.Shown < s.Total {
		parts = append(parts, fmt.Sprintf("shown %d of %d lines", s.Shown, s.Total))
	}
	if s.Frames > 1 {
		parts = append(parts, fmt.Sprintf("%d frames", s.Frames))
	}
	parts = append(parts, s.Notes...)
	if s.Cursor != "" {
		parts = append(parts, fmt.Sprintf("rest: browser_snapshot cursor=%q", s.Cursor))
	}
	if s.Saved != "" {
		parts = append(parts, "full text: "+s.Saved)
	}
	return strings.Join(parts, "; ")
}
