package podman

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"pinfold.dev/pinfold/sandbox"
)

// hostRoot is what `image: host` runs on: a root file system of ours, with the
// host's /usr and little more bound into it. It is always read-only.
type hostRoot struct {
	dir    string // the root; owned by the sandboxes' root
	mounts []hostMount
	path   []string // folders of toolchains for PATH, in order
}

// hostMount is bound ro,nosuid,nodev. Source is real, Target is where programs
// look for it; its mount point exists in the root.
type hostMount struct{ source, target string }

// hostEtc are the parts of /etc that programs under /usr need. Nothing here
// names users, hosts, keys or services of this machine. What is absent, or
// closed to others, is left out.
var hostEtc = []string{
	"alternatives", "ssl/certs", "ssl/openssl.cnf", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"chromium", "chromium.d", "mime.types", "magic", "magic.mime", "services", "protocols", "perl",
}

// homeToolchains are folders below the home that hold programs and nothing
// else: never the home, never a folder that also holds credentials (of
// ~/.cargo, ~/.bun and ~/.deno only bin).
var homeToolchains = []string{
	".nvm", ".pyenv", ".rbenv", ".local/share/mise", ".local/share/fnm", ".local/share/uv/python", ".volta/bin", ".volta/tools",
	".rustup/toolchains", ".cargo/bin", ".bun/bin", ".deno/bin", ".sdkman/candidates", "sdk",
}

// hostToolchains are such folders elsewhere.
var hostToolchains = []string{"/nix/store", "/opt/google/chrome", "/home/linuxbrew/.linuxbrew"}

// prepareHostRoot returns the root for `image: host`, made at the first use:
// it is small, and the same for all sandboxes of this user. It lies in the
// folder base.
func prepareHostRoot(ctx context.Context, s *service, base string) (hostRoot, error) {
	if st, err := os.Stat("/usr/bin"); err != nil || !st.IsDir() {
		return hostRoot{}, sandbox.Errorf(sandbox.FailedPrecondition, "Build the image instead: `pinfold image build`.", "this host has no /usr/bin to offer to `image: host`")
	}
	home, _ := os.UserHomeDir()
	plan := planHostRoot("/", home)
	dir := filepath.Join(base, "hostroot-"+plan.hash())
	h := hostRoot{dir: dir, mounts: plan.mounts, path: plan.path}
	if st, err := os.Lstat(dir); err == nil && st.IsDir() {
		return h, nil
	}
	if err := os.MkdirAll(base, 0o711); err != nil {
		return hostRoot{}, fmt.Errorf("making the folder of the host root: %w", err)
	}
	if err := makePassable(base); err != nil {
		return hostRoot{}, err
	}
	tmp, err := os.MkdirTemp(base, "hostroot-new-")
	if err != nil {
		return hostRoot{}, fmt.Errorf("making the host root: %w", err)
	}
	defer func() { _ = s.removeTree(context.WithoutCancel(ctx), tmp) }() // gone already when all went well
	if err := plan.write(tmp); err != nil {
		return hostRoot{}, err
	}
	// Id 1 of the namespace is the sandboxes' root under both mappings. It must
	// own the root: an owner that is not mapped inside can be given no access.
	if err := s.inside(ctx, "chown", "-hR", "1:1", tmp); err != nil {
		return hostRoot{}, s.fault("preparing the host root", err)
	}
	// Another server of this user may have been faster; its result is equal.
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, os.ErrExist) {
		return hostRoot{}, fmt.Errorf("putting the host root in place: %w", err)
	}
	return h, nil
}

// hostRootBase is where host roots lie: beside Podman's storage, whose parents
// Podman opens for passing through, and not in the cache, whose parents it
// leaves closed. Where the host user is not mapped, the sandboxes' root is a
// stranger on the way to its own root file system.
func hostRootBase() (string, error) {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "pinfold"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder of the host root: %w", err)
	}
	return filepath.Join(home, ".local/share/pinfold"), nil
}

// makePassable gives the folders on the way to dir that are ours, and closed,
// the right to be passed through by others; not to be listed. Podman does the
// same for its storage.
func makePassable(dir string) error {
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("opening the way to the host root: %w", err)
		}
		if ownerOf(st) != os.Getuid() || st.Mode().Perm()&0o001 != 0 {
			continue
		}
		if err := os.Chmod(dir, st.Mode().Perm()|0o011); err != nil {
			return fmt.Errorf("opening the way to the host root: %w", err)
		}
	}
	return nil
}

// hostPlan is the content of the root, before anything is written.
type hostPlan struct {
	links  map[string]string // path → target
	files  map[string]string // path → content; mode 0644
	dirs   map[string]os.FileMode
	mounts []hostMount
	path   []string
}

