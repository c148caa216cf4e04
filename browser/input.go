package browser

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Modifier bits of input events.
const (
	modAlt   = 1
	modCtrl  = 2
	modMeta  = 4
	modShift = 8
)

var modifierBits = map[string]int{"alt": modAlt, "control": modCtrl, "ctrl": modCtrl, "meta": modMeta, "command": modMeta, "shift": modShift, "controlormeta": modCtrl}

func parseModifiers(words []string) (int, error) {
	m := 0
	for _, w := range words {
		bit, ok := modifierBits[strings.ToLower(w)]
		if !ok {
			return 0, fail("bad_value", "Use Alt, Control, Meta, Shift.", "modifiers: %s is none", quote(cut(cleanText(w), 20))).with("field", "modifiers")
		}
		m |= bit
	}
	return m, nil
}

// mouse buttons and the bit each has in the mask of pressed buttons.
var buttonBits = map[string]int{"none": 0, "left": 1, "right": 2, "middle": 4}

// mouse sends one mouse event at a point of the viewport. Modifiers travel in
// the event, so none can stay pressed.
func (o *op) mouseEvent(kind string, x, y float64, button string, buttons, count, modifiers int) error {
	return o.call("Input.dispatchMouseEvent", mouseParams(kind, x, y, button, buttons, count, modifiers), nil)
}

func mouseParams(kind string, x, y float64, button string, buttons, count, modifiers int) map[string]any {
	return map[string]any{"type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": count, "modifiers": modifiers, "pointerType": "mouse"}
}

// clickAt moves, presses and releases. Whatever happens in between, the button
// is released: at once, or when the dialog that the press opened is answered.
func (o *op) clickAt(x, y float64, button string, count, modifiers int) error {
	if err := o.mouseEvent("mouseMoved", x, y, "none", 0, 0, modifiers); err != nil {
		return err
	}
	o.t.mouse = [2]float64{x, y}
	for n := 1; n <= count; n++ {
		if err := o.mouseEvent("mousePressed", x, y, button, buttonBits[button], n, modifiers); err != nil {
			o.letUp(err, mouseParams("mouseReleased", x, y, button, 0, n, modifiers))
			return err
		}
		if err := o.mouseEvent("mouseReleased", x, y, button, 0, n, modifiers); err != nil {
			return err
		}
	}
	return nil
}

// letUp releases a button after a press that was interrupted.
func (o *op) letUp(err error, params map[string]any) {
	release := func(ctx context.Context) {
		// A page that hangs gets it when it comes back; nobody waits for that.
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_ = o.t.sess.Call(ctx, "Input.dispatchMouseEvent", params, nil)
	}
	if isReason(err, "dialog_open") {
		o.t.mu.Lock()
		o.t.after = append(o.t.after, release)
		o.t.mu.Unlock()
		return
	}
	release(context.WithoutCancel(o.base))
}

// key is one key of a keyboard.
type key struct {
	key, code string
	vk        int
	text      string
}

var namedKeys = map[string]key{
	"enter": {"Enter", "Enter", 13, "\r"}, "tab": {"Tab", "Tab", 9, ""}, "backspace": {"Backspace", "Backspace", 8, ""},
	"delete": {"Delete", "Delete", 46, ""}, "escape": {"Escape", "Escape", 27, ""}, "space": {" ", "Space", 32, " "},
	"arrowleft": {"ArrowLeft", "ArrowLeft", 37, ""}, "arrowup": {"ArrowUp", "ArrowUp", 38, ""},
	"arrowright": {"ArrowRight", "ArrowRight", 39, ""}, "arrowdown": {"ArrowDown", "ArrowDown", 40, ""},
	"home": {"Home", "Home", 36, ""}, "end": {"End", "End", 35, ""}, "pageup": {"PageUp", "PageUp", 33, ""}, "pagedown": {"PageDown", "PageDown", 34, ""},
	"insert": {"Insert", "Insert", 45, ""}, "contextmenu": {"ContextMenu", "ContextMenu", 93, ""},
	"shift": {"Shift", "ShiftLeft", 16, ""}, "control": {"Control", "ControlLeft", 17, ""}, "alt": {"Alt", "AltLeft", 18, ""}, "meta": {"Meta", "MetaLeft", 91, ""},
	"f1": {"F1", "F1", 112, ""}, "f2": {"F2", "F2", 113, ""}, "f3": {"F3", "F3", 114, ""}, "f4": {"F4", "F4", 115, ""}, "f5": {"F5", "F5", 116, ""}, "f6": {"F6", "F6", 117, ""},
	"f7": {"F7", "F7", 118, ""}, "f8": {"F8", "F8", 119, ""}, "f9": {"F9", "F9", 120, ""}, "f10": {"F10", "F10", 121, ""}, "f11": {"F11", "F11", 122, ""}, "f12": {"F12", "F12", 123, ""},
}

