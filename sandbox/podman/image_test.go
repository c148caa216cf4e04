package podman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
)

var bookworm = osRelease{ID: "debian", Codename: "bookworm", Name: "Debian GNU/Linux 12"}

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(content), 0o644))
	}
	return dir
}

func TestAptSourcesTakesTheDistributionOnly(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"sources.list": `deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] http://mirror.example/debian bookworm main contrib # near
deb-src http://mirror.example/debian bookworm main
#deb http://off.example/debian bookworm main
deb http://backports.example/debian bookworm-backports main
deb http://broken.example [arch=amd64 bookworm main
`,
		"sources.list.d/vendor.list": "deb http://vendor.example/apt bookworm stable\ndeb http://tools.example/apt tools-bookworm main\n",
		"sources.list.d/security.sources": `# fixes
Types: deb deb-src
uris: http://security.example/debian-security
Suites: bookworm-security bookworm-backports
Components: main non-free
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://disabled.example
Suites: bookworm
Components: main
Enabled: no
`,
	})
	got, err := aptSources(dir, bookworm)
	require.NoError(t, err)
	assert.Equal(t, `Types: deb
URIs: http://mirror.example/debian
Suites: bookworm
Components: main
Signed-By: /k/a.gpg /k/b.gpg

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: 
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ
 -----END PGP PUBLIC KEY BLOCK-----

`, got)
}

func TestAptSourcesOfUbuntuTakeUniverse(t *testing.T) {
	dir := writeTree(t, map[string]string{"sources.list.d/ubuntu.sources": "Types: deb\nURIs: http://u.example/ubuntu\nSuites: noble noble-updates\nComponents: main restricted universe multiverse\n"})
	got, err := aptSources(dir, osRelease{ID: "ubuntu", Codename: "noble"})
	require.NoError(t, err)
	assert.Contains(t, got, "Components: main universe\n")
}

func TestAptWithoutSourcesSaysSo(t *testing.T) {
	_, err := aptSources(t.TempDir(), bookworm)
	require.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
	assert.ErrorContains(t, err, "bookworm")
}

func TestReadOSRelease(t *testing.T) {
	dir := writeTree(t, map[string]string{"a": "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_CODENAME='bookworm'\n", "b": "ID=fedora\nPRETTY_NAME=Fedora\n"})
	r, err := readOSRelease(filepath.Join(dir, "a"))
	require.NoError(t, err)
	assert.Equal(t, osRelease{ID: "debian", Codename: "bookworm", Name: "Debian GNU/Linux 12 (bookworm)"}, r)
	assert.True(t, r.hasApt())
	r, err = readOSRelease(filepath.Join(dir, "b"))
	require.NoError(t, err)
	assert.False(t, r.hasApt())
}

func TestMissingMmdebstrapIsNamed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mmdebstrap"), 0o755)) // a folder is no program
	_, err := mmdebstrapPath(dir)
	var typed *sandbox.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, "mmdebstrap_missing", typed.Reason)
	assert.Contains(t, typed.Hint, "apt install mmdebstrap")
}

func TestBuildCommandLine(t *testing.T) {
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	m := &mmdebstrap{release: bookworm, recipe: recipe, dir: "/d", options: []string{`Acquire::Retries "3"`}}
	args := strings.Join(m.args(), "\n") + "\n"
	for _, want := range []string{
		"--mode=unshare\n", "chromium-headless-shell", "python3-ipykernel", `--aptopt=Acquire::Retries "3"` + "\n",
		"--dpkgopt=path-exclude=/usr/share/doc/*\n--dpkgopt=path-include=/usr/share/doc/*/copyright\n",
		"--customize-hook=/d/customize.sh\nbookworm\n-\n-\n",
	} {
		assert.Contains(t, args, want)
	}
	m.release.ID = "ubuntu"
	assert.NotContains(t, strings.Join(m.args(), "\n"), "chromium-headless-shell,", "Ubuntu has no such package")
}

