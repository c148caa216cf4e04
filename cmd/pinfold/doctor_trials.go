package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pinfold.dev/pinfold/browser"
	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
)

// trials starts real sandboxes and does in each what sessions do.
func (x *examination) trials() {
	image := x.image()
	host := x.start("image: host", isWarn, sandbox.Spec{Image: sandbox.ImageHost, Isolation: sandbox.IsolationContainer, ReadOnlyRoot: true})
	if host != nil {
		x.command("image: host, command", isWarn, host)
		x.end(host)
	}
	if image == "" {
		if host == nil {
			x.add(check{Name: "any sandbox", Status: isFail, Cause: "there is no image yet, and image: host does not work either", Cure: "Run 'pinfold image build'."})
		}
		return
	}
	box := x.start("sandbox", isFail, sandbox.Spec{Image: image, Isolation: sandbox.IsolationContainer})
	if box != nil {
		x.command("command", isFail, box)
		x.python(box)
		x.chromium("chromium", box)
		x.end(box)
		x.overlay(image)
	}
	strong := x.start("gvisor", isWarn, sandbox.Spec{Image: image, Isolation: sandbox.IsolationGVisor})
	if strong != nil {
		x.command("gvisor, command", isWarn, strong)
		x.chromium("gvisor, chromium", strong)
		x.end(strong)
	}
}

// image returns Pinfold's own image when it is there.
func (x *examination) image() string {
	recipe, err := templates.ImageRecipe()
	if err != nil {
		x.fault("image", isFail, err)
		return ""
	}
	s, err := x.engine.ImageState(x.ctx, recipe.Reference())
	switch {
	case err != nil:
		x.fault("image", isFail, err)
	case s.Ready:
		x.add(check{Name: "image", Status: isOK, Detail: recipe.Reference()})
		return recipe.Reference()
	default:
		x.fault("image", isWarn, s.Missing())
	}
	return ""
}

// start makes a sandbox and waits for its guest. A failure is a line of the
// given status, and nil.
func (x *examination) start(name, status string, spec sandbox.Spec) *mcp.Box {
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	spec.Session, spec.Owner, spec.Created = newSessionID(), x.owner, time.Now().UTC()
	if spec.Workspace.Mode == "" {
		spec.Workspace.Mode = sandbox.WorkspaceVolume
	}
	spec.Limits = sandbox.Limits{}.WithDefaults()
	began := time.Now()
	box, err := launcher{engine: x.engine, log: slog.New(slog.DiscardHandler)}.Launch(ctx, spec)
	if err != nil {
		x.fault(name, status, err)
		return nil
	}
	i := box.Sandbox.Info()
	if !x.limitsSaid && len(i.Posture.Degraded) > 0 {
		x.limitsSaid = true
		x.add(looseLimits("", i.Posture.Degraded))
	}
	x.add(check{Name: name, Status: isOK, MS: time.Since(began).Milliseconds(),
		Detail: fmt.Sprintf("started with %s, guest ready over %s", i.Runtime, i.Link)})
	return box
}

// overlay tries a workspace over a folder of the host: it is read, and stays as
// it is.
func (x *examination) overlay(image string) {
	const name = "workspace overlay"
	dir, err := os.MkdirTemp("", "pinfold-doctor-")
	if err != nil {
		x.fault(name, isWarn, err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "note")
	if err := os.WriteFile(file, []byte("host"), 0o644); err != nil {
		x.fault(name, isWarn, err)
		return
	}
	box := x.start(name, isWarn, sandbox.Spec{Image: image, Isolation: sandbox.IsolationContainer, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: dir}})
	if box == nil {
		return
	}
	defer x.end(box)
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	r, err := box.Guest.Exec(ctx, sandbox.ExecRequest{Argv: []string{"sh", "-c", "cat note && echo sandbox > note && cat note"}, WaitMS: trialTime.Milliseconds()}, nil)
	kept, readErr := os.ReadFile(file)
	switch {
	case err != nil || readErr != nil:
		x.fault(name+", write", isWarn, errors.Join(err, readErr))
	case r.Stdout.Text != "hostsandbox\n" || string(kept) != "host":
		x.add(check{Name: name + ", write", Status: isFail, Cause: fmt.Sprintf("the sandbox saw %q, %q, and the host's file is now %q", r.Stdout.Text, r.Stderr.Text, kept),
			Cure: "Do not use workspace overlay here, and report this with the output of 'pinfold doctor --json'."})
	default:
		x.add(check{Name: name + ", write", Status: isOK, Detail: "the host's folder is read, and stays as it is"})
	}
}

