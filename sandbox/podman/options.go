package podman

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

	"pinfold.dev/pinfold/sandbox"
)

// Options say where an engine keeps its things and what it uses. The zero
// value works for a user with a home and Podman installed.
type Options struct {
	// Owner is the id of the server this engine works for: at most 32 lower
	// case letters, digits, dashes and underscores. Empty: one of this process.
	Owner string
	// RuntimeDir holds sockets; a folder of this engine is made in it. Default
	// $XDG_RUNTIME_DIR/pinfold, or a private folder in /tmp where that path
	// would be too long for a socket's.
	RuntimeDir string
	// CacheDir holds the unpacked guest and what was found out about runtimes.
	// Default $XDG_CACHE_HOME/pinfold.
	CacheDir string
	// StateDir holds the layers of overlay workspaces, which outlive a server.
	// Default $XDG_STATE_HOME/pinfold.
	StateDir string
	// Host is the address of a running service, unix:// only. Default
	// $CONTAINER_HOST; empty starts our own.
	Host string
	// Podman is the path of the program; default from PATH.
	Podman string
	// Runtime is the only runtime tried for IsolationContainer; default crun,
	// else runc, whichever really starts.
	Runtime string
	// GuestPath is a guest binary to use instead of the embedded one.
	GuestPath string
	// GVisorPlatform is passed to runsc; empty leaves its own default.
	GVisorPlatform string
	// Log receives what is worth knowing; default: nothing.
	Log *slog.Logger
}

// socketPathMax is what sun_path holds, with its NUL taken off.
const socketPathMax = 107

var (
	ownerGrammar   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	sessionGrammar = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

func (o Options) withDefaults() (Options, error) {
	if o.Owner == "" {
		o.Owner = fmt.Sprintf("pid%d", os.Getpid())
	}
	if !ownerGrammar.MatchString(o.Owner) {
		return o, sandbox.Errorf(sandbox.InvalidArgument,
			"Use at most 32 lower case letters, digits, dashes and underscores.", "%q is no owner's id", o.Owner)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Host == "" {
		o.Host = os.Getenv("CONTAINER_HOST")
	}
	if o.CacheDir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return o, sandbox.Errorf(sandbox.FailedPrecondition, "Set HOME.", "there is no cache folder: %v", err)
		}
		o.CacheDir = filepath.Join(base, "pinfold")
	}
	if o.StateDir == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return o, sandbox.Errorf(sandbox.FailedPrecondition, "Set HOME.", "there is no state folder: %v", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		o.StateDir = filepath.Join(base, "pinfold")
	}
	for _, d := range []string{o.CacheDir, o.StateDir} {
		if err := mountable(d); err != nil || !filepath.IsAbs(d) {
			return o, sandbox.Errorf(sandbox.InvalidArgument, "Set XDG_CACHE_HOME and XDG_STATE_HOME to plain absolute paths.", "%s cannot hold Pinfold's files: %v", bounded(d), err)
		}
	}
	dir, err := runtimeDir(o.RuntimeDir)
	if err != nil {
		return o, err
	}
	o.RuntimeDir = dir
	return o, nil
}

// runtimeDir returns the folder for sockets, made and private.
func runtimeDir(dir string) (string, error) {
	if dir == "" {
		base := os.Getenv("XDG_RUNTIME_DIR")
		if base == "" {
			base = fmt.Sprintf("/run/user/%d", os.Getuid())
		}
		if st, err := os.Stat(base); err == nil && st.IsDir() {
			dir = filepath.Join(base, "pinfold")
		}
	}
	// A socket's path holds 107 bytes, whatever the folder's name.
	if dir == "" || len(dir)+len("/e/")+32+len("/podman.sock") > socketPathMax {
		dir = fmt.Sprintf("/tmp/pinfold-%d", os.Getuid())
	}
	if err := privateDir(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// privateDir makes dir 0700, or checks that it is ours and closed to others: a
// name in /tmp can be taken by anyone.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sandbox.Errorf(sandbox.FailedPrecondition, "Free the path or set XDG_RUNTIME_DIR.", "the runtime folder %s cannot be made: %v", dir, err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking runtime folder: %w", err)
	}
	if !st.IsDir() || ownerOf(st) != os.Getuid() {
		return sandbox.Errorf(sandbox.FailedPrecondition, "Remove it or set XDG_RUNTIME_DIR.", "the runtime folder %s is not a folder of uid %d", dir, os.Getuid())
	}
	if st.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("closing runtime folder: %w", err)
		}
	}
	return nil
}
