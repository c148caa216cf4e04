package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

var sessionTools = []*Tool{sessionOpen, sessionStatus, sessionClose}

// sessionTimeout covers a sandbox start on a busy machine; the answer comes
// sooner when the soft limit of clients ends.
const sessionTimeout = 50 * time.Second

type sessionOpenInput struct {
	Template  string          `json:"template,omitempty"`
	Name      string          `json:"name,omitempty" doc:"To resume it by later."`
	Workspace *workspaceInput `json:"workspace,omitempty" doc:"Default: the template's."`
	Isolation string          `json:"isolation,omitempty" enum:"container,gvisor,vm" doc:"Only stronger."`
}

type workspaceInput struct {
	Mode string `json:"mode" enum:"volume,overlay,bind" doc:"volume: empty. overlay: a host folder, unchanged by what you write."`
	Path string `json:"path,omitempty" doc:"Host folder."`
}

type sessionOpenOutput struct {
	Session   string      `json:"session"`
	Name      string      `json:"name,omitempty" schema:"-"`
	Template  string      `json:"template,omitempty" schema:"-"`
	Resumed   bool        `json:"resumed,omitempty" schema:"-"`
	Workspace string      `json:"workspace,omitempty"` // "/workspace: an empty volume"
	Isolation string      `json:"isolation,omitempty" schema:"-"`
	Limits    []limitLine `json:"limits,omitempty"`
	Policy    []string    `json:"policy,omitempty"`
	Asks      []string    `json:"asks,omitempty" schema:"-"`
	Refuses   []string    `json:"refuses,omitempty" schema:"-"`
	Deadline  string      `json:"deadline,omitempty" schema:"-"`
}

type limitLine struct {
	Limit string `json:"limit"`
	Value string `json:"value"`
	Holds bool   `json:"holds"`
	Note  string `json:"note,omitempty"`
}

func (o sessionOpenOutput) Text() string {
	var b strings.Builder
	verb := "Opened"
	if o.Resumed {
		verb = "Resumed"
	}
	fmt.Fprintf(&b, "%s session %s", verb, o.Session)
	if o.Name != "" {
		fmt.Fprintf(&b, " (%s)", o.Name)
	}
	fmt.Fprintf(&b, ": template %s, isolation %s.\nWorkspace: %s\n", o.Template, o.Isolation, o.Workspace)
	limits := make([]string, 0, len(o.Limits))
	for _, l := range o.Limits {
		s := l.Limit + " " + l.Value
		if !l.Holds {
			s += " (not held: " + l.Note + ")"
		}
		limits = append(limits, s)
	}
	fmt.Fprintf(&b, "Limits: %s.\n", strings.Join(limits, ", "))
	for _, p := range o.Policy {
		fmt.Fprintf(&b, "Policy: %s\n", p)
	}
	if len(o.Asks) > 0 {
		fmt.Fprintf(&b, "These ask a human first: %s.\n", strings.Join(o.Asks, ", "))
	}
	if len(o.Refuses) > 0 {
		fmt.Fprintf(&b, "These are refused: %s.\n", strings.Join(o.Refuses, ", "))
	}
	fmt.Fprintf(&b, "Closed at the latest: %s.", o.Deadline)
	return b.String()
}

var sessionOpen = define(Tool{
	Name:  "session_open",
	Title: "Open a session",
	Description: `Opens another sandbox, or resumes a parked one by session or name; says its limits and policy.
Not needed to begin: a call without session opens your own.`,
	Permission: policies.SessionManage,
	Set:        Core,
	Needs:      NeedsNothing,
	Timeout:    sessionTimeout,
}, func(in sessionOpenInput) string {
	what := []string{"template=" + in.Template}
	if in.Workspace != nil {
		what = append(what, "workspace="+in.Workspace.Mode+":"+in.Workspace.Path)
	}
	if in.Isolation != "" {
		what = append(what, "isolation="+in.Isolation)
	}
	return strings.Join(what, " ")
}, func(ctx context.Context, s *Session, in sessionOpenInput) (sessionOpenOutput, error) {
	r := SessionRequest{Template: in.Template, Name: in.Name, Isolation: sandbox.Isolation(in.Isolation)}
	if in.Workspace != nil {
		r.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceMode(in.Workspace.Mode), Path: in.Workspace.Path}
	}
	o, err := s.Control.OpenSession(ctx, r)
	if err != nil {
		return sessionOpenOutput{}, err
	}
	return sessionOpenOutput{Session: o.ID, Name: o.Name, Template: o.Template, Resumed: o.Resumed, Workspace: workspaceWords(o.Spec.Workspace),
		Isolation: isolationWords(o), Limits: limitLines(o), Policy: o.Policy, Asks: o.Asks, Refuses: o.Refuses, Deadline: o.Deadline}, nil
})

