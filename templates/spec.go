package templates

import (
	"maps"
	"time"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
)

// Choice is what whoever uses a template may settle; zero fields take the
// template's own.
type Choice struct {
	Workspace sandbox.Workspace // Path is checked by Source first
	Isolation sandbox.Isolation // may only strengthen
}

// Spec is the sandbox that the template and a choice ask for. The image stays
// empty for Pinfold's own, which the engine resolves. Errors are *sandbox.Error.
func (t *Template) Spec(session, owner string, c Choice) (sandbox.Spec, error) {
	iso, err := t.isolation(c.Isolation)
	if err != nil {
		return sandbox.Spec{}, err
	}
	ws, err := t.workspace(c.Workspace)
	if err != nil {
		return sandbox.Spec{}, err
	}
	return sandbox.Spec{
		Session:   session,
		Owner:     owner,
		Image:     t.Image,
		Isolation: iso,
		Workspace: ws,
		Limits: sandbox.Limits{
			Memory: int64(t.Limits.Memory), CPUs: t.Limits.CPUs, Pids: t.Limits.Pids,
			Disk: int64(t.Limits.Disk), Shm: int64(t.Limits.Shm),
		}.WithDefaults(),
		ReadOnlyRoot:    t.ReadOnlyRoot || t.Image == sandbox.ImageHost,
		NestedSandboxes: t.NestedSandboxes,
		Env:             maps.Clone(t.Env),
		Labels:          map[string]string{"pinfold.template": t.Name},
		Created:         time.Now().UTC(),
	}, nil
}

// Lifetimes returns the template's lifetime with the defaults filled in.
func (t *Template) Lifetimes() Lifetime {
	l := t.Lifetime
	if l.Max == 0 {
		l.Max = DefaultMax
	}
	if l.Park == 0 {
		l.Park = DefaultPark
	}
	return l
}

// Rules returns the policy of the template.
func (t *Template) Rules() *policies.Policy { return policies.Default() }

func (t *Template) isolation(want sandbox.Isolation) (sandbox.Isolation, error) {
	if want == "" {
		return t.Isolation, nil
	}
	if !want.Stronger(sandbox.IsolationContainer) {
		return "", sandbox.Errorf(sandbox.InvalidArgument, "Name container, gvisor or vm.", "isolation: there is no %q", clip(string(want)))
	}
	if !want.Stronger(t.Isolation) {
		return "", sandbox.Errorf(sandbox.PermissionDenied, "Leave isolation out, or name a stronger one.",
			"isolation: the template %q asks for %s, which %s would weaken", t.Name, t.Isolation, want)
	}
	return want, nil
}

func (t *Template) workspace(ws sandbox.Workspace) (sandbox.Workspace, error) {
	if ws.Mode == "" {
		ws.Mode = t.Workspace.Mode
		if ws.Path != "" && ws.Mode == sandbox.WorkspaceVolume {
			ws.Mode = sandbox.WorkspaceOverlay
		}
	}
	switch ws.Mode {
	case sandbox.WorkspaceVolume:
		if ws.Path != "" {
			return ws, sandbox.Errorf(sandbox.InvalidArgument, "Leave the path out, or use mode overlay.", "workspace: a volume has no path on the host")
		}
		return ws, nil
	case sandbox.WorkspaceOverlay:
		path, err := Source(ws.Path)
		ws.Path = path
		return ws, err
	case sandbox.WorkspaceBind:
		return ws, sandbox.Errorf(sandbox.FailedPrecondition, "Use mode overlay, which shows the same files and keeps what is written in a layer.",
			"workspace: mode bind is not available yet, because its protections of the host are not")
	}
	return ws, sandbox.Errorf(sandbox.InvalidArgument, "Name volume or overlay.", "workspace: there is no mode %q", clip(string(ws.Mode)))
}
