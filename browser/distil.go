package browser

import (
	"fmt"
	"slices"
	"strings"
)

// distil decides whether the node has a line of its own.
func (b *builder) distil(n *node, kids []*node) []*node {
	switch {
	case n.role == "MenuListPopup":
		return kids
	case n.role == "combobox" || n.role == "listbox":
		kids = b.choices(n, kids)
	case n.role == "Date" || n.role == "DateTime" || n.role == "InputTime":
		kids, n.hasValue = nil, true // its parts are set as one value
	case n.role == "textbox" || n.role == "searchbox" || n.role == "spinbutton":
		if n.value == "" {
			n.value = joinText(kids, 500)
		}
		kids = controls(kids)
		n.hasValue = true
	case n.role == "heading":
		n.inline = false
	case n.role == "paragraph" && !hasAct(kids):
		n.role = ""
	}
	if n.act && n.name == "" && n.role != "scrollable" && n.role != "textbox" && n.role != "combobox" {
		n.name, n.textual = cut(joinText(kids, 400), maxNameLen), true
	}
	if ownText[n.role] && n.name != "" {
		kids = dropRepeats(kids, n.name)
	}
	if n.act && n.key.backend != 0 {
		n.ref = b.refs.assign(n.key, n.role, n.name, n.textual)
		b.placed[n.key] = n
	}
	n.kids = kids
	keep := n.act || n.role == "heading" || n.role == "row" || n.role == "listitem" || n.role == "paragraph" ||
		(n.role == "image" || n.role == "img" || n.role == "Image") && n.name != "" ||
		landmarks[n.role] && (n.name != "" || !needName[n.role]) && (len(kids) > 0 || n.name != "") ||
		needName[n.role] && n.name != "" && len(kids) > 0 || n.role == "option" || n.role == "progressbar" || n.role == "meter" || n.role == "table" && len(kids) > 0
	if keep {
		if (n.role == "listitem" || n.role == "paragraph") && len(kids) == 0 {
			return nil
		}
		return []*node{n}
	}
	if !n.inline {
		for _, k := range kids {
			if k.text {
				k.inline = false
			}
		}
	}
	return kids
}

// choices folds the options of a list.
func (b *builder) choices(n *node, kids []*node) []*node {
	var options []*node
	var gather func(ks []*node)
	gather = func(ks []*node) {
		for _, k := range ks {
			if k.role == "option" {
				options = append(options, k)
			} else {
				gather(k.kids)
			}
		}
	}
	gather(kids)
	n.options = len(options)
	if n.role == "listbox" && len(options) <= 30 && hasAct(options) || len(options) == 0 {
		return kids
	}
	n.states = slices.DeleteFunc(n.states, func(s string) bool { return s == "collapsed" })
	var names []string
	for _, k := range options {
		if slices.Contains(k.states, "selected") && n.value == "" {
			n.value, n.hasValue = k.name, true
		}
		names = append(names, quote(cut(k.name, 40)))
	}
	if len(options) > foldOptions {
		n.states = append(n.states, fmt.Sprintf("(%d options)", len(options)))
	} else {
		n.states = append(n.states, "options: "+strings.Join(names, " "))
	}
	return nil
}

// mergeText joins runs of text that flow in one line.
func mergeText(kids []*node) []*node {
	out := kids[:0:0]
	for _, k := range kids {
		if k.text && k.inline && len(out) > 0 && out[len(out)-1].text && out[len(out)-1].inline {
			last := *out[len(out)-1]
			last.name += k.name
			last.inView = last.inView || k.inView
			out[len(out)-1] = &last
			continue
		}
		out = append(out, k)
	}
	return slices.DeleteFunc(out, func(k *node) bool { return k.text && strings.TrimSpace(k.name) == "" && !k.inline })
}

// joinText is the text of nodes in one line, at most about limit bytes.
func joinText(kids []*node, limit int) string {
	var sb strings.Builder
	var walk func(ks []*node)
	walk = func(ks []*node) {
		for _, k := range ks {
			if sb.Len() > limit {
				return
			}
			if k.name != "" {
				if !k.inline {
					sb.WriteByte(' ')
				}
				sb.WriteString(k.name)
			}
			if !ownText[k.role] || k.name == "" {
				walk(k.kids)
			}
			if !k.inline {
				sb.WriteByte(' ')
			}
		}
	}
	walk(kids)
	return cleanText(sb.String())
}

// controls keeps only what can be acted on.
func controls(kids []*node) []*node {
	var out []*node
	for _, k := range kids {
		if k.act {
			out = append(out, k)
		} else {
			out = append(out, controls(k.kids)...)
		}
	}
	return out
}

// dropRepeats takes out text that the parent's name already says.
func dropRepeats(kids []*node, name string) []*node {
	var out []*node
	for _, k := range kids {
		if !k.act && len(k.kids) == 0 {
			t := cleanText(k.name)
			if len(t) < 4 || strings.Contains(name, t) || strings.HasPrefix(t, strings.TrimSuffix(name, "…")) {
				continue
			}
		}
		out = append(out, k)
	}
	return out
}

func inlineDisplay(d string) bool {
	return d == "" || strings.HasPrefix(d, "inline") || d == "contents"
}

// cleanSpaces cleans a run of text but keeps one blank at either end, which
// parts it from its neighbours.
func cleanSpaces(s string) string {
	c := cleanText(s)
	if c == "" {
		if s != "" {
			return " "
		}
		return ""
	}
	if strings.TrimLeft(s, " \t\n\r\u00a0") != s {
		c = " " + c
	}
	if strings.TrimRight(s, " \t\n\r\u00a0") != s {
		c += " "
	}
	return c
}
