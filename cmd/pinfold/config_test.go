package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entry is the server as a client's settings name it.
type entry struct {
	Type    string   `json:"type" toml:"type"`
	Command string   `json:"command" toml:"command"`
	Args    []string `json:"args" toml:"args"`
}

func parseSnippet(t *testing.T, client, text string) entry {
	t.Helper()
	var doc struct {
		MCPServers map[string]entry `json:"mcpServers"`
		Servers    map[string]entry `json:"servers"`
		Codex      map[string]struct {
			entry
			Start int `toml:"startup_timeout_sec"`
			Call  int `toml:"tool_timeout_sec"`
		} `toml:"mcp_servers"`
	}
	if client == "codex" {
		meta, err := toml.Decode(text, &doc)
		require.NoError(t, err)
		require.Empty(t, meta.Undecoded())
		return doc.Codex["pinfold"].entry
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&doc), text)
	if client == "vscode" {
		return doc.Servers["pinfold"]
	}
	return doc.MCPServers["pinfold"]
}

func TestConfigSnippets(t *testing.T) {
	home(t)
	dir := t.TempDir() + "/a folder with 'quotes\" and\\"
	for _, name := range clientNames() {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := pinfold(t, "config", name, "--workspace", dir, "--template", "project", "--tools", "all")
			require.Zero(t, code, stderr)
			e := parseSnippet(t, name, out)
			assert.True(t, filepath.IsAbs(e.Command), "a client started from a window has no PATH: %s", e.Command)
			assert.Equal(t, []string{"serve", "--template", "project", "--workspace", dir + ":overlay", "--tools", "all"}, e.Args)
			assert.Contains(t, stderr, "The client's own shell:")
			if name == "vscode" || name == "claude-code" {
				assert.Equal(t, "stdio", e.Type)
			}
		})
	}
}

func TestConfigNamesWhereItGoesAndHowToSwitchTheOwnShellOff(t *testing.T) {
	home(t)
	for name, want := range map[string][]string{
		"claude-desktop": {"claude_desktop_config.json", "no shell of its own"},
		"claude-code":    {".mcp.json", "claude mcp add --scope user pinfold -- /", `"deny": ["Bash", "Edit", "Write"`},
		"codex":          {"~/.codex/config.toml", "shell_tool = false"},
		"vscode":         {".vscode/mcp.json", `tools: ["pinfold/*"]`},
		"cursor":         {".cursor/mcp.json", "Shell(*)"},
		"json":           {"its settings", "switch them off"},
	} {
		_, _, stderr := pinfold(t, "config", name)
		for _, w := range want {
			assert.Contains(t, stderr, w, name)
		}
	}
}

func TestConfigQuietPrintsTheSnippetAlone(t *testing.T) {
	home(t)
	code, out, stderr := pinfold(t, "config", "codex", "-q")
	assert.Zero(t, code)
	assert.Empty(t, stderr)
	assert.Equal(t, []string{"serve"}, parseSnippet(t, "codex", out).Args)
}

func TestConfigRefusesWhatTheServerWouldRefuse(t *testing.T) {
	home(t)
	for says, args := range map[string][]string{
		`there is no client "emacs"`:    {"config", "emacs"},
		`there is no template "none"`:   {"config", "json", "--template", "none"},
		`there is no set "some"`:        {"config", "json", "--tools", "some"},
		`there is no mode "copy"`:       {"config", "json", "--workspace", "/nowhere:copy"},
		"a volume has no folder of the": {"config", "json", "--workspace", "/tmp:volume"},
	} {
		code, out, stderr := pinfold(t, args...)
		assert.Equal(t, exitFailure, code)
		assert.Empty(t, out)
		assert.Contains(t, stderr, says)
	}
}

func TestQuotedSurvivesTheShell(t *testing.T) {
	argv := []string{"plain", "", "a b", `it's "so" \ $HOME $(id) ` + "`id`", "*"}
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+quoted(argv)).Output()
	require.NoError(t, err)
	assert.Equal(t, argv, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}
