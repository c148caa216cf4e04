package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// inside runs a program as root of Podman's user namespace, where the files of
// all sandboxes can be changed. Through the pause process it takes 3 ms;
// `podman unshare`, which makes that process when there is none, takes 40.
func (s *service) inside(ctx context.Context, argv ...string) error {
	return s.enter(ctx, []string{"user"}, argv)
}

// insideMounts does the same where the mounts of Podman's processes are seen.
func (s *service) insideMounts(ctx context.Context, argv ...string) error {
	return s.enter(ctx, []string{"user", "mnt"}, argv)
}

func (s *service) enter(ctx context.Context, spaces, argv []string) error {
	var out tail
	out.max = 4 << 10
	args := append([]string{"unshare"}, argv...)
	program := s.podman
	if pid := s.pausePid(); pid != 0 {
		if nsenter, err := lookPath("nsenter"); err == nil {
			program, args = nsenter, []string{"--preserve-credentials"}
			for _, kind := range spaces {
				option := map[string]string{"user": "--user", "mnt": "--mount"}[kind]
				args = append(args, fmt.Sprintf("%s=/proc/%d/ns/%s", option, pid, kind))
			}
			args = append(append(args, "--"), argv...)
		}
	}
	if program == "" {
		return sandbox.Errorf(sandbox.FailedPrecondition, "Install Podman on this machine.", "the namespace of sandboxes cannot be entered without the podman program")
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = s.env, &out, &out, "/"
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fromContext(ctx.Err())
		}
		return fmt.Errorf("running %s in the namespace of sandboxes: %w: %s", argv[0], err, lastLine(out.String()))
	}
	return nil
}

// lookPath finds a program of the system, whatever PATH this process was given.
func lookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// runtimeDir is Podman's runtime folder, or empty when it chooses one itself.
func (s *service) runtimeDir() string {
	for _, kv := range s.env {
		if v, ok := strings.CutPrefix(kv, "XDG_RUNTIME_DIR="); ok {
			return v
		}
	}
	return ""
}

// pausePid is Podman's pause process, which holds the namespaces, or 0.
func (s *service) pausePid() int {
	run := s.runtimeDir()
	if run == "" {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(run, "libpod", "tmp", "pause.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	// The number may have gone to another process since.
	if maps, err := readIDMap(pid, "uid_map"); err != nil || maps.toHost(0) != os.Getuid() || maps.toHost(1) < 0 {
		return 0
	}
	return pid
}

// removeTree removes what sandboxes wrote, whoever owns it and whatever its
// modes. Links are removed, never followed.
func (s *service) removeTree(ctx context.Context, paths ...string) error {
	var errs []error
	for _, p := range paths {
		if !exists(p) {
			continue
		}
		if os.RemoveAll(p) == nil {
			continue
		}
		errs = append(errs, s.inside(ctx, "rm", "-rf", "--", p))
	}
	return errors.Join(errs...)
}

// idMap is a uid_map or gid_map as this process sees it.
type idMap []idRange

type idRange struct{ inside, host, size int }

func readIDMap(pid int, name string) (idMap, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil, err
	}
	var m idMap
	for line := range strings.Lines(string(b)) {
		var r idRange
		if _, err := fmt.Sscan(line, &r.inside, &r.host, &r.size); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		m = append(m, r)
	}
	return m, nil
}

// toHost returns the id on the host of an id inside, or -1.
func (m idMap) toHost(id int) int {
	for _, r := range m {
		if id >= r.inside && id < r.inside+r.size {
			return r.host + id - r.inside
		}
	}
	return -1
}

// holds reports whether a host id is mapped.
func (m idMap) holds(host int) bool {
	for _, r := range m {
		if host >= r.host && host < r.host+r.size {
			return true
		}
	}
	return false
}