// planHostRoot looks at the host below root and at a user's home.
func planHostRoot(root, home string) hostPlan {
	p := hostPlan{links: map[string]string{}, files: map[string]string{}, dirs: map[string]os.FileMode{}}
	p.bind(root, "/usr", "/usr")
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		switch target, err := os.Readlink(filepath.Join(root, name)); {
		case err == nil && strings.HasPrefix(strings.TrimPrefix(target, "/"), "usr/"):
			p.links["/"+name] = strings.TrimPrefix(target, "/")
		case err != nil:
			p.bind(root, "/"+name, "/"+name) // a host whose /usr is not merged
		}
	}
	for _, name := range hostEtc {
		p.bind(root, "/etc/"+name, "/etc/"+name)
	}
	for _, pattern := range []string{"/etc/python3*", "/etc/java-*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // constant patterns
		for _, f := range found {
			name := "/etc/" + filepath.Base(f)
			p.bind(root, name, name)
		}
	}
	for _, name := range hostToolchains {
		p.bind(root, name, name)
	}
	if home != "" && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		for _, name := range homeToolchains {
			p.bindHome(home, filepath.Join(home, name))
		}
	}
	p.path = toolchainPath(root, home, p.mounts)
	p.fixed(root)
	return p
}

// bind adds a folder or file of the host, when others may read it.
func (p *hostPlan) bind(root, source, target string) {
	source = filepath.Join(root, source)
	st, err := os.Stat(source)
	if err != nil || !openToOthers(st) {
		return
	}
	p.mount(source, target, st.IsDir())
}

// bindHome adds a toolchain below the home. A link is followed once, here: a
// link to the home itself or to anything above it must not bring it in.
func (p *hostPlan) bindHome(home, dir string) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	realHome, err := filepath.EvalSymlinks(home)
	if err != nil || within(realHome, real) || hidden(realHome, real) {
		return
	}
	if st, err := os.Stat(real); err != nil || !st.IsDir() {
		return
	}
	p.mount(real, dir, true)
}

// hidden reports whether a linked toolchain lies in a folder of the home known
// for credentials.
func hidden(home, dir string) bool {
	for _, secret := range []string{".ssh", ".gnupg", ".aws", ".config", ".kube", ".docker", ".password-store", ".mozilla"} {
		if within(dir, filepath.Join(home, secret)) {
			return true
		}
	}
	return false
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func openToOthers(st os.FileInfo) bool {
	if st.IsDir() {
		return st.Mode().Perm()&0o005 == 0o005
	}
	return st.Mode().IsRegular() && st.Mode().Perm()&0o004 != 0
}

func (p *hostPlan) mount(source, target string, dir bool) {
	for _, m := range p.mounts {
		if within(target, m.target) {
			return // lies below one that is bound already
		}
	}
	p.mounts = append(p.mounts, hostMount{source: source, target: target})
	if dir {
		p.dirs[target] = 0o755
	} else {
		p.files[target] = ""
	}
}

// fixed adds what is the same on every host.
func (p *hostPlan) fixed(root string) {
	for _, d := range []string{
		"/proc", "/sys", "/dev", "/run", "/var", "/etc", "/root", "/home", sandbox.WorkspaceDir, sandbox.SessionDir,
		sandbox.HomeDir, sandbox.BrowserDir, sandbox.LinkDir,
	} {
		p.dirs[d] = 0o755
	}
	p.dirs["/tmp"] = os.ModeSticky | 0o777
	p.dirs["/var/tmp"] = os.ModeSticky | 0o777
	p.files[sandbox.GuestPath] = ""
	p.files["/etc/passwd"] = fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\n%s:x:%d:%d:%s:%s:/bin/bash\n%s:x:%d:%d:%s:%s:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		sandbox.AgentName, sandbox.AgentUID, sandbox.AgentGID, sandbox.AgentName, sandbox.HomeDir,
		sandbox.BrowserName, sandbox.BrowserUID, sandbox.BrowserGID, sandbox.BrowserName, sandbox.BrowserDir)
	p.files["/etc/group"] = fmt.Sprintf("root:x:0:\n%s:x:%d:\n%s:x:%d:\nnogroup:x:65534:\n", sandbox.AgentName, sandbox.AgentGID, sandbox.BrowserName, sandbox.BrowserGID)
	p.files["/etc/nsswitch.conf"] = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"
	p.files["/etc/hosts"] = "127.0.0.1 localhost\n::1 localhost\n"
	p.files["/etc/hostname"] = ""
	p.files["/etc/resolv.conf"] = ""
	p.files["/etc/shells"] = "/bin/sh\n/bin/bash\n"
	p.files["/etc/pip.conf"] = "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nno-warn-script-location = true\n"
	p.files["/etc/npmrc"] = "prefix=" + sandbox.HomeDir + "/.local\nfund=false\naudit=false\nupdate-notifier=false\n"
	p.links["/etc/os-release"] = "../usr/lib/os-release"
	p.links["/etc/mtab"] = "../proc/self/mounts"
	p.links["/var/run"] = "../run"
	if zone, err := filepath.EvalSymlinks(filepath.Join(root, "etc/localtime")); err == nil {
		if rel, err := filepath.Rel(root, zone); err == nil && strings.HasPrefix(rel, "usr/share/zoneinfo/") {
			p.links["/etc/localtime"] = "/" + rel
		}
	}
}

