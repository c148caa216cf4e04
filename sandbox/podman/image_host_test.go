package podman

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeHost is a host with a merged /usr, an /etc that holds secrets beside what
// programs need, and a home with toolchains and credentials.
func fakeHost(t *testing.T) (root, home string) {
	t.Helper()
	root = writeTree(t, map[string]string{
		"usr/bin/sh": "", "usr/lib/os-release": "", "usr/share/zoneinfo/Europe/Zurich": "", "usr/local/go/bin/go": "",
		"etc/ssl/certs/ca.crt": "", "etc/ssl/private/key.pem": "", "etc/shadow": "", "etc/passwd": "real:x:1:1::/:", "etc/ssh/ssh_host_key": "",
		"etc/ld.so.cache": "", "etc/python3.11/sitecustomize.py": "", "etc/chromium/x": "",
		"opt/secret/x": "", "nix/store/x": "",
		"home/u/.nvm/versions/node/v18.2.0/bin/node": "", "home/u/.nvm/versions/node/v20.1.0/bin/node": "",
		"home/u/.cargo/bin/cargo": "", "home/u/.cargo/credentials.toml": "", "home/u/.ssh/id": "", "home/u/notes": "",
	})
	for link, to := range map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib", "etc/localtime": filepath.Join(root, "usr/share/zoneinfo/Europe/Zurich"),
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	return root, filepath.Join(root, "home/u")
}

func targets(p hostPlan) []string {
	var all []string
	for _, m := range p.mounts {
		all = append(all, m.target)
	}
	return all
}

func TestHostRootTakesNamedFoldersOnly(t *testing.T) {
	root, home := fakeHost(t)
	p := planHostRoot(root, home)
	assert.ElementsMatch(t, []string{
		"/etc/chromium", "/etc/ld.so.cache", "/etc/python3.11", "/etc/ssl/certs",
		home + "/.cargo/bin", home + "/.nvm", "/nix/store", "/usr",
	}, targets(p))
	assert.Equal(t, "usr/bin", p.links["/bin"])
	assert.Equal(t, "/usr/share/zoneinfo/Europe/Zurich", p.links["/etc/localtime"])
	assert.NotContains(t, p.files["/etc/passwd"], "real", "the host's users stay out")
	assert.Contains(t, p.files["/etc/passwd"], "agent:x:1000:1000:")
	assert.Equal(t, []string{"/usr/local/go/bin", home + "/.nvm/versions/node/v20.1.0/bin", home + "/.cargo/bin"}, p.path)
}

func TestHostRootFollowsNoLinkToTheHome(t *testing.T) {
	for name, to := range map[string]string{"the home itself": ".", "above it": "..", "keys": ".ssh"} {
		t.Run(name, func(t *testing.T) {
			root, home := fakeHost(t)
			require.NoError(t, os.Symlink(filepath.Join(home, to), filepath.Join(home, ".pyenv")))
			assert.NotContains(t, targets(planHostRoot(root, home)), home+"/.pyenv")
		})
	}
	root, home := fakeHost(t)
	elsewhere := writeTree(t, map[string]string{"bin/pyenv": ""})
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(home, ".pyenv")))
	assert.Contains(t, planHostRoot(root, home).mounts, hostMount{source: elsewhere, target: home + "/.pyenv"}, "a link to another disk is fine")
}

func TestHostRootLeavesOutWhatIsClosed(t *testing.T) {
	root, home := fakeHost(t)
	require.NoError(t, os.Chmod(filepath.Join(root, "etc/ssl/certs"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(root, "etc/ld.so.cache"), 0o600))
	got := targets(planHostRoot(root, home))
	assert.NotContains(t, got, "/etc/ssl/certs")
	assert.NotContains(t, got, "/etc/ld.so.cache")
}

func TestHostRootOnDisk(t *testing.T) {
	root, home := fakeHost(t)
	p := planHostRoot(root, home)
	dir := t.TempDir()
	require.NoError(t, p.write(dir))
	for name, mode := range map[string]os.FileMode{
		"tmp": 0o777 | os.ModeSticky, "var/tmp": 0o777 | os.ModeSticky, "etc/passwd": 0o644, "etc/group": 0o644,
		"etc/nsswitch.conf": 0o644, ".pinfold/guest": 0o755, "workspace": 0o755, "home/agent": 0o755,
	} {
		st, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, mode, st.Mode()&(os.ModePerm|os.ModeSticky), name)
	}
	for _, m := range p.mounts {
		_, err := os.Lstat(filepath.Join(dir, m.target))
		assert.NoError(t, err, "the mount point of %s is there", m.target)
	}
	assert.Equal(t, p.hash(), planHostRoot(root, home).hash(), "the same host gives the same root")
	require.NoError(t, os.RemoveAll(filepath.Join(home, ".nvm")))
	assert.NotEqual(t, p.hash(), planHostRoot(root, home).hash())
}

func TestWithin(t *testing.T) {
	assert.True(t, within("/a/b", "/a"))
	assert.True(t, within("/a", "/a"))
	assert.True(t, within("/a", "/"))
	assert.False(t, within("/ab", "/a"))
	assert.False(t, within("/", "/a"))
}
