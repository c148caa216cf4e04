package podman

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	"github.com/containers/podman/v5/pkg/domain/entities"

	"pinfold.dev/pinfold/sandbox"
)

// found is everything of ours in the storage, by session.
type found struct {
	containers map[string]foundContainer
	volumes    map[string][]foundVolume
	folders    []string // sessions that have a folder of their own
}

type foundContainer struct {
	id    string
	state string
	pid   int
	spec  sandbox.Spec
	info  sandbox.Info
}

type foundVolume struct {
	name, use, owner, state string
}

var markFilter = map[string][]string{"label": {labelMark + "=1"}}

// find lists what is there. Things that carry our label but not our names are
// not ours.
func (e *Engine) find(ctx context.Context) (*found, error) {
	call, err := e.service.call(ctx)
	if err != nil {
		return nil, err
	}
	f := &found{containers: map[string]foundContainer{}, volumes: map[string][]foundVolume{}}
	list, err := containers.List(call, new(containers.ListOptions).WithAll(true).WithFilters(markFilter))
	if err != nil {
		return nil, e.service.fault("listing containers", err)
	}
	for _, c := range list {
		spec, ok := specOf(c.Names, c.Labels)
		if !ok {
			continue
		}
		info := sandbox.Info{
			ID: c.ID, Session: spec.Session, Owner: spec.Owner, Epoch: spec.Epoch, State: stateOf(c.State),
			Image: spec.Image, Isolation: spec.Isolation, Runtime: c.Labels[labelRuntime],
			Link: sandbox.Link(c.Labels[labelLink]), Workspace: spec.Workspace, Created: c.Created, Pid: c.Pid,
		}
		f.containers[spec.Session] = foundContainer{id: c.ID, state: c.State, pid: c.Pid, spec: spec, info: info}
	}
	vols, err := volumes.List(call, new(volumes.ListOptions).WithFilters(markFilter))
	if err != nil {
		return nil, e.service.fault("listing volumes", err)
	}
	for _, v := range vols {
		if s, use, ok := volumeParts(v); ok {
			f.volumes[s] = append(f.volumes[s], foundVolume{name: v.Name, use: use, owner: v.Labels[labelOwner], state: v.Labels[labelState]})
		}
	}
	folders, err := os.ReadDir(filepath.Join(e.opts.StateDir, "sandboxes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, d := range folders {
		if sessionGrammar.MatchString(d.Name()) {
			f.folders = append(f.folders, d.Name())
		}
	}
	return f, nil
}

func volumeParts(v *entities.VolumeListReport) (session, use string, ok bool) {
	rest, ok := strings.CutPrefix(v.Name, namePrefix)
	if !ok {
		return "", "", false
	}
	session, use, ok = strings.Cut(rest, ".")
	return session, use, ok && session == v.Labels[labelSession] && use == v.Labels[labelVolume] && sessionGrammar.MatchString(session)
}

func stateOf(podman string) sandbox.State {
	switch podman {
	case "running", "paused", "stopping":
		return sandbox.StateRunning
	}
	return sandbox.StateDead
}

// List returns the running and dead sandboxes of this user, and as stopped
// those whose workspace was kept.
func (e *Engine) List(ctx context.Context) ([]sandbox.Info, error) {
	f, err := e.find(ctx)
	if err != nil {
		return nil, err
	}
	var out []sandbox.Info
	used := map[string]bool{}
	for s, c := range f.containers {
		out = append(out, c.info)
		used[s], used[workspaceSession(c.spec)] = true, true
	}
	for _, s := range f.folders {
		if r, ok := e.readRecord(s); ok && r.Kept && !used[s] {
			out = append(out, sandbox.Info{
				ID: containerName(s), Session: s, Owner: r.Spec.Owner, Epoch: r.Spec.Epoch, State: sandbox.StateStopped,
				Image: r.Spec.Image, Isolation: r.Spec.Isolation, Workspace: r.Spec.Workspace, Created: r.Spec.Created,
			})
		}
	}
	slices.SortFunc(out, func(a, b sandbox.Info) int { return strings.Compare(a.Session, b.Session) })
	return out, nil
}

// Remove ends a sandbox, named by container or session, and removes all that
// belongs to it, its kept workspace included.
func (e *Engine) Remove(ctx context.Context, id string) error {
	f, err := e.find(ctx)
	if err != nil {
		return err
	}
	session := strings.TrimPrefix(id, namePrefix)
	for s, c := range f.containers {
		if c.id == id {
			session = s
		}
	}
	return e.removeSession(ctx, f, session, nil)
}

// removeSession removes what f holds of a session, but for the volumes and the
// layer of the sessions that keep names.
func (e *Engine) removeSession(ctx context.Context, f *found, session string, keep func(session string) bool) error {
	if !sessionGrammar.MatchString(session) {
		return nil
	}
	var errs []error
	sessions := []string{session}
	if c, ok := f.containers[session]; ok {
		errs = append(errs, e.service.removeContainer(ctx, containerName(session)), e.endStrays(ctx, c.info.Runtime, c.id))
		if c.spec.Resume != "" {
			sessions = append(sessions, c.spec.Resume)
		}
	}
	errs = append(errs, e.service.removeTree(ctx, filepath.Join(e.linkFolder(), session)))
	for _, s := range sessions {
		kept := keep != nil && keep(s)
		var names []string
		for _, v := range f.volumes[s] {
			if !kept || (v.use != volWorkspace && v.use != volHome) {
				names = append(names, v.name)
			}
		}
		errs = append(errs, e.service.removeVolumes(ctx, names...))
		if slices.Contains(f.folders, s) {
			errs = append(errs, e.service.unmountLayer(ctx, filepath.Join(e.sessionDir(s), "merged")))
		}
		if !kept && slices.Contains(f.folders, s) {
			errs = append(errs, e.service.removeTree(ctx, e.sessionDir(s)))
		}
	}
	return errors.Join(errs...)
}
