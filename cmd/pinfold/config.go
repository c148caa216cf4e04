package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// client is one MCP client: how its settings look and where they lie.
type client struct {
	name    string
	title   string
	file    func(home string) string // the user's own settings; empty when there are none
	project string                   // the project's settings, relative to it; empty when there are none
	snippet func(command string, args []string) string
	add     func(command string, args []string) string // a command of the client's that does it; may be nil
	shell   string                                     // how to switch off the client's own, unsandboxed shell
}

var clients = []client{
	{
		name: "claude-desktop", title: "Claude Desktop",
		file:    func(home string) string { return filepath.Join(home, ".config/Claude/claude_desktop_config.json") },
		snippet: mcpServers,
		shell: `Claude Desktop has no shell of its own. Remove other servers that run commands
on this machine (Desktop Commander and the like) from the same file: the model
would choose between them and the sandbox.`,
	},
	{
		name: "claude-code", title: "Claude Code",
		file:    func(home string) string { return filepath.Join(home, ".claude.json") },
		project: ".mcp.json",
		snippet: func(command string, args []string) string {
			return toJSON(map[string]any{"mcpServers": map[string]any{"pinfold": map[string]any{"type": "stdio", "command": command, "args": args}}})
		},
		add: func(command string, args []string) string {
			return "claude mcp add --scope user pinfold -- " + quoted(append([]string{command}, args...))
		},
		shell: `Claude Code's own Bash, Edit and Write act on this machine, not in the sandbox.
Put this into .claude/settings.json of the project (or ~/.claude/settings.json):

  {"permissions": {"deny": ["Bash", "Edit", "Write", "NotebookEdit"], "allow": ["mcp__pinfold"]}}`,
	},
	{
		name: "codex", title: "Codex",
		file:    func(home string) string { return filepath.Join(home, ".codex/config.toml") },
		project: ".codex/config.toml",
		snippet: codexTOML,
		add: func(command string, args []string) string {
			return "codex mcp add pinfold -- " + quoted(append([]string{command}, args...))
		},
		shell: `Codex's own shell acts on this machine. Switch it off in the same file, and let
what is left only read:

  sandbox_mode = "read-only"    # at the top, before the tables

  [features]
  shell_tool = false`,
	},
	{
		name: "vscode", title: "VS Code",
		file:    func(home string) string { return filepath.Join(home, ".config/Code/User/mcp.json") },
		project: ".vscode/mcp.json",
		snippet: func(command string, args []string) string {
			return toJSON(map[string]any{"servers": map[string]any{"pinfold": map[string]any{"type": "stdio", "command": command, "args": args}}})
		},
		shell: `VS Code's own terminal tool acts on this machine. In the chat view choose
"Configure Tools" and clear the built-in execute and edit tools; or keep an
agent of its own, .github/agents/pinfold.agent.md, that has no other tools:

  ---
  name: pinfold
  description: Works in the sandbox only.
  tools: ["pinfold/*"]
  ---`,
	},
	{
		name: "cursor", title: "Cursor",
		file:    func(home string) string { return filepath.Join(home, ".cursor/mcp.json") },
		project: ".cursor/mcp.json",
		snippet: mcpServers,
		shell: `Cursor's own terminal acts on this machine. In the editor, set Auto-Run to "Ask
Every Time" and refuse its terminal; for the command line, put this into
.cursor/cli.json of the project (or permissions into ~/.cursor/cli-config.json):

  {"permissions": {"deny": ["Shell(*)", "Write(**)"]}}`,
	},
	{
		name: "json", title: "any other client",
		snippet: mcpServers,
		shell: `Look for the client's own tools that run commands or write files on this
machine, and switch them off: the model would choose between them and the
sandbox.`,
	},
}

func clientNames() []string {
	names := make([]string, len(clients))
	for i, c := range clients {
		names[i] = c.name
	}
	return names
}

func findClient(name string) (client, error) {
	i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
	if i < 0 {
		return client{}, fail("Name one of: "+strings.Join(clientNames(), ", ")+".", "there is no client %q", name)
	}
	return clients[i], nil
}

func mcpServers(command string, args []string) string {
	return toJSON(map[string]any{"mcpServers": map[string]any{"pinfold": map[string]any{"command": command, "args": args}}})
}

