package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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

// hostWith has the program find only these on this machine.
func hostWith(t *testing.T, programs ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	t.Setenv("PATH", dir)
}

func TestInitLooksAtTheProjectAndTheMachine(t *testing.T) {
	cases := map[string]struct {
		files     []string
		host      []string
		languages []string
		template  string
		why       string
	}{
		"python":                         {[]string{"pyproject.toml", "app.py"}, nil, []string{"Python"}, "project", "the folder is left as it is"},
		"node and ts":                    {[]string{"package.json", "tsconfig.json"}, nil, []string{"JavaScript", "TypeScript"}, "project", ""},
		"rust, which the machine has":    {[]string{"Cargo.toml"}, []string{"cargo"}, []string{"Rust"}, "host-tools", "this machine has (cargo)"},
		"rust, which nobody has":         {[]string{"Cargo.toml"}, nil, []string{"Rust"}, "project", "neither Pinfold's image nor this machine"},
		"go and python":                  {[]string{"go.mod", "tool.py"}, []string{"go"}, []string{"Go", "Python"}, "host-tools", ""},
		"notebooks":                      {[]string{"a.ipynb"}, nil, []string{"Notebooks"}, "project", ""},
		"nothing known":                  {[]string{"notes.txt"}, nil, nil, "project", "no git repository"},
		"a folder's name is no file":     {[]string{"go.mod/x"}, nil, nil, "project", ""},
		"no podman":                      {[]string{"a.py"}, nil, []string{"Python"}, "project", "no Podman on this machine"},
		"a machine that could do better": {[]string{"a.py"}, []string{"podman", "runsc"}, []string{"Python"}, "project", "gVisor is here"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			home(t)
			hostWith(t, c.host...)
			p := proposed(t, project(t, c.files...))
			var names []string
			for _, l := range p.Languages {
				names = append(names, l.Name)
			}
			assert.Equal(t, c.languages, names)
			assert.Equal(t, c.template, p.Template)
			assert.Equal(t, "overlay", p.Workspace)
			assert.Contains(t, strings.Join(p.Why, "\n"), c.why)
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
