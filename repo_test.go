// Package pinfold_test holds the rules that concern the repository as a whole.
package pinfold_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "pinfold.dev/pinfold"

const (
	podmanModule  = "github.com/containers/podman/"
	chromedp      = "github.com/chromedp/"
	mcpGo         = "github.com/mark3labs/mcp-go/"
	cobra         = "github.com/spf13/cobra"
	testify       = "github.com/stretchr/testify"
	everythingOur = module + "/"
)

// forbidden says what a package must not reach, by itself or through others.
var forbidden = []struct {
	pkg     string
	not     []string
	because string
}{
	{"sandbox", []string{everythingOur, podmanModule}, "it says what a sandbox is, without an engine"},
	{"policies", []string{everythingOur, podmanModule, mcpGo}, "a decision is pure data and is tested without anything else"},
	{"mcp/audit", []string{everythingOur, podmanModule, mcpGo}, "the journal must be readable and checkable apart from the server"},
	{"browser", []string{everythingOur, podmanModule, mcpGo}, "it works over a stream it is handed and knows no sandbox"},
	{"templates", []string{module + "/mcp", module + "/tools", module + "/sandbox/podman", podmanModule}, "a template is data"},
	{"tools", []string{module + "/mcp", module + "/sandbox/podman", module + "/sandbox/guest", podmanModule}, "handlers see engines only as small interfaces; of the browser they use the plain types"},
	{"mcp", []string{module + "/sandbox/podman", podmanModule}, "nothing of Podman may leak above sandbox/podman; the second engine fits without change"},
	{"sandbox/guest", []string{module + "/sandbox/podman", module + "/mcp", module + "/tools", podmanModule}, "every engine uses the same guest"},
	{"cmd/pinfold-guest", []string{podmanModule, mcpGo, chromedp, cobra, testify, module + "/mcp", module + "/tools"}, "the guest starts in every sandbox and must stay small"},
	{"cmd/pinfold", []string{testify}, "tests' code has no place in the product"},
}

// importers says who alone may import something directly.
var importers = []struct {
	what    string
	only    []string
	because string
}{
	{podmanModule, []string{"sandbox/podman", "keep"}, "an engine is replaced by replacing one package"},
	{chromedp, []string{"browser", "keep"}, "the way to drive a browser is one package's business"},
	{mcpGo, []string{"mcp", "tools", "e2e", "cmd/pinfold-conformance", "keep"}, "the protocol library is replaced in one place; tools use its definition types"},
	{cobra, []string{"cmd/pinfold", "keep"}, "the command line is one package"},
	{"net/http/pprof", nil, "it registers handlers by being imported"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func listPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "-tags", "remote containers_image_openpgp", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	all := map[string]goPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		require.NoError(t, d.Decode(&p))
		all[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	return all
}

func TestDependencies(t *testing.T) {
	all := listPackages(t)
	for _, row := range forbidden {
		p, ok := all[row.pkg]
		if !assert.True(t, ok, "%s is gone; the table is out of date", row.pkg) {
			continue
		}
		for _, dep := range p.Deps {
			for _, not := range row.not {
				// A path that ends in "/" stands for all below it, another for
				// itself and what is below it.
				hit := strings.HasPrefix(dep+"/", strings.TrimSuffix(not, "/")+"/") && dep != p.ImportPath
				assert.False(t, hit, "%s must not reach %s: %s", row.pkg, dep, row.because)
			}
		}
	}
	for name, p := range all {
		for _, row := range importers {
			for _, dep := range p.Imports {
				if !strings.HasPrefix(dep+"/", strings.TrimSuffix(row.what, "/")+"/") {
					continue
				}
				allowed := slices.ContainsFunc(row.only, func(o string) bool { return name == o || strings.HasPrefix(name, o+"/") })
				assert.True(t, allowed, "%s must not import %s: %s", name, dep, row.because)
			}
		}
	}
}

// trackedFiles returns the files of the repository without what builds leave.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	require.NoError(t, filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "out", "bin", "dist", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), "pinfold-guest-") || strings.HasSuffix(p, ".test"):
			return nil
		}
		files = append(files, p)
		return nil
	}))
	return files
}

