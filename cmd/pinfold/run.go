package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/podman"
	"pinfold.dev/pinfold/templates"
)

// Exit codes of run that are not the command's own, as podman run has them.
const (
	exitRunFailed = 125 // Pinfold itself failed
	exitCannotRun = 126 // the command is there and cannot be run
	exitNoCommand = 127 // the command is not there
	exitSignal    = 128 // and the number of the signal
)

const runLong = `Run one command in a fresh sandbox, with this terminal's input and output, and
remove the sandbox afterwards.

The exit code is the command's own, or 128+N when signal N ended it; 125 is a
failure of Pinfold, 126 a command that cannot be run, 127 one that is not there.`

type runOptions struct {
	template, workspace, image, isolation string
	tty                                   bool
}

func runCommand(a *app) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Run one command in a fresh sandbox",
		Long:  runLong,
		Example: examples("pinfold run -- python3 -c 'print(6*7)'", "pinfold run --workspace . -- make test",
			"pinfold run --isolation gvisor --tty -- bash", "echo 1,2 | pinfold run -- cut -d, -f2"),
		Args: args(cobra.MinimumNArgs(1), "run needs a command, after --"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			return runFailed(a.run(cmd.Context(), o, argv))
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.template, "template", templates.Default, "template of the sandbox")
	f.StringVar(&o.workspace, "workspace", "", "workspace, DIR[:mode], mode overlay; or \"volume\" (default: by the template)")
	f.StringVar(&o.image, "image", "", "image: a reference, a digest, or \"host\" (default: by the template)")
	f.StringVar(&o.isolation, "isolation", "", "container, gvisor or vm; may only strengthen the template's")
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	completeTemplates(cmd)
	completeWords(cmd, "isolation", string(sandbox.IsolationContainer), string(sandbox.IsolationGVisor), string(sandbox.IsolationVM))
	return cmd
}

// runFailed gives a failure of our own its exit code.
func runFailed(err error) error {
	var code exitCode
	var f *failure
	var s signalled
	switch {
	case err == nil, errors.As(err, &code):
		return err
	case errors.As(err, &s):
		return exitCode(exitSignal + int(s.signal))
	case errors.As(err, &f) && f.code != exitFailure:
		return err
	}
	what, next := explain(err)
	return &failure{what: what, next: next, code: exitRunFailed, cause: err}
}

func (a *app) run(ctx context.Context, o runOptions, argv []string) error {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	// stderr is the command's: only what the outcome does not show is said there.
	log, _, err := newLog(a.stderr, slog.LevelError, "")
	if err != nil {
		return err
	}
	i, err := newInstance()
	if err != nil {
		return err
	}
	e, err := openEngine(i, log)
	if err != nil {
		return errors.Join(err, i.Close())
	}
	spec.Owner = i.id
	return errors.Join(a.runIn(ctx, e, spec, o, argv), e.Close(), i.Close())
}

func (o runOptions) spec() (sandbox.Spec, error) {
	set, err := loadTemplates()
	if err != nil {
		return sandbox.Spec{}, err
	}
	t, err := set.Get(o.template)
	if err != nil {
		return sandbox.Spec{}, err
	}
	ws, err := parseWorkspace(o.workspace)
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec, err := t.Spec(newSessionID(), "", templates.Choice{Workspace: ws, Isolation: sandbox.Isolation(o.isolation)})
	if err != nil {
		return spec, err
	}
	spec.Image = imageOf(t)
	if o.image != "" {
		spec.Image, spec.ReadOnlyRoot = o.image, spec.ReadOnlyRoot || o.image == sandbox.ImageHost
	}
	return spec, nil
}

// newSessionID names the sandbox of one run.
func newSessionID() string { return "ses_" + strings.ToLower(rand.Text()) }

func (a *app) runIn(ctx context.Context, e *podman.Engine, spec sandbox.Spec, o runOptions, argv []string) error {
	sb, err := e.Start(ctx, spec)
	if err != nil {
		return firstCause(ctx, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := sb.Remove(end); err != nil {
			what, _ := explain(err)
			fmt.Fprintf(a.stderr, "pinfold: the sandbox could not be removed now, the next start of Pinfold does it: %s\n", what)
		}
	}()
	client, err := connect(ctx, sb)
	if err != nil {
		return firstCause(ctx, err)
	}
	defer client.Close()
	return a.exec(ctx, client, o, argv)
}

// exec runs the command and passes its streams on until it has ended.
func (a *app) exec(ctx context.Context, client *guest.Client, o runOptions, argv []string) error {
	req := sandbox.ExecRequest{Argv: argv, OpenStdin: true, Background: true, Lossless: true}
	var t *terminal
	if o.tty {
		var err error
		if t, err = takeTerminal(a.stdin); err != nil {
			return err
		}
		defer t.giveBack()
		size := t.size()
		req.TTY = &size
	}
	r, err := client.Exec(ctx, req, nil)
	if err != nil {
		return commandFailure(argv[0], err)
	}
	s := &streams{client: client, process: r.Process, app: a, tty: o.tty, terminal: t}
	status, err := s.pass(ctx)
	if ctx.Err() != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = client.Kill(end, sandbox.KillRequest{Process: r.Process, Signal: "TERM", GraceMS: 1500})
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if code := status.code(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// outcome is how a command ended.
type outcome struct {
	exit   *int
	signal string
}

func (o outcome) code() int {
	if o.exit != nil {
		return *o.exit
	}
	if n := unix.SignalNum(o.signal); n != 0 {
		return exitSignal + int(n)
	}
	return exitRunFailed
}

// commandFailure tells a command that is not there from one that cannot be run.
func commandFailure(name string, err error) error {
	f := &failure{code: exitRunFailed, cause: err}
	f.what, f.next = explain(err)
	switch codeOf(err) {
	case sandbox.NotFound:
		f.code = exitNoCommand
		// The hint that comes with it is for callers who can pass a whole line.
		f.next = fmt.Sprintf("Check the spelling of %q; the sandbox has its own programs. For the shell's own words write: -- sh -c '…'", printable(name))
	case sandbox.PermissionDenied, sandbox.FailedPrecondition, sandbox.InvalidArgument:
		f.code = exitCannotRun
	}
	return f
}

// firstCause prefers the signal that ended us over the error it led to.
func firstCause(ctx context.Context, err error) error {
	var s signalled
	if errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}
