package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// app is what every verb has: the streams of the process.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

const rootLong = `Pinfold gives an LLM agent hands: shell, files, code and a browser, all inside
one rootless Podman sandbox per session.

A client (Claude Desktop, Claude Code, VS Code, Cursor, Codex) starts
"pinfold serve" and speaks MCP with it. "pinfold config CLIENT" prints what to
put in that client's settings; "pinfold doctor" says whether this machine can.`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "pinfold",
		Short:         "Hands for LLM agents, inside one sandbox per session",
		Long:          rootLong,
		Example:       examples("pinfold doctor", "pinfold run -- python3 -c 'print(6*7)'", "pinfold config claude-code"),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err.Error()) })
	root.AddCommand(
		serveCommand(a), runCommand(a), doctorCommand(a), imageCommand(a), sessionsCommand(a), attachCommand(a),
		configCommand(a), initCommand(a), versionCommand(a),
	)
	return root
}

// examples lays commands out for a help text.
func examples(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }

// args checks the number of arguments and words the fault as usage.
func args(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return usage(cmd, want)
		}
		return nil
	}
}