func codexTOML(command string, args []string) string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = tomlString(a)
	}
	// A first start may have to find out about runtimes; calls answer within 45 s, but a model may ask for more.
	return fmt.Sprintf("[mcp_servers.pinfold]\ncommand = %s\nargs = [%s]\nstartup_timeout_sec = 30\ntool_timeout_sec = 600\n", tomlString(command), strings.Join(list, ", "))
}

// tomlString writes a basic string; TOML's escapes are JSON's.
func tomlString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(b)
}

func toJSON(v any) string {
	var b strings.Builder
	must(writeJSON(&b, v))
	return b.String()
}

// quoted writes a command line that a POSIX shell takes apart into argv again.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") != "" {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

const configLong = `Print what to put into a client's settings: the snippet with this program's
absolute path, the file it goes into, and how to switch off the client's own
shell, which would act on this machine and not in the sandbox.

Only the snippet goes to stdout; the words around it go to stderr.`

func configCommand(a *app) *cobra.Command {
	var template, workspace, toolSet string
	var onlySnippet bool
	cmd := &cobra.Command{
		Use:       "config CLIENT",
		Short:     "Print the settings for an MCP client",
		Long:      configLong,
		Example:   examples("pinfold config claude-desktop", "pinfold config claude-code --workspace ~/src/shop", "pinfold config codex --quiet >> ~/.codex/config.toml"),
		Args:      args(cobra.ExactArgs(1), "config needs one client: "+strings.Join(clientNames(), ", ")),
		ValidArgs: clientNames(),
		RunE: func(cmd *cobra.Command, given []string) error {
			c, err := findClient(given[0])
			if err != nil {
				return err
			}
			serveArgs, err := serveArgs(template, workspace, toolSet)
			if err != nil {
				return err
			}
			self, err := selfPath()
			if err != nil {
				return err
			}
			return a.printConfig(c, self, serveArgs, onlySnippet)
		},
	}
	f := cmd.Flags()
	f.StringVar(&template, "template", "", "template that the server starts sessions from")
	f.StringVar(&workspace, "workspace", "", "workspace of the server's sessions, DIR[:mode]")
	f.StringVar(&toolSet, "tools", "", "tools to offer: minimal, core or all")
	f.BoolVarP(&onlySnippet, "quiet", "q", false, "print the snippet alone")
	completeTemplates(cmd)
	completeWords(cmd, "tools", "minimal", "core", "all")
	return cmd
}

// serveArgs are the arguments of the server in a client's settings. Paths are
// made absolute, for no client promises a working directory.
func serveArgs(template, workspace, toolSet string) ([]string, error) {
	list := []string{"serve"}
	if template != "" {
		set, err := loadTemplates()
		if err != nil {
			return nil, err
		}
		if _, err := set.Get(template); err != nil {
			return nil, err
		}
		list = append(list, "--template", template)
	}
	if workspace != "" {
		ws, err := parseWorkspace(workspace)
		if err != nil {
			return nil, err
		}
		text := string(ws.Mode)
		if ws.Path != "" {
			text = ws.Path + ":" + text
		}
		list = append(list, "--workspace", text)
	}
	if toolSet != "" {
		if _, ok := toolSets[toolSet]; !ok {
			return nil, fail("Write minimal, core or all.", "tools: there is no set %q", toolSet)
		}
		list = append(list, "--tools", toolSet)
	}
	return list, nil
}

func (a *app) printConfig(c client, self string, serveArgs []string, quiet bool) error {
	if !quiet {
		fmt.Fprintf(a.stderr, "For %s, put this into %s:\n\n", c.title, c.where())
	}
	if _, err := fmt.Fprint(a.stdout, c.snippet(self, serveArgs)); err != nil {
		return err
	}
	if quiet {
		return nil
	}
	if c.add != nil {
		fmt.Fprintf(a.stderr, "\nor run:\n\n  %s\n", c.add(self, serveArgs))
	}
	fmt.Fprintf(a.stderr, "\nThe client's own shell:\n%s\n", c.shell)
	return nil
}

func (c client) where() string {
	var places []string
	if c.file != nil {
		places = append(places, c.file("~"))
	}
	if c.project != "" {
		places = append(places, c.project+" of the project")
	}
	if len(places) == 0 {
		return "its settings"
	}
	return strings.Join(places, ", or ")
}
