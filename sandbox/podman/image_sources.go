package podman

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// osRelease is what the image builder needs of /etc/os-release.
type osRelease struct {
	ID       string // debian, ubuntu, fedora…
	Codename string // bookworm, noble…
	Name     string
}

func readOSRelease(path string) (osRelease, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return osRelease{}, fmt.Errorf("reading the name of the distribution: %w", err)
	}
	var r osRelease
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.ID = value
		case "VERSION_CODENAME":
			r.Codename = value
		case "PRETTY_NAME":
			r.Name = value
		}
	}
	return r, nil
}

// hasApt reports whether mmdebstrap can make the image from this host's own
// package sources.
func (r osRelease) hasApt() bool {
	return (r.ID == "debian" || r.ID == "ubuntu") && r.Codename != ""
}

// aptSources reads the package sources below dir (/etc/apt) and returns, in
// deb822 form, those of the distribution itself: the release, its updates and
// its security fixes. What else a host has configured (a vendor's repository,
// backports) must not come into the image. Mirrors are the host's own; the
// project names none.
func aptSources(dir string, r osRelease) (string, error) {
	files := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern)) // the pattern is constant
		sort.Strings(more)
		files = append(files, more...)
	}
	var out strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // absent, or not for us to read
		}
		var stanzas []map[string]string
		if strings.HasSuffix(file, ".sources") {
			stanzas = parseDeb822(string(data))
		} else {
			stanzas = parseOneLine(string(data))
		}
		for _, s := range stanzas {
			writeSource(&out, s, r)
		}
	}
	if out.Len() == 0 {
		return "", sandbox.Errorf(sandbox.FailedPrecondition,
			"Configure the distribution's own package sources, or build on a base image: `pinfold image build --base REFERENCE`.",
			"apt on this host has no source for %s main", r.Codename)
	}
	return out.String(), nil
}

// writeSource writes what of a source belongs to the distribution.
func writeSource(out *strings.Builder, s map[string]string, r osRelease) {
	if !slices.Contains(strings.Fields(s["Types"]), "deb") || strings.EqualFold(s["Enabled"], "no") {
		return
	}
	var suites, components []string
	for _, suite := range strings.Fields(s["Suites"]) {
		if slices.Contains([]string{r.Codename, r.Codename + "-updates", r.Codename + "-security"}, suite) {
			suites = append(suites, suite)
		}
	}
	for _, c := range strings.Fields(s["Components"]) {
		if c == "main" || (r.ID == "ubuntu" && c == "universe") {
			components = append(components, c)
		}
	}
	if len(suites) == 0 || !slices.Contains(components, "main") && r.ID != "ubuntu" || len(components) == 0 {
		return
	}
	fmt.Fprintf(out, "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\n", s["URIs"], strings.Join(suites, " "), strings.Join(components, " "))
	if by := s["Signed-By"]; by != "" {
		fmt.Fprintf(out, "Signed-By: %s\n", by)
	}
	out.WriteString("\n")
}

// parseDeb822 reads stanzas; a continued value keeps its line breaks.
func parseDeb822(text string) []map[string]string {
	var all []map[string]string
	current, last := map[string]string{}, ""
	flush := func() {
		if len(current) > 0 {
			all = append(all, current)
		}
		current, last = map[string]string{}, ""
	}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				current[last] += "\n" + line
			}
		default:
			key, value, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			last = canonicalField(key)
			current[last] = strings.TrimSpace(value)
		}
	}
	flush()
	return all
}

// canonicalField spells the fields we read as we look them up: deb822 names
// are case-insensitive.
func canonicalField(key string) string {
	key = strings.TrimSpace(key)
	for _, known := range []string{"Types", "URIs", "Suites", "Components", "Signed-By", "Enabled"} {
		if strings.EqualFold(key, known) {
			return known
		}
	}
	return key
}

// parseOneLine reads "deb [signed-by=…] URI SUITE COMPONENT…" lines.
func parseOneLine(text string) []map[string]string {
	var all []map[string]string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		options := ""
		if head, rest, ok := strings.Cut(line, "["); ok {
			inside, tail, closed := strings.Cut(rest, "]")
			if !closed {
				continue
			}
			options, line = inside, head+tail
		}
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "deb" {
			continue
		}
		s := map[string]string{"Types": "deb", "URIs": f[1], "Suites": f[2], "Components": strings.Join(f[3:], " ")}
		for _, o := range strings.Fields(options) {
			if by, ok := strings.CutPrefix(o, "signed-by="); ok {
				s["Signed-By"] = strings.ReplaceAll(by, ",", " ")
			}
		}
		all = append(all, s)
	}
	return all
}
