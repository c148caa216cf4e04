package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// language is one that a project is written in, and by what it was known.
type language struct {
	Name string `json:"name"`
	By   string `json:"by"`
}

// marks name the files by which a language's own tools know a project. A
// pattern is matched in the top folder only.
var marks = []struct{ name, pattern string }{
	{"Go", "go.mod"}, {"JavaScript", "package.json"}, {"TypeScript", "tsconfig.json"},
	{"Python", "pyproject.toml"}, {"Python", "requirements.txt"}, {"Python", "setup.py"}, {"Python", "Pipfile"},
	{"Rust", "Cargo.toml"}, {"Java", "pom.xml"}, {"Java", "build.gradle"}, {"Kotlin", "build.gradle.kts"},
	{"Ruby", "Gemfile"}, {"PHP", "composer.json"}, {"C or C++", "CMakeLists.txt"}, {"C or C++", "meson.build"},
	{"C#", "*.csproj"}, {"C#", "*.sln"}, {"Elixir", "mix.exs"}, {"Haskell", "*.cabal"}, {"Zig", "build.zig"},
	{"Swift", "Package.swift"}, {"Dart", "pubspec.yaml"}, {"Notebooks", "*.ipynb"}, {"Make", "Makefile"},
	{"Python", "*.py"}, {"JavaScript", "*.js"}, {"Shell", "*.sh"}, {"C or C++", "*.c"},
}

// inImage are the languages that Pinfold's own image has the tools of.
var inImage = []string{"Python", "JavaScript", "TypeScript", "Notebooks", "C or C++", "Shell", "Make"}

// detectLanguages looks at the top folder of a project; each language is named once.
func detectLanguages(dir string) []language {
	var found []language
	for _, m := range marks {
		if slices.ContainsFunc(found, func(l language) bool { return l.Name == m.name }) {
			continue
		}
		hits, err := filepath.Glob(filepath.Join(escapeGlob(dir), m.pattern))
		if err != nil || len(hits) == 0 {
			continue
		}
		if st, err := os.Stat(hits[0]); err == nil && st.Mode().IsRegular() {
			found = append(found, language{m.name, filepath.Base(hits[0])})
		}
	}
	return found
}

// escapeGlob makes a folder's name mean itself in a pattern.
func escapeGlob(dir string) string {
	var b []rune
	for _, r := range dir {
		if slices.Contains([]rune{'*', '?', '[', '\\'}, r) {
			b = append(b, '\\')
		}
		b = append(b, r)
	}
	return string(b)
}

// compilers name, for the languages whose tools Pinfold's image lacks, the
// program by which a machine shows that it has them.
var compilers = map[string]string{
	"Go": "go", "Rust": "cargo", "Java": "javac", "Kotlin": "kotlinc", "Ruby": "ruby", "PHP": "php", "C#": "dotnet",
	"Elixir": "mix", "Haskell": "ghc", "Zig": "zig", "Swift": "swift", "Dart": "dart",
}

// hostFacts are what this machine has, as far as it shows without starting anything.
type hostFacts struct {
	Podman string   `json:"podman,omitempty"` // path
	GVisor string   `json:"gvisor,omitempty"` // path of runsc
	Tools  []string `json:"tools"`            // of compilers, those that the project needs and that are here
}

func detectHost(languages []language) hostFacts {
	h := hostFacts{Tools: []string{}}
	h.Podman, _ = exec.LookPath("podman")
	h.GVisor, _ = exec.LookPath("runsc")
	for _, l := range languages {
		if tool := compilers[l.Name]; tool != "" {
			if _, err := exec.LookPath(tool); err == nil {
				h.Tools = append(h.Tools, tool)
			}
		}
	}
	return h
}

// missingFromImage are the languages whose tools only the host may have.
func missingFromImage(found []language) (names []string) {
	for _, l := range found {
		if !slices.Contains(inImage, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

// installedClients are those whose settings lie in this home or project.
func installedClients(home, project string) (names []string) {
	for _, c := range clients {
		if c.file == nil {
			continue
		}
		if exists(c.file(home)) || exists(filepath.Dir(c.file(home))) && filepath.Dir(c.file(home)) != home ||
			c.project != "" && exists(filepath.Join(project, c.project)) {
			names = append(names, c.name)
		}
	}
	return names
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
