package podman

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// execWait bounds the time between the runtime's answer that a container runs
// and the moment its first process is the guest.
const execWait = 5 * time.Second

// capBits are the kernel's numbers of guestCaps.
var capBits = map[string]uint{"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETPCAP": 8, "CAP_NET_BIND_SERVICE": 10}

// observed is what the kernel says of a sandbox's first process. An older
// service ignores fields that it does not know and answers success, so nothing
// counts that was not read back.
type observed struct {
	uid, gid int               // ours, on the host
	status   map[string]string // lines of /proc/PID/status
	uids     idMap
	gids     idMap
	mounts   []mountPoint
	spaces   map[string]string // namespace kind → id
}

type mountPoint struct {
	path    string
	root    string
	fstype  string
	options []string
}

func (m mountPoint) has(option string) bool { return slices.Contains(m.options, option) }

// observe reads the state of a process.
func observe(pid int) (observed, error) {
	o := observed{uid: os.Getuid(), gid: os.Getgid(), status: map[string]string{}, spaces: map[string]string{}}
	dir := fmt.Sprintf("/proc/%d", pid)
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return o, err
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			o.status[k] = strings.TrimSpace(v)
		}
	}
	if o.uids, err = readIDMap(pid, "uid_map"); err != nil {
		return o, err
	}
	if o.gids, err = readIDMap(pid, "gid_map"); err != nil {
		return o, err
	}
	if b, err = os.ReadFile(filepath.Join(dir, "mountinfo")); err != nil {
		return o, err
	}
	o.mounts = parseMounts(b)
	for _, kind := range []string{"user", "pid", "net", "mnt", "ipc", "uts", "cgroup"} {
		if id, err := os.Readlink(filepath.Join(dir, "ns", kind)); err == nil {
			o.spaces[kind] = id
		}
	}
	return o, nil
}

// parseMounts reads mountinfo. Fields past the mount's own options are
// separated by a dash.
func parseMounts(b []byte) []mountPoint {
	var out []mountPoint
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		dash := slices.Index(f, "-")
		if len(f) < 6 || dash < 0 || dash+1 >= len(f) {
			continue
		}
		out = append(out, mountPoint{root: unescape(f[3]), path: unescape(f[4]), options: strings.Split(f[5], ","), fstype: f[dash+1]})
	}
	return out
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	for i := 0; i+4 <= len(s); i++ {
		if s[i] == '\\' {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				s = s[:i] + string([]byte{byte(n)}) + s[i+4:]
			}
		}
	}
	return s
}

// waitGuest waits until the process runs the guest's own file: a link in the
// image at the guest's place would have led the mount elsewhere.
func waitGuest(ctx context.Context, pid int, guest string) error {
	want, err := os.Stat(guest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, execWait)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && os.SameFile(want, have) {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("process %d runs another program", pid)
			}
			return fmt.Errorf("waiting for the guest to run: %w", err)
		case <-tick.C:
		}
	}
}

// checkRuntime compares the runtime that Podman used with the one asked for. A
// foreign service chooses among the two that are alike itself.
func (p *plan) checkRuntime(used string) error {
	name := filepath.Base(used)
	if p.runtime == "" && (name == crun || name == runc) {
		p.runtime = name
		return nil
	}
	if name == p.runtime || (p.runtime == runsc && strings.HasSuffix(name, "-runsc")) {
		return nil
	}
	e := sandbox.Errorf(sandbox.FailedPrecondition, "Unset CONTAINER_HOST, so that a service with the right runtime is used, or make it that service's default runtime.",
		"the Podman service runs containers with %s, not with %s", bounded(name), cmp.Or(p.runtime, "crun or runc"))
	e.Reason = "isolation_missing"
	return e
}

