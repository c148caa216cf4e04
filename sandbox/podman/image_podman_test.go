//go:build podman

package podman

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
)

// The full image is made once for the whole machine, under the user's own
// lock: a second build of the same recipe, here or elsewhere, is instant.
func TestImageIsBuiltOnce(t *testing.T) {
	e := newTestEngine(t)
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	last, started := "", time.Now()
	ref, digest, err := e.BuildImage(ctx, recipe, func(stage string, percent int, line string) {
		if stage != last {
			t.Logf("%6.1fs %3d%% %s %s", time.Since(started).Seconds(), percent, stage, line)
			last = stage
		}
	})
	require.NoError(t, err)
	require.Equal(t, recipe.Reference(), ref)
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, digest)

	started = time.Now()
	again, sameDigest, err := e.BuildImage(ctx, recipe, nil)
	require.NoError(t, err)
	assert.Equal(t, ref, again)
	assert.Equal(t, digest, sameDigest)
	assert.Less(t, time.Since(started), 5*time.Second, "a second build has nothing to do")

	state, err := e.ImageState(ctx, ref)
	require.NoError(t, err)
	assert.Equal(t, sandbox.ImageState{Reference: ref, Digest: digest, Ready: true}, state)

	all, err := e.Images(ctx, ref)
	require.NoError(t, err)
	var current []string
	for _, i := range all {
		if i.Current {
			current = append(current, i.Digest)
		}
	}
	assert.Equal(t, []string{digest}, current)
}

// tinyRecipe is a small image that no other test shares.
func tinyRecipe(t *testing.T) sandbox.Recipe {
	return sandbox.Recipe{
		Packages:  []sandbox.Package{{Name: "netbase"}},
		Excludes:  []string{"/usr/share/doc/*"},
		Customize: "#!/bin/sh\nset -eu\necho made >\"$1/made\" # " + t.Name() + newToken() + "\n",
	}
}

// leftOfBuild lists what a build may leave behind on the host.
func leftOfBuild(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("/var/tmp", buildPrefix()+"*"))
	require.NoError(t, err)
	var left []string
	for _, d := range dirs {
		if unlock, err := lockDir(d); err == nil { // not of a build that goes on elsewhere
			unlock()
			left = append(left, d)
		}
	}
	return left
}

func TestImageOfASmallRecipe(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.CacheDir = t.TempDir() })
	recipe := tinyRecipe(t)
	state, err := e.ImageState(t.Context(), recipe.Reference())
	require.NoError(t, err)
	assert.False(t, state.Ready)
	assert.False(t, state.Preparing)

	// A session that wants it meanwhile hears at once how far it is.
	_, err = e.Start(t.Context(), sandbox.Spec{Session: newSession(), Image: recipe.Reference()})
	var missing *sandbox.Error
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "image_missing", missing.Reason)
	assert.Contains(t, missing.Hint, "pinfold image build")

	var seen []string
	last, asked := 0, false
	ref, _, err := e.BuildImage(t.Context(), recipe, func(stage string, percent int, line string) {
		assert.GreaterOrEqual(t, percent, last, stage)
		last = percent
		if len(seen) == 0 || seen[len(seen)-1] != stage {
			seen = append(seen, stage)
			// Another process of the user sees the same.
			if s := imageState(e.opts.CacheDir, recipe.Reference(), ""); stage != "ready" {
				assert.True(t, s.Preparing)
				assert.Equal(t, stage, s.Stage)
			}
		}
		if stage == "installing packages" && !asked {
			asked = true
			began := time.Now()
			_, err := e.Start(t.Context(), sandbox.Spec{Session: newSession(), Image: recipe.Reference()})
			if assert.ErrorAs(t, err, &missing) {
				assert.Equal(t, "image_preparing", missing.Reason)
				assert.True(t, missing.Retry)
			}
			assert.Less(t, time.Since(began), 2*time.Second)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		gone, err := exec.Command("podman", "rmi", ref).CombinedOutput()
		assert.NoError(t, err, "%s", gone)
	})
	assert.Subset(t, seen, []string{"installing packages", "packing", "copying layers for the mapping no-map", "copying layers for the mapping keep-id", "ready"})
	assert.Equal(t, 100, last)
	assert.Empty(t, leftOfBuild(t))

	// Not run: the command line's default runtime may not start on this host.
	id, err := exec.Command("podman", "create", "--network=none", "--userns=nomap", ref, "true").Output()
	require.NoError(t, err)
	c := strings.TrimSpace(string(id))
	defer exec.Command("podman", "rm", "-f", c).Run()
	out, err := exec.Command("podman", "cp", c+":/made", "-").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "made\n")
}

// A person presses Ctrl-C while packages are being installed: the call ends
// soon, nothing of the build stays, and the next build starts afresh.
func TestImageBuildThatIsCancelledLeavesNothing(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.CacheDir = t.TempDir() })
	recipe := tinyRecipe(t)
	ctx, cancel := context.WithCancelCause(t.Context()) // as a signal does
	defer cancel(nil)
	_, _, err := e.BuildImage(ctx, recipe, func(stage string, _ int, _ string) {
		if stage == "installing the base system" {
			cancel(errors.New("interrupt"))
		}
	})
	require.Equal(t, sandbox.Canceled, sandbox.CodeOf(err), "%v", err)
	assert.Empty(t, leftOfBuild(t))
	state, err := e.ImageState(t.Context(), recipe.Reference())
	require.NoError(t, err)
	assert.False(t, state.Ready)
	assert.False(t, state.Preparing)
	assert.Empty(t, state.LastError, "stopping a build is no failure")
	for _, p := range processes(t) {
		assert.NotContains(t, p, recipe.Hash())
		assert.False(t, strings.Contains(p, "mmdebstrap") && strings.Contains(p, "netbase"), "left: %s", p)
	}
}

