package policies

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Policy is an ordered set of named rules. It does not change once loaded and
// is safe for concurrent use. The zero value denies everything.
type Policy struct {
	Version int    `yaml:"version"` // 1
	Name    string `yaml:"name"`
	Rules   []Rule `yaml:"rules"`

	digest string
}

// Rule holds for a request when one of its tools and one of its permissions
// fit; an empty list fits all, but not both may be empty.
type Rule struct {
	Name        string   `yaml:"name"`
	Effect      Effect   `yaml:"effect"`
	Tools       []string `yaml:"tools"`       // names with * and ?: "browser_*"
	Permissions []string `yaml:"permissions"` // "shell.exec", "file.*", "*"
	Reason      string   `yaml:"reason"`      // told to the model; say what is allowed instead
}

// RuleNone is the rule of a decision that no rule of the policy gave.
const RuleNone = "default-deny"

const maxRules = 500 // each request walks all of them

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	ruleForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}$`)
)

//go:embed builtin/default.yaml
var defaultYAML []byte

// Default is the built-in policy: everything inside the sandbox is allowed, and
// nothing leaves it.
func Default() *Policy {
	p, err := Load(defaultYAML)
	if err != nil {
		panic(err) // embedded, and loaded by a test
	}
	return p
}

// Load reads a policy strictly; the error has line, column and the lines around it.
func Load(data []byte) (*Policy, error) {
	p := &Policy{}
	doc, err := DecodeYAML(data, p)
	if err != nil {
		return nil, err
	}
	if err := p.check(doc); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	p.digest = hex.EncodeToString(sum[:])
	return p, nil
}

// Digest is the SHA-256 of the file the policy was loaded from, in hex; it
// stands in each session's first event.
func (p *Policy) Digest() string { return p.digest }

func (p *Policy) check(doc *Doc) error {
	if p.Version != 1 {
		return doc.Errorf("$.version", "version must be 1; this is the only one there is")
	}
	if !nameForm.MatchString(p.Name) {
		return doc.Errorf("$.name", "name must be lower case letters, digits and dashes")
	}
	if len(p.Rules) > maxRules {
		return doc.Errorf("$.rules", "there are %d rules, at most %d are taken", len(p.Rules), maxRules)
	}
	seen := map[string]bool{RuleNone: true}
	for i, r := range p.Rules {
		at := fmt.Sprintf("$.rules[%d]", i)
		if !ruleForm.MatchString(r.Name) {
			return doc.Errorf(at+".name", "each rule needs a name of letters, digits, spaces, dots and dashes")
		}
		if seen[r.Name] {
			return doc.Errorf(at+".name", "the name %q is taken", r.Name)
		}
		seen[r.Name] = true
		if err := r.check(doc, at); err != nil {
			return err
		}
	}
	return nil
}

func (r Rule) check(doc *Doc, at string) error {
	if !slices.Contains([]Effect{Allow, Ask, Deny}, r.Effect) {
		return doc.Errorf(at+".effect", "effect is allow, ask or deny, not %q", r.Effect)
	}
	if r.Reason == "" && r.Effect != Allow {
		return doc.Errorf(at+".name", "rule %q needs a reason, which the model is told", r.Name)
	}
	if len(r.Tools)+len(r.Permissions) == 0 {
		return doc.Errorf(at+".name", "rule %q names neither tools nor permissions; write permissions: [\"*\"] if it is for all", r.Name)
	}
	for i, g := range r.Tools {
		if _, err := path.Match(g, ""); err != nil || g == "" || strings.ContainsAny(g, `[]\/`) {
			return doc.Errorf(fmt.Sprintf("%s.tools[%d]", at, i), "%q is no pattern; use names with * and ?", g)
		}
	}
	for i, g := range r.Permissions {
		if !slices.ContainsFunc(Permissions, func(p Permission) bool { return permissionFits(g, p) }) {
			return doc.Errorf(fmt.Sprintf("%s.permissions[%d]", at, i), "%q is no permission; there are %s", g, joinPermissions())
		}
	}
	return nil
}

func joinPermissions() string {
	names := make([]string, len(Permissions))
	for i, p := range Permissions {
		names[i] = string(p)
	}
	return strings.Join(names, ", ")
}
