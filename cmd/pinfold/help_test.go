package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// verbs lists every command below c that people are shown.
func verbs(c *cobra.Command) (paths [][]string) {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		paths = append(paths, append(strings.Fields(sub.CommandPath())[1:], []string{}...))
		paths = append(paths, verbs(sub)...)
	}
	return paths
}

func TestHelpTexts(t *testing.T) {
	home(t)
	code, out, _ := pinfold(t, "--help")
	require.Zero(t, code)
	golden(t, "help/pinfold.txt", out)
	all := verbs(newRoot(&app{}))
	require.Len(t, all, 13)
	for _, v := range all {
		t.Run(strings.Join(v, " "), func(t *testing.T) {
			code, out, stderr := pinfold(t, append(v, "--help")...)
			require.Zero(t, code)
			assert.Empty(t, stderr)
			assert.Contains(t, out, "Examples:")
			for _, line := range strings.Split(out, "\n") {
				assert.LessOrEqual(t, len(line), 130, "%s", line)
			}
			golden(t, "help/"+strings.Join(v, "-")+".txt", out)
		})
	}
}

func TestFaultsOfTheCommandLine(t *testing.T) {
	home(t)
	cases := map[string]struct {
		args []string
		says string
	}{
		"unknown verb":          {[]string{"sreve"}, `unknown command "sreve"`},
		"unknown flag":          {[]string{"serve", "--htpp", "x"}, "unknown flag: --htpp"},
		"argument to serve":     {[]string{"serve", "dir"}, "a folder is given by --workspace"},
		"run without a command": {[]string{"run"}, "run needs a command"},
		"config without client": {[]string{"config"}, "claude-desktop"},
		"attach without id":     {[]string{"attach"}, "attach needs one session"},
		"wrong value":           {[]string{"serve", "--sse=perhaps"}, "invalid argument"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := pinfold(t, c.args...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, out)
			assert.Contains(t, stderr, c.says)
			assert.Contains(t, stderr, "--help'.", "the next step")
			assert.NotContains(t, stderr, "Usage:", "a fault is two sentences, not a page")
		})
	}
}

func TestCompletionScriptsAreValidShell(t *testing.T) {
	home(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, out, _ := pinfold(t, "completion", shell)
		require.Zero(t, code)
		require.Contains(t, out, "pinfold")
		bin, err := exec.LookPath(shell)
		if err != nil {
			if shell == "bash" {
				t.Error("bash is needed to check its script")
			}
			continue
		}
		path := t.TempDir() + "/script"
		require.NoError(t, os.WriteFile(path, []byte(out), 0o600))
		said, err := exec.Command(bin, "-n", path).CombinedOutput()
		assert.NoError(t, err, "%s: %s", shell, said)
	}
}

func TestCompletionOffersWhatThereIs(t *testing.T) {
	home(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--tools", ""}, "minimal"},
		{[]string{"serve", "--template", ""}, "untrusted-code"},
		{[]string{"run", "--isolation", ""}, "gvisor"},
		{[]string{"config", ""}, "claude-desktop"},
		{[]string{"init", "--client", ""}, "vscode"},
	} {
		_, out, _ := pinfold(t, append([]string{"__complete"}, c.args...)...)
		assert.Contains(t, out, c.want, c.args)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := pinfold(t, "version")
	assert.Zero(t, code)
	assert.Regexp(t, `^pinfold \S+ \(linux/\S+, go\S+\)\n$`, out)
	code, out, _ = pinfold(t, "version", "--json")
	assert.Zero(t, code)
	assert.Contains(t, out, `"guest_protocol": 1`)
}