type sessionStatusInput struct {
	All bool `json:"all,omitempty" doc:"List the others too, parked ones included."`
}

type sessionStatusOutput struct {
	Session         string        `json:"session"`
	Name            string        `json:"name,omitempty" schema:"-"`
	State           string        `json:"state"`
	Why             string        `json:"why,omitempty" schema:"-"`
	Template        string        `json:"template,omitempty" schema:"-"`
	Workspace       string        `json:"workspace,omitempty" schema:"-"`
	Isolation       string        `json:"isolation,omitempty" schema:"-"`
	Processes       []processLine `json:"processes"`
	Listening       []int         `json:"ports"`
	Kernels         []string      `json:"kernels,omitempty" schema:"-"`
	Tabs            []string      `json:"tabs,omitempty" schema:"-"`
	ChromiumSandbox string        `json:"chromium_sandbox,omitempty" schema:"-"`
	Calls           []CallInfo    `json:"calls" schema:"-"`
	Usage           usage         `json:"usage" schema:"-"`
	Degraded        []string      `json:"degraded" schema:"-"`
	IdleDeadline    string        `json:"idle_deadline,omitempty" schema:"-"`
	Deadline        string        `json:"deadline,omitempty" schema:"-"`
	Journal         string        `json:"journal,omitempty" schema:"-"`
	Sessions        []SessionLine `json:"sessions,omitempty"`
}

type usage struct {
	Memory   int64 `json:"memory_bytes"`
	DiskFree int64 `json:"workspace_bytes_free"`
	Served   int64 `json:"calls"`
	Refused  int64 `json:"refused"`
}

type processLine struct {
	Process string `json:"process"`
	Command string `json:"command"`
	Status  string `json:"status"`
	AgeMS   int64  `json:"age_ms"`
	Bytes   int64  `json:"output_bytes"`
}

func (o sessionStatusOutput) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s: %s", o.Session, o.State)
	if o.Why != "" {
		fmt.Fprintf(&b, " (%s)", o.Why)
	}
	fmt.Fprintf(&b, ", template %s, isolation %s.\nWorkspace: %s\n%d calls served, %d refused.\n", o.Template, o.Isolation, o.Workspace, o.Usage.Served, o.Usage.Refused)
	for _, c := range o.Calls {
		fmt.Fprintf(&b, "Call %s: %s %s, %.1f s old. %s\n", c.Call, c.Tool, c.State, float64(c.AgeMS)/1000, c.Detail)
	}
	for _, p := range o.Processes {
		fmt.Fprintf(&b, "Process %s: %s, %.1f s old, %d bytes of output: %s\n", p.Process, p.Status, float64(p.AgeMS)/1000, p.Bytes, p.Command)
	}
	if len(o.Listening) > 0 {
		fmt.Fprintf(&b, "Listening ports: %s\n", strings.Trim(fmt.Sprint(o.Listening), "[]"))
	}
	for _, t := range o.Tabs {
		fmt.Fprintf(&b, "Browser tab: %s\n", t)
	}
	if o.ChromiumSandbox != "" {
		fmt.Fprintf(&b, "Chromium's own sandbox: %s.\n", o.ChromiumSandbox)
	}
	if o.State == "running" {
		fmt.Fprintf(&b, "Memory used: %s; workspace free: %s.\n", size(o.Usage.Memory), size(o.Usage.DiskFree))
	}
	for _, d := range o.Degraded {
		fmt.Fprintf(&b, "Not held on this host: %s\n", d)
	}
	for _, s := range o.Sessions {
		fmt.Fprintf(&b, "Session %s %s: %s, template %s, %s, last used %s\n", s.Session, s.Name, s.State, s.Template, s.Workspace, s.LastUsed)
	}
	if o.IdleDeadline != "" {
		fmt.Fprintf(&b, "Parked when unused until %s.\n", o.IdleDeadline)
	}
	return strings.TrimRight(b.String(), "\n")
}

// maxRows bounds each list of the status; the guest's are hostile.
const maxRows = 50

