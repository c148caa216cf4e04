package podman

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// Runtimes by name.
const (
	crun  = "crun"
	runc  = "runc"
	runsc = "runsc"
)

// cgroups says which cgroups this host has.
func cgroups() string {
	const root = "/sys/fs/cgroup"
	var st unix.Statfs_t
	if unix.Statfs(root, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	if isDir(filepath.Join(root, "unified")) {
		return "hybrid"
	}
	return "v1"
}

// findRuntimes returns the path of each runtime that is installed.
func findRuntimes() map[string]string {
	found := map[string]string{}
	for _, name := range []string{crun, runc, runsc} {
		if p, err := lookPath(name); err == nil {
			found[name] = p
		}
	}
	return found
}

// cgroupManager is systemd where it delegates controllers to this user.
func cgroupManager() string {
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run == "" {
		run = fmt.Sprintf("/run/user/%d", os.Getuid())
	}
	if cgroups() == "v2" && exists(filepath.Join(run, "systemd")) {
		return "systemd"
	}
	return "cgroupfs"
}

// writeConf writes the containers.conf of a service of ours, and the wrapper by
// which runsc gets its flags, for which Podman has no setting of its own. The
// runtime is the service's only one in effect: Podman 4 takes the API's field
// for it and ignores it.
func writeConf(cache string, runtimes map[string]string, runtime, platform string) (string, error) {
	dir := filepath.Join(cache, "engine")
	var b strings.Builder
	if runtime == "" {
		runtime = runc
	}
	// An exec's monitor lingers for five minutes by default; with no delay at all
	// it takes the exit code away before it can be asked for.
	fmt.Fprintf(&b, "[containers]\nlog_driver = \"none\"\ndefault_sysctls = []\n\n[engine]\ncgroup_manager = %q\nevents_logger = \"none\"\nexit_command_delay = 1\nhooks_dir = []\nruntime = %q\n\n[engine.runtimes]\n", cgroupManager(), runtime)
	for _, name := range []string{crun, runc, runsc} {
		path, ok := runtimes[name]
		if !ok {
			continue
		}
		if name == runsc {
			script := "#!/bin/sh\nexec " + quote(path) + " --ignore-cgroups --network=none"
			if platform != "" {
				script += " --platform=" + quote(platform)
			}
			var err error
			if path, err = cacheFile(dir, "runsc", []byte(script+" \"$@\"\n"), 0o755); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&b, "%s = [%q]\n", name, path)
	}
	return cacheFile(dir, "containers.conf", []byte(b.String()), 0o644)
}

// findPodman returns the program's path.
func findPodman(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	path, err := lookPath("podman")
	if err != nil {
		return "", podmanMissing("podman", err)
	}
	return path, nil
}

// unixPath returns the path of a unix:// address.
func unixPath(host string) (string, error) {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok || !filepath.IsAbs(path) {
		e := sandbox.Errorf(sandbox.FailedPrecondition,
			"Set it to unix:///absolute/path of a rootless service on this machine, or unset it.",
			"CONTAINER_HOST is %q; only unix:// addresses can be used", bounded(host))
		e.Reason = "bad_container_host"
		return "", e
	}
	return path, nil
}
