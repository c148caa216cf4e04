package policies

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load makes a policy of rules, for tests.
func load(t *testing.T, rules string) *Policy {
	t.Helper()
	p, err := Load([]byte("version: 1\nname: test\nrules:\n" + rules))
	require.NoError(t, err)
	return p
}

func TestDecide(t *testing.T) {
	const (
		allowAll  = "- {name: all, effect: allow, permissions: ['*']}\n"
		askShell  = "- {name: ask-shell, effect: ask, permissions: ['shell.*'], reason: a person looks}\n"
		denyExec  = "- {name: no-exec, effect: deny, permissions: [shell.exec], reason: no commands here}\n"
		denyTool  = "- {name: no-run, effect: deny, tools: [shell_run], reason: not this tool}\n"
		denyGlob  = "- {name: no-browser, effect: deny, tools: ['browser_*'], reason: no browser here}\n"
		allowRead = "- {name: read, effect: allow, permissions: [file.read]}\n"
		denyBoth  = "- {name: both, effect: deny, tools: [shell_run], permissions: [shell.exec], reason: both}\n"
	)
	run := Request{Tool: "shell_run", Permission: ShellExec}
	read := Request{Tool: "file_read", Permission: FileRead}
	cases := map[string]struct {
		rules  string
		r      Request
		effect Effect
		rule   string
	}{
		"what no rule names is denied":                              {allowRead, run, Deny, RuleNone},
		"what a rule allows is allowed":                             {allowRead, read, Allow, "read"},
		"deny beats allow, whatever comes first":                    {allowAll + denyExec, run, Deny, "no-exec"},
		"deny beats allow in the other order too":                   {denyExec + allowAll, run, Deny, "no-exec"},
		"ask beats allow":                                           {allowAll + askShell, run, Ask, "ask-shell"},
		"deny beats ask":                                            {askShell + denyExec + allowAll, run, Deny, "no-exec"},
		"a deny that names the tool is named before the family":     {denyExec + denyTool, run, Deny, "no-run"},
		"a rule with tool and permission is the most specific":      {denyTool + denyBoth, run, Deny, "both"},
		"of equal rules the first is named":                         {denyTool + strings.Replace(denyTool, "no-run", "later", 1), run, Deny, "no-run"},
		"a pattern of tools fits all of them":                       {allowAll + denyGlob, Request{Tool: "browser_act", Permission: BrowserAct}, Deny, "no-browser"},
		"a pattern of tools fits no other":                          {allowAll + denyGlob, read, Allow, "all"},
		"both selectors have to fit":                                {allowAll + denyBoth, Request{Tool: "shell_run", Permission: FileRead}, Allow, "all"},
		"a family fits only at the dot":                             {askShell, Request{Tool: "x", Permission: "shellx.exec"}, Deny, RuleNone},
		"tool names are compared exactly":                           {allowAll + denyTool, Request{Tool: "Shell_Run", Permission: ShellExec}, Allow, "all"},
		"an empty request is denied by a policy without a wildcard": {allowRead + askShell, Request{}, Deny, RuleNone},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			d := load(t, c.rules).Decide(c.r)
			assert.Equal(t, c.effect, d.Effect)
			assert.Equal(t, c.rule, d.Rule)
			if d.Effect != Allow {
				assert.NotEmpty(t, d.Reason, "a refusal has a reason")
				assert.NotEmpty(t, d.Hint, "a refusal says what to do")
			}
		})
	}
}

func TestDecideFailsClosed(t *testing.T) {
	run := Request{Tool: "shell_run", Permission: ShellExec}
	t.Run("an unknown effect denies, although another rule allows", func(t *testing.T) {
		p := &Policy{Rules: []Rule{
			{Name: "all", Effect: Allow, Permissions: []string{"*"}},
			{Name: "odd", Effect: "warn", Permissions: []string{"shell.exec"}},
		}}
		d := p.Decide(run)
		assert.Equal(t, Deny, d.Effect)
		assert.Equal(t, "odd", d.Rule)
		assert.Contains(t, d.Reason, "warn")
	})
	t.Run("the zero policy denies", func(t *testing.T) {
		assert.Equal(t, Deny, (&Policy{}).Decide(run).Effect)
	})
	t.Run("a rule without selectors fits nothing", func(t *testing.T) {
		p := &Policy{Rules: []Rule{{Name: "open", Effect: Allow}}}
		assert.Equal(t, Deny, p.Decide(run).Effect)
	})
}

