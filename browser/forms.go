package browser

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// fieldState is what a form control says of itself.
type fieldState struct {
	Tag, Kind          string
	Editable, ReadOnly bool
	Value              string
	Multiple, Native   bool
}

func (o *op) field(h *hit) (fieldState, error) {
	var raw map[string]any
	err := o.callIn(h.key.backend, h.key.frame, `function() {
		const el = this.nodeType === 1 ? this : this.parentElement;
		const kind = el.tagName === 'INPUT' ? el.type : '';
		return { tag: el.tagName, kind, editable: el.isContentEditable, readonly: !!el.readOnly,
			value: el.isContentEditable ? el.innerText : ('value' in el ? String(el.value) : ''), multiple: !!el.multiple };
	}`, nil, &raw)
	var s fieldState
	s.Tag, _ = raw["tag"].(string)
	s.Kind, _ = raw["kind"].(string)
	s.Editable, _ = raw["editable"].(bool)
	s.ReadOnly, _ = raw["readonly"].(bool)
	s.Value, _ = raw["value"].(string)
	s.Multiple, _ = raw["multiple"].(bool)
	return s, err
}

// setters are inputs in which typing does not give the value: they are set
// through the language's own setter, so that frameworks notice.
var setters = set("date", "time", "datetime-local", "month", "week", "color", "range")

// typed are the inputs that take text.
var typedInputs = set("text", "search", "email", "url", "tel", "password", "number", "")

func (o *op) fillStep(s Step, h *hit, limit time.Duration) (string, error) {
	f, err := o.field(h)
	if err != nil {
		return "", err
	}
	switch {
	case f.Tag == "SELECT":
		return "", fail("wrong_element", "Use select with values.", "%s is a list", h)
	case f.Kind == "checkbox" || f.Kind == "radio":
		return "", fail("wrong_element", "Use check.", "%s is a %s", h, f.Kind)
	case f.Kind == "file":
		return "", fail("wrong_element", "Use upload with files.", "%s takes files", h)
	case f.ReadOnly:
		return "", fail("disabled", "It cannot be typed in; look for what sets it.", "%s is read-only", h)
	case !f.Editable && f.Tag != "TEXTAREA" && !(f.Tag == "INPUT" && (typedInputs[f.Kind] || setters[f.Kind])):
		return "", fail("wrong_element", "Use a textbox from the snapshot.", "%s takes no text", h)
	}
	a, err := o.aimAt(h, nil, s.Force, limit)
	if err != nil {
		return "", err
	}
	if setters[f.Kind] {
		err = o.setValue(h, *s.Text)
	} else {
		err = o.replace(h, f, a, *s.Text)
	}
	if err != nil {
		return h.String(), err
	}
	line := h.String()
	if s.Submit {
		c, _ := parseChord("Enter")
		if err := o.press(c, 0); err != nil {
			return line, err
		}
		return line + ", filled and submitted", nil
	}
	return line + o.readBack(h, *s.Text, f.Kind == "password"), nil
}

// readBack compares what a field holds with what was meant: masks and
// formatters change it, and the caller must know.
func (o *op) readBack(h *hit, want string, secret bool) string {
	f, err := o.field(h)
	switch {
	case err != nil:
		return ", filled; it is gone now"
	case secret:
		return fmt.Sprintf(" = (%d characters)", len([]rune(f.Value)))
	case strings.TrimRight(f.Value, "\n") == strings.TrimRight(want, "\n"):
		return " = " + quote(cut(cleanText(f.Value), 80))
	}
	return fmt.Sprintf(" = %s, which is not the text given (%s): the page changed it", quote(cut(cleanText(f.Value), 80)), quote(cut(cleanText(want), 80)))
}

// replace selects everything in a field and types over it, as trusted input.
func (o *op) replace(h *hit, f fieldState, a aim, text string) error {
	if f.Editable {
		if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
			return err
		}
	}
	err := o.callIn(h.key.backend, h.key.frame, `function() {
		const el = this.nodeType === 1 ? this : this.parentElement;
		el.focus({ preventScroll: true });
		if (el.isContentEditable) {
			let root = el;
			while (root.parentElement && root.parentElement.isContentEditable) root = root.parentElement;
			const s = getSelection(), r = document.createRange(); r.selectNodeContents(root); s.removeAllRanges(); s.addRange(r);
		} else el.select();
	}`, nil, nil)
	if err != nil {
		return err
	}
	if text == "" {
		if f.Value == "" {
			return nil
		}
		c, _ := parseChord("Delete")
		return o.press(c, 0)
	}
	return o.call("Input.insertText", map[string]any{"text": text}, nil)
}

