package browser

import (
	"strings"
	"time"
)

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