// eachText calls f with every text file.
func eachText(t *testing.T, f func(name, text string)) {
	t.Helper()
	for _, name := range trackedFiles(t) {
		if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		if !strings.Contains(string(data), "\x00") {
			f(name, string(data))
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments, packages := map[string][]string{}, map[string]bool{}
	for _, name := range trackedFiles(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		dir := filepath.Dir(name)
		packages[dir] = true
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			comments[dir] = append(comments[dir], name)
			first := "Package " + f.Name.Name + " "
			if f.Name.Name == "main" {
				first = "Command "
			}
			assert.True(t, strings.HasPrefix(f.Doc.Text(), first), "the comment of %s begins with %q", name, first)
		}
	}
	require.NotEmpty(t, packages)
	for dir := range packages {
		assert.Len(t, comments[dir], 1, "package %s has one package comment", dir)
	}
}

// registryHosts returns the hosts from which this machine's package managers
// fetch, as each is configured.
func registryHosts(t *testing.T) []string {
	t.Helper()
	var texts []string
	for _, argv := range [][]string{
		{"go", "env", "GOPROXY", "GOSUMDB"},
		{"npm", "config", "get", "registry"},
		{"pip", "config", "list"},
		{"apt-get", "indextargets", "--format", "$(REPO_URI)"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).Output(); err == nil {
			texts = append(texts, string(out))
		}
	}
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*", "/etc/containers/registries.conf"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range found {
			if data, err := os.ReadFile(f); err == nil {
				texts = append(texts, string(data))
			}
		}
	}
	address := regexp.MustCompile(`https?://[^\s|,'"<>\])]+`)
	var hosts []string
	for _, text := range texts {
		for _, a := range address.FindAllString(text, -1) {
			u, err := url.Parse(a)
			if err != nil || !strings.Contains(u.Hostname(), ".") || strings.HasPrefix(u.Hostname(), "127.") {
				continue
			}
			hosts = append(hosts, u.Hostname())
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func TestNoRegistryIsNamed(t *testing.T) {
	hosts := registryHosts(t)
	require.NotEmpty(t, hosts, "Go itself has a proxy or the machine a package source")
	eachText(t, func(name, text string) {
		for _, h := range hosts {
			assert.NotContains(t, strings.ToLower(text), h, "%s names a registry", name)
		}
	})
}

func TestLockFilesHoldNoAddresses(t *testing.T) {
	locks := []string{"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "uv.lock", "poetry.lock", "Cargo.lock"}
	seen := 0
	eachText(t, func(name, text string) {
		if !slices.Contains(locks, filepath.Base(name)) {
			return
		}
		seen++
		assert.NotRegexp(t, `"resolved"\s*:`, text, "%s says where packages lie", name)
		for line := range strings.Lines(text) {
			// Funding pages and licences are links for people.
			if strings.Contains(line, "://") {
				assert.Regexp(t, `^\s*"(url|funding|license)"`, line, "%s holds an address", name)
			}
		}
	})
	require.NotZero(t, seen, "the TypeScript client has a lock file")
}

// Nothing in the repository may need what lies beside it: a clone suffices.
func TestNothingReadsOutsideTheRepository(t *testing.T) {
	root, err := filepath.Abs(".")
	require.NoError(t, err)
	outside := func(from, to string) bool {
		p := path.Join(path.Dir(filepath.ToSlash(from)), to)
		return p == ".." || strings.HasPrefix(p, "../")
	}
	for _, name := range trackedFiles(t) {
		if target, err := os.Readlink(name); err == nil {
			assert.False(t, filepath.IsAbs(target) || outside(name, target), "the link %s points outside", name)
		}
	}
	reads := regexp.MustCompile(`(?:ReadFile|Open|ReadDir|Stat|DirFS|Glob|WalkDir)\("(\.\./[^"]*)"`)
	links := regexp.MustCompile(`\]\((\.\./[^)]*)\)`)
	commands := regexp.MustCompile(`(?m)(?:^|[\s"'=(])((?:\.\./)+[\w.-]+)`)
	eachText(t, func(name, text string) {
		assert.NotContains(t, text, root+"/", "%s names the folder this clone lies in", name)
		find := func(re *regexp.Regexp) {
			for _, m := range re.FindAllStringSubmatch(text, -1) {
				assert.False(t, outside(name, m[1]), "%s reads %s", name, m[1])
			}
		}
		switch {
		case strings.HasSuffix(name, ".go"):
			find(reads)
		case strings.HasSuffix(name, ".md"):
			find(links)
		case strings.HasSuffix(name, ".sh"), name == "Makefile", name == filepath.Join(".ci", "run"):
			find(commands)
		}
	})
}