func TestDefaultPolicyAllowsTheSandboxAndDeniesTheNetwork(t *testing.T) {
	p := Default()
	for _, perm := range Permissions {
		d := p.Decide(Request{Tool: "any_tool", Permission: perm})
		want := Allow
		if perm == NetConnect {
			want = Deny
		}
		assert.Equal(t, want, d.Effect, perm)
		assert.NotEqual(t, RuleNone, d.Rule, "the default policy names a rule for %s", perm)
	}
	assert.Len(t, p.Digest(), 64)
}

func TestDigestIsThatOfTheFile(t *testing.T) {
	a := load(t, "- {name: all, effect: allow, permissions: ['*']}\n")
	b := load(t, "- {name: all, effect: allow, permissions: ['*']} # same rules\n")
	assert.NotEqual(t, a.Digest(), b.Digest())
	assert.Equal(t, a.Digest(), load(t, "- {name: all, effect: allow, permissions: ['*']}\n").Digest())
}

func TestLoadNamesTheFault(t *testing.T) {
	rule := func(s string) string { return "version: 1\nname: test\nrules:\n  - " + s + "\n" }
	cases := map[string]struct{ yaml, says, at string }{
		"unknown key":                {rule("{name: a, efect: allow, permissions: ['*']}"), `unknown key "efect"`, "4:"},
		"unknown key at the top":     {"version: 1\nname: test\nrulez: []\n", `unknown key "rulez"`, "3:1"},
		"key given twice":            {"version: 1\nname: test\nname: other\n", "", "3:"},
		"version as a text":          {"version: \"1\"\nname: test\n", "whole number", "1:"},
		"name as a number":           {"version: 1\nname: 12\n", "text", "2:"},
		"effect as a bool":           {rule("{name: a, effect: yes, permissions: ['*']}"), "effect is allow, ask or deny", "4:"},
		"effect of another case":     {rule("{name: a, effect: Allow, permissions: ['*']}"), "effect is allow, ask or deny", "4:"},
		"tools as one text":          {rule("{name: a, effect: allow, tools: shell_run}"), "expected a list", "4:"},
		"unknown permission":         {rule("{name: a, effect: allow, permissions: [shell.exec, shell.run]}"), `"shell.run" is no permission`, "4:"},
		"family that does not exist": {rule("{name: a, effect: allow, permissions: ['files.*']}"), "is no permission", "4:"},
		"no selector":                {rule("{name: a, effect: allow}"), "names neither", "4:"},
		"deny without a reason":      {rule("{name: a, effect: deny, permissions: ['*']}"), "needs a reason", "4:"},
		"two rules of one name":      {rule("{name: a, effect: allow, permissions: ['*']}\n  - {name: a, effect: allow, permissions: ['*']}"), "is taken", "5:"},
		"reserved name":              {rule("{name: default-deny, effect: allow, permissions: ['*']}"), "is taken", "4:"},
		"character class":            {rule("{name: a, effect: allow, tools: ['[a-z]*']}"), "is no pattern", "4:"},
		"version 2":                  {"version: 2\nname: test\n", "version must be 1", "1:"},
		"alias":                      {"version: 1\nname: &n test\nrules: []\n", "anchors", "2:"},
		"tag":                        {"version: !!int 1\nname: test\n", "tags", "1:"},
		"merge":                      {"version: 1\nname: test\n<<: {}\n", "merges", "3:"},
		"two documents":              {"version: 1\nname: test\n---\nversion: 1\n", "second document", "4:"},
		"broken indentation":         {"version: 1\n name: test\n", "", ""},
		"a list at the top":          {"- version: 1\n", "mapping", "1:"},
		"null where a list belongs":  {"version: 1\nname: test\nrules: null\n", "expected a list", "3:"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]byte(c.yaml))
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
			if c.at != "" {
				assert.Contains(t, err.Error(), "["+c.at, "line and column")
				assert.Contains(t, err.Error(), ">  ", "the lines around it")
			}
		})
	}
}

