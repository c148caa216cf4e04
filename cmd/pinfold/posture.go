package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/podman"
	"pinfold.dev/pinfold/templates"
)

// enclosure is what stands around a session of one template, read back from a
// sandbox that was really started.
type enclosure struct {
	Template    string            `json:"template"`
	Isolation   sandbox.Isolation `json:"isolation"`
	Runtime     string            `json:"runtime,omitempty"`
	Workspace   string            `json:"workspace"`
	Posture     *sandbox.Posture  `json:"posture,omitempty"`
	Credentials string            `json:"credentials,omitempty"` // "none entered", or what did
	Lines       []string          `json:"lines"`
	Unavailable *controlError     `json:"unavailable,omitempty"`
	Rules       []string          `json:"policy"`
}

// posture starts a sandbox of each template and says what encloses it.
func (a *app) posture(ctx context.Context, asJSON bool) error {
	set, err := loadTemplates()
	if err != nil {
		return err
	}
	s, err := loadSettings(serveCommand(&app{}).Flags(), os.Environ(), "")
	if err != nil {
		return err
	}
	policy, err := loadPolicy(s.Policy)
	if err != nil {
		return err
	}
	os.Setenv(canaryName, canary)
	scratch, err := os.MkdirTemp("", "pinfold-posture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	var all []enclosure
	err = a.withEngine(slog.LevelError, func(e *podman.Engine, owner string) error {
		for _, name := range set.Names() {
			t, err := set.Get(name)
			if err != nil {
				return err
			}
			all = append(all, encloses(ctx, e, owner, t, scratch))
			if !asJSON {
				printEnclosure(a.stdout, all[len(all)-1])
			}
		}
		return ctx.Err()
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		err = writeJSON(a.stdout, struct {
			Sessions []enclosure `json:"sessions"`
			Policy   []string    `json:"policy"`
		}{all, policy.Text()})
	default:
		_, err = fmt.Fprintf(a.stdout, "policy %s\n  %s\n", policy.Name, strings.Join(policy.Text(), "\n  "))
	}
	for _, x := range all {
		if x.Credentials != "" && x.Credentials != noneEntered {
			return errors.Join(err, exitCode(exitFailure))
		}
	}
	return err
}

func encloses(ctx context.Context, e *podman.Engine, owner string, t *templates.Template, scratch string) enclosure {
	x := enclosure{Template: t.Name, Isolation: t.Isolation, Workspace: string(t.Workspace.Mode)}
	var c templates.Choice
	if t.Workspace.Mode == sandbox.WorkspaceOverlay {
		c.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: scratch}
	}
	spec, err := t.Spec(newSessionID(), "", c)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, trialTime)
		defer cancel()
		spec.Image, spec.Owner = imageOf(t), owner
		var sb sandbox.Sandbox
		if sb, err = e.Start(ctx, spec); err == nil {
			i := sb.Info()
			x.Runtime, x.Posture, x.Isolation = i.Runtime, &i.Posture, i.Isolation
			x.Credentials, err = tryCredentials(ctx, sb)
			x.Lines = postureLines(i, spec, x.Credentials)
			err = errors.Join(err, sb.Remove(context.WithoutCancel(ctx)))
		}
	}
	x.Unavailable = toControlError(err)
	return x
}

// canary is a mark in our own environment that must not be seen inside.
const canaryName = "PINFOLD_POSTURE_SECRET"

var canary = "canary-" + strings.ToLower(rand.Text())

const noneEntered = "none entered"

