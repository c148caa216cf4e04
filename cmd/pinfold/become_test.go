package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

// seen is what the process was after it became the plain user.
type seen struct {
	PID, PPID, UID, EUID, GID int
	Groups                    []int
	Env                       []string
	Dir, Exe, Caps            string
}

const becomeProbe = "PINFOLD_TEST_BECOME"

// TestBecomeProbe is run as a process of its own: as root it becomes the plain
// user and so runs once more.
func TestBecomeProbe(t *testing.T) {
	if os.Getenv(becomeProbe) == "" {
		t.Skip("runs as a child of TestBecomePlainUser")
	}
	if err := becomePlainUser(); err != nil {
		fmt.Println("ERROR", err)
		os.Exit(3)
	}
	groups, _ := os.Getgroups()
	dir, _ := os.Getwd()
	exe, _ := os.Executable()
	out, err := json.Marshal(seen{os.Getpid(), os.Getppid(), os.Getuid(), os.Geteuid(), os.Getgid(), groups, os.Environ(), dir, exe, effectiveCaps()})
	require.NoError(t, err)
	fmt.Println("SEEN", string(out))
	os.Exit(0)
}

func runBecome(t *testing.T, env ...string) (seen, int, string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestBecomeProbe$")
	cmd.Args[0] = os.Args[0]
	cmd.Env = append([]string{becomeProbe + "=1", "TERM=dumb", "AWS_SECRET_ACCESS_KEY=x", "HOME=/root", "PATH=/evil", "LD_LIBRARY_PATH=/evil"}, env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	text := out.String() + errs.String()
	if err != nil {
		return seen{}, cmd.Process.Pid, text
	}
	_, line, ok := strings.Cut(out.String(), "SEEN ")
	require.True(t, ok, text)
	var s seen
	require.NoError(t, json.Unmarshal([]byte(strings.TrimSpace(line)), &s))
	return s, cmd.Process.Pid, text
}

func TestBecomePlainUser(t *testing.T) {
	if os.Getuid() != 0 {
		s, _, _ := runBecome(t)
		assert.Equal(t, os.Getuid(), s.UID, "a plain user stays who it is")
		assert.Contains(t, s.Env, "PATH=/evil", "and keeps its environment")
		t.Skip("the rest needs root")
	}
	who, err := findPlainUser("")
	if err != nil {
		t.Skip("there is no user pinfold on this machine")
	}
	s, pid, text := runBecome(t)
	if filepath.Dir(s.Exe) == binCache {
		t.Cleanup(func() { os.Remove(s.Exe); os.Remove(binCache) })
	}
	assert.Equal(t, pid, s.PID, "the same process, so that no root parent stays")
	assert.Equal(t, os.Getpid(), s.PPID)
	assert.Equal(t, []int{who.uid, who.uid, who.gid}, []int{s.UID, s.EUID, s.GID})
	assert.ElementsMatch(t, who.groups, s.Groups)
	assert.NotContains(t, s.Groups, 0)
	assert.Equal(t, who.home, s.Dir)
	assert.Empty(t, strings.Trim(s.Caps, "0"))
	assert.ElementsMatch(t, []string{
		"HOME=" + who.home, "USER=pinfold", "LOGNAME=pinfold", "PATH=" + standardPath, "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR=/run/user/" + strconv.Itoa(who.uid), "TERM=dumb", becomeProbe + "=1",
	}, s.Env, "a fresh environment: no credential, no loader path of root's")
	assert.True(t, who.canRun(s.Exe), "%s can be run by the user", s.Exe)
	assert.Contains(t, text, fmt.Sprintf("going on as pinfold (uid %d)", who.uid))
}

func TestBecomeMissingUser(t *testing.T) {
	_, err := findPlainUser("no-such-user-here")
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, sandbox.FailedPrecondition, typed.Code)
	assert.Contains(t, typed.Message, `"no-such-user-here"`)
	assert.Contains(t, typed.Hint, "make setup")

	_, err = findPlainUser("root")
	require.ErrorAs(t, err, &typed, "root is no plain user, whatever the variable says")
	_, err = findPlainUser("daemon")
	require.ErrorAs(t, err, &typed, "neither is a service")

	if os.Getuid() == 0 {
		s, _, text := runBecome(t, plainUserVar+"=no-such-user-here")
		assert.Zero(t, s)
		assert.Contains(t, text, "ERROR")
	}
}

func TestProgramOutOfReachIsCopied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the folder must be root's")
	}
	cache := filepath.Join(t.TempDir(), "cache")
	path, err := copyProgram(cache)
	require.NoError(t, err)
	want, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, string(want) == string(have))
	again, err := copyProgram(cache)
	require.NoError(t, err)
	assert.Equal(t, path, again)
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "one copy, no temporary files")

	// What others may write must not be executed by root next time.
	require.NoError(t, os.Chmod(cache, 0o777))
	_, err = copyProgram(cache)
	assert.ErrorContains(t, err, "root's alone")
}

func TestCanRunLooksAtEveryFolder(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	inner := filepath.Join(dir, "closed")
	program := filepath.Join(inner, "program")
	require.NoError(t, os.Mkdir(inner, 0o755))
	require.NoError(t, os.WriteFile(program, nil, 0o755))
	stranger := plain{uid: 54321, gid: 54321}
	assert.True(t, stranger.canRun(program))
	require.NoError(t, os.Chmod(inner, 0o700))
	assert.False(t, stranger.canRun(program), "a closed folder on the way")
	assert.True(t, plain{uid: os.Getuid(), gid: 54321}.canRun(program), "not to its owner")
	require.NoError(t, os.Chmod(inner, 0o755))
	require.NoError(t, os.Chmod(program, 0o700))
	assert.False(t, stranger.canRun(program), "the file itself")
	assert.False(t, stranger.canRun(filepath.Join(inner, "absent")))
}
