package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Struct tags beside json: doc (description), enum ("a,b"), min and max
// (numbers, lengths of lists); in outputs, schema:"-" for a field that is sent
// but not declared, since the list is paid for in every conversation. Required
// is what has no omitempty.

// inputSchema derives a closed object from In and adds the session argument.
func inputSchema[In any]() *jsonschema.Schema {
	s := derive(reflect.TypeFor[In](), true)
	s.Properties["session"] = &jsonschema.Schema{Type: "string"} // the instructions say what it is, once for all tools
	s.PropertyOrder = nil
	return s
}

// outputSchema derives an object without descriptions in which nothing is
// required, since clients validate failures against it too.
func outputSchema[Out any]() *jsonschema.Schema {
	s := derive(reflect.TypeFor[Out](), false)
	delete(s.Properties, "session") // named in every result, and told of in the instructions
	// Open, since every client pays for each property of it once a tool; its shape is in the README.
	s.Properties["error"] = &jsonschema.Schema{Type: "object"}
	s.PropertyOrder = nil
	return s
}

// published leaves out the bounds, which the check names when they are broken;
// the list is paid for in every conversation.
func published(s *jsonschema.Schema) *jsonschema.Schema {
	c := s.CloneSchemas()
	var strip func(s *jsonschema.Schema)
	strip = func(s *jsonschema.Schema) {
		s.Minimum, s.Maximum, s.MinItems, s.MaxItems = nil, nil, nil, nil
		for _, p := range s.Properties {
			strip(p)
		}
		if s.Items != nil {
			strip(s.Items)
		}
	}
	strip(c)
	return c
}

func derive(t reflect.Type, input bool) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[command]():         commandSchema(),
		reflect.TypeFor[dialogAnswer]():    dialogAnswerSchema(),
	}})
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err)) // a fault of a declaration; every test that lists the tools shows it
	}
	refine(s, t, input)
	if s.Properties == nil {
		s.Properties = map[string]*jsonschema.Schema{}
	}
	return s
}

// refine makes the schema portable (no null types, no true) and adds what the
// tags say.
func refine(s *jsonschema.Schema, t reflect.Type, input bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(s.Types) > 0 {
		for _, k := range s.Types {
			if k != "null" {
				s.Type = k
			}
		}
		s.Types = nil
	}
	s.PropertyOrder = nil
	if !input {
		s.Required, s.Description = nil, ""
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			refine(s.Items, t.Elem(), input)
			opaque(s.Items, input)
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			refine(s.AdditionalProperties, t.Elem(), input)
		}
	case reflect.Struct:
		if !input {
			s.AdditionalProperties = nil // an output may grow
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if name == "" || p == nil || (f.Anonymous && f.Tag.Get("json") == "") {
				continue
			}
			if !input && !declared(f) {
				delete(s.Properties, name)
				continue
			}
			refine(p, f.Type, input)
			opaque(p, input)
			if input {
				p.Description = f.Tag.Get("doc")
			}
			tag(p, f)
		}
	}
}

// declared says whether an output's field stands in the schema: its own ones
// unless they opt out, promoted ones only if they opt in.
func declared(f reflect.StructField) bool {
	if mark := f.Tag.Get("schema"); mark != "" {
		return mark == "+"
	}
	return len(f.Index) == 1
}

// opaque leaves of an object or a list within an output that it is one: every
// client pays for the schema in every conversation, and a result shows its own
// fields.
func opaque(s *jsonschema.Schema, input bool) {
	if !input {
		s.Properties, s.Items = nil, nil
	}
}

func tag(p *jsonschema.Schema, f reflect.StructField) {
	if e := f.Tag.Get("enum"); e != "" {
		for v := range strings.SplitSeq(e, ",") {
			p.Enum = append(p.Enum, v)
		}
	}
	bound := func(key string) (float64, bool) {
		v := f.Tag.Get(key)
		if v == "" {
			return 0, false
		}
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			panic(fmt.Sprintf("field %s: %s %q", f.Name, key, v))
		}
		return n, true
	}
	if n, ok := bound("min"); ok {
		if p.Type == "array" {
			p.MinItems = jsonschema.Ptr(int(n))
		} else {
			p.Minimum = &n
		}
	}
	if n, ok := bound("max"); ok {
		if p.Type == "array" {
			p.MaxItems = jsonschema.Ptr(int(n))
		} else {
			p.Maximum = &n
		}
	}
}
