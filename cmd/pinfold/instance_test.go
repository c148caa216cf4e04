package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnInstanceIsAliveAsLongAsItHoldsItsLock(t *testing.T) {
	home(t)
	one, err := newInstance()
	require.NoError(t, err)
	two, err := newInstance()
	require.NoError(t, err)
	assert.NotEqual(t, one.id, two.id)
	assert.True(t, alive(one.id))
	assert.Len(t, instances(), 2)

	require.NoError(t, one.Close())
	assert.False(t, alive(one.id))
	assert.True(t, alive(two.id))
	assert.NoDirExists(t, one.dir)
	require.NoError(t, two.Close())
	assert.Empty(t, instances())
}

func TestADeadInstanceWithAFolderIsNotAlive(t *testing.T) {
	home(t)
	i, err := newInstance()
	require.NoError(t, err)
	require.NoError(t, i.lock.Close()) // what the kernel does at a death
	assert.False(t, alive(i.id))
	assert.Empty(t, instances())

	living, err := newInstance()
	require.NoError(t, err)
	defer living.Close()
	require.NoError(t, os.WriteFile(filepath.Join(i.dir, "token"), nil, 0o600))
	require.NoError(t, sweep())
	assert.NoDirExists(t, i.dir)
	assert.DirExists(t, living.dir, "a living one stays")
}

func TestWhatCannotBeJudgedCountsAsAlive(t *testing.T) {
	home(t)
	elsewhere := "srv-" + runtimeID("/some/other/runtime/folder") + "-00000000"
	assert.True(t, alive(elsewhere), "its lock lies where we do not look")
	for _, odd := range []string{"", "pid12", "srv-../../etc-00000000", "SRV-000000-00000000", "srv-000000-00000000/../x"} {
		assert.True(t, alive(odd), odd)
	}
	here := "srv-" + runtimeID(runtimeDirs()[0]) + "-00000000"
	assert.False(t, alive(here), "ours to judge, and there is no lock")
}

func TestALockThatCannotBeReadIsHeld(t *testing.T) {
	home(t)
	i, err := newInstance()
	require.NoError(t, err)
	defer i.Close()
	require.NoError(t, os.Remove(filepath.Join(i.dir, "lock")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(i.dir, "lock")))
	assert.True(t, held(filepath.Join(i.dir, "lock")), "links are not followed")
}

func TestTheTokenIsFreshAndPrivate(t *testing.T) {
	home(t)
	i, err := newInstance()
	require.NoError(t, err)
	defer i.Close()
	token, path, err := i.token()
	require.NoError(t, err)
	assert.Len(t, token, 64)
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	_, _, err = i.token()
	assert.Error(t, err, "an existing file is not written over")
}

func TestSocketPathsFit(t *testing.T) {
	home(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 90))
	require.NoError(t, os.MkdirAll(long, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", long)
	for _, dir := range runtimeDirs() {
		path := filepath.Join(dir, "srv-000000-00000000", "control.sock")
		assert.LessOrEqual(t, len(path), 107, path)
	}
}

func TestAFolderOpenToOthersIsNoRuntimeFolder(t *testing.T) {
	dir := home(t)
	run := filepath.Join(dir, "run")
	require.NoError(t, os.Chmod(run, 0o777))
	assert.NotContains(t, runtimeDirs(), filepath.Join(run, "pinfold"))
	require.NoError(t, os.Chmod(run, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(run, "pinfold"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(run, "pinfold"), 0o777))
	_, err := newInstance()
	assert.ErrorContains(t, err, "open to others")
}

func TestTheEnvironmentIsFilledIn(t *testing.T) {
	dir := home(t)
	for _, v := range []string{"HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "PATH"} {
		t.Setenv(v, "")
	}
	deriveEnvironment()
	assert.NotEmpty(t, os.Getenv("HOME"))
	assert.NotEmpty(t, os.Getenv("USER"))
	assert.Equal(t, standardPath, os.Getenv("PATH"))

	t.Setenv("PATH", "/usr/bin:/mine")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/my/bus")
	deriveEnvironment()
	assert.True(t, strings.HasPrefix(os.Getenv("PATH"), "/usr/bin:/mine:/usr/local/bin"), os.Getenv("PATH"))
	assert.Equal(t, filepath.Join(dir, "run"), os.Getenv("XDG_RUNTIME_DIR"), "what is given stays")
	assert.Equal(t, "unix:path=/my/bus", os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
}
