package policies

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// checkTokens refuses what makes a file mean something else than it shows, and
// nesting that would cost the parser its stack.
func checkTokens(tokens token.Tokens) error {
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType:
			return &yaml.SyntaxError{Message: "anchors, aliases, merges and tags are not taken; write the value out", Token: t}
		case token.SequenceStartType, token.MappingStartType:
			if depth++; depth > maxNest {
				return &yaml.SyntaxError{Message: "nested too deep", Token: t}
			}
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			// "- - - -" on one line nests without brackets.
			if run := entriesBefore(t); run > maxNest {
				return &yaml.SyntaxError{Message: "nested too deep", Token: t}
			}
		}
	}
	return nil
}

func entriesBefore(t *token.Token) (n int) {
	for p := t.Prev; p != nil && n <= maxNest && p.Type == token.SequenceEntryType; p = p.Prev {
		n++
	}
	return n
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
)

// checkNode walks a node beside the type it is decoded into. The library
// converts between scalars ("1" to 1, 1 to "1"), which hides mistakes.
func checkNode(n ast.Node, t reflect.Type, depth int) error {
	if depth > maxNest {
		return syntax(n, "nested too deep")
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == durationType || reflect.PointerTo(t).Implements(textType) {
		return checkText(n, t)
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return checkMap(n, t, depth)
	case reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return wrong(n, "a list")
		}
		for _, v := range seq.Values {
			if err := checkNode(v, t.Elem(), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return checkScalar(n, t)
}

func checkScalar(n ast.Node, t reflect.Type) error {
	switch t.Kind() {
	case reflect.String:
		if n.Type() != ast.StringType && n.Type() != ast.LiteralType {
			return wrong(n, "a text (put it in quotes if it is one)")
		}
	case reflect.Bool:
		if n.Type() != ast.BoolType {
			return wrong(n, "true or false")
		}
	case reflect.Int, reflect.Int64:
		if n.Type() != ast.IntegerType {
			return wrong(n, "a whole number")
		}
	case reflect.Float64:
		if n.Type() != ast.IntegerType && n.Type() != ast.FloatType {
			return wrong(n, "a number")
		}
	default:
		return syntax(n, "cannot be set")
	}
	return nil
}

// checkText is for types that parse themselves: their own words say what is wrong.
func checkText(n ast.Node, t reflect.Type) error {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return wrong(n, "a text such as \"2GiB\" or \"24h\"")
	}
	if t == durationType {
		if _, err := time.ParseDuration(s.Value); err != nil {
			return syntax(n, fmt.Sprintf("%q is not a duration; write \"90s\", \"15m\" or \"24h\"", s.Value))
		}
		return nil
	}
	if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s.Value)); err != nil {
		return syntax(n, err.Error())
	}
	return nil
}

func checkMap(n ast.Node, t reflect.Type, depth int) error {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		return wrong(n, "a mapping (key: value)")
	}
	seen := map[string]bool{}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return syntax(v.Key, "a key is a plain word")
		}
		if seen[key.Value] {
			return syntax(v.Key, fmt.Sprintf("%q is given twice", key.Value))
		}
		seen[key.Value] = true
		var of reflect.Type
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if f, ok := field(t, key.Value); ok {
			of = f
		} else {
			return syntax(v.Key, fmt.Sprintf("unknown key %q; known here: %s", key.Value, strings.Join(fields(t), ", ")))
		}
		if err := checkNode(v.Value, of, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func field(t reflect.Type, key string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("yaml") == key {
			return f.Type, true
		}
	}
	return nil, false
}

func fields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if n := t.Field(i).Tag.Get("yaml"); n != "" && n != "-" {
			names = append(names, n)
		}
	}
	return names
}

func wrong(n ast.Node, want string) error {
	return syntax(n, fmt.Sprintf("expected %s, got %s", want, strings.ToLower(n.Type().String())))
}

func syntax(n ast.Node, msg string) error {
	return &yaml.SyntaxError{Message: msg, Token: n.GetToken()}
}
