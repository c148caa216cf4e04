package podman

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/blang/semver/v4"
	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/system"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// oldestPodman is the oldest version that was tried.
var oldestPodman = semver.MustParse("4.3.0")

// wantedIDs is how many subordinate ids a sandbox's namespace maps.
const wantedIDs = 65536

// Probe looks at the host and starts a sandbox with each runtime. A fault of
// the host is a finding, not an error; the error is for a probe that could not
// be made.
func (e *Engine) Probe(ctx context.Context) (sandbox.Report, error) {
	r := sandbox.Report{CgroupMode: cgroups(), Service: "own service, started when needed", Limits: map[string]string{}}
	if e.opts.Host != "" {
		r.Service = "CONTAINER_HOST " + e.opts.Host
	}
	r.Findings = hostFindings()
	if _, err := e.unpacker.get(); err != nil {
		r.Findings = append(r.Findings, findingOf(err, true))
		return r, ctx.Err()
	}
	call, err := e.service.call(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return r, err
		}
		r.Findings = append(r.Findings, findingOf(err, true))
		return r, nil
	}
	if err := e.probeService(call, &r); err != nil {
		return r, err
	}
	e.probeRuntimes(ctx, &r)
	return r, ctx.Err()
}

// probeService reads version and storage.
func (e *Engine) probeService(call context.Context, r *sandbox.Report) error {
	info, err := system.Info(call, nil)
	if err != nil {
		return e.service.fault("asking for its state", err)
	}
	r.Engine = "podman " + info.Version.Version
	if v := bindings.ServiceVersion(call); v.LT(oldestPodman) {
		r.Findings = append(r.Findings, sandbox.Finding{ID: "podman_too_old", Fatal: true,
			Cause: fmt.Sprintf("Podman %s is older than %s", v, oldestPodman), Cure: "Install a newer Podman; Debian 12 and Ubuntu 24.04 have one that works."})
	}
	if info.Store != nil {
		r.Storage = info.Store.GraphDriverName
	}
	if info.Host != nil && !info.Host.Security.Rootless {
		r.Findings = append(r.Findings, sandbox.Finding{ID: "rootful", Fatal: true,
			Cause: "the Podman service runs as root", Cure: "Point CONTAINER_HOST at a service of a plain user, or unset it."})
	}
	return nil
}

// probeRuntimes starts a sandbox over the host's own /usr, which needs no
// image, with each runtime that is installed.
func (e *Engine) probeRuntimes(ctx context.Context, r *sandbox.Report) {
	names := []string{crun, runc, runsc}
	if e.opts.Host != "" {
		names = []string{""}
	}
	for _, name := range names {
		rt := sandbox.RuntimeReport{Name: name, Path: e.runtimes.paths[name], Isolation: sandbox.IsolationContainer}
		if name == runsc {
			rt.Isolation = sandbox.IsolationGVisor
		}
		if rt.Path == "" && name != "" {
			if name == runsc {
				rt.Why = "runsc is not installed"
				r.Runtimes = append(r.Runtimes, rt)
			}
			continue
		}
		rt.Version = versionOf(ctx, rt.Path)
		took, limits, used, err := e.tryRuntime(ctx, name, rt.Isolation)
		if ctx.Err() != nil {
			return
		}
		if used != "" {
			rt.Name = used
		}
		rt.Works, rt.StartMS = err == nil, took.Milliseconds()
		if err != nil {
			rt.Why, rt.StartMS = plainly(err), 0
		}
		if name != "" {
			e.runtimes.saw(name, rt.Works)
		}
		r.Runtimes = append(r.Runtimes, rt)
		if rt.Works && (len(r.Limits) == 0 || rt.Isolation == sandbox.IsolationContainer) {
			r.Limits = limits
		}
	}
}

// tryRuntime starts one sandbox, talks to its guest and removes it.
func (e *Engine) tryRuntime(ctx context.Context, name string, isolation sandbox.Isolation) (took time.Duration, limits map[string]string, used string, err error) {
	f, err := e.unpacker.get()
	if err != nil {
		return 0, nil, "", err
	}
	spec := sandbox.Spec{
		Session: "probe_" + newToken()[:12], Owner: e.opts.Owner, Image: sandbox.ImageHost, ReadOnlyRoot: true,
		Isolation: isolation, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceVolume}, Created: time.Now(),
	}
	began := time.Now()
	b, err := e.startWith(ctx, ctx, spec, f, name, name == crun && e.runtimes.paths[runc] != "")
	if err != nil {
		return 0, nil, "", err
	}
	defer func() {
		clean, cancel := e.detached(ctx, removeWork)
		defer cancel()
		err = errors.Join(err, b.Remove(clean))
	}()
	conn, err := b.Dial(ctx)
	if err != nil {
		return 0, nil, "", err
	}
	client, err := guest.Connect(ctx, conn, guest.Expect{Token: b.Token(), Isolation: isolation})
	if err != nil {
		return 0, nil, "", err
	}
	took = time.Since(began)
	return took, limitsHeld(b.info.Pid, spec.Limits.WithDefaults()), b.plan.runtime, client.Close()
}