// check compares what is with what the plan asked for, and returns the
// posture. Every difference is listed.
func (p *plan) check(o observed) (sandbox.Posture, error) {
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	us := o.uid

	posture := sandbox.Posture{UserNamespace: p.mapping, HostUserMapped: o.uids.holds(us), Network: "none"}
	root := o.uids.toHost(0)
	if root < 0 || root == us {
		fail("root of the sandbox is uid %d of this host", root)
	}
	switch p.mapping {
	case noMap:
		if posture.HostUserMapped || o.gids.holds(o.gid) {
			fail("this user is mapped into the sandbox")
		}
	case keepID:
		if o.uids.toHost(sandbox.AgentUID) != us {
			fail("uid %d inside is uid %d of this host, not %d", sandbox.AgentUID, o.uids.toHost(sandbox.AgentUID), us)
		}
	}
	if o.uids.toHost(sandbox.AgentUID) < 0 || o.uids.toHost(sandbox.BrowserUID) < 0 {
		fail("uids %d and %d are not mapped", sandbox.AgentUID, sandbox.BrowserUID)
	}
	if o.uids.holds(0) || o.gids.holds(0) {
		fail("root of this host is mapped into the sandbox")
	}
	kinds := []string{"user", "pid", "net", "mnt", "ipc", "uts"}
	for _, kind := range kinds {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if theirs := o.spaces[kind]; err != nil || theirs == "" || theirs == ours {
			fail("it has no %s namespace of its own", kind)
		}
	}

	if p.runtime == runsc {
		// The process is gVisor's kernel: its own filter stands around it, and
		// what the guest may do is for that kernel to hold.
		posture.Seccomp, posture.Capabilities, posture.NoNewPrivs = "own-kernel", guestCaps, true
		posture.ReadOnlyRoot = p.spec.ReadOnlyRoot
		if o.status["Seccomp"] != "2" {
			fail("gVisor runs without its own seccomp filter")
		}
		if o.status["NoNewPrivs"] != "1" {
			fail("gVisor runs without no_new_privs")
		}
		return posture, refuse(bad)
	}

	posture.Seccomp = "host-checked"
	for _, id := range strings.Fields(o.status["Uid"]) {
		if id != strconv.Itoa(root) {
			fail("its first process is uid %s of this host, not %d", id, root)
		}
	}
	if o.status["Seccomp"] != "2" {
		fail("no seccomp filter is in force")
	}
	posture.NoNewPrivs = o.status["NoNewPrivs"] == "1"
	if !posture.NoNewPrivs {
		fail("no_new_privs is off")
	}
	var allowed uint64
	for _, c := range guestCaps {
		allowed |= 1 << capBits[c]
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
		have, err := strconv.ParseUint(o.status[set], 16, 64)
		if err != nil || have&^allowed != 0 {
			fail("%s is %s, more than %d capabilities", set, o.status[set], bits.OnesCount64(allowed))
		}
		if set == "CapEff" && err == nil {
			if have != allowed {
				fail("CapEff is %s, not all of %s", o.status[set], strings.Join(guestCaps, " "))
			}
			posture.Capabilities = guestCaps
		}
	}
	if amb, err := strconv.ParseUint(o.status["CapAmb"], 16, 64); err != nil || amb != 0 {
		fail("it has ambient capabilities: %s", o.status["CapAmb"])
	}
	mounts, soft := p.checkMounts(o.mounts)
	bad = append(bad, mounts...)
	if len(soft) > 0 {
		posture.Degraded = append(posture.Degraded, "mounts: "+looseFlags+strings.Join(soft, ", "))
	}
	posture.ReadOnlyRoot = mountAt(o.mounts, "/").has("ro")
	return posture, refuse(bad)
}

// mountAt returns the topmost mount at path.
func mountAt(mounts []mountPoint, path string) mountPoint {
	var m mountPoint
	for _, have := range mounts {
		if have.path == path {
			m = have
		}
	}
	return m
}

// kernelMounts are the places that every runtime mounts below.
var kernelMounts = []string{"/proc", "/sys", "/dev"}

// looseFlags begins what is said of a runtime that leaves flags out.
const looseFlags = "the runtime leaves nosuid or nodev out (no_new_privs and the missing CAP_MKNOD stand in for them) at "

// checkMounts lists what is missing, open or too much in the mount table. Soft
// are writable mounts without nosuid or nodev: crun 1.8 leaves the two out in a
// user namespace. Nothing rests on them alone, so they count only where another
// runtime would do better.
func (p *plan) checkMounts(mounts []mountPoint) (bad, soft []string) {
	want := map[string][]string{
		sandbox.WorkspaceDir: {"rw", "nosuid", "nodev"},
		"/tmp":               {"rw", "nosuid", "nodev"},
		"/dev/shm":           {"rw", "nosuid", "nodev"},
	}
	for _, v := range p.volumes() {
		want[v.dest] = []string{"rw", "nosuid", "nodev"}
	}
	for _, ro := range []string{sandbox.GuestPath, "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv"} {
		want[ro] = []string{"ro", "nosuid", "nodev"}
	}
	if p.link == sandbox.LinkUnix {
		want[sandbox.LinkDir] = []string{"ro", "nosuid", "nodev"}
	}
	if p.spec.ReadOnlyRoot {
		want["/"] = []string{"ro"}
		want["/run"] = []string{"rw", "nosuid", "nodev"}
		want["/var/tmp"] = []string{"rw", "nosuid", "nodev"}
	}
	for _, m := range p.rootBind {
		want[m.Destination] = []string{"ro", "nosuid", "nodev"}
	}
	for path, options := range want {
		m := mountAt(mounts, path)
		if m.path == "" {
			bad = append(bad, "nothing is mounted at "+path)
			continue
		}
		for _, o := range options {
			if !m.has(o) && slices.Contains(options, "rw") && (o == "nosuid" || o == "nodev") {
				if !slices.Contains(soft, path) {
					soft = append(soft, path)
				}
				continue
			}
			if !m.has(o) {
				bad = append(bad, fmt.Sprintf("the mount at %s is not %s", path, o))
			}
		}
	}
	for _, m := range mounts {
		if _, ok := want[m.path]; ok || m.path == "/" {
			continue
		}
		if !slices.ContainsFunc(kernelMounts, func(k string) bool { return m.path == k || strings.HasPrefix(m.path, k+"/") }) {
			bad = append(bad, "there is a mount at "+m.path+" that was not asked for")
		}
	}
	slices.Sort(bad)
	slices.Sort(soft)
	return bad, soft
}

// refuse makes the error of a sandbox that is not what was asked for.
func refuse(bad []string) error {
	if len(bad) == 0 {
		return nil
	}
	e := sandbox.Errorf(sandbox.FailedPrecondition,
		"Run `pinfold doctor` and report what it says; nothing was run in that sandbox.",
		"the sandbox was refused, because it is not closed as asked: %s", strings.Join(bad, "; "))
	e.Reason = "unsafe_state"
	return e
}
