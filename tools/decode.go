package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxDepth bounds nesting of arguments; no tool needs more than six levels.
const maxDepth = 32

// checkArgs walks the arguments once, by token, against the schema: exact
// names, no duplicate keys, types, enumerations and bounds. encoding/json alone
// would take "Path" for "path" and the last of two equal keys, so that policy
// and handler could see different things.
func checkArgs(s *jsonschema.Schema, args json.RawMessage) (session string, rest json.RawMessage, _ *Error) {
	if len(bytes.TrimSpace(args)) == 0 || string(bytes.TrimSpace(args)) == "null" {
		args = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	w := &walker{d: d}
	v, err := w.value(s, "", 0)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return "", nil, e
		}
		return "", nil, invalid("arguments", "Send one JSON object.", err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", nil, invalid("arguments", "Send one JSON object.", "there is more after the object")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return "", nil, invalid("arguments", "Send one JSON object.", "expected an object")
	}
	if _, own := m["session"]; !own {
		return "", args, nil
	}
	session, _ = m["session"].(string)
	delete(m, "session")
	rest, err = json.Marshal(m)
	if err != nil {
		return "", nil, invalid("arguments", "Send one JSON object.", err.Error())
	}
	return session, rest, nil
}

type walker struct{ d *json.Decoder }

func (w *walker) value(s *jsonschema.Schema, at string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, invalid(name(at), "Nest less.", "nested too deep")
	}
	t, err := w.d.Token()
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return w.object(s, at, depth)
		}
		return w.array(s, at, depth)
	case string:
		if err := want(s, at, "string", t); err != nil {
			return nil, err
		}
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, any(t)) {
			return nil, invalid(name(at), "Use one of them.", fmt.Sprintf("%q is none of %s", clip(t), list(s.Enum)))
		}
		if strings.ContainsRune(t, 0) && (s.Type == "string" || len(s.AnyOf) > 0) {
			return nil, invalid(name(at), "Take the NUL out.", "holds a NUL byte")
		}
		return t, nil
	case json.Number:
		return t, number(s, at, t)
	case bool:
		return t, want(s, at, "boolean", fmt.Sprint(t))
	default: // null
		if s.Type == "" && len(s.AnyOf) == 0 {
			return nil, nil
		}
		return nil, invalid(name(at), "Leave it out instead.", "null is not a "+s.Type)
	}
}

func (w *walker) object(s *jsonschema.Schema, at string, depth int) (any, error) {
	if err := want(s, at, "object", "an object"); err != nil {
		return nil, err
	}
	m := map[string]any{}
	for w.d.More() {
		t, err := w.d.Token()
		if err != nil {
			return nil, fmt.Errorf("not valid JSON: %w", err)
		}
		key := t.(string)
		if _, twice := m[key]; twice {
			return nil, invalid(join(at, key), "Give it once.", "given twice")
		}
		p := s.Properties[key]
		if p == nil && s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
			p = s.AdditionalProperties
		}
		if p == nil && s.Type == "" {
			p = &jsonschema.Schema{}
		}
		if p == nil {
			return nil, invalid(join(at, clip(key)), "Known here: "+strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")+".", "no such argument"+closest(key, s.Properties))
		}
		v, err := w.value(p, join(at, key), depth+1)
		if err != nil {
			return nil, err
		}
		m[key] = v
	}
	if _, err := w.d.Token(); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	for _, r := range s.Required {
		if _, ok := m[r]; !ok {
			return nil, invalid(join(at, r), "Give it.", "is required"+kind(s.Properties[r]))
		}
	}
	return m, nil
}

func (w *walker) array(s *jsonschema.Schema, at string, depth int) (any, error) {
	if err := want(s, at, "array", "a list"); err != nil {
		return nil, err
	}
	item := s.Items
	for _, alt := range s.AnyOf {
		if alt.Type == "array" {
			item = alt.Items
		}
	}
	if item == nil {
		item = &jsonschema.Schema{}
	}
	l := []any{}
	for w.d.More() {
		v, err := w.value(item, fmt.Sprintf("%s[%d]", name(at), len(l)), depth+1)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	if _, err := w.d.Token(); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if s.MinItems != nil && len(l) < *s.MinItems {
		return nil, invalid(name(at), "Give more.", fmt.Sprintf("has %d entries, at least %d are needed", len(l), *s.MinItems))
	}
	if s.MaxItems != nil && len(l) > *s.MaxItems {
		return nil, invalid(name(at), "Split the call.", fmt.Sprintf("has %d entries, at most %d are taken", len(l), *s.MaxItems))
	}
	return l, nil
}

func number(s *jsonschema.Schema, at string, n json.Number) error {
	if s.Type == "" && len(s.AnyOf) == 0 {
		return nil
	}
	if s.Type == "integer" {
		if _, err := n.Int64(); err != nil {
			return invalid(name(at), "Give a whole number.", fmt.Sprintf("expected a whole number, got %s", clip(n.String())))
		}
	} else if err := want(s, at, "number", n.String()); err != nil {
		return err
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return invalid(name(at), "Give a smaller number.", "is out of range")
	}
	if s.Minimum != nil && f < *s.Minimum {
		return invalid(name(at), fmt.Sprintf("Give at least %v.", *s.Minimum), fmt.Sprintf("%s is below %v", n, *s.Minimum))
	}
	if s.Maximum != nil && f > *s.Maximum {
		return invalid(name(at), fmt.Sprintf("Give at most %v.", *s.Maximum), fmt.Sprintf("%s is above %v", n, *s.Maximum))
	}
	return nil
}

func want(s *jsonschema.Schema, at, got, value string) error {
	if s.Type == got || (s.Type == "" && len(s.AnyOf) == 0) {
		return nil
	}
	for _, alt := range s.AnyOf {
		if alt.Type == got {
			return nil
		}
	}
	expected := s.Type
	for _, alt := range s.AnyOf {
		if expected != "" {
			expected += " or "
		}
		expected += alt.Type
	}
	hint := "Expected here: " + expected + "."
	if got == "string" && (s.Type == "integer" || s.Type == "number" || s.Type == "boolean") {
		hint = "Write it without quotes."
	}
	return invalid(name(at), hint, fmt.Sprintf("expected %s, got %s (%s)", expected, got, clip(value)))
}

func name(at string) string {
	if at == "" {
		return "arguments"
	}
	return at
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

func kind(s *jsonschema.Schema) string {
	if s == nil || s.Type == "" {
		return ""
	}
	return " (" + s.Type + ")"
}

// clip shortens a value for a message.
func clip(s string) string {
	r := []rune(s)
	if len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

func list(vs []any) string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, ", ")
}

// closest names a known argument that differs only in case or separators.
func closest(key string, known map[string]*jsonschema.Schema) string {
	fold := func(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s)) }
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if fold(k) == fold(key) {
			return "; did you mean " + k + "?"
		}
	}
	return ""
}
