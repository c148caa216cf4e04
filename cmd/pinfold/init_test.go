package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// project makes a folder with the given files.
func project(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, f := range files {
		path := filepath.Join(dir, f)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	return dir
}

func proposed(t *testing.T, args ...string) proposal {
	t.Helper()
	code, out, stderr := pinfold(t, append([]string{"init", "--json"}, args...)...)
	require.Zero(t, code, stderr)
	var p proposal
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

func TestInitLooksAtTheProject(t *testing.T) {
	home(t)
	cases := map[string]struct {
		files     []string
		languages []string
		template  string
	}{
		"python":                     {[]string{"pyproject.toml", "app.py"}, []string{"Python"}, "project"},
		"node and ts":                {[]string{"package.json", "tsconfig.json"}, []string{"JavaScript", "TypeScript"}, "project"},
		"rust alone":                 {[]string{"Cargo.toml"}, []string{"Rust"}, "host-tools"},
		"go and python":              {[]string{"go.mod", "tool.py"}, []string{"Go", "Python"}, "project"},
		"notebooks":                  {[]string{"a.ipynb"}, []string{"Notebooks"}, "project"},
		"nothing known":              {[]string{"notes.txt"}, nil, "project"},
		"a folder's name is no file": {[]string{"go.mod/x"}, nil, "project"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := project(t, c.files...)
			p := proposed(t, dir)
			var names []string
			for _, l := range p.Languages {
				names = append(names, l.Name)
			}
			assert.Equal(t, c.languages, names)
			assert.Equal(t, c.template, p.Template)
			assert.Equal(t, "overlay", p.Workspace)
			assert.NotEmpty(t, p.Why)
			assert.False(t, p.Written)
		})
	}
}

func TestInitFindsTheClientOfTheProject(t *testing.T) {
	h := home(t)
	require.NoError(t, os.MkdirAll(filepath.Join(h, ".codex"), 0o755))
	assert.Equal(t, "codex", proposed(t, project(t)).Client, "the one installed")
	assert.Equal(t, "vscode", proposed(t, project(t, ".vscode/mcp.json")).Client, "the one used in the project")
	assert.Equal(t, "cursor", proposed(t, project(t), "--client", "cursor").Client, "the one named")
}

func TestInitWritesNothingUnlessAsked(t *testing.T) {
	home(t)
	dir := project(t, "main.py")
	code, out, _ := pinfold(t, "init", dir, "--client", "claude-code")
	require.Zero(t, code)
	assert.Contains(t, out, "Put this into "+dir+"/.mcp.json")
	assert.NoFileExists(t, filepath.Join(dir, ".mcp.json"))
}

func TestInitNeverOverwritesWithoutForce(t *testing.T) {
	home(t)
	dir := project(t, "main.py")
	file := filepath.Join(dir, ".mcp.json")

	code, _, _ := pinfold(t, "init", dir, "--client", "claude-code", "--write")
	require.Zero(t, code)
	first, err := os.ReadFile(file)
	require.NoError(t, err)
	e := parseSnippet(t, "claude-code", string(first))
	assert.Equal(t, []string{"serve", "--template", "project", "--workspace", dir + ":overlay"}, e.Args)

	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o644))
	code, out, stderr := pinfold(t, "init", dir, "--client", "claude-code", "--write")
	assert.Equal(t, exitFailure, code)
	assert.Empty(t, out)
	assert.Contains(t, stderr, "is there already")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept))

	code, _, _ = pinfold(t, "init", dir, "--client", "claude-code", "--write", "--force")
	require.Zero(t, code)
	again, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, first, again)
}

func TestInitDoesNotWriteThroughALink(t *testing.T) {
	home(t)
	dir, elsewhere := project(t), filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(elsewhere, []byte("mine"), 0o644))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, ".mcp.json")))
	code, _, _ := pinfold(t, "init", dir, "--client", "claude-code", "--write", "--force")
	require.Zero(t, code)
	kept, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept), "the link is replaced, not what it points to")
}

func TestInitRefusesTheHomeItself(t *testing.T) {
	h := home(t)
	code, _, stderr := pinfold(t, "init", h)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "the whole home folder")
}
