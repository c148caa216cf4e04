package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/podman"
)

const doctorLong = `Try what a session needs, by doing it: start sandboxes, run a command, a Python
kernel, Chromium, gVisor. Each line says ok, warn or fail; a fault comes with its
cause and its cure. The exit code is 1 when something that sessions cannot do
without has failed.

--posture prints instead what encloses a session here: which walls, with what,
and whether credentials can enter.`

// Outcomes of one check.
const (
	isOK   = "ok"
	isWarn = "warn" // sessions work, something is weaker or missing
	isFail = "fail" // sessions do not work
	isSkip = "skip" // not tried, because of an earlier line
)

// check is one line of the doctor.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Cure   string `json:"cure,omitempty"`
	MS     int64  `json:"ms,omitempty"`
}

// patience of one trial; the first use of an image copies its layers.
const trialTime = 2 * time.Minute

func doctorCommand(a *app) *cobra.Command {
	var asJSON, showPosture bool
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say whether this machine can run sessions, by trying",
		Long:    doctorLong,
		Example: examples("pinfold doctor", "pinfold doctor --posture", "pinfold doctor --json"),
		Args:    args(cobra.NoArgs, "doctor takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showPosture {
				return a.posture(cmd.Context(), asJSON)
			}
			return a.doctor(cmd.Context(), asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&showPosture, "posture", false, "print what encloses a session")
	return cmd
}

// examination runs checks and keeps their outcome.
type examination struct {
	checks []check
	say    func(c check)
	engine *podman.Engine
	owner  string
	ctx    context.Context

	limitsSaid bool
}

