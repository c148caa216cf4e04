package browser

import (
	"fmt"
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
