package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/tools"
)

// given loads the settings of a command line, environment and user file.
func given(t *testing.T, file string, environ []string, flags ...string) (settings, error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(configDir(), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(configDir(), "config.yaml"), []byte(file), 0o600))
	cmd := serveCommand(&app{})
	require.NoError(t, cmd.ParseFlags(flags))
	return loadSettings(cmd.Flags(), environ, "")
}

func TestSettingsPrecedence(t *testing.T) {
	home(t)
	file := "template: project\ntools: minimal\nlog_level: warn\n"
	s, err := given(t, "", nil)
	require.NoError(t, err)
	assert.Equal(t, settings{Template: "offline", Policy: "default", Tools: tools.Core, LogLevel: slog.LevelInfo}, s)

	s, err = given(t, file, nil)
	require.NoError(t, err)
	assert.Equal(t, "project", s.Template)
	assert.Equal(t, tools.Minimal, s.Tools)

	env := []string{"PINFOLD_TEMPLATE=host-tools", "PINFOLD_TOOLS=all"}
	s, err = given(t, file, env)
	require.NoError(t, err)
	assert.Equal(t, "host-tools", s.Template, "environment over file")
	assert.Equal(t, slog.LevelWarn, s.LogLevel, "what the environment does not say, the file does")

	s, err = given(t, file, env, "--template", "untrusted-code", "--tools=core")
	require.NoError(t, err)
	assert.Equal(t, "untrusted-code", s.Template, "flag over environment")
	assert.Equal(t, tools.Core, s.Tools, "a flag that says the default says it all the same")
}

func TestTheOperatorsFileWinsOverFlags(t *testing.T) {
	set, no := "minimal", false
	yes, all := true, "all"
	floor := layer{Tools: &set, NoAuth: &no, source: "/etc/pinfold/config.yaml"}
	http := "127.0.0.1:0"
	s, err := merge(floor, layer{Tools: &all, NoAuth: &yes, HTTP: &http}, builtinLayer())
	require.NoError(t, err)
	assert.Equal(t, tools.Minimal, s.Tools)
	assert.False(t, s.NoAuth)
}

func TestEveryFlagOfServeHasItsKey(t *testing.T) {
	keys := map[string]bool{}
	var l layer
	l.fields(func(key string, _ reflect.Value) { keys[key] = true })
	cmd := serveCommand(&app{})
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "help" {
			return
		}
		assert.True(t, keys[strings.ReplaceAll(f.Name, "-", "_")], "--%s has no key in config.yaml", f.Name)
	})
	for key := range keys {
		assert.NotNil(t, cmd.Flags().Lookup(strings.ReplaceAll(key, "_", "-")), "%s has no flag", key)
	}
}

func TestSettingsAreStrict(t *testing.T) {
	home(t)
	cases := map[string]struct {
		file string
		env  []string
		args []string
		says string
	}{
		"unknown key":            {file: "templat: x\n", says: `[1:1] unknown key "templat"`},
		"key given twice":        {file: "tools: all\ntools: core\n", says: "2:1"},
		"wrong type":             {file: "sse: \"yes\"\n", says: "[1:6] expected true or false"},
		"number for a text":      {file: "tools: 1\n", says: "expected a text"},
		"unknown tool set":       {file: "tools: most\n", says: `no set "most" (from `},
		"unknown level":          {env: []string{"PINFOLD_LOG_LEVEL=loud"}, says: `no level "loud" (from the environment)`},
		"boolean in words":       {env: []string{"PINFOLD_SSE=perhaps"}, says: "neither true nor false"},
		"another address":        {args: []string{"--http", "0.0.0.0:80"}, says: "not a loopback address"},
		"a name":                 {args: []string{"--http", "example.com:80"}, says: "not a loopback address"},
		"an empty host":          {args: []string{"--http", ":80"}, says: "not a loopback address"},
		"no port":                {args: []string{"--http", "127.0.0.1"}, says: "not an address with a port"},
		"a port too far":         {args: []string{"--http", "127.0.0.1:70000"}, says: "not a port"},
		"sse without http":       {args: []string{"--sse"}, says: "this server speaks stdio"},
		"no-auth without http":   {args: []string{"--no-auth"}, says: "this server speaks stdio"},
		"relative root":          {file: "roots: [src]\n", says: "not an absolute path"},
		"unknown workspace mode": {args: []string{"--workspace", "/nowhere:copy"}, says: `no mode "copy"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := given(t, c.file, c.env, c.args...)
			require.Error(t, err)
			what, next := explain(err)
			assert.Contains(t, what, c.says)
			assert.NotEmpty(t, next)
		})
	}
}

func TestTheNamedSettingsFileMustBeThere(t *testing.T) {
	home(t)
	_, err := loadSettings(serveCommand(&app{}).Flags(), nil, "/nowhere/config.yaml")
	assert.ErrorContains(t, err, "/nowhere/config.yaml")
	_, err = loadSettings(serveCommand(&app{}).Flags(), nil, "")
	assert.NoError(t, err, "without --config it is optional")
}

func TestWorkspaceFlag(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a:b")
	require.NoError(t, os.Mkdir(odd, 0o755))
	wd, err := os.Getwd()
	require.NoError(t, err)
	for text, want := range map[string]sandbox.Workspace{
		"":               {},
		"volume":         {Mode: sandbox.WorkspaceVolume},
		dir:              {Mode: sandbox.WorkspaceOverlay, Path: dir},
		dir + ":bind":    {Mode: sandbox.WorkspaceBind, Path: dir},
		".":              {Mode: sandbox.WorkspaceOverlay, Path: wd},
		odd:              {Mode: sandbox.WorkspaceOverlay, Path: odd},
		odd + ":overlay": {Mode: sandbox.WorkspaceOverlay, Path: odd},
	} {
		got, err := parseWorkspace(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

func TestLoopbackAddresses(t *testing.T) {
	for _, ok := range []string{"127.0.0.1:0", "127.8.8.8:7300", "[::1]:1", "localhost:65535"} {
		assert.NoError(t, checkAddress(ok), ok)
	}
	for _, bad := range []string{"10.0.0.1:1", "[::]:1", "[fe80::1]:1", "127.0.0.1.example:1", "2130706433:1", "localhost.:1", "[::ffff:10.0.0.1]:1"} {
		assert.Error(t, checkAddress(bad), bad)
	}
}
