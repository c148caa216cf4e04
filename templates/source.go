package templates

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Source resolves a folder of the host that is to stand behind a workspace. It
// must exist, be a folder of its own, and share nothing with the home itself,
// Pinfold's or Podman's folders, where a sandbox would see keys, other
// sessions or its own jailer. The path is returned without symbolic links.
func Source(path string) (string, error) {
	if path == "" {
		return "", sandbox.Errorf(sandbox.InvalidArgument, "Give the folder: --workspace DIR, or workspace.path.", "workspace: mode overlay needs a folder of the host")
	}
	if !filepath.IsAbs(path) {
		return "", sandbox.Errorf(sandbox.InvalidArgument, "Give an absolute path.", "workspace: %q is not an absolute path", clip(path))
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrPermission) {
		return "", closed(path)
	}
	if err != nil {
		return "", sandbox.Errorf(sandbox.NotFound, "Check the path; the folder must exist on this machine.", "workspace: %q cannot be opened", clip(path))
	}
	st, err := os.Stat(real)
	if err != nil || !st.IsDir() {
		return "", sandbox.Errorf(sandbox.InvalidArgument, "Give the folder that holds it.", "workspace: %q is not a folder", clip(path))
	}
	if unix.Access(real, unix.R_OK|unix.X_OK) != nil {
		return "", closed(path)
	}
	for _, p := range protected() {
		if within(real, p.path) && p.inside || within(p.path, real) {
			return "", sandbox.Errorf(sandbox.PermissionDenied, "Choose a project folder of its own, such as ~/src/project.",
				"workspace: %q would show the sandbox %s", clip(path), p.what)
		}
	}
	return real, nil
}

// closed is the error for a folder that this user may not look into; it names
// the user, who is another than the person when root started the program.
func closed(path string) error {
	name := "this user"
	if u, err := user.Current(); err == nil {
		name = "user " + u.Username
	}
	return sandbox.Errorf(sandbox.PermissionDenied, "Let that user into the folder and those above it, move the project where it may look, or run Pinfold as the project's owner.",
		"workspace: %q is there, or may be, but %s may not look into it", clip(path), name)
}

type guarded struct {
	path   string
	what   string
	inside bool // what lies inside is refused too, not only what lies above
}

func protected() []guarded {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	or := func(env, dflt string) string {
		if v := os.Getenv(env); filepath.IsAbs(v) {
			return v
		}
		return dflt
	}
	runtime := or("XDG_RUNTIME_DIR", "/run/user")
	list := []guarded{
		{home, "the whole home folder", false},
		{filepath.Join(home, ".ssh"), "the user's keys", true},
		{filepath.Join(home, ".gnupg"), "the user's keys", true},
		{filepath.Join(or("XDG_CONFIG_HOME", filepath.Join(home, ".config")), "pinfold"), "Pinfold's settings", true},
		{filepath.Join(or("XDG_STATE_HOME", filepath.Join(home, ".local/state")), "pinfold"), "Pinfold's journals", true},
		{filepath.Join(or("XDG_CACHE_HOME", filepath.Join(home, ".cache")), "pinfold"), "Pinfold's caches", true},
		{filepath.Join(or("XDG_DATA_HOME", filepath.Join(home, ".local/share")), "containers"), "Podman's storage", true},
		{filepath.Join(or("XDG_CONFIG_HOME", filepath.Join(home, ".config")), "containers"), "Podman's settings", true},
		{runtime, "the sockets of this user", true},
		{"/etc", "the host's settings", true}, {"/proc", "the host's processes", true}, {"/sys", "the host's kernel", true},
		{"/dev", "the host's devices", true}, {"/run", "the host's sockets", true}, {"/var/run", "the host's sockets", true},
		{"/boot", "the host's kernel", true}, {"/usr", "the host's programs", true},
		{"/var/lib", "the state of the host's services", false},
	}
	for i := range list {
		if real, err := filepath.EvalSymlinks(list[i].path); err == nil {
			list[i].path = real
		}
	}
	return list
}

// within reports whether path is dir or lies in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
