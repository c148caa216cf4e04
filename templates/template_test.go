package templates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

func builtinSet(t *testing.T) *Set {
	t.Helper()
	s, err := Load(Folders{})
	require.NoError(t, err)
	return s
}

func get(t *testing.T, name string) *Template {
	t.Helper()
	tmpl, err := builtinSet(t).Get(name)
	require.NoError(t, err)
	return tmpl
}

func TestBuiltInTemplates(t *testing.T) {
	assert.Equal(t, []string{"host-tools", "offline", "project", "untrusted-code"}, builtinSet(t).Names())

	offline := get(t, "")
	assert.Equal(t, "offline", offline.Name, "the default")
	spec, err := offline.Spec("ses_1", "srv", Choice{})
	require.NoError(t, err)
	assert.Equal(t, sandbox.IsolationContainer, spec.Isolation)
	assert.Equal(t, sandbox.Workspace{Mode: sandbox.WorkspaceVolume}, spec.Workspace)
	assert.Equal(t, sandbox.DefaultLimits, spec.Limits)
	assert.Empty(t, spec.Image, "Pinfold's own")
	assert.Equal(t, "ses_1", spec.Session)
	assert.Equal(t, "srv", spec.Owner)
	assert.Equal(t, Lifetime{Max: 24 * time.Hour, Park: 168 * time.Hour}, offline.Lifetimes())

	untrusted := get(t, "untrusted-code")
	assert.Equal(t, ReuseTask, untrusted.Reuse)
	assert.Equal(t, time.Hour, untrusted.Lifetimes().Max)
	spec, err = untrusted.Spec("s", "o", Choice{})
	require.NoError(t, err)
	assert.Equal(t, sandbox.IsolationGVisor, spec.Isolation)
	assert.EqualValues(t, 1<<30, spec.Limits.Memory)
	assert.Equal(t, sandbox.DefaultLimits.Shm, spec.Limits.Shm, "what is not named is the default")

	spec, err = get(t, "host-tools").Spec("s", "o", Choice{})
	require.NoError(t, err)
	assert.Equal(t, sandbox.ImageHost, spec.Image)
	assert.True(t, spec.ReadOnlyRoot)

	dir := t.TempDir()
	spec, err = get(t, "project").Spec("s", "o", Choice{Workspace: sandbox.Workspace{Path: dir}})
	require.NoError(t, err)
	assert.Equal(t, sandbox.WorkspaceOverlay, spec.Workspace.Mode)
}

func TestIsolationMayOnlyStrengthen(t *testing.T) {
	offline, untrusted := get(t, "offline"), get(t, "untrusted-code")
	spec, err := offline.Spec("s", "o", Choice{Isolation: sandbox.IsolationGVisor})
	require.NoError(t, err)
	assert.Equal(t, sandbox.IsolationGVisor, spec.Isolation)

	_, err = untrusted.Spec("s", "o", Choice{Isolation: sandbox.IsolationContainer})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err))
	_, err = offline.Spec("s", "o", Choice{Isolation: "none"})
	assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
}