var keyAliases = map[string]string{"return": "enter", "esc": "escape", "del": "delete", "left": "arrowleft", "right": "arrowright", "up": "arrowup", "down": "arrowdown",
	"ctrl": "control", "command": "meta", "cmd": "meta", "pgup": "pageup", "pgdn": "pagedown", "spacebar": "space"}

var symbols = map[rune]key{
	'-': {"-", "Minus", 189, ""}, '=': {"=", "Equal", 187, ""}, '[': {"[", "BracketLeft", 219, ""}, ']': {"]", "BracketRight", 221, ""},
	';': {";", "Semicolon", 186, ""}, '\'': {"'", "Quote", 222, ""}, ',': {",", "Comma", 188, ""}, '.': {".", "Period", 190, ""},
	'/': {"/", "Slash", 191, ""}, '\\': {"\\", "Backslash", 220, ""}, '`': {"`", "Backquote", 192, ""}, ' ': {" ", "Space", 32, ""},
}

// keyOf names a key for a character.
func keyOf(r rune) key {
	s := string(r)
	switch {
	case r >= 'a' && r <= 'z':
		return key{s, "Key" + strings.ToUpper(s), int(r - 'a' + 'A'), s}
	case r >= 'A' && r <= 'Z':
		return key{s, "Key" + s, int(r), s}
	case r >= '0' && r <= '9':
		return key{s, "Digit" + s, int(r), s}
	}
	if k, ok := symbols[r]; ok {
		k.text = s
		return k
	}
	return key{key: s, text: s}
}

// chord is a key with modifiers, such as Control+Shift+P.
type chord struct {
	key
	modifiers int
}

func parseChord(s string) (chord, error) {
	bad := fail("bad_value", "Write Enter, ArrowDown, a, Control+A.", "keys: %s is no key", quote(cut(cleanText(s), 30))).with("field", "keys")
	if s == "" || len(s) > 60 {
		return chord{}, bad
	}
	var c chord
	parts := strings.Split(s, "+")
	if strings.HasSuffix(s, "+") { // the plus key itself
		parts = append(strings.Split(strings.TrimSuffix(strings.TrimSuffix(s, "+"), "+"), "+"), "+")
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	}
	last := parts[len(parts)-1]
	for _, p := range parts[:len(parts)-1] {
		bit, ok := modifierBits[strings.ToLower(p)]
		if !ok {
			return chord{}, bad
		}
		c.modifiers |= bit
	}
	name := strings.ToLower(last)
	if alias, ok := keyAliases[name]; ok {
		name = alias
	}
	switch k, ok := namedKeys[name]; {
	case ok:
		c.key = k
	case utf8.RuneCountInString(last) == 1:
		r, _ := utf8.DecodeRuneInString(last)
		if c.modifiers&(modCtrl|modMeta|modAlt) != 0 {
			r, _ = utf8.DecodeRuneInString(strings.ToLower(last))
		}
		c.key = keyOf(r)
	default:
		return chord{}, bad
	}
	return c, nil
}

// editing are the commands that a browser without a desktop does not bind.
var editing = map[string]string{"a": "selectAll", "c": "copy", "v": "paste", "x": "cut", "z": "undo", "y": "redo"}

// press sends one chord and releases it in all cases.
func (o *op) press(c chord, hold time.Duration) error {
	p := map[string]any{"key": c.key.key, "code": c.code, "windowsVirtualKeyCode": c.vk, "nativeVirtualKeyCode": c.vk, "modifiers": c.modifiers}
	down := map[string]any{"type": "rawKeyDown"}
	if c.text != "" && c.modifiers&(modCtrl|modMeta|modAlt) == 0 {
		down["type"], down["text"], down["unmodifiedText"] = "keyDown", c.text, c.text
	}
	if cmd := editing[c.key.key]; cmd != "" && c.modifiers == modCtrl {
		down["commands"] = []string{cmd}
	}
	for k, v := range p {
		down[k] = v
	}
	err := o.call("Input.dispatchKeyEvent", down, nil)
	if err == nil && hold > 0 {
		err = o.sleep(hold)
	}
	up := map[string]any{"type": "keyUp"}
	for k, v := range p {
		up[k] = v
	}
	if err != nil {
		release := func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_ = o.t.sess.Call(ctx, "Input.dispatchKeyEvent", up, nil)
		}
		if isReason(err, "dialog_open") {
			o.t.mu.Lock()
			o.t.after = append(o.t.after, release)
			o.t.mu.Unlock()
		} else {
			release(context.WithoutCancel(o.base))
		}
		return err
	}
	return o.call("Input.dispatchKeyEvent", up, nil)
}
