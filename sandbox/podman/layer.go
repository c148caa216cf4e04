package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// An overlay workspace is mounted by us, in the mount namespace that Podman's
// processes of this user share, and given to the container as a plain bind:
// Podman's own overlay volumes leave nosuid and nodev out, and gVisor, which
// knows no overlay in a container's description, drops them in silence.
//
// The session's folder holds upper and work, which are the layer, and merged,
// the mount's place.

// prepareLayer makes the folders of an overlay workspace's own layer, or finds
// those of the session that is resumed, and mounts it.
func (e *Engine) prepareLayer(ctx context.Context, s *service, p *plan) error {
	dir := e.sessionDir(workspaceSession(p.spec))
	p.merged = filepath.Join(dir, "merged")
	if p.spec.Resume != "" {
		r, ok := e.readRecord(p.spec.Resume)
		if !ok || !isDir(filepath.Join(dir, "upper")) {
			return workspaceGone(p.spec.Resume)
		}
		if r.Spec.Workspace != p.spec.Workspace {
			return sandbox.Errorf(sandbox.InvalidArgument, "Resume it with the workspace "+r.Spec.Workspace.Path+".", "session %s was over another folder", p.spec.Resume)
		}
		if s.layerMounted(p.merged) {
			return sandboxExists(p.spec.Session, nil)
		}
	} else {
		if exists(dir) {
			return sandboxExists(p.spec.Session, nil)
		}
		p.made.folder = true
		if err := e.writeRecord(record{Spec: p.spec}); err != nil {
			return err
		}
		// What uid 1000 sees of the top folder comes from the layer.
		st, err := os.Stat(p.spec.Workspace.Path)
		for _, d := range []string{"upper", "work", "merged"} {
			if err == nil {
				err = os.Mkdir(filepath.Join(dir, d), 0o700)
			}
		}
		if err == nil {
			err = os.Chmod(filepath.Join(dir, "upper"), st.Mode().Perm()|0o700)
		}
		if err != nil {
			return fmt.Errorf("making the workspace's layer: %w", err)
		}
	}
	options := "nosuid,nodev,userxattr,lowerdir=" + p.spec.Workspace.Path +
		",upperdir=" + filepath.Join(dir, "upper") + ",workdir=" + filepath.Join(dir, "work")
	if err := s.insideMounts(ctx, "mount", "-i", "-n", "-t", "overlay", "-o", options, "overlay", p.merged); err != nil {
		fault := sandbox.Errorf(sandbox.FailedPrecondition, "Use a folder on a local disk, or a workspace of mode volume.", "the folder %s cannot be seen through an overlay", p.spec.Workspace.Path)
		fault.Reason, fault.Cause = "overlay_failed", err
		return hostError(err, fault)
	}
	p.made.mount = true
	return nil
}

// unmountLayer takes the mount away; it is no error when there is none.
func (s *service) unmountLayer(ctx context.Context, merged string) error {
	if !s.layerMounted(merged) {
		return nil
	}
	// Lazily: a process of the sandbox may still be on its way out.
	return s.insideMounts(ctx, "umount", "-l", "-n", merged)
}

// layerMounted looks into the mount table of Podman's namespace.
func (s *service) layerMounted(merged string) bool {
	pid := s.pausePid()
	if pid == 0 {
		return exists(merged) // not known: let the program find out
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	return err == nil && mountAt(parseMounts(b), merged).path != ""
}

// mountable reports whether Podman and overlayfs can be told of a path: both
// split their options at these signs.
func mountable(path string) error {
	if strings.ContainsAny(path, ":,\\\"\x00\n") {
		return errors.New("its name holds a colon, comma, quote, backslash or line break, which cannot be mounted")
	}
	return nil
}

func workspaceGone(session string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.NotFound, Reason: "workspace_gone",
		Message: "the kept workspace of session " + session + " is gone", Hint: "Call session_open for a new session."}
}