func processes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var all []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			all = append(all, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return all
}

func TestImageOfAPackageThatDoesNotExist(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.CacheDir = t.TempDir() })
	recipe := tinyRecipe(t)
	recipe.Packages = append(recipe.Packages, sandbox.Package{Name: "no-such-package-anywhere"})
	_, _, err := e.BuildImage(t.Context(), recipe, nil)
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "image_build", typed.Reason)
	assert.Contains(t, typed.Message, "no-such-package-anywhere")
	assert.Empty(t, leftOfBuild(t))
	state, err := e.ImageState(t.Context(), recipe.Reference())
	require.NoError(t, err)
	assert.Contains(t, state.LastError, "no-such-package-anywhere", "the next call can say why there is no image")
}

// The image on a base, as other distributions make it. The packages are there
// already, so that the step needs no network.
func TestImageOnABase(t *testing.T) {
	e := newTestEngine(t, func(o *Options) { o.CacheDir = t.TempDir() })
	recipe := tinyRecipe(t)
	recipe.Base = miniImage
	recipe.Containerfile = "ARG BASE\nFROM ${BASE}\nCOPY . /tmp/pinfold/\nRUN grep -q netbase /tmp/pinfold/packages.debian && sh /tmp/pinfold/customize.sh /\n"
	ref, digest, err := e.BuildImage(t.Context(), recipe, func(_ string, _ int, line string) {
		if line != "" {
			t.Log(line)
		}
	})
	require.NoError(t, err)
	assert.NotEmpty(t, digest)
	t.Cleanup(func() {
		gone, err := exec.Command("podman", "rmi", ref).CombinedOutput()
		assert.NoError(t, err, "%s", gone)
	})
	assert.Empty(t, leftOfBuild(t))
}

func TestPruneKeepsWhatIsNamed(t *testing.T) {
	e := newTestEngine(t)
	tag := sandbox.ImageRepository + ":prunetest" + newToken()[:8]
	empty := exec.Command("podman", "import", "-", tag)
	empty.Stdin = strings.NewReader(strings.Repeat("\x00", 1024)) // an archive of nothing
	out, err := empty.CombinedOutput()
	require.NoError(t, err, "%s", out)
	all, err := e.Images(t.Context(), "")
	require.NoError(t, err)
	var keep []string
	for _, i := range all {
		if i.Reference != tag {
			keep = append(keep, i.Reference)
		}
	}
	gone, err := e.PruneImages(t.Context(), keep)
	require.NoError(t, err)
	require.Len(t, gone, 1)
	assert.Equal(t, tag, gone[0].Reference)
	assert.Error(t, exec.Command("podman", "image", "exists", tag).Run())
}

// The host's own programs run in a sandbox, under both mappings and as uid
// 1000, and nothing of the host can be written or seen beyond the list.
func TestImageHost(t *testing.T) {
	for name, workspace := range map[string]sandbox.Workspace{
		"no-map":  {Mode: sandbox.WorkspaceVolume},
		"keep-id": {Mode: sandbox.WorkspaceOverlay, Path: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEngine(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			began := time.Now()
			box, err := e.Start(ctx, sandbox.Spec{Session: newSession(), Image: sandbox.ImageHost, Workspace: workspace, ReadOnlyRoot: true})
			require.NoError(t, err)
			t.Logf("started in %s", time.Since(began))
			defer func() { assert.NoError(t, box.Remove(context.WithoutCancel(ctx))) }()
			assert.True(t, box.Info().Posture.ReadOnlyRoot)
			run := func(line string) (string, int) {
				s, err := box.Exec(ctx, sandbox.ExecSpec{Argv: []string{"/bin/sh", "-c", line + " 2>&1"}, UID: 1000, GID: 1000, Dir: "/", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"}})
				require.NoError(t, err)
				defer s.Close()
				out, err := io.ReadAll(s)
				require.NoError(t, err)
				code, err := s.Wait(ctx)
				require.NoError(t, err)
				return strings.TrimSpace(string(out)), code
			}
			out, code := run("id -un && git --version && python3 -c 'import ssl; print(6*7)'")
			require.Zero(t, code, out)
			assert.True(t, strings.HasPrefix(out, "agent\n"), out)
			assert.Contains(t, out, "42")
			for _, line := range []string{"touch /usr/x", "touch /etc/x", "touch /x", "cat /etc/shadow", "ls " + os.Getenv("HOME") + "/.ssh"} {
				out, code := run(line)
				assert.NotZero(t, code, "%s: %s", line, out)
			}
			out, code = run("touch /tmp/x && touch /workspace/x && find /usr -xdev -perm -4000 -newer /nothing; grep ' /usr ' /proc/self/mountinfo")
			require.Zero(t, code, out)
			for _, flag := range []string{"ro", "nosuid", "nodev"} {
				assert.Contains(t, out, flag)
			}
			// Each toolchain of the list is there or left out whole; the home is not.
			out, _ = run("ls -a " + os.Getenv("HOME"))
			assert.NotContains(t, out, ".config")
		})
	}
}
