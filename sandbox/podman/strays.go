package podman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// strayWait bounds the wait for a monitor to end once its container has.
const strayWait = 2 * time.Second

// endStrays ends what Podman has lost sight of. When its service dies between
// the runtime's work and its own note of it, the container's monitor and its
// waiting first process live on, and a removal knows nothing of them; when the
// monitor was killed, the runtime's own state stays.
func (e *Engine) endStrays(ctx context.Context, runtime, id string) error {
	pids := monitorsOf(id)
	if len(pids) == 0 && !e.service.stateLeft(runtime, id) {
		return nil
	}
	var err error
	if path := e.runtimes.paths[runtime]; path != "" {
		err = e.service.inside(ctx, path, "delete", "--force", id)
	}
	// A monitor ends with its container.
	end := time.Now().Add(strayWait)
	for len(pids) > 0 && time.Now().Before(end) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		pids = monitorsOf(id)
	}
	for _, pid := range pids {
		for _, child := range childrenOf(pid) {
			err = errors.Join(err, syscall.Kill(child, syscall.SIGKILL))
		}
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	if len(pids) == 0 && !e.service.stateLeft(runtime, id) {
		return nil // whatever the runtime said, all of it is gone
	}
	return err
}

// stateLeft reports whether the runtime still knows a container.
func (s *service) stateLeft(runtime, id string) bool {
	run := s.runtimeDir()
	if run == "" || runtime == "" || id == "" {
		return false
	}
	found, _ := filepath.Glob(filepath.Join(run, runtime, id+"*"))
	return len(found) > 0
}

// monitorsOf returns the monitors of this user's container with an id.
func monitorsOf(id string) []int {
	var out []int
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(b, []byte(id)) {
			continue
		}
		args := strings.Split(string(b), "\x00")
		i := slices.Index(args, "-c")
		if filepath.Base(args[0]) != "conmon" || i < 0 || i+1 >= len(args) || args[i+1] != id {
			continue
		}
		st, err := os.Stat(filepath.Dir(p))
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err == nil && perr == nil && ownerOf(st) == os.Getuid() {
			out = append(out, pid)
		}
	}
	return out
}

func childrenOf(pid int) []int {
	var out []int
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for _, f := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}