func (o *op) setValue(h *hit, text string) error {
	return o.callIn(h.key.backend, h.key.frame, `function(text) {
		this.focus({ preventScroll: true });
		Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(this, text);
		this.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
		this.dispatchEvent(new Event('change', { bubbles: true }));
	}`, []any{text}, nil)
}

// typeStep sends key by key at the caret.
func (o *op) typeStep(s Step, h *hit, limit time.Duration) (string, error) {
	line := "at the caret"
	if h != nil && s.On != "" {
		line = h.String()
		var focused bool
		if err := o.callIn(h.key.backend, h.key.frame, `function() { return this.getRootNode().activeElement === this }`, nil, &focused); err != nil {
			return "", err
		}
		if !focused {
			a, err := o.aimAt(h, nil, s.Force, limit)
			if err != nil {
				return "", err
			}
			if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
				return line, err
			}
		}
	}
	if len([]rune(*s.Text)) > 2000 {
		return "", fail("bad_value", "Use fill for long text.", "text: more than 2000 characters to type").with("field", "text")
	}
	for _, r := range *s.Text {
		k := keyOf(r)
		switch r {
		case '\n':
			k = namedKeys["enter"]
		case '\t':
			k = namedKeys["tab"]
		}
		if k.code == "" { // not on a keyboard
			if err := o.call("Input.insertText", map[string]any{"text": string(r)}, nil); err != nil {
				return line, err
			}
		} else {
			c := chord{key: k}
			if r >= 'A' && r <= 'Z' {
				c.modifiers = modShift
			}
			if err := o.press(c, 0); err != nil {
				return line, err
			}
		}
		if s.DelayMS > 0 {
			if err := o.sleep(time.Duration(s.DelayMS) * time.Millisecond); err != nil {
				return line, err
			}
		}
	}
	if h == nil || s.On == "" {
		return line, nil
	}
	f, err := o.field(h)
	if err != nil {
		return line, nil
	}
	if f.Kind == "password" {
		return line + fmt.Sprintf(" = (%d characters)", len([]rune(f.Value))), nil
	}
	return line + " = " + quote(cut(cleanText(f.Value), 80)), nil
}

// selectStep chooses in a native list, or opens an ARIA list and clicks.
func (o *op) selectStep(s Step, h *hit, limit time.Duration) (string, error) {
	f, err := o.field(h)
	if err != nil {
		return "", err
	}
	if f.Tag != "SELECT" {
		return o.pick(s, h, limit)
	}
	if len(s.Values) > 1 && !f.Multiple {
		return "", fail("bad_value", "Give one value.", "%s takes one choice", h).with("field", "values")
	}
	if _, err := o.aimAt(h, nil, s.Force, limit); err != nil {
		return "", err
	}
	values := make([]any, len(s.Values))
	for i, v := range s.Values {
		values[i] = v
	}
	var raw map[string]any
	err = o.callIn(h.key.backend, h.key.frame, `function(values) {
		const all = Array.from(this.options), norm = s => s.replace(/\s+/g, ' ').trim();
		const found = [];
		for (const v of values) {
			let i = all.findIndex(x => norm(x.label) === norm(v));
			if (i < 0) i = all.findIndex(x => x.value === v);
			if (i < 0) i = all.findIndex(x => norm(x.label).toLowerCase() === norm(v).toLowerCase());
			if (i < 0 && /^\d+$/.test(v) && +v < all.length) i = +v;
			if (i < 0) return { missing: v, options: all.slice(0, 40).map(x => norm(x.label)) };
			if (all[i].disabled) return { disabled: v };
			found.push(i);
		}
		this.focus({ preventScroll: true });
		all.forEach((x, i) => { x.selected = found.includes(i) });
		this.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
		this.dispatchEvent(new Event('change', { bubbles: true }));
		return { chosen: Array.from(this.selectedOptions).map(x => norm(x.label)) };
	}`, []any{values}, &raw)
	if err != nil {
		return "", err
	}
	if missing, ok := raw["missing"].(string); ok {
		return "", fail("not_found", "Use one of the options.", "%s has no option %s", h, quote(cut(cleanText(missing), 60))).with("options", raw["options"])
	}
	if off, ok := raw["disabled"].(string); ok {
		return "", fail("disabled", "Choose another option.", "the option %s of %s is disabled", quote(cut(cleanText(off), 60)), h)
	}
	return h.String() + " = " + listOf(raw["chosen"]), nil
}

