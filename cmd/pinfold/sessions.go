package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
)

const sessionsLong = `List the sessions of all servers of this user on this machine, with those that
are parked: stopped, with a workspace that holds changes.`

func sessionsCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "sessions",
		Short:   "List the sessions of all servers on this machine",
		Long:    sessionsLong,
		Example: examples("pinfold sessions", "pinfold sessions --json"),
		Args:    args(cobra.NoArgs, "sessions takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := overview(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.stdout, o)
			}
			return a.printOverview(o)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(sessionsCloseCommand(a))
	return cmd
}

func sessionsCloseCommand(a *app) *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "close SESSION",
		Short: "End a session",
		Long: `End a session of any server of this user: its commands, its browser, its sandbox.
A workspace that holds changes is kept and the session parked, unless --discard
is given; with it, the workspace of a parked session is removed too.`,
		Example:           examples("pinfold sessions close ses_4f1k2m", "pinfold sessions close --discard ses_4f1k2m"),
		Args:              args(cobra.ExactArgs(1), "close needs a session; 'pinfold sessions' lists them"),
		ValidArgsFunction: completeSessions,
		RunE: func(cmd *cobra.Command, given []string) error {
			keep := sandbox.KeepWorkspace
			if discard {
				keep = sandbox.KeepNothing
			}
			return a.closeSession(cmd.Context(), given[0], keep)
		},
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "remove the workspace, whatever it holds")
	return cmd
}

func (a *app) closeSession(ctx context.Context, want string, keep sandbox.Keep) error {
	parked, err := mcp.Parked(ctx, stateDir(), principal())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(parked, func(x mcp.SessionInfo) bool { return x.ID == want }); i >= 0 {
		if keep != sandbox.KeepNothing {
			return fail("Add --discard to remove its workspace for good.", "the session %s is parked already", want)
		}
		return a.discardParked(ctx, want)
	}
	dir, id, err := findSession(ctx, want)
	if err != nil {
		return err
	}
	r, err := ask(ctx, dir, controlRequest{Op: "close", Session: id, Keep: keep}, time.Minute)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Sessions, func(x mcp.SessionInfo) bool { return x.ID == id }) {
		_, err = fmt.Fprintf(a.stdout, "Closed %s. Its workspace holds changes and is kept; 'pinfold sessions close --discard %s' removes it.\n", id, id)
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "Closed %s. Nothing is kept but its journal.\n", id)
	return err
}

// discardParked removes a parked session without a server that has it.
func (a *app) discardParked(ctx context.Context, id string) error {
	v, err := open(a, settings{Template: templates.Default, Policy: "default", LogLevel: slog.LevelError}, "none")
	if err != nil {
		return err
	}
	if err = v.server.CloseSession(ctx, id, sandbox.KeepNothing); err == nil {
		fmt.Fprintf(a.stdout, "Removed the workspace of %s. Its journal stays.\n", id)
	}
	return errors.Join(err, v.close(func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), endHTTP)
	}))
}

// sessionList is what the verb shows.
type sessionList struct {
	Servers []listed          `json:"servers"`
	Parked  []mcp.SessionInfo `json:"parked"`
}

func overview(ctx context.Context) (sessionList, error) {
	o := sessionList{Servers: servers(ctx), Parked: []mcp.SessionInfo{}}
	if o.Servers == nil {
		o.Servers = []listed{}
	}
	parked, err := mcp.Parked(ctx, stateDir(), principal())
	if err != nil {
		return o, err
	}
	// Servers with another state folder know parked sessions of their own.
	for i := range o.Servers {
		s := &o.Servers[i]
		for _, x := range s.Sessions {
			if x.State == parkedState {
				parked = append(parked, x)
			}
		}
		s.Sessions = slices.DeleteFunc(s.Sessions, func(x mcp.SessionInfo) bool { return x.State == parkedState })
		if s.Sessions == nil {
			s.Sessions = []mcp.SessionInfo{}
		}
	}
	seen := map[string]bool{}
	for _, x := range parked {
		if !seen[x.ID] {
			o.Parked = append(o.Parked, x)
		}
		seen[x.ID] = true
	}
	return o, nil
}

const parkedState = "parked"

func (a *app) printOverview(o sessionList) error {
	t := tabwriter.NewWriter(a.stdout, 0, 0, 3, ' ', 0)
	rows := 0
	head := func() {
		if rows == 0 {
			fmt.Fprintln(t, "SESSION\tSTATE\tTEMPLATE\tWORKSPACE\tLAST USED\tCALLS\tSERVER")
		}
		rows++
	}
	for _, s := range o.Servers {
		for _, x := range s.Sessions {
			head()
			row(t, x, fmt.Sprintf("%s (pid %d, %s)", s.Server.ID, s.Server.PID, s.Server.Transport))
		}
	}
	for _, x := range o.Parked {
		head()
		row(t, x, "-")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	idle := 0
	for _, s := range o.Servers {
		if s.Error != "" {
			fmt.Fprintf(a.stderr, "%s: %s\n", s.Server.ID, s.Error)
		} else if len(s.Sessions) == 0 {
			idle++
		}
	}
	if rows == 0 {
		fmt.Fprintf(a.stderr, "There is no session, and %s.\n", count(idle, "server runs", "servers run"))
	}
	return nil
}

func count(n int, one, many string) string {
	switch n {
	case 0:
		return "no " + one
	case 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func row(w io.Writer, x mcp.SessionInfo, server string) {
	ws := string(x.Workspace.Mode)
	if x.Workspace.Path != "" {
		ws = x.Workspace.Path + ":" + ws
	}
	id := x.ID
	if x.Name != "" {
		id += " (" + printable(x.Name) + ")"
	}
	calls := fmt.Sprint(x.Calls)
	if x.State == parkedState {
		calls = "-" // the journal has them
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", id, x.State, x.Template, ws, ago(time.Since(x.LastUsed)), calls, server)
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
