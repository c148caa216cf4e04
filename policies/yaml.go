package policies

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

const (
	maxYAML = 64 << 10 // bytes of one file; the shipped ones have two kilobytes
	maxNest = 16       // nested values; the parser recurses once for each, and our own types are at most six deep
)

// Doc is a decoded file that still knows where its values stand.
type Doc struct{ file *ast.File }

// DecodeYAML decodes one document into the struct that into points to, more
// strictly than the library's own strict mode: unknown and duplicate keys are
// errors, a number is no string, a string is no number, and there are no
// anchors, aliases, merges or tags, so that what a reader sees is what holds.
// Errors carry line, column and the lines around them. An empty document
// leaves into as it is.
func DecodeYAML(data []byte, into any) (doc *Doc, err error) {
	// The library has panicked on hostile input before; a bad file must be an error.
	defer func() {
		if r := recover(); r != nil {
			doc, err = nil, fmt.Errorf("not readable as YAML: %v", r)
		}
	}()
	if len(data) > maxYAML {
		return nil, fmt.Errorf("the file has %d bytes, at most %d are read", len(data), maxYAML)
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, err
	}
	doc = &Doc{file: file}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return nil, syntax(d.Body, "there is a second document; a file holds one")
		}
		body = d.Body
	}
	if body == nil {
		return doc, nil
	}
	if body.Type() == ast.CommentType || body.Type() == ast.CommentGroupType {
		return doc, nil
	}
	if err := checkNode(body, reflect.TypeOf(into).Elem(), 0); err != nil {
		return nil, err
	}
	if err := yaml.NewDecoder(strings.NewReader(""), yaml.Strict()).DecodeFromNode(body, into); err != nil && err != io.EOF {
		return nil, err
	}
	return doc, nil
}

// Errorf is an error at the value that path names ("$.rules[0].effect").
func (d *Doc) Errorf(path, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if p, err := yaml.PathString(path); err == nil {
		if n, err := p.FilterFile(d.file); err == nil && n != nil && n.GetToken() != nil {
			return syntax(n, msg)
		}
	}
	return fmt.Errorf("%s: %s", strings.TrimPrefix(path, "$."), msg)
}

// ReadFile reads a file of at most the size that DecodeYAML takes, without
// waiting on pipes or devices.
func ReadFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxYAML+1))
}

// RootOwned refuses a path that another user than root could have written,
// itself or through the folders above it. An operator's settings must be of
// this kind, for they win over the user's.
func RootOwned(path string) error {
	for p := path; ; p = filepath.Dir(p) {
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		// In a sticky folder (/tmp) others cannot replace what is root's.
		open := st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0
		if !ok || sys.Uid != 0 || st.Mode()&fs.ModeSymlink != 0 || open {
			return fmt.Errorf("%s must belong to root and be writable by root alone, as part of the operator's settings (%s)", p, path)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