func TestWorkspaceChoices(t *testing.T) {
	offline, project := get(t, "offline"), get(t, "project")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, sub := range []string{".ssh", "src/project", ".local/share/containers/storage", ".config/pinfold"} {
		require.NoError(t, os.MkdirAll(filepath.Join(home, sub), 0o700))
	}
	trap := filepath.Join(dir, "innocent")
	require.NoError(t, os.Symlink(filepath.Join(home, ".ssh"), trap))

	type ws = sandbox.Workspace
	cases := map[string]struct {
		tmpl *Template
		ws   ws
		want ws
		code sandbox.Code
	}{
		"a path without a mode is an overlay":        {offline, ws{Path: dir}, ws{Mode: sandbox.WorkspaceOverlay, Path: dir}, ""},
		"links are resolved":                         {project, ws{Path: link}, ws{Mode: sandbox.WorkspaceOverlay, Path: dir}, ""},
		"a folder below the home is fine":            {project, ws{Path: home + "/src/project"}, ws{Mode: sandbox.WorkspaceOverlay, Path: home + "/src/project"}, ""},
		"an overlay needs a path":                    {project, ws{}, ws{}, sandbox.InvalidArgument},
		"a volume has no path":                       {offline, ws{Mode: sandbox.WorkspaceVolume, Path: dir}, ws{}, sandbox.InvalidArgument},
		"bind waits for its protections":             {offline, ws{Mode: sandbox.WorkspaceBind, Path: dir}, ws{}, sandbox.FailedPrecondition},
		"an unknown mode":                            {offline, ws{Mode: "copy", Path: dir}, ws{}, sandbox.InvalidArgument},
		"a relative path":                            {project, ws{Path: "src"}, ws{}, sandbox.InvalidArgument},
		"a missing folder":                           {project, ws{Path: dir + "/none"}, ws{}, sandbox.NotFound},
		"a file":                                     {project, ws{Path: file}, ws{}, sandbox.InvalidArgument},
		"the home itself":                            {project, ws{Path: home}, ws{}, sandbox.PermissionDenied},
		"a folder above the home":                    {project, ws{Path: filepath.Dir(home)}, ws{}, sandbox.PermissionDenied},
		"the root":                                   {project, ws{Path: "/"}, ws{}, sandbox.PermissionDenied},
		"keys":                                       {project, ws{Path: home + "/.ssh"}, ws{}, sandbox.PermissionDenied},
		"keys through a link (the name is innocent)": {project, ws{Path: trap}, ws{}, sandbox.PermissionDenied},
		"Podman's storage":                           {project, ws{Path: home + "/.local/share/containers/storage"}, ws{}, sandbox.PermissionDenied},
		"a folder above Pinfold's settings":          {project, ws{Path: home + "/.config"}, ws{}, sandbox.PermissionDenied},
		"the host's settings":                        {project, ws{Path: "/etc/ssl"}, ws{}, sandbox.PermissionDenied},
		"the host's sockets":                         {project, ws{Path: "/run"}, ws{}, sandbox.PermissionDenied},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec, err := c.tmpl.Spec("s", "o", Choice{Workspace: c.ws})
			if c.code != "" {
				var e *sandbox.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, c.code, e.Code, e.Message)
				assert.NotEmpty(t, e.Hint)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, spec.Workspace)
		})
	}
}

func TestParseNamesTheFault(t *testing.T) {
	base := "version: 1\nname: x\ndescription: d\n"
	cases := map[string]struct{ yaml, says, at string }{
		"unknown key":          {base + "isolaton: gvisor\n", `unknown key "isolaton"`, "4:1"},
		"unknown nested key":   {base + "limits: {mem: 1GiB}\n", `unknown key "mem"`, "4:"},
		"isolation":            {base + "isolation: none\n", "container, gvisor or vm", "4:"},
		"weak isolation":       {base + "isolation: \"\"\n", "container, gvisor or vm", "4:"},
		"workspace":            {base + "workspace: {mode: copy}\n", "volume, overlay or bind", "4:"},
		"reuse":                {base + "reuse: forever\n", "session, task or agent", "4:"},
		"size without unit":    {base + "limits: {memory: \"2\"}\n", "no size", "4:"},
		"size as a number":     {base + "limits: {memory: 2147483648}\n", "expected a text", "4:"},
		"decimal unit":         {base + "limits: {memory: 2GB}\n", "no size", "4:"},
		"negative size":        {base + "limits: {disk: -1GiB}\n", "no size", "4:"},
		"size too big":         {base + "limits: {disk: 9999999TiB}\n", "more bytes", "4:"},
		"memory too small":     {base + "limits: {memory: 1MiB}\n", "at least 64MiB", "4:"},
		"duration as a number": {base + "lifetime: {max: 60}\n", "expected a text", "4:"},
		"duration in words":    {base + "lifetime: {max: one day}\n", "not a duration", "4:"},
		"negative duration":    {base + "lifetime: {park: -1h}\n", "negative", "4:"},
		"cpus as a text":       {base + "limits: {cpus: \"2\"}\n", "expected a number", "4:"},
		"host image, writable": {base + "image: host\n", "read_only_filesystem", "4:"},
		"image like a flag":    {base + "image: --privileged\n", "reference", "4:"},
		"variable's name":      {base + "env: {\"A=B\": c}\n", "no name of a variable", "4:"},
		"unknown policy":       {base + "policy: mine\n", "no such policy", "4:"},
		"name":                 {"version: 1\nname: ../x\ndescription: d\n", "lower case", "2:"},
		"no description":       {"version: 1\nname: x\n", "description", "2:"},
		"version":              {"name: x\ndescription: d\n", "version must be 1", ""},
		"empty file":           {"", "version must be 1", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.yaml))
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
			if c.at != "" {
				assert.Contains(t, err.Error(), "["+c.at)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"64KiB": 64 << 10, "512MiB": 512 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40} {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)))
		assert.Equal(t, want, s)
		assert.Equal(t, text, s.String())
	}
	for _, text := range []string{"", "2", "GiB", "+2GiB", "-2GiB", "0GiB", "1.5GiB", " 2GiB", "2 GiB", "2gib", "0x2GiB", "9223372036854775807KiB"} {
		var s Size
		assert.Error(t, s.UnmarshalText([]byte(text)), text)
	}
}