func (x *examination) end(box *mcp.Box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), time.Minute)
	defer cancel()
	_ = box.Guest.Close()
	if err := box.Sandbox.Remove(ctx); err != nil {
		x.fault("removal", isWarn, err)
	}
}

func (x *examination) command(name, status string, box *mcp.Box) {
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	began := time.Now()
	r, err := box.Guest.Exec(ctx, sandbox.ExecRequest{Argv: []string{"id", "-u"}, WaitMS: trialTime.Milliseconds(), TimeoutMS: trialTime.Milliseconds()}, nil)
	took := time.Since(began).Milliseconds()
	switch {
	case err != nil:
		x.fault(name, status, err)
	case r.ExitCode == nil || *r.ExitCode != 0 || strings.TrimSpace(r.Stdout.Text) != fmt.Sprint(sandbox.AgentUID):
		x.add(check{Name: name, Status: status, Cause: fmt.Sprintf("'id -u' answered %q, %q", r.Stdout.Text, r.Stderr.Text),
			Cure: "Report this with the output of 'pinfold doctor --json'."})
	default:
		x.add(check{Name: name, Status: isOK, Detail: "runs as uid 1000 without capabilities", MS: took})
	}
}

func (x *examination) python(box *mcp.Box) {
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	began := time.Now()
	r, err := box.Guest.RunCode(ctx, sandbox.CodeRequest{Code: "6*7", Language: "python", TimeoutMS: 60_000, WaitMS: 60_000}, nil)
	if err != nil {
		x.fault("python kernel", isWarn, err)
		return
	}
	for _, o := range r.Outputs {
		if o.Type == "result" && strings.TrimSpace(o.Text) == "42" {
			x.add(check{Name: "python kernel", Status: isOK, Detail: "computes, state is kept", MS: time.Since(began).Milliseconds()})
			return
		}
	}
	x.add(check{Name: "python kernel", Status: isWarn, Cause: fmt.Sprintf("6*7 ended with status %s and %d outputs, none of which is 42", r.Status, len(r.Outputs)),
		Cure: "Make the image anew with 'pinfold image build', and try 'code_run' again."})
}

// boxHost is a sandbox of the doctor's own as a browser's machine.
type boxHost struct {
	mcp.Guest
	sb sandbox.Sandbox
}

func (h boxHost) Info() sandbox.Info { return h.sb.Info() }

func (h boxHost) Launch(ctx context.Context, argv, env []string) (sandbox.Stream, error) {
	return h.sb.Exec(ctx, sandbox.ExecSpec{Argv: argv, UID: sandbox.BrowserUID, GID: sandbox.BrowserGID, Dir: sandbox.BrowserDir, Env: env})
}

func (x *examination) chromium(name string, box *mcp.Box) {
	ctx, cancel := context.WithTimeout(x.ctx, trialTime)
	defer cancel()
	began := time.Now()
	b := browser.New(browserHost{boxHost{box.Guest, box.Sandbox}}, browser.Options{Home: sandbox.BrowserDir, NoGPU: box.Sandbox.Info().Isolation == sandbox.IsolationGVisor})
	defer closingBrowser{b}.Close()
	if _, err := b.Navigate(ctx, browser.NavigateRequest{URL: "about:blank", Snapshot: "none"}); err != nil {
		x.fault(name, isWarn, err)
		return
	}
	x.add(check{Name: name, Status: isOK, Detail: "first page is open", MS: time.Since(began).Milliseconds()})
}
