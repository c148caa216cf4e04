package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// operatorDir holds the operator's floor, which wins over everything else.
const operatorDir = "/etc/pinfold"

// standardPath is what a helper program is looked for in when the host that
// started us gave no PATH, or a short one.
const standardPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// deriveEnvironment fills in what hosts with a window leave out: they start
// servers with HOME and PATH and little else, and Podman needs the rest.
func deriveEnvironment() {
	uid := strconv.Itoa(os.Getuid())
	if u, err := user.LookupId(uid); err == nil {
		setDefault("HOME", u.HomeDir)
		setDefault("USER", u.Username)
		setDefault("LOGNAME", u.Username)
	}
	os.Setenv("PATH", completePath(os.Getenv("PATH")))
	if !ownFolder(os.Getenv("XDG_RUNTIME_DIR")) {
		if dir := "/run/user/" + uid; ownFolder(dir) {
			os.Setenv("XDG_RUNTIME_DIR", dir)
		} else {
			// A folder of another user is worse than none: Podman finds its own.
			os.Unsetenv("XDG_RUNTIME_DIR")
		}
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		if bus := filepath.Join(dir, "bus"); isSocket(bus) {
			setDefault("DBUS_SESSION_BUS_ADDRESS", "unix:path="+bus)
		}
	}
}

func setDefault(key, value string) {
	if os.Getenv(key) == "" && value != "" {
		os.Setenv(key, value)
	}
}

// completePath appends the standard folders that a PATH lacks, without
// changing the order of those it has.
func completePath(path string) string {
	have := filepath.SplitList(path)
	seen := map[string]bool{}
	for _, d := range have {
		seen[d] = true
	}
	for _, d := range filepath.SplitList(standardPath) {
		if !seen[d] {
			have = append(have, d)
		}
	}
	return strings.Join(have, string(os.PathListSeparator))
}

// ownFolder reports whether a path is a folder that is ours alone to write.
func ownFolder(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	st, err := os.Lstat(path)
	if err != nil || !st.IsDir() || st.Mode().Perm()&0o022 != 0 {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid()
}

func isSocket(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&os.ModeSocket != 0
}

// maxRuntimeDir leaves room for "/pinfold/SERVER/control.sock" in the 107
// bytes of a socket's address.
const maxRuntimeDir = 60

// runtimeDirs lists the folders in which servers of this user may be found,
// the first being the one a new server uses.
func runtimeDirs() []string {
	uid := strconv.Itoa(os.Getuid())
	var dirs []string
	for _, d := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/run/user/" + uid} {
		if d = filepath.Clean(d); ownFolder(d) && len(d) <= maxRuntimeDir && (len(dirs) == 0 || dirs[0] != filepath.Join(d, "pinfold")) {
			dirs = append(dirs, filepath.Join(d, "pinfold"))
		}
	}
	return append(dirs, "/tmp/pinfold-"+uid)
}

// runtimeDir makes and returns the folder of the servers of this user, 0700.
func runtimeDir() (string, error) {
	dir := runtimeDirs()[0]
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", fail("Give this user a runtime folder: 'loginctl enable-linger', or set XDG_RUNTIME_DIR to a folder of its own with mode 0700.", "the runtime folder %s cannot be made", dir)
	}
	if !ownFolder(dir) {
		return "", fail("Remove it, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700.", "the runtime folder %s belongs to someone else or is open to others", dir)
	}
	return dir, nil
}

// runtimeID names a runtime folder in six characters. It is part of every
// server's id, so that a server never judges sandboxes whose owner's lock lies
// where it does not look.
func runtimeID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:3])
}

func xdg(env, under string) string {
	if v := os.Getenv(env); filepath.IsAbs(v) {
		return filepath.Join(v, "pinfold")
	}
	return filepath.Join(os.Getenv("HOME"), under, "pinfold")
}

func configDir() string { return xdg("XDG_CONFIG_HOME", ".config") }
func stateDir() string  { return xdg("XDG_STATE_HOME", ".local/state") }
func cacheDir() string  { return xdg("XDG_CACHE_HOME", ".cache") }

// Variables that carry what becoming another user changes: the program may be a
// copy then, and the working directory is the user's home.
const (
	originProgram = "PINFOLD_ORIGIN_PROGRAM"
	originFolder  = "PINFOLD_ORIGIN_FOLDER"
)

// rememberOrigin notes program and working directory for when this process
// goes on as another user.
func rememberOrigin() {
	if os.Geteuid() != 0 {
		return
	}
	if exe, err := os.Executable(); err == nil {
		os.Setenv(originProgram, exe)
	}
	if dir, err := os.Getwd(); err == nil {
		os.Setenv(originFolder, dir)
	}
}

// absolute resolves a path against the folder that the person was in.
func absolute(path string) (string, error) {
	if origin := os.Getenv(originFolder); !filepath.IsAbs(path) && filepath.IsAbs(origin) {
		return filepath.Join(origin, path), nil
	}
	return filepath.Abs(path)
}

// selfPath is the absolute path of this binary, for settings that others run.
func selfPath() (string, error) {
	if origin := os.Getenv(originProgram); filepath.IsAbs(origin) {
		return origin, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the path of this program: %w", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return exe, nil
}
