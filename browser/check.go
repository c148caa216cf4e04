package browser

import "time"

// check refuses a step that lacks what it needs, before anything is done.
func (s *Step) check() error {
	need := func(ok bool, field, hint string) error {
		if ok {
			return nil
		}
		return fail("bad_value", hint, "%s: is required for %s", field, s.Do).with("field", field)
	}
	switch s.Do {
	case "click", "hover", "focus", "scroll_to", "check":
		if s.Button != "" && buttonBits[s.Button] == 0 {
			return fail("bad_value", "Use left, right or middle.", "button: not known").with("field", "button")
		}
		return need(s.On != "", "on", "Name the target: a ref such as e12.")
	case "fill", "type":
		if err := need(s.Text != nil, "text", `Give the text; "" clears a field.`); err != nil {
			return err
		}
		return need(s.On != "" || s.Do == "type", "on", "Name the field: a ref such as e12.")
	case "press":
		for _, k := range s.Keys {
			if _, err := parseChord(k); err != nil {
				return err
			}
		}
		return need(len(s.Keys) > 0 && len(s.Keys) <= 100, "keys", `Give keys such as ["Control+A","Delete"].`)
	case "select":
		if err := need(len(s.Values) > 0, "values", "Give labels, values or indexes."); err != nil {
			return err
		}
		return need(s.On != "", "on", "Name the list: a ref such as e12.")
	case "drag":
		if err := need(s.To != "", "to", "Name where to drop: a ref or xy=120,340."); err != nil {
			return err
		}
		return need(s.On != "", "on", "Name what to drag.")
	case "upload":
		if err := need(len(s.Files) > 0 && len(s.Files) <= 50, "files", "Give paths in the workspace."); err != nil {
			return err
		}
		return need(s.On != "", "on", "Name the file input, or the button that opens the chooser.")
	case "scroll":
		if s.To != "" && s.To != "top" && s.To != "bottom" {
			return fail("bad_value", "Use top or bottom, or scroll_to with on.", "to: %s is no end of a page", quote(cut(cleanText(s.To), 20))).with("field", "to")
		}
		return need(len(s.By) == 2 || s.To != "", "by", "Give by [0, 600], or to.")
	case "mouse":
		switch s.Action {
		case "move", "down", "click":
			return need(len(s.At) == 2, "at", "Give [x, y] in page pixels.")
		case "up":
			return nil
		case "wheel":
			return need(len(s.By) == 2, "by", "Give [0, 600].")
		}
		return need(false, "action", "Use move, down, up, click or wheel.")
	case "wait":
		n := 0
		for _, given := range []bool{s.Text != nil, s.TextGone != "", s.State != "", s.URL != "", s.Download, s.MS > 0} {
			if given {
				n++
			}
		}
		if s.MS > int(callTime/time.Millisecond) {
			return fail("bad_value", "Wait less, or call again.", "ms: one call lasts 42 s at most").with("field", "ms")
		}
		if s.State != "" && s.State != "visible" && s.State != "hidden" && s.State != "enabled" {
			return fail("bad_value", "Use visible, hidden or enabled.", "state: not known").with("field", "state")
		}
		if s.State != "" || s.On != "" && n == 0 {
			return need(s.On != "", "on", "Name whose state.")
		}
		return need(n >= 1, "text", "Give one of text, text_gone, on with state, url, download, ms.")
	}
	return fail("bad_value", "Use click, hover, focus, scroll_to, fill, type, press, select, check, drag, upload, scroll, mouse or wait.",
		"do: %s is not known", quote(cut(cleanText(s.Do), 20))).with("field", "do")
}