// toolchainPath returns the folders with programs of the bound toolchains.
func toolchainPath(root, home string, mounts []hostMount) []string {
	patterns := []string{"/usr/local/go/bin"}
	for _, name := range []string{
		".nvm/versions/node/*/bin", ".pyenv/shims", ".pyenv/bin", ".rbenv/shims", ".rbenv/bin", ".local/share/mise/shims",
		".cargo/bin", ".volta/bin", ".bun/bin", ".deno/bin", ".sdkman/candidates/*/current/bin", "sdk/go*/bin",
	} {
		patterns = append(patterns, filepath.Join(home, name))
	}
	var out []string
	for _, pattern := range patterns {
		bound := slices.ContainsFunc(mounts, func(m hostMount) bool { return within(pattern, m.target) })
		if !bound {
			continue
		}
		if pattern == "/usr/local/go/bin" {
			if isDir(filepath.Join(root, pattern)) {
				out = append(out, pattern)
			}
			continue
		}
		found, _ := filepath.Glob(pattern) // a home with [ in its name finds nothing
		if len(found) > 0 {
			out = append(out, found[len(found)-1]) // the newest of several, by name
		}
	}
	return out
}

// hash names the root by all that is in it.
func (p hostPlan) hash() string {
	h := sha256.New()
	subids, _ := os.ReadFile("/etc/subuid") // the owner of the files depends on it
	fmt.Fprintf(h, "host root 1 %d %q\n", os.Getuid(), subids)
	for _, line := range p.lines() {
		fmt.Fprintln(h, line)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func (p hostPlan) lines() []string {
	var lines []string
	for k, v := range p.links {
		lines = append(lines, fmt.Sprintf("link %q %q", k, v))
	}
	for k, v := range p.files {
		lines = append(lines, fmt.Sprintf("file %q %q", k, v))
	}
	for k, v := range p.dirs {
		lines = append(lines, fmt.Sprintf("dir %q %o", k, v))
	}
	slices.Sort(lines)
	return lines
}

// write makes the root below dir.
func (p hostPlan) write(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("writing the host root: %w", err)
	}
	parents := map[string]os.FileMode{}
	for _, group := range []map[string]string{p.links, p.files} {
		for name := range group {
			parents[path.Dir(name)] = 0o755
		}
	}
	for name, mode := range p.dirs {
		parents[name] = mode
	}
	names := make([]string, 0, len(parents))
	for name := range parents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := mkdirAll(dir, name); err != nil {
			return fmt.Errorf("writing the host root: %w", err)
		}
		if err := os.Chmod(dir+name, parents[name]); err != nil {
			return fmt.Errorf("writing the host root: %w", err)
		}
	}
	for name, content := range p.files {
		if err := os.WriteFile(dir+name, []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the host root: %w", err)
		}
		mode := os.FileMode(0o644)
		if name == sandbox.GuestPath {
			mode = 0o755
		}
		if err := os.Chmod(dir+name, mode); err != nil {
			return fmt.Errorf("writing the host root: %w", err)
		}
	}
	for name, target := range p.links {
		if err := os.Symlink(target, dir+name); err != nil {
			return fmt.Errorf("writing the host root: %w", err)
		}
	}
	return nil
}

// mkdirAll makes name and what is above it below dir, open to all whatever the
// umask: uid 1000 passes through them.
func mkdirAll(dir, name string) error {
	at := dir
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part == "" {
			continue
		}
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil {
			if errors.Is(err, os.ErrExist) {
				continue
			}
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// binds are the mounts as a container takes them.
func (h hostRoot) binds() []specs.Mount {
	all := make([]specs.Mount, 0, len(h.mounts))
	for _, m := range h.mounts {
		all = append(all, specs.Mount{Type: "bind", Source: m.source, Destination: m.target,
			Options: []string{"rbind", "ro", "nosuid", "nodev", "rprivate"}})
	}
	return all
}
