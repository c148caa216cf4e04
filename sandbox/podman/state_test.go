package podman

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

const testUID = 1234

// good is what a sandbox looks like that is all as asked.
func good(mapping string) (*plan, observed) {
	them := 300000
	spec := sandbox.Spec{Session: "ses_1", Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceVolume}, ReadOnlyRoot: true}
	m := idMap{{0, them, 65536}}
	if mapping == keepID {
		spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: "/srv/p"}
		m = idMap{{0, them, 1000}, {1000, testUID, 1}, {1001, them + 1000, 64536}}
	}
	p := &plan{spec: spec, mapping: mapping, runtime: runc, link: sandbox.LinkUnix}
	o := observed{
		uid: testUID, gid: testUID,
		uids: m, gids: m,
		status: map[string]string{
			"Uid": strings.Repeat(strconv.Itoa(them)+"\t", 4), "NoNewPrivs": "1", "Seccomp": "2",
			"CapInh": "0000000000000000", "CapPrm": "00000000000005e0", "CapEff": "00000000000005e0", "CapBnd": "00000000000005e0", "CapAmb": "0000000000000000",
		},
		spaces: map[string]string{},
	}
	for _, kind := range []string{"user", "pid", "net", "mnt", "ipc", "uts", "cgroup"} {
		o.spaces[kind] = kind + ":[1]"
	}
	add := func(path, flags string) {
		o.mounts = append(o.mounts, mountPoint{path: path, options: strings.Split(flags, ",")})
	}
	add("/", "ro,relatime")
	for _, path := range []string{"/workspace", "/home/agent", "/session", "/browser", "/tmp", "/dev/shm", "/run", "/var/tmp"} {
		add(path, "rw,nosuid,nodev,relatime")
	}
	for _, path := range []string{"/.pinfold/guest", "/.pinfold/link", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv"} {
		add(path, "ro,nosuid,nodev,relatime")
	}
	for _, path := range []string{"/proc", "/proc/acpi", "/sys", "/sys/fs/cgroup", "/dev", "/dev/null"} {
		add(path, "rw,nosuid")
	}
	return p, o
}

func TestCheckTakesWhatWasAskedFor(t *testing.T) {
	for _, mapping := range []string{noMap, keepID} {
		p, o := good(mapping)
		posture, err := p.check(o)
		require.NoError(t, err, mapping)
		assert.Equal(t, mapping, posture.UserNamespace)
		assert.Equal(t, mapping == keepID, posture.HostUserMapped)
		assert.True(t, posture.ReadOnlyRoot)
		assert.Equal(t, "host-checked", posture.Seccomp)
		assert.Equal(t, guestCaps, posture.Capabilities)
	}
}

// Every single difference refuses the sandbox, and the error names it.
func TestCheckRefusesEachDifference(t *testing.T) {
	setMount := func(path, flags string) func(*plan, *observed) {
		return func(_ *plan, o *observed) {
			for i := range o.mounts {
				if o.mounts[i].path == path {
					o.mounts[i].options = strings.Split(flags, ",")
				}
			}
		}
	}
	us := testUID
	for name, c := range map[string]struct {
		change func(*plan, *observed)
		names  string
	}{
		"no filter":               {func(_ *plan, o *observed) { o.status["Seccomp"] = "0" }, "seccomp"},
		"strict mode":             {func(_ *plan, o *observed) { o.status["Seccomp"] = "1" }, "seccomp"},
		"may gain":                {func(_ *plan, o *observed) { o.status["NoNewPrivs"] = "0" }, "no_new_privs"},
		"one capability more":     {func(_ *plan, o *observed) { o.status["CapEff"] = "00000000000005e1" }, "CapEff"},
		"wider bounds":            {func(_ *plan, o *observed) { o.status["CapBnd"] = "000001ffffffffff" }, "CapBnd"},
		"one capability less":     {func(_ *plan, o *observed) { o.status["CapEff"] = "00000000000005c0" }, "CapEff"},
		"ambient":                 {func(_ *plan, o *observed) { o.status["CapAmb"] = "0000000000000020" }, "ambient"},
		"unreadable capabilities": {func(_ *plan, o *observed) { delete(o.status, "CapBnd") }, "CapBnd"},
		"another uid":             {func(_ *plan, o *observed) { o.status["Uid"] = fmt.Sprintf("300000\t%d\t300000\t300000", us) }, "first process"},
		"root is the user":        {func(_ *plan, o *observed) { o.uids = idMap{{0, us, 1}, {1, 300000, 65536}} }, "root of the sandbox"},
		"host user mapped":        {func(_ *plan, o *observed) { o.uids = append(o.uids, idRange{70000, us, 1}) }, "mapped into the sandbox"},
		"host root mapped":        {func(_ *plan, o *observed) { o.uids = append(o.uids, idRange{70000, 0, 1}) }, "root of this host"},
		"nothing mapped":          {func(_ *plan, o *observed) { o.uids = nil }, "root of the sandbox"},
		"too few ids":             {func(_ *plan, o *observed) { o.uids = idMap{{0, 300000, 1000}} }, "not mapped"},
		"host's network":          {func(_ *plan, o *observed) { o.spaces["net"], _ = os.Readlink("/proc/self/ns/net") }, "net namespace"},
		"host's processes":        {func(_ *plan, o *observed) { o.spaces["pid"], _ = os.Readlink("/proc/self/ns/pid") }, "pid namespace"},
		"unknown namespace":       {func(_ *plan, o *observed) { delete(o.spaces, "ipc") }, "ipc namespace"},
		"writable root":           {setMount("/", "rw"), "mount at / is not ro"},
		"writable guest":          {setMount("/.pinfold/guest", "rw,nosuid,nodev"), "/.pinfold/guest is not ro"},
		"read-only workspace":     {setMount("/workspace", "ro,nosuid,nodev"), "/workspace is not rw"},
		"hosts with setuid":       {setMount("/etc/hosts", "ro,nodev"), "/etc/hosts is not nosuid"},
		"link moved by a symlink": {func(_ *plan, o *observed) {
			for i := range o.mounts {
				if o.mounts[i].path == "/.pinfold/link" {
					o.mounts[i].path = "/etc/ssh"
				}
			}
		}, "nothing is mounted at /.pinfold/link"},
		"a mount of the host's": {func(_ *plan, o *observed) {
			o.mounts = append(o.mounts, mountPoint{path: "/mnt/home", options: []string{"rw"}})
		}, "/mnt/home that was not asked for"},
		"a mount that looks like proc": {func(_ *plan, o *observed) {
			o.mounts = append(o.mounts, mountPoint{path: "/process", options: []string{"rw"}})
		}, "/process that was not asked for"},
		"a second mount over the first": {func(_ *plan, o *observed) {
			o.mounts = append(o.mounts, mountPoint{path: "/.pinfold/guest", options: []string{"rw"}})
		}, "/.pinfold/guest is not ro"},
	} {
		p, o := good(noMap)
		c.change(p, &o)
		_, err := p.check(o)
		var typed *sandbox.Error
		require.ErrorAs(t, err, &typed, name)
		assert.Equal(t, "unsafe_state", typed.Reason, name)
		assert.Contains(t, typed.Message, c.names, name)
	}
	p, o := good(keepID)
	o.uids[1].host++
	_, err := p.check(o)
	assert.ErrorContains(t, err, "uid 1000 inside", "the files of the workspace would be someone else's")
}