// tryCredentials looks from inside for the mark, and for the sockets through
// which keys are usually borrowed.
func tryCredentials(ctx context.Context, sb sandbox.Sandbox) (string, error) {
	client, err := connect(ctx, sb)
	if err != nil {
		return "", err
	}
	defer client.Close()
	look := `env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'; ls -d /run/user/*/* /tmp/ssh-* "$HOME"/.ssh "$HOME"/.aws "$HOME"/.docker "$HOME"/.config/gcloud /var/run/docker.sock 2>/dev/null; true`
	r, err := client.Exec(ctx, sandbox.ExecRequest{Argv: []string{"/bin/sh", "-c", look}, WaitMS: trialTime.Milliseconds(), TimeoutMS: trialTime.Milliseconds()}, nil)
	if err != nil {
		return "", err
	}
	var seen []string
	for line := range strings.Lines(r.Stdout.Text) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, "=")
		if strings.Contains(line, canary) || strings.HasPrefix(line, "/") || slices.Contains([]string{"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"}, name) {
			seen = append(seen, orDefault(name, line))
		}
	}
	if len(seen) > 0 {
		return "THESE ENTERED: " + strings.Join(seen, ", "), nil
	}
	return noneEntered, nil
}

// postureLines says in plain words what was read back.
func postureLines(i sandbox.Info, spec sandbox.Spec, credentials string) []string {
	p := i.Posture
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch i.Isolation {
	case sandbox.IsolationContainer:
		add("wall: the host's kernel, with its own namespaces (%s); a hole in that kernel is a hole in the wall", i.Runtime)
	case sandbox.IsolationGVisor:
		add("wall: a kernel of its own in user space (gVisor, %s) stands before the host's", i.Runtime)
	default:
		add("wall: %s (%s)", i.Isolation, i.Runtime)
	}
	if p.HostUserMapped {
		add("escape: a process that broke out would be your user, for the sandbox shares your files (%s)", p.UserNamespace)
	} else {
		add("escape: a process that broke out would own nothing on this machine (%s)", p.UserNamespace)
	}
	add("system calls: filtered (%s); commands add a stricter filter of their own", p.Seccomp)
	add("privileges: no_new_privs %s; pid 1 has %s; commands have none", onOff(p.NoNewPrivs), capabilities(p.Capabilities))
	add("files: %s", filesOf(spec))
	switch {
	case spec.Image == sandbox.ImageHost:
		add("programs: this machine's own, read-only: /usr and the user's toolchains can be read, nothing else of the host")
	case p.ReadOnlyRoot:
		add("programs: the image's, read-only")
	default:
		add("programs: a layer of the session's own over the image, gone with it")
	}
	add("network: %s but loopback; nothing leaves", orDefault(p.Network, "none"))
	add("credentials: %s, tried with a mark in this program's environment; no socket or key of yours is mounted%s", credentials, overlayWarning(spec))
	if len(p.Degraded) > 0 {
		add("limits: not all hold here: %s", strings.Join(p.Degraded, "; "))
	} else {
		add("limits: held")
	}
	return lines
}

func filesOf(spec sandbox.Spec) string {
	switch spec.Workspace.Mode {
	case sandbox.WorkspaceOverlay:
		return "the workspace's folder is readable; what is written goes to a layer and leaves it as it is; nothing else of yours is visible"
	case sandbox.WorkspaceBind:
		return "the workspace's folder itself, readable and writable; nothing else of yours is visible"
	}
	return "an empty workspace of its own; nothing of yours is visible"
}

// overlayWarning is the one way in which credentials do enter.
func overlayWarning(spec sandbox.Spec) string {
	if spec.Workspace.Mode == sandbox.WorkspaceVolume {
		return ""
	}
	return "; what lies in the workspace's folder itself (.env, tokens in .git/config) does enter"
}

func capabilities(c []string) string {
	if len(c) == 0 {
		return "no capabilities"
	}
	return strings.Join(c, ", ")
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func printEnclosure(w io.Writer, x enclosure) {
	fmt.Fprintf(w, "%s (isolation %s, workspace %s)\n", x.Template, x.Isolation, x.Workspace)
	if x.Unavailable != nil {
		fmt.Fprintf(w, "  cannot be started here: %s\n  %s\n", printable(x.Unavailable.Message), printable(x.Unavailable.Hint))
	}
	for _, l := range x.Lines {
		fmt.Fprintf(w, "  %s\n", l)
	}
	fmt.Fprintln(w)
}
