package browser

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// liveState is what a node says of itself now.
type liveState struct {
	disabled, transparent bool
	label                 int64
}

func (o *op) stateOf(h *hit) (liveState, error) {
	var s liveState
	var raw map[string]any
	err := o.callIn(h.key.backend, h.key.frame, `function() {
		if (this.nodeType !== 1) return {};
		let off = this.matches(':disabled') || !!this.closest('[aria-disabled="true"]') || !!this.closest('[inert]');
		let clear = false;
		for (let n = this; n && n.nodeType === 1; n = n.parentElement || (n.getRootNode() && n.getRootNode().host)) if (getComputedStyle(n).opacity === '0') { clear = true; break }
		return { off, clear, labels: (this.labels || []).length, control: 'labels' in this };
	}`, nil, &raw)
	if isReason(err, "protocol") {
		return s, stale(firstOf("the target", h.ref), "its node is gone from the page")
	}
	if err != nil {
		return s, err
	}
	s.disabled, _ = raw["off"].(bool)
	s.transparent, _ = raw["clear"].(bool)
	if n, _ := raw["labels"].(float64); n > 0 {
		ids, err := o.nodesFrom(h.key.backend, h.key.frame, `function() { return Array.from(this.labels).filter(l => { const r = l.getBoundingClientRect(); return r.width * r.height > 0 }).slice(0, 1) }`)
		if err != nil {
			return s, err
		}
		if len(ids) > 0 {
			s.label = ids[0]
		}
	}
	return s, nil
}

// reaches tells whether a press at a point of the viewport reaches the target,
// and if not, what lies there.
func (o *op) reaches(h *hit, x, y float64, view rect) (bool, *hit, error) {
	var res struct {
		Backend int64  `json:"backendNodeId"`
		Frame   string `json:"frameId"`
	}
	// Document coordinates: the same point only at scroll 0.
	err := o.call("DOM.getNodeForLocation", map[string]any{"x": int(math.Floor(x + view.x)), "y": int(math.Floor(y + view.y)), "includeUserAgentShadowDOM": false}, &res)
	if isReason(err, "protocol") {
		return false, nil, nil // nothing there
	}
	if err != nil {
		return false, nil, err
	}
	if res.Backend == h.key.backend {
		return true, nil, nil
	}
	if res.Frame == h.key.frame || res.Frame == "" {
		ok, err := o.related(h, res.Backend)
		if err != nil || ok {
			return ok, nil, err
		}
	}
	return false, &hit{key: refKey{frame: res.Frame, backend: res.Backend}, role: "another element"}, nil
}

// related accepts a descendant (also across shadow roots), a label of the
// target and the control of a target that is a label.
func (o *op) related(h *hit, other int64) (bool, error) {
	target, err := o.object(h.key.backend, h.key.frame)
	if err != nil {
		return false, err
	}
	there, err := o.object(other, h.key.frame)
	if err != nil {
		return false, nil // of another document
	}
	var res struct {
		Result struct {
			Value bool `json:"value"`
		} `json:"result"`
	}
	err = o.call("Runtime.callFunctionOn", map[string]any{"objectId": target, "returnByValue": true, "arguments": []map[string]any{{"objectId": there}},
		"functionDeclaration": `function(there) {
			for (let n = there; n; n = n.assignedSlot || n.parentNode || n.host) if (n === this) return true;
			for (let n = this; n; n = n.parentNode || n.host) if (n === there && n.getRootNode() !== this.getRootNode()) return true;
			const el = there.nodeType === 1 ? there : there.parentElement;
			const label = el && el.closest('label');
			if (label && label.control === this) return true;
			if (this.tagName === 'LABEL' && this.control && (this.control === el || this.control.contains(el))) return true;
			return !!(label && label.contains(this) && !el.closest('a,button'));
		}`}, &res)
	return res.Result.Value, err
}

// explain adds to a covered target what covers it and what could close it.
func (o *op) explain(err error) error {
	if !isReason(err, "covered") {
		return err
	}
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	backend, _ := e.Details["backend"].(int64)
	delete(e.Details, "backend")
	p, lookErr := o.look()
	if lookErr != nil || backend == 0 {
		return err
	}
	root, _ := o.build(p)
	for _, f := range p.frames {
		if f.dom == nil {
			continue
		}
		i, ok := f.dom.byID[backend]
		if !ok {
			continue
		}
		// From what lies there outwards: the first that a snapshot shows, and
		// the controls in the part that floats above the page.
		var named *node
		top := i
		for k := i; k >= 0; k = f.dom.parent(k) {
			if n := findNode(root.kids, refKey{f.ID, f.LoaderID, f.dom.raw.Nodes.Backend[k]}); n != nil && named == nil && n.role != "page" {
				named = n
			}
			if s := f.dom.style(k, stPosition); s == "fixed" || s == "sticky" || s == "absolute" {
				top = k
			}
		}
		marked := map[int64]bool{f.dom.raw.Nodes.Backend[top]: true}
		var controls []*node
		collect(root.kids, func(n *node) bool {
			return n.act && n.ref != "" && n.frame == f && under(f.dom, n.key.backend, marked)
		}, &controls, 5)
		what := strings.ToLower(f.dom.tag(i))
		if named != nil {
			r := renderer{}
			what = cut(r.word(named), 120)
		} else if t := f.dom.textOf(top, 80); t != "" {
			what += " " + quote(cut(t, 60))
		}
		e.Message = fmt.Sprintf("%s by %s", firstPart(e.Message, " by "), what)
		if len(controls) > 0 {
			e.detail("in_the_cover", describe(controls))
			e.Hint = "What covers it holds: " + strings.Join(describe(controls), ", ") + ". Use it first, or give force."
		}
		return err
	}
	return err
}

func firstPart(s, sep string) string {
	a, _, _ := strings.Cut(s, sep)
	return a
}