// plainly is the shortest true account of an error.
func plainly(err error) string {
	var broken *runtimeError
	if errors.As(err, &broken) {
		text := broken.cause.Error()
		if _, after, ok := strings.Cut(text, "for attach: "); ok {
			text = after
		}
		return firstLine(text)
	}
	return firstLine(err.Error())
}

// versionOf is the first line a runtime says of itself.
func versionOf(ctx context.Context, path string) string {
	if path == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return ""
	}
	// runsc knows its version when its makers built it; built as a module, the
	// binary itself does.
	line := firstLine(string(out))
	if info, err := buildinfo.ReadFile(path); err == nil {
		line = strings.Replace(line, "VERSION_MISSING", moduleVersion(info), 1)
	}
	return line
}

// moduleVersion is the version of the module that a program was built from.
func moduleVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" {
		return v
	}
	return "of unknown version"
}

func findingOf(err error, fatal bool) sandbox.Finding {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return sandbox.Finding{ID: "podman_failed", Fatal: fatal, Cause: firstLine(err.Error()), Cure: "See the log."}
	}
	return sandbox.Finding{ID: e.Reason, Fatal: fatal, Cause: e.Message, Cure: e.Hint}
}

// hostFindings looks at what rootless containers need of the host, without
// Podman.
func hostFindings() []sandbox.Finding {
	var out []sandbox.Finding
	add := func(reason string, detail string) {
		for _, f := range hostFaults {
			if f.reason == reason {
				cause := f.message
				if detail != "" {
					cause += ": " + detail
				}
				out = append(out, sandbox.Finding{ID: reason, Fatal: true, Cause: cause, Cure: f.hint})
			}
		}
	}
	if os.Getuid() == 0 {
		out = append(out, sandbox.Finding{ID: "root", Fatal: true, Cause: "this runs as root", Cure: "Start Pinfold as a plain user; nothing of it runs rootful."})
	}
	if err := tryUserNamespace(); err != nil {
		add("userns_forbidden", usernsCause(err))
	}
	if why := subordinateIDs("/etc/subuid", "/etc/subgid"); why != "" {
		add("no_subids", why)
	}
	if why := mapPrograms(); why != "" {
		add("no_newuidmap", why)
	}
	if run := os.Getenv("XDG_RUNTIME_DIR"); run == "" && !isDir(fmt.Sprintf("/run/user/%d", os.Getuid())) {
		out = append(out, sandbox.Finding{ID: "no_runtime_dir", Cause: "there is no runtime folder (XDG_RUNTIME_DIR), so Podman uses one in /tmp",
			Cure: makeRuntimeDir})
	}
	return out
}

// tryUserNamespace makes one.
func tryUserNamespace() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return cmd.Run()
}

// usernsCause names the setting that forbids user namespaces.
func usernsCause(err error) string {
	for _, s := range []struct{ path, bad string }{
		{"kernel/unprivileged_userns_clone", "0"}, {"user/max_user_namespaces", "0"}, {"kernel/apparmor_restrict_unprivileged_userns", "1"},
	} {
		if b, rerr := os.ReadFile("/proc/sys/" + s.path); rerr == nil && strings.TrimSpace(string(b)) == s.bad {
			return strings.ReplaceAll(s.path, "/", ".") + " is " + s.bad
		}
	}
	return err.Error()
}

// subordinateIDs says what is missing in the two files, or nothing. Ids that
// come from elsewhere (LDAP) show in what newuidmap allows, not here.
func subordinateIDs(files ...string) string {
	name, uid := "", strconv.Itoa(os.Getuid())
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return file + " cannot be read"
		}
		if n := countIDs(b, name, uid); n < wantedIDs {
			if nss, err := os.ReadFile("/etc/nsswitch.conf"); err == nil && bytes.Contains(nss, []byte("subid:")) {
				continue
			}
			return fmt.Sprintf("%s gives user %s %d ids, and %d are needed", file, name, n, wantedIDs)
		}
	}
	return ""
}

// countIDs adds up the ranges of a user, named or by number.
func countIDs(file []byte, name, uid string) int {
	total := 0
	for line := range strings.Lines(string(file)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || (f[0] != name && f[0] != uid) {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil && n > 0 {
			total += n
		}
	}
	return total
}

// mapPrograms says what is wrong with newuidmap and newgidmap, or nothing.
func mapPrograms() string {
	for _, p := range []string{"newuidmap", "newgidmap"} {
		path, err := lookPath(p)
		if err != nil {
			return p + " is not installed"
		}
		st, err := os.Stat(path)
		if err != nil {
			return p + " cannot be read"
		}
		if st.Mode()&os.ModeSetuid == 0 && !hasFileCaps(path) {
			return path + " is neither setuid root nor has file capabilities"
		}
	}
	return ""
}

func hasFileCaps(path string) bool {
	n, err := syscall.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}
