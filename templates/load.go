package templates

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

//go:embed builtin/*.yaml
var builtin embed.FS

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`)
	envForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Folders says where templates lie beside the built-in ones. An empty or
// missing folder holds none.
type Folders struct {
	User  string // $XDG_CONFIG_HOME/pinfold/templates
	Floor string // /etc/pinfold/templates: the operator's, root's alone to write
}

// Set is all templates of a server. It does not change once loaded and is safe
// for concurrent use.
type Set struct {
	byName map[string]*Template
	source map[string]string
}

// Load reads all templates. A faulty file is an error, for a template that is
// silently missing would let a weaker one take its place.
func Load(f Folders) (*Set, error) {
	s := &Set{byName: map[string]*Template{}, source: map[string]string{}}
	files, err := fs.Glob(builtin, "builtin/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := builtin.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := s.add(file, "built-in", data); err != nil {
			return nil, err
		}
	}
	if err := s.addFolder(f.User, nil); err != nil {
		return nil, err
	}
	return s, s.addFolder(f.Floor, policies.RootOwned)
}

// Get returns the template of a name; the caller must not change it.
func (s *Set) Get(name string) (*Template, error) {
	if name == "" {
		name = Default
	}
	if t := s.byName[name]; t != nil {
		return t, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "Name one of: "+strings.Join(s.Names(), ", ")+".", "there is no template %q", clip(name))
}

// Names lists the templates, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.byName))
	for n := range s.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// All returns the templates by name; the map is the caller's.
func (s *Set) All() map[string]*Template { return maps.Clone(s.byName) }

// Source says where the template of a name comes from: a path, or "built-in".
func (s *Set) Source(name string) string { return s.source[name] }

func (s *Set) addFolder(dir string, trust func(path string) error) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading templates: %w", err)
	}
	if trust != nil {
		if err := trust(dir); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if trust != nil {
			if err := trust(path); err != nil {
				return err
			}
		}
		data, err := policies.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading template: %w", err)
		}
		if err := s.add(path, path, data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) add(path, source string, data []byte) error {
	t, err := Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if want := strings.TrimSuffix(filepath.Base(path), ".yaml"); t.Name != want {
		return fmt.Errorf("%s: the template is named %q and its file %q; give both the same name", path, t.Name, want)
	}
	s.byName[t.Name], s.source[t.Name] = t, source
	return nil
}

// Parse reads one template strictly; the error has line, column and the lines
// around it.
func Parse(data []byte) (*Template, error) {
	t := &Template{Isolation: sandbox.IsolationContainer, Reuse: ReuseSession, Workspace: Workspace{Mode: sandbox.WorkspaceVolume}}
	doc, err := policies.DecodeYAML(data, t)
	if err != nil {
		return nil, err
	}
	return t, t.check(doc)
}

func (t *Template) check(doc *policies.Doc) error {
	l := t.Limits
	for _, c := range []struct {
		bad       bool
		path, say string
	}{
		{t.Version != 1, "$.version", "version must be 1; this is the only one there is"},
		{!nameForm.MatchString(t.Name), "$.name", "name must be lower case letters, digits and dashes"},
		{t.Description == "", "$.name", "a description is needed; models and people choose by it"},
		{!t.Isolation.Stronger(sandbox.IsolationContainer), "$.isolation", "isolation is container, gvisor or vm"},
		{!slices.Contains([]sandbox.WorkspaceMode{sandbox.WorkspaceVolume, sandbox.WorkspaceOverlay, sandbox.WorkspaceBind}, t.Workspace.Mode), "$.workspace.mode", "mode is volume, overlay or bind"},
		{!slices.Contains([]Reuse{ReuseSession, ReuseTask, ReuseAgent}, t.Reuse), "$.reuse", "reuse is session, task or agent"},
		{l.CPUs < 0 || l.CPUs > 1024, "$.limits.cpus", "cpus is a number of cores between 0 and 1024"},
		{l.Pids < 0 || l.Pids > 1<<22, "$.limits.pids", "pids is a number of processes up to 4194304"},
		{t.Limits.Memory != 0 && t.Limits.Memory < 64<<20, "$.limits.memory", "memory must be at least 64MiB; the sandbox does not start in less"},
		{t.Lifetime.Max < 0, "$.lifetime.max", "max must not be negative"},
		{t.Lifetime.Park < 0, "$.lifetime.park", "park must not be negative"},
		{t.Image == sandbox.ImageHost && !t.ReadOnlyRoot, "$.image", "image host shares the machine's programs and needs read_only_filesystem: true"},
		{t.Image != strings.TrimSpace(t.Image) || strings.HasPrefix(t.Image, "-"), "$.image", "image is a reference, a digest, or host"},
		{t.Policy != "" && t.Policy != "default", "$.policy", "there is no such policy; default is the only one yet"},
	} {
		if c.bad {
			return doc.Errorf(c.path, "%s", c.say)
		}
	}
	for k, v := range t.Env {
		if !envForm.MatchString(k) || strings.ContainsRune(v, 0) {
			return doc.Errorf("$.env", "%q is no name of a variable", k)
		}
	}
	return nil
}

// clip shortens a hostile name for a message.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
