package podman

import (
	"math"
	"os"
	"path/filepath"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// validate checks a spec before anything is made from it.
func (e *Engine) validate(spec *sandbox.Spec) error {
	if !sessionGrammar.MatchString(spec.Session) {
		return sandbox.Errorf(sandbox.InvalidArgument, "Use at most 64 lower case letters, digits, dashes and underscores, not a dash first.", "%q is no session's id", bounded(spec.Session))
	}
	if spec.Resume != "" && !sessionGrammar.MatchString(spec.Resume) {
		return sandbox.Errorf(sandbox.InvalidArgument, "Name a session that ended with its workspace kept.", "%q is no session's id", bounded(spec.Resume))
	}
	if spec.Owner == "" {
		spec.Owner = e.opts.Owner
	}
	if !ownerGrammar.MatchString(spec.Owner) {
		return sandbox.Errorf(sandbox.InvalidArgument, "Use the id of this server.", "%q is no owner's id", bounded(spec.Owner))
	}
	if spec.Image != sandbox.ImageHost {
		if err := checkImageName(spec.Image); err != nil {
			return err
		}
	} else {
		spec.ReadOnlyRoot = true
	}
	switch spec.Isolation {
	case "":
		spec.Isolation = sandbox.IsolationContainer
	case sandbox.IsolationContainer, sandbox.IsolationGVisor:
	default:
		err := sandbox.Errorf(sandbox.FailedPrecondition, "Use container or gvisor.", "isolation %q cannot be had on this engine", bounded(string(spec.Isolation)))
		err.Reason = "isolation_missing"
		return err
	}
	l := spec.Limits.WithDefaults()
	if l.Memory < 64<<20 || l.CPUs <= 0 || math.IsNaN(l.CPUs) || l.CPUs > 4096 || l.Pids < 16 || l.Disk <= 0 || l.Shm < 0 || l.Files < 64 {
		return sandbox.Errorf(sandbox.InvalidArgument, "Give at least 64 MiB of memory, some cpu, 16 pids and 64 files.", "the limits are too low or not numbers")
	}
	return e.validateWorkspace(spec)
}

// validateWorkspace checks the workspace's mode and its folder on the host.
func (e *Engine) validateWorkspace(spec *sandbox.Spec) error {
	w := &spec.Workspace
	switch w.Mode {
	case "", sandbox.WorkspaceVolume:
		w.Mode = sandbox.WorkspaceVolume
		if w.Path != "" {
			return sandbox.Errorf(sandbox.InvalidArgument, "Leave the path out, or use mode overlay.", "a workspace of mode volume has no host path")
		}
		return nil
	case sandbox.WorkspaceOverlay:
	case sandbox.WorkspaceBind:
		err := sandbox.Errorf(sandbox.FailedPrecondition, "Use mode overlay: the host folder is seen, and changes go to a layer of their own.", "workspace mode bind is not available yet")
		err.Reason = "bind_unavailable"
		return err
	default:
		return sandbox.Errorf(sandbox.InvalidArgument, "Use volume or overlay.", "%q is no workspace mode", bounded(string(w.Mode)))
	}
	refuse := func(why string) error {
		err := sandbox.Errorf(sandbox.InvalidArgument, "Name a project folder by its absolute path, without links in it.", "%s cannot be the workspace: %s", bounded(w.Path), why)
		err.Reason = "bad_workspace"
		return err
	}
	if !filepath.IsAbs(w.Path) || filepath.Clean(w.Path) != w.Path {
		return refuse("the path is not absolute and clean")
	}
	if err := mountable(w.Path); err != nil {
		return refuse(err.Error())
	}
	real, err := filepath.EvalSymlinks(w.Path)
	if err != nil {
		return refuse("it cannot be read")
	}
	if real != w.Path {
		return refuse("there is a symbolic link in it; it stands for " + bounded(real))
	}
	st, err := os.Lstat(w.Path)
	if err != nil || !st.IsDir() {
		return refuse("it is not a folder")
	}
	for _, closed := range e.closedFolders() {
		if overlaps(closed.path, w.Path, closed.below) {
			return refuse(closed.why)
		}
	}
	return nil
}

type closedFolder struct {
	path  string
	below bool // folders below it are refused too, not only it and what holds it
	why   string
}

// closedFolders are those that no sandbox may see whole: the home itself and
// where Podman and Pinfold keep their things.
func (e *Engine) closedFolders() []closedFolder {
	home, _ := os.UserHomeDir()
	xdg := func(name, fallback string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return filepath.Join(home, fallback)
	}
	list := []closedFolder{{home, false, "it is or holds the home folder, with keys and histories in it"}}
	for _, p := range []string{
		filepath.Join(xdg("XDG_DATA_HOME", ".local/share"), "containers"),
		filepath.Join(xdg("XDG_CONFIG_HOME", ".config"), "containers"),
		filepath.Join(xdg("XDG_CONFIG_HOME", ".config"), "pinfold"),
		filepath.Join(xdg("XDG_STATE_HOME", ".local/state"), "pinfold"),
		filepath.Join(home, ".ssh"), filepath.Join(home, ".gnupg"),
		e.opts.RuntimeDir, e.opts.CacheDir, e.opts.StateDir, os.Getenv("XDG_RUNTIME_DIR"),
		"/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/root", "/var/lib/containers",
	} {
		if p != "" {
			list = append(list, closedFolder{p, true, "it overlaps a folder of Pinfold, Podman or the system (" + p + ")"})
		}
	}
	return list
}

// overlaps reports whether path is closed, holds it, or (with below) lies in it.
func overlaps(closed, path string, below bool) bool {
	if real, err := filepath.EvalSymlinks(closed); err == nil {
		closed = real
	}
	in := func(outer, inner string) bool {
		return outer == "/" || inner == outer || strings.HasPrefix(inner, outer+"/")
	}
	return in(path, closed) || below && in(closed, path)
}