func TestStagesOfABuild(t *testing.T) {
	last, seen := 0, []string{}
	w := &lineWriter{log: &tail{max: 1 << 10}, stage: newStages(func(stage string, percent int, _ string) {
		require.GreaterOrEqual(t, percent, last, "%s", stage)
		last = percent
		if len(seen) == 0 || seen[len(seen)-1] != stage {
			seen = append(seen, stage)
		}
	})}
	for _, chunk := range []string{
		"I: running apt-get update...\nI: downloading packages with apt...\nGet:1 x\n2 upgraded, 90 newly inst",
		"alled\nUnpacking libc6\nSetting up libc6\n",
		"I: installing remaining packages inside the chroot...\n0 upgraded, 2 newly installed, 0 to remove\n",
		"Get:1 a\rGet:2 b\n", "Unpacking a\nSetting up a\nUnpacking b\nSetting up b\n",
		"I: running --customize-hook directly\nI: creating tarball...\n", "no line break",
	} {
		_, err := w.Write([]byte(chunk))
		require.NoError(t, err)
		if strings.HasPrefix(chunk, "Unpacking a") {
			assert.Equal(t, pctPack, last, "all of two packages are unpacked and set up")
		}
	}
	w.flush()
	assert.Equal(t, []string{"reading package lists", "installing the base system", "fetching packages", "installing packages", "finishing", "packing"}, seen)
}

func TestCauseOfAFailedBuild(t *testing.T) {
	m := &mmdebstrap{}
	assert.Equal(t, "cannot open display; dpkg: error processing package x (--configure):",
		m.cause("Setting up x\ncannot open display\ndpkg: error processing package x (--configure):\n postinst failed\nE: Sub-process returned 1\n"))
	assert.Equal(t, "E: Unable to locate package nope", m.cause("Reading\nE: Unable to locate package nope\nI: removing\nE: mmdebstrap failed to run\n"))
}

// What one process builds, another can show; a state file without a builder is
// only history.
func TestStateOfABuild(t *testing.T) {
	dir := t.TempDir()
	const ref = "localhost/pinfold:abc"
	assert.Equal(t, sandbox.ImageState{Reference: ref}, imageState(dir, ref, ""))

	unlock, err := lockBuild(t.Context(), dir, nil)
	require.NoError(t, err)
	p := &progress{dir: dir, ref: ref}
	p.report("installing packages", 40, "")
	p.report("importing", 30, "") // never falls
	s := imageState(dir, ref, "")
	assert.True(t, s.Preparing)
	assert.Equal(t, "importing", s.Stage)
	assert.Equal(t, 40, s.Percent)
	assert.Equal(t, 0, imageState(dir, "localhost/pinfold:other", "").Percent, "of another image nothing is known")

	waited := make(chan buildState, 1)
	done := make(chan func())
	go func() {
		u, err := lockBuild(t.Context(), dir, func(b buildState) {
			select {
			case waited <- b:
			default:
			}
		})
		assert.NoError(t, err)
		done <- u
	}()
	assert.Equal(t, 40, (<-waited).Percent, "a second build waits and sees the first one's state")
	p.end(sandbox.Errorf(sandbox.ResourceExhausted, "", "the disk is full"))
	unlock()
	select {
	case u := <-done:
		u()
	case <-time.After(10 * time.Second):
		t.Fatal("the second build never got the lock")
	}
	s = imageState(dir, ref, "")
	assert.False(t, s.Preparing)
	assert.Equal(t, "the disk is full", s.LastError)
	p.end(nil)
	assert.Empty(t, imageState(dir, ref, "").LastError)
	assert.True(t, imageState(dir, ref, "sha256:1").Ready)
}

// A folder whose builder lives is not swept, whatever cache folder it has.
func TestSweepLeavesALivingBuild(t *testing.T) {
	dir, unlock, err := buildDir()
	require.NoError(t, err)
	b := &imageStore{s: &service{}, dir: t.TempDir()}
	b.sweep(t.Context())
	assert.DirExists(t, dir)
	unlock()
	b.sweep(t.Context())
	assert.NoDirExists(t, dir)
}

func TestBuildContextHoldsBothDistributions(t *testing.T) {
	recipe, err := templates.ImageRecipe()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, writeContext(dir, recipe))
	debian, err := os.ReadFile(filepath.Join(dir, "packages.debian"))
	require.NoError(t, err)
	ubuntu, err := os.ReadFile(filepath.Join(dir, "packages.ubuntu"))
	require.NoError(t, err)
	assert.Contains(t, string(debian), "chromium-headless-shell\n")
	assert.NotContains(t, string(ubuntu), "chromium")
	excludes, err := os.ReadFile(filepath.Join(dir, "excludes.cfg"))
	require.NoError(t, err)
	assert.Contains(t, string(excludes), "path-exclude=/usr/share/man/*\n")
	file, err := os.ReadFile(filepath.Join(dir, "Containerfile"))
	require.NoError(t, err)
	assert.Contains(t, string(file), "ARG BASE\nFROM ${BASE}\n")
}