func listOf(v any) string {
	var out []string
	items, _ := v.([]any)
	for _, x := range items {
		s, _ := x.(string)
		out = append(out, quote(cut(cleanText(s), 60)))
	}
	return strings.Join(out, ", ")
}

// pick opens a list that is no native one and clicks the options.
func (o *op) pick(s Step, h *hit, limit time.Duration) (string, error) {
	var picked []string
	for _, v := range s.Values {
		option, have, err := o.option(v)
		if err != nil {
			return "", err
		}
		if option == nil {
			a, err := o.aimAt(h, nil, s.Force, limit)
			if err != nil {
				return "", err
			}
			if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
				return h.String(), err
			}
			for wait := 50 * time.Millisecond; option == nil; wait *= 2 {
				if err := o.sleep(wait); err != nil {
					return "", err
				}
				if option, have, err = o.option(v); err != nil {
					return "", err
				}
				if wait > 2*time.Second {
					break
				}
			}
		}
		if option == nil {
			e := fail("not_found", "Use one of the options that are shown.", "%s shows no option %s", h, quote(cut(cleanText(v), 60)))
			if len(have) == 0 {
				e.Hint = "It opened no list: click it and take a browser_snapshot."
			}
			return "", e.with("options", have)
		}
		a, err := o.aimAt(option, nil, s.Force, limit)
		if err != nil {
			return "", err
		}
		if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
			return h.String(), err
		}
		picked = append(picked, quote(option.name))
	}
	return h.String() + " = " + strings.Join(picked, ", "), nil
}

// option finds an option that is shown now by its name.
func (o *op) option(name string) (*hit, []string, error) {
	p, err := o.look()
	if err != nil {
		return nil, nil, err
	}
	root, _ := o.build(p)
	var all []*node
	collect(root.kids, func(n *node) bool {
		return n.act && (n.role == "option" || n.role == "menuitem" || n.role == "menuitemradio" || n.role == "treeitem")
	}, &all, 400)
	want := strings.ToLower(cleanText(name))
	var names []string
	for _, exact := range []bool{true, false} {
		for _, n := range all {
			have := strings.ToLower(n.name)
			if have == want || !exact && strings.HasPrefix(have, want) {
				return &hit{key: n.key, ref: n.ref, role: n.role, name: n.name}, nil, nil
			}
		}
	}
	for _, n := range all[:min(20, len(all))] {
		names = append(names, cut(n.name, 40))
	}
	return nil, names, nil
}

// checkStep brings a checkbox, radio or switch into a state.
func (o *op) checkStep(s Step, h *hit, limit time.Duration) (string, error) {
	want := s.Checked == nil || *s.Checked
	is, radio, err := o.checked(h)
	if err != nil {
		return "", err
	}
	if is == want {
		return h.String() + " is " + checkedWord(want) + " already", nil
	}
	if radio && !want {
		return "", fail("wrong_element", "Check another one of its group.", "%s is a radio button and cannot be unchecked", h)
	}
	a, err := o.aimAt(h, nil, s.Force, limit)
	if err != nil {
		return "", err
	}
	if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
		return h.String(), err
	}
	for range 10 {
		if is, _, err = o.checked(h); err != nil || is == want {
			break
		}
		if err := o.sleep(30 * time.Millisecond); err != nil {
			return h.String(), err
		}
	}
	if err == nil && is != want {
		return h.String(), fail("wrong_element", "The page may refuse it: take a browser_snapshot.", "%s was clicked and is still %s", h, checkedWord(is))
	}
	return h.String() + " is " + checkedWord(want) + " now", nil
}

func checkedWord(b bool) string {
	if b {
		return "checked"
	}
	return "unchecked"
}

func (o *op) checked(h *hit) (is, radio bool, err error) {
	var raw map[string]any
	err = o.callIn(h.key.backend, h.key.frame, `function() {
		let el = this.nodeType === 1 ? this : this.parentElement;
		if (el.tagName === 'LABEL' && el.control) el = el.control;
		if (el.tagName === 'INPUT' && /checkbox|radio/.test(el.type)) return { is: el.checked, radio: el.type === 'radio' };
		const on = el.getAttribute('aria-checked') || el.getAttribute('aria-pressed') || el.getAttribute('aria-selected');
		return on === null ? { none: true } : { is: on === 'true', radio: el.getAttribute('role') === 'radio' };
	}`, nil, &raw)
	if err != nil {
		return false, false, err
	}
	if none, _ := raw["none"].(bool); none {
		return false, false, fail("wrong_element", "Use click.", "%s has no checked state", h)
	}
	is, _ = raw["is"].(bool)
	radio, _ = raw["radio"].(bool)
	return is, radio, nil
}

