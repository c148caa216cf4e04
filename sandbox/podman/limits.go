package podman

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// held is the word for a limit that the kernel holds.
const held = "held"

// limitNames are the limits in the order people read them.
var limitNames = []string{"memory", "cpus", "pids", "disk", "shm", "files"}

// delegated are the controllers of cgroup v2 that this user may set limits
// with. A runtime fails on a limit whose controller it does not have.
func delegated() []string {
	if cgroups() != "v2" {
		return nil
	}
	const root = "/sys/fs/cgroup"
	uid := os.Getuid()
	dir := filepath.Join(root, fmt.Sprintf("user.slice/user-%d.slice/user@%d.service", uid, uid))
	if cgroupManager() != "systemd" {
		b, err := os.ReadFile("/proc/self/cgroup")
		own, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "0::")
		if err != nil || !ok {
			return nil
		}
		dir = filepath.Join(root, own)
		if unix.Access(dir, unix.W_OK) != nil {
			return nil
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// resourceLimits are those of the limits that the controllers can hold.
func resourceLimits(l sandbox.Limits, controllers []string) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if slices.Contains(controllers, "memory") {
		r.Memory = &specs.LinuxMemory{Limit: ptr(l.Memory), Swap: ptr(l.Memory)}
	}
	if slices.Contains(controllers, "cpu") {
		r.CPU = &specs.LinuxCPU{Quota: ptr(int64(l.CPUs * 100000)), Period: ptr(uint64(100000))}
	}
	if slices.Contains(controllers, "pids") {
		r.Pids = &specs.LinuxPids{Limit: l.Pids}
	}
	if r.Memory == nil && r.CPU == nil && r.Pids == nil {
		return nil
	}
	return r
}

// limitsHeld says of each limit whether it is in force around a process, as
// read back from the kernel, or what stands in for it.
func limitsHeld(pid int, l sandbox.Limits) map[string]string {
	out := map[string]string{
		"memory": fmt.Sprintf("best effort: %d MiB hold for each process, not for the sandbox, because this host has no cgroup v2 limits for plain users", l.Memory>>20),
		"cpus":   fmt.Sprintf("not held: the sandbox can use every cpu of this machine, not only %g", l.CPUs),
		"pids":   fmt.Sprintf("best effort: %d are counted by user id inside the sandbox, not by cgroup", l.Pids),
		"disk":   fmt.Sprintf("not held: Podman's storage has no quota for a plain user, so %d MiB can be passed", l.Disk>>20),
		"shm":    held, // the size of a memory file system
		"files":  held, // a limit of each process, set by the guest on itself and inherited
	}
	if cgroups() != "v2" {
		return out
	}
	for name, file := range map[string]struct {
		path string
		max  func(string) bool
	}{
		"memory": {"memory.max", func(v string) bool { n, err := strconv.ParseInt(v, 10, 64); return err == nil && n <= l.Memory }},
		"pids":   {"pids.max", func(v string) bool { n, err := strconv.ParseInt(v, 10, 64); return err == nil && n <= l.Pids }},
		"cpus": {"cpu.max", func(v string) bool {
			var quota, period float64
			n, _ := fmt.Sscan(v, &quota, &period)
			return n == 2 && period > 0 && quota/period <= l.CPUs*1.01
		}},
	} {
		if cgroupValue(pid, file.path, file.max) {
			out[name] = held
		}
	}
	return out
}

// cgroupValue reports whether a process's cgroup, or the one above it (crun
// puts the process one level down), has a value that ok accepts.
func cgroupValue(pid int, file string, ok func(string) bool) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	path, found := strings.CutPrefix(strings.TrimSpace(string(b)), "0::")
	if !found || strings.Contains(path, "\n") {
		return false
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if v, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", p, file)); err == nil && ok(strings.TrimSpace(string(v))) {
			return true
		}
	}
	return false
}

// degraded says in plain words which limits this host does not hold.
func degraded(limits map[string]string) []string {
	var out []string
	for _, name := range limitNames {
		if how := limits[name]; how != held {
			out = append(out, name+": "+how)
		}
	}
	return out
}
