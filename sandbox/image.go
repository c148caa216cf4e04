package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
)

// ImageRepository is the name under which Pinfold's own images lie in the
// engine's storage; the tag is the recipe's hash.
const ImageRepository = "localhost/pinfold"

// Recipe is how an image is made, as plain data. The same recipe always gives
// the same tag, so a second build of it has nothing to do.
type Recipe struct {
	Packages      []Package // installed without what they only recommend
	Excludes      []string  // path patterns never unpacked, as dpkg's path-exclude; with "!" in front, path-include
	Customize     string    // POSIX shell script; its first argument is the root file system
	Containerfile string    // the same image on a base named by ARG BASE
	Base          string    // reference of that base; empty = mmdebstrap; not part of the hash
}

// Package is one package of a recipe. Only names the distribution (as ID in
// os-release) that has it; empty stands for all.
type Package struct {
	Name string
	Only string
}

// Hash is the first 16 hexadecimal digits of a SHA-256 over the whole recipe.
func (r Recipe) Hash() string {
	h := sha256.New()
	fmt.Fprintln(h, "pinfold image recipe 1")
	for _, p := range r.Packages {
		fmt.Fprintf(h, "package %q %q\n", p.Name, p.Only)
	}
	for _, x := range r.Excludes {
		fmt.Fprintf(h, "exclude %q\n", x)
	}
	fmt.Fprintf(h, "customize %q\ncontainerfile %q\n", r.Customize, r.Containerfile)
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Reference is the name of the recipe's image.
func (r Recipe) Reference() string { return ImageRepository + ":" + r.Hash() }

// PackagesFor returns the sorted names of the packages for a distribution.
func (r Recipe) PackagesFor(distribution string) []string {
	var names []string
	for _, p := range r.Packages {
		if p.Only == "" || p.Only == distribution {
			names = append(names, p.Name)
		}
	}
	sort.Strings(names)
	return names
}

// ParsePackages reads a package list: one name a line, "#" starts a comment,
// "@id" after the name limits it to one distribution.
func ParsePackages(text string) ([]Package, error) {
	var list []Package
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		p := Package{Name: fields[0]}
		if len(fields) == 2 && strings.HasPrefix(fields[1], "@") {
			p.Only = fields[1][1:]
		} else if len(fields) > 1 {
			return nil, fmt.Errorf("package list, line %d: want a name and at most one @distribution, got %q", n+1, line)
		}
		if strings.HasPrefix(p.Name, "-") || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != "" {
			return nil, fmt.Errorf("package list, line %d: %q is no package name", n+1, p.Name)
		}
		list = append(list, p)
	}
	return list, nil
}

// ParseExcludes reads a list of path patterns, one a line, "#" starts a comment.
func ParseExcludes(text string) ([]string, error) {
	var list []string
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !strings.HasPrefix(strings.TrimPrefix(line, "!"), "/") || strings.ContainsAny(line, " \t\"'\\") {
			return nil, fmt.Errorf("exclude list, line %d: %q is no absolute path pattern", n+1, line)
		}
		list = append(list, line)
	}
	return list, nil
}

// ImageInfo is one image in the engine's storage.
type ImageInfo struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"` // by which sessions use it
	ID        string `json:"id"`
	Bytes     int64  `json:"bytes"`
	Created   string `json:"created"` // RFC 3339
	Current   bool   `json:"current"` // of this version's recipe
	InUse     bool   `json:"in_use"`
}

// ImageState says whether an image can be used, and what to do when it cannot.
type ImageState struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest,omitempty"` // set when Ready
	Ready     bool   `json:"ready"`
	Preparing bool   `json:"preparing"` // a build is going on, in this process or another
	Stage     string `json:"stage,omitempty"`
	Percent   int    `json:"percent,omitempty"`
	LastError string `json:"last_error,omitempty"` // of the last build, when it failed
}

// Missing is the error of a call that needs an image which is not ready. It
// answers at once: nothing waits for a build.
func (s ImageState) Missing() *Error {
	if s.Preparing {
		e := Errorf(Unavailable, "Call again in a minute; nothing else is needed.",
			"the sandbox image is being prepared: %d%% (%s)", s.Percent, s.Stage)
		e.Reason = "image_preparing"
		e.Details = map[string]any{"percent": s.Percent, "stage": s.Stage, "image": s.Reference}
		return e
	}
	e := Errorf(FailedPrecondition,
		"Ask the user to run `pinfold image build` once (about three minutes), or to use a template with `image: host`, which needs no image.",
		"the sandbox image %s is not there", s.Reference)
	if s.LastError != "" {
		e.Message += "; the last build failed: " + s.LastError
	}
	e.Reason = "image_missing"
	e.Details = map[string]any{"image": s.Reference}
	return e
}