// maxUpload bounds one file that is handed to a page.
const maxUpload = 512 << 20

// uploadStep hands files of the workspace to a file input, or to the chooser
// that a click opens. The files are checked before the page is touched:
// Chromium takes a missing one for an empty one.
func (o *op) uploadStep(s Step, limit time.Duration) (string, error) {
	var files []string
	var sizes []int64
	for _, f := range s.Files {
		if !o.b.opts.inWorkspace(f) {
			return "", fail("file_outside_workspace", "Copy it into the workspace first.", "%s lies outside of the workspace", quote(cut(cleanText(f), 200)))
		}
		where, n, err := o.b.host.Export(o.ctx, f)
		if err != nil {
			if typedError(err) {
				return "", err
			}
			return "", fail("file_missing", "Look with file_list.", "%s cannot be read in the workspace", quote(cut(cleanText(f), 200))).because(err)
		}
		if n > maxUpload {
			return "", fail("bad_value", "Give a smaller file.", "%s is larger than 512 MB", quote(cut(cleanText(f), 200)))
		}
		files, sizes = append(files, where), append(sizes, n)
	}
	h, err := o.resolve(s.On)
	if err != nil {
		return "", err
	}
	f, err := o.field(h)
	if err != nil {
		return "", err
	}
	backend, frameID, multiple := h.key.backend, h.key.frame, f.Multiple
	if f.Kind != "file" {
		if backend, multiple, err = o.openChooser(s, h, limit); err != nil {
			return "", err
		}
		frameID = ""
	}
	if len(files) > 1 && !multiple {
		return "", fail("bad_value", "Give one file.", "%s takes one file", h).with("field", "files")
	}
	if err := o.call("DOM.setFileInputFiles", map[string]any{"files": files, "backendNodeId": backend}, nil); err != nil {
		return "", err
	}
	var have []any
	if err := o.callIn(backend, frameID, `function() { return Array.from(this.files || []).map(f => f.size) }`, nil, &have); err != nil {
		return h.String(), err
	}
	if len(have) == 0 {
		return h.String() + ": handed over; the page took the files at once", nil
	}
	var names []string
	for i, v := range have {
		if n, _ := v.(float64); i < len(sizes) && int64(n) != sizes[i] {
			return "", fail("file_missing", "Try again.", "%s arrived with %d bytes of %d", quote(s.Files[i]), int64(n), sizes[i])
		}
		if i < len(s.Files) {
			names = append(names, fmt.Sprintf("%s (%s)", path.Base(s.Files[i]), bytesText(sizes[i])))
		}
	}
	return h.String() + " = " + strings.Join(names, ", "), nil
}

// inWorkspace looks at the words of a path; links are the host's to resolve.
func (o Options) inWorkspace(p string) bool {
	if !path.IsAbs(p) {
		p = path.Join(o.Workspace, p)
	}
	return strings.HasPrefix(path.Clean(p), path.Clean(o.Workspace)+"/")
}

// openChooser clicks what opens a file chooser and returns its input.
func (o *op) openChooser(s Step, h *hit, limit time.Duration) (int64, bool, error) {
	if err := o.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil); err != nil {
		return 0, false, err
	}
	defer func() {
		_ = o.t.sess.Call(o.ctx, "Page.setInterceptFileChooserDialog", map[string]any{"enabled": false}, nil)
	}()
	o.t.mu.Lock()
	o.t.chooser = nil
	o.t.mu.Unlock()
	a, err := o.aimAt(h, s.Offset, s.Force, limit)
	if err != nil {
		return 0, false, err
	}
	if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
		return 0, false, err
	}
	if err := o.within(2*time.Second, func() bool { return o.t.chooser != nil }); err != nil {
		return 0, false, err
	}
	o.t.mu.Lock()
	c := o.t.chooser
	o.t.mu.Unlock()
	if c == nil || c.BackendNodeID == 0 {
		return 0, false, fail("wrong_element", "Use the file input of the snapshot, or the button that opens the chooser.", "%s is no file input and opened no file chooser", h)
	}
	return int64(c.BackendNodeID), strings.Contains(strings.ToLower(string(c.Mode)), "multiple"), nil
}