func TestLoadBoundsItsInput(t *testing.T) {
	for name, in := range map[string]string{
		"too long":             strings.Repeat("#", maxYAML+1),
		"deep flow lists":      "name: " + strings.Repeat("[", 20000),
		"deep flow mappings":   "name: " + strings.Repeat("{a: ", 10000),
		"deep compact entries": strings.Repeat("- ", 20000) + "a",
		"deep block mappings":  deepBlocks(200),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]byte(in))
			assert.Error(t, err)
		})
	}
}

func deepBlocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "rules:\n")
	}
	return b.String()
}

func TestReadFileTakesRegularFilesOnly(t *testing.T) {
	_, err := ReadFile("/dev/zero")
	assert.ErrorContains(t, err, "not a regular file")
	big := t.TempDir() + "/big.yaml"
	require.NoError(t, os.WriteFile(big, make([]byte, 2*maxYAML), 0o600))
	data, err := ReadFile(big)
	require.NoError(t, err)
	_, err = Load(data)
	assert.ErrorContains(t, err, "at most")
}

// FuzzLoad holds that no input panics, hangs or loads a policy that breaks the
// loader's own promises.
func FuzzLoad(f *testing.F) {
	f.Add(defaultYAML)
	f.Add([]byte("version: 1\nname: t\nrules: [{name: a, effect: deny, tools: ['x*'], reason: r}]"))
	f.Add([]byte("version: 1\nname: *a\n"))
	f.Add([]byte("- - - {a: [b"))
	f.Add([]byte("\"\\u0000\": 1\n? a\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Load(data)
		if err != nil {
			return
		}
		for _, r := range p.Rules {
			if r.Effect.rank() == 3 && r.Effect != Deny {
				t.Fatalf("loaded the effect %q", r.Effect)
			}
		}
		if d := p.Decide(Request{Tool: "no_rule_can_name_this", Permission: "x"}); len(p.Rules) == 0 && d.Effect != Deny {
			t.Fatal("an empty policy allowed")
		}
	})
}

// A policy as the README shows it.
func TestAReadOnlyPolicy(t *testing.T) {
	p := load(t, `
  - name: reading
    effect: allow
    permissions: [file.read, browser.read, session.read]
  - name: no shell
    effect: deny
    tools: [shell_*, code_run]
    reason: This task reads; it runs nothing.
`)
	assert.Equal(t, Decision{Effect: Deny, Rule: "no shell", Reason: "This task reads; it runs nothing.", Hint: hintDeny},
		p.Decide(Request{Tool: "shell_run", Permission: ShellExec}))
	assert.Equal(t, Allow, p.Decide(Request{Tool: "file_read", Permission: FileRead}).Effect)
	assert.Equal(t, RuleNone, p.Decide(Request{Tool: "file_write", Permission: FileWrite}).Rule)
}

func TestTextSaysWhatIsRefusedFirst(t *testing.T) {
	text := Default().Text()
	assert.True(t, strings.HasPrefix(text[0], "Refused (no-network): net.connect - "), text[0])
	assert.Equal(t, "Everything else is refused.", text[len(text)-1])
}

func TestRootOwned(t *testing.T) {
	assert.NoError(t, RootOwned("/etc/passwd"))
	assert.Error(t, RootOwned("/nowhere"))
	link := t.TempDir() + "/link"
	require.NoError(t, os.Symlink("/etc/passwd", link))
	assert.ErrorContains(t, RootOwned(link), "must belong to root")
	open := t.TempDir() + "/open"
	require.NoError(t, os.WriteFile(open, nil, 0o600))
	require.NoError(t, os.Chmod(open, 0o666))
	assert.ErrorContains(t, RootOwned(open), "must belong to root")
	if os.Getuid() == 0 {
		require.NoError(t, os.Chmod(open, 0o600))
		assert.NoError(t, RootOwned(open), "also below a sticky folder, where others cannot replace it")
		require.NoError(t, os.Chown(open, 65534, 65534))
		assert.Error(t, RootOwned(open))
	}
}