func (a *app) doctor(ctx context.Context, asJSON bool) error {
	x := &examination{ctx: ctx, say: func(c check) { printCheck(a.stdout, c) }}
	if asJSON {
		x.say = func(check) {}
	}
	err := x.all(a)
	if asJSON {
		if err := writeJSON(a.stdout, struct {
			OK     bool    `json:"ok"`
			Build  build   `json:"build"`
			Checks []check `json:"checks"`
		}{!x.failed(), thisBuild(), x.checks}); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if x.failed() {
		return exitCode(exitFailure)
	}
	return nil
}

func (x *examination) failed() bool {
	for _, c := range x.checks {
		if c.Status == isFail {
			return true
		}
	}
	return false
}

func (x *examination) add(c check) {
	x.checks = append(x.checks, c)
	x.say(c)
}

func printCheck(w io.Writer, c check) {
	line := fmt.Sprintf("%-4s  %-22s  %s", c.Status, c.Name, printable(c.Detail))
	if c.MS > 0 {
		line += fmt.Sprintf("  (%d ms)", c.MS)
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
	if c.Cause != "" {
		fmt.Fprintf(w, "      cause: %s\n", printable(c.Cause))
	}
	if c.Cure != "" {
		fmt.Fprintf(w, "      cure:  %s\n", printable(c.Cure))
	}
}

// all runs every check; the error is of the doctor itself.
func (x *examination) all(a *app) (err error) {
	x.settings()
	log, _, err := newLog(a.stderr, slog.LevelError, "")
	if err != nil {
		return err
	}
	i, err := newInstance()
	if err != nil {
		x.fault("runtime folder", isFail, err)
		return nil
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	x.owner = i.id
	x.add(check{Name: "runtime folder", Status: isOK, Detail: i.dir})
	if x.engine, err = openEngine(i, log); err != nil {
		x.fault("podman", isFail, err)
		return nil
	}
	defer func() { err = errors.Join(err, x.engine.Close()) }()
	if x.probe() {
		x.trials()
	}
	return nil
}

// settings checks what is read before anything starts.
func (x *examination) settings() {
	set, err := loadTemplates()
	if err != nil {
		x.fault("templates", isFail, err)
	} else {
		x.add(check{Name: "templates", Status: isOK, Detail: strings.Join(set.Names(), ", ")})
	}
	if _, err := loadSettings(serveCommand(&app{}).Flags(), os.Environ(), ""); err != nil {
		x.fault("settings", isFail, err)
	} else {
		x.add(check{Name: "settings", Status: isOK, Detail: configDir()})
	}
}

// fault adds a line for an error, with its cause and cure.
func (x *examination) fault(name, status string, err error) {
	what, next := explain(err)
	x.add(check{Name: name, Status: status, Cause: what, Cure: next})
}

// probe asks the engine what this host has; it reports whether trials make sense.
func (x *examination) probe() bool {
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	r, err := x.engine.Probe(ctx)
	if err != nil {
		x.fault("podman", isFail, err)
		return false
	}
	x.add(check{Name: "podman", Status: isOK, Detail: strings.Join(nonEmpty(r.Engine, r.Service), ", ")})
	x.storage(r)
	works := slices.ContainsFunc(r.Runtimes, func(rt sandbox.RuntimeReport) bool { return rt.Works && rt.Isolation == sandbox.IsolationContainer })
	for _, rt := range r.Runtimes {
		x.add(runtimeCheck(rt, works))
	}
	fatal := false
	for _, f := range r.Findings {
		c := check{Name: f.ID, Status: isWarn, Cause: f.Cause, Cure: f.Cure}
		if f.Fatal {
			c.Status, fatal = isFail, true
		}
		x.add(c)
	}
	if len(r.Runtimes) > 0 && !works && !fatal {
		x.add(check{Name: "isolation container", Status: isFail, Cause: "no runtime starts a container here", Cure: "Install crun or runc."})
		fatal = true
	}
	x.limits(r)
	return !fatal
}

// runtimeCheck is the line of one runtime. Of several for one isolation, one is
// enough.
func runtimeCheck(rt sandbox.RuntimeReport, works bool) check {
	c := check{Name: "runtime " + rt.Name, Status: isOK, Detail: strings.Join(nonEmpty(rt.Version, "isolation "+string(rt.Isolation)), ", "), MS: rt.StartMS}
	switch {
	case rt.Works:
	case rt.Isolation == sandbox.IsolationGVisor:
		c.Status, c.Cause = isWarn, rt.Why
		c.Cure = "Run 'make setup', which builds gVisor's runsc, if templates are to use isolation gvisor."
	case works:
		c.Status, c.Detail = isSkip, "not used, another one works: "+rt.Why
	default:
		c.Status, c.Cause, c.Cure = isWarn, rt.Why, "Install another runtime: crun or runc."
	}
	return c
}

func (x *examination) storage(r sandbox.Report) {
	if r.Storage == "" {
		return
	}
	c := check{Name: "storage", Status: isOK, Detail: r.Storage}
	if r.Storage == "vfs" {
		c.Status, c.Cause = isWarn, "Podman's storage copies whole images, which is ten times slower"
		c.Cure = "Set driver = \"overlay\" in ~/.config/containers/storage.conf while there are no images yet."
	}
	x.add(c)
}

// limits names the limits that the kernel does not hold here.
func (x *examination) limits(r sandbox.Report) {
	var loose []string
	for _, name := range []string{"memory", "cpus", "pids", "disk", "shm", "files"} {
		if how, ok := r.Limits[name]; ok && how != "held" {
			loose = append(loose, name+" ("+how+")")
		}
	}
	switch {
	case len(loose) > 0:
		x.limitsSaid = true
		x.add(looseLimits("cgroups "+r.CgroupMode, loose))
	case len(r.Limits) > 0:
		x.add(check{Name: "limits", Status: isOK, Detail: "all held, cgroups " + r.CgroupMode})
	}
}

func looseLimits(detail string, loose []string) check {
	return check{Name: "limits", Status: isWarn, Detail: detail, Cause: "not all limits hold: " + strings.Join(loose, "; "),
		Cure: "For memory, cpus and pids boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) and let systemd delegate the controllers to users."}
}

func nonEmpty(s ...string) (out []string) {
	for _, x := range s {
		if x != "" {
			out = append(out, x)
		}
	}
	return out
}