// crun 1.8 leaves two flags out on volumes: said, and a reason to prefer runc,
// but no refusal where there is none.
func TestCheckSaysWhichFlagsAreLeftOut(t *testing.T) {
	p, o := good(noMap)
	for i := range o.mounts {
		if o.mounts[i].path == "/workspace" || o.mounts[i].path == "/home/agent" {
			o.mounts[i].options = []string{"rw"}
		}
	}
	posture, err := p.check(o)
	require.NoError(t, err)
	assert.Equal(t, []string{"mounts: " + looseFlags + "/home/agent, /workspace"}, posture.Degraded)
}

func TestResourceLimitsGoByController(t *testing.T) {
	l := sandbox.DefaultLimits
	assert.Nil(t, resourceLimits(l, nil), "a limit without its controller makes a runtime fail")
	r := resourceLimits(l, []string{"cpu", "pids"})
	assert.Nil(t, r.Memory)
	assert.Equal(t, int64(200000), *r.CPU.Quota)
	assert.Equal(t, l.Pids, r.Pids.Limit)
	assert.Equal(t, l.Memory, *resourceLimits(l, []string{"memory"}).Memory.Limit)
}

func TestRuntimeIsTheOneAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		asked, used string
		ok          bool
	}{
		"as asked":                       {runc, "runc", true},
		"by path":                        {crun, "/usr/bin/crun", true},
		"our wrapper":                    {runsc, "/x/713c57964cd832cd-runsc", true},
		"gVisor asked, runc used":        {runsc, "runc", false},
		"runc asked, crun used":          {runc, "crun", false},
		"a foreign service chose":        {"", "crun", true},
		"a foreign service chose oddly":  {"", "kata", false},
		"a foreign service says nothing": {"", "", false},
		"a name that ends like gVisor's": {runsc, "notrunsc", false},
	} {
		p := &plan{runtime: c.asked}
		err := p.checkRuntime(c.used)
		assert.Equal(t, c.ok, err == nil, "%s: %v", name, err)
	}
}

func TestParseMounts(t *testing.T) {
	m := parseMounts([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n" +
		"garbage\n37 35 98:0 / / ro - overlay overlay rw\n38 35 98:0 / /x rw shared:1 master:2 -\n"))
	assert.Equal(t, []mountPoint{
		{root: "/mnt1", path: "/mnt 2", fstype: "ext3", options: []string{"rw", "noatime"}},
		{root: "/", path: "/", fstype: "overlay", options: []string{"ro"}},
	}, m)
	assert.Equal(t, `a\b`, unescape(`a\134b`))
	assert.Equal(t, `\9`, unescape(`\9`))
}

func TestIDMap(t *testing.T) {
	m := idMap{{0, 100000, 1000}, {1000, 1001, 1}, {1001, 101000, 64536}}
	assert.Equal(t, []int{100000, 1001, 101000, -1}, []int{m.toHost(0), m.toHost(1000), m.toHost(1001), m.toHost(70000)})
	assert.True(t, m.holds(1001))
	assert.False(t, m.holds(1000))
}

// The ids of volumes, as architecture says, under both mappings.
func TestVolumeOwners(t *testing.T) {
	assert.Equal(t, []int{1001, 1002}, []int{volumeUID(noMap, 1000), volumeUID(noMap, 1001)})
	assert.Equal(t, []int{0, 1001}, []int{volumeUID(keepID, 1000), volumeUID(keepID, 1001)})
}