func write(t *testing.T, dir, name, yaml string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(yaml), 0o600))
}

func TestUserTemplatesReplaceBuiltInOnes(t *testing.T) {
	user := t.TempDir()
	write(t, user, "offline.yaml", "version: 1\nname: offline\ndescription: mine\nisolation: gvisor\n")
	write(t, user, "notes.txt", "not a template")
	s, err := Load(Folders{User: user, Floor: filepath.Join(user, "missing")})
	require.NoError(t, err)
	tmpl, err := s.Get("offline")
	require.NoError(t, err)
	assert.Equal(t, sandbox.IsolationGVisor, tmpl.Isolation)
	assert.Equal(t, filepath.Join(user, "offline.yaml"), s.Source("offline"))
	assert.Equal(t, "built-in", s.Source("project"))
}

func TestAFaultyTemplateIsNotSkipped(t *testing.T) {
	user := t.TempDir()
	write(t, user, "mine.yaml", "version: 1\nname: mine\ndescripton: d\n")
	_, err := Load(Folders{User: user})
	assert.ErrorContains(t, err, "mine.yaml")
	assert.ErrorContains(t, err, "[3:1]")

	write(t, user, "mine.yaml", "version: 1\nname: other\ndescription: d\n")
	_, err = Load(Folders{User: user})
	assert.ErrorContains(t, err, "give both the same name")
}

func TestTheFloorMustBeRootsAlone(t *testing.T) {
	// A folder that anyone else could write, or that lies below one, is no floor.
	floor := filepath.Join(t.TempDir(), "etc")
	require.NoError(t, os.Mkdir(floor, 0o777))
	require.NoError(t, os.Chmod(floor, 0o777))
	_, err := Load(Folders{Floor: floor})
	assert.ErrorContains(t, err, "must belong to root")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/etc", link))
	_, err = Load(Folders{Floor: link})
	assert.ErrorContains(t, err, "must belong to root")
	_, err = Load(Folders{Floor: "/etc/skel"})
	assert.NoError(t, err, "root's alone, and without templates")
}

func TestTheFloorWins(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can write an operator's floor")
	}
	user, floor := t.TempDir(), t.TempDir()
	write(t, user, "offline.yaml", "version: 1\nname: offline\ndescription: user\n")
	write(t, floor, "offline.yaml", "version: 1\nname: offline\ndescription: operator\nisolation: gvisor\n")
	s, err := Load(Folders{User: user, Floor: floor})
	require.NoError(t, err)
	tmpl, err := s.Get("offline")
	require.NoError(t, err)
	assert.Equal(t, "operator", tmpl.Description)

	require.NoError(t, os.Chown(filepath.Join(floor, "offline.yaml"), 65534, 65534))
	_, err = Load(Folders{User: user, Floor: floor})
	assert.ErrorContains(t, err, "must belong to root")
}

func TestUnknownTemplateNamesTheKnownOnes(t *testing.T) {
	_, err := builtinSet(t).Get(strings.Repeat("x", 1000))
	var e *sandbox.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, sandbox.NotFound, e.Code)
	assert.Contains(t, e.Hint, "untrusted-code")
	assert.Less(t, len(e.Message), 200)
}

// A folder that this user may not enter is told from one that is not there.
func TestClosedFolderNamesTheUser(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("every folder is open to root")
	}
	dir := filepath.Join(t.TempDir(), "shut")
	require.NoError(t, os.Mkdir(dir, 0o000))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	for _, path := range []string{dir, filepath.Join(dir, "project")} {
		_, err := Source(path)
		require.ErrorContains(t, err, "may not look into it")
		assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err))
	}
	_, err := Source(filepath.Join(filepath.Dir(dir), "absent"))
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
}
