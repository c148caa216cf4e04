package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/mcp"
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
	return cmd
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
		fmt.Fprintf(a.stderr, "There is no session; %s.\n", count(idle, "server runs without one", "servers run without one"))
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
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", id, x.State, x.Template, ws, ago(time.Since(x.LastUsed)), x.Calls, server)
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