var sessionStatus = define(Tool{
	Name:  "session_status",
	Title: "Describe the session",
	Description: `Says what runs in the session: processes with their handles, ports, tabs, calls, limits that do not hold.
With all, your other sessions.`,
	Permission: policies.SessionRead,
	Hints:      Hints{ReadOnly: true, Idempotent: true},
	Set:        Core,
	Needs:      NeedsNothing,
	Timeout:    15 * time.Second,
}, func(sessionStatusInput) string { return "" },
	func(ctx context.Context, s *Session, in sessionStatusInput) (sessionStatusOutput, error) {
		r, err := s.Control.SessionStatus(ctx, in.All)
		if err != nil {
			return sessionStatusOutput{}, err
		}
		o := sessionStatusOutput{Session: r.ID, Name: r.Name, State: r.State, Why: r.Why, Template: r.Template,
			Workspace: workspaceWords(r.Spec.Workspace), Isolation: isolationWords(r.SessionOpened), Tabs: clipRows(r.Tabs), ChromiumSandbox: r.ChromiumSandbox,
			Calls: clipRows(r.Calls), Usage: usage{Served: r.Served, Refused: r.Refused}, Degraded: clipRows(r.Info.Posture.Degraded), IdleDeadline: r.IdleDeadline,
			Deadline: r.Deadline, Journal: r.Journal, Sessions: clipRows(r.All), Processes: []processLine{}, Listening: []int{}}
		if g := r.Guest; g != nil {
			o.Usage.Memory, o.Usage.DiskFree = g.Mem, g.Disk
			for _, p := range clipRows(g.Processes) {
				o.Processes = append(o.Processes, processLine{p.Process, clip(p.Command), string(p.Status), p.StartedMS, p.Bytes})
			}
			for _, l := range clipRows(g.Listening) {
				o.Listening = append(o.Listening, l.Port)
			}
			for _, k := range clipRows(g.Kernels) {
				o.Kernels = append(o.Kernels, fmt.Sprintf("%s (%s): %s", k.Context, k.Language, k.State))
			}
		}
		return o, nil
	})

type sessionCloseInput struct {
	Keep string `json:"keep,omitempty" enum:"nothing,workspace" doc:"Default nothing. workspace: to resume later."`
}

type sessionCloseOutput struct {
	Session  string `json:"session"`
	Kept     string `json:"kept"`
	Until    string `json:"until,omitempty" schema:"-"`
	Calls    int64  `json:"calls" schema:"-"`
	Refusals int64  `json:"refusals" schema:"-"`
	Seconds  int64  `json:"seconds" schema:"-"`
	Journal  string `json:"journal"`
}

func (o sessionCloseOutput) Text() string {
	s := fmt.Sprintf("Closed session %s after %d s: %d calls, %d refused. ", o.Session, o.Seconds, o.Calls, o.Refusals)
	if o.Kept == string(sandbox.KeepWorkspace) {
		s += fmt.Sprintf("The workspace is kept until %s; session_open resumes it. ", o.Until)
	} else {
		s += "Its sandbox and workspace are gone. "
	}
	return s + "Journal: " + o.Journal
}

var sessionClose = define(Tool{
	Name:  "session_close",
	Title: "Close the session",
	Description: `Ends the session's processes and sandbox, and its workspace unless it is kept.
Not needed at the end: then a changed workspace is kept for a while.`,
	Permission: policies.SessionManage,
	Hints:      Hints{Destructive: true},
	Set:        Full, // what can be opened can be closed
	Needs:      NeedsNothing,
	Timeout:    30 * time.Second,
}, func(in sessionCloseInput) string { return "keep=" + in.Keep },
	func(ctx context.Context, s *Session, in sessionCloseInput) (sessionCloseOutput, error) {
		keep := sandbox.KeepNothing
		if in.Keep != "" {
			keep = sandbox.Keep(in.Keep)
		}
		c, err := s.Control.CloseSession(ctx, keep)
		if err != nil {
			return sessionCloseOutput{}, err
		}
		return sessionCloseOutput{c.ID, string(c.Kept), c.Until, c.Calls, c.Refusals, c.Seconds, c.Journal}, nil
	})

func workspaceWords(w sandbox.Workspace) string {
	switch w.Mode {
	case sandbox.WorkspaceOverlay:
		return sandbox.WorkspaceDir + ": " + w.Path + " of the host; writes go to a layer, the folder stays as it is"
	case sandbox.WorkspaceBind:
		return sandbox.WorkspaceDir + ": " + w.Path + " of the host itself"
	}
	return sandbox.WorkspaceDir + ": a volume of its own"
}

func isolationWords(o SessionOpened) string {
	s := string(o.Spec.Isolation)
	if o.Info.Runtime != "" {
		s += " (" + o.Info.Runtime + ")"
	}
	return s
}

// limitLines says of each limit whether the host holds it. A degraded line
// names its limit first.
func limitLines(o SessionOpened) []limitLine {
	l := o.Spec.Limits.WithDefaults()
	lines := []limitLine{
		{Limit: "memory", Value: size(l.Memory)}, {Limit: "cpus", Value: fmt.Sprint(l.CPUs)}, {Limit: "pids", Value: fmt.Sprint(l.Pids)},
		{Limit: "disk", Value: size(l.Disk)}, {Limit: "shm", Value: size(l.Shm)},
	}
	for i := range lines {
		lines[i].Holds = true
		for _, d := range o.Info.Posture.Degraded {
			if strings.HasPrefix(strings.ToLower(d), lines[i].Limit) {
				lines[i].Holds, lines[i].Note = false, d
			}
		}
	}
	return lines
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d B", n)
}

func clipRows[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l[:min(len(l), maxRows)]
}
