// Package templates holds the named starting points of tasks: image,
// isolation, limits, workspace, lifetime, reuse and policy.
//
// Words. A [Template] is one starting point, loaded from YAML; a [Set] is all
// that a server knows; a [Choice] is what the user of a template may settle.
//
// Rules. Loading is strict. A choice may strengthen the isolation and never
// weaken it. What the operator wrote wins over what the user wrote, and that
// over what is built in.
package templates

import (
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Default is the template that holds when none is named.
const Default = "offline"

// Reuse says how long a sandbox serves.
type Reuse string

const (
	ReuseSession Reuse = "session" // as long as the client's session
	ReuseTask    Reuse = "task"    // fresh, then gone
	ReuseAgent   Reuse = "agent"   // long-lived, by name
)

// Template is one starting point, as loaded from YAML.
type Template struct {
	Version         int               `yaml:"version"` // 1
	Name            string            `yaml:"name"`
	Description     string            `yaml:"description"`
	Image           string            `yaml:"image"` // reference, digest, "host"; empty = Pinfold's own
	Isolation       sandbox.Isolation `yaml:"isolation"`
	Workspace       Workspace         `yaml:"workspace"`
	Limits          Limits            `yaml:"limits"`
	ReadOnlyRoot    bool              `yaml:"read_only_filesystem"`
	NestedSandboxes bool              `yaml:"nested_sandboxes"`
	Env             map[string]string `yaml:"env"`
	Reuse           Reuse             `yaml:"reuse"`
	Lifetime        Lifetime          `yaml:"lifetime"`
	Policy          string            `yaml:"policy"` // name of a policy; empty = built-in default
}

// Workspace is the default workspace of a template.
type Workspace struct {
	Mode sandbox.WorkspaceMode `yaml:"mode"`
}

// Limits are sandbox.Limits as people write them ("2GiB", "10GiB"); zero means
// the default of sandbox.DefaultLimits.
type Limits struct {
	Memory Size    `yaml:"memory"`
	CPUs   float64 `yaml:"cpus"`
	Pids   int64   `yaml:"pids"`
	Disk   Size    `yaml:"disk"`
	Shm    Size    `yaml:"shm"`
}

// Lifetime bounds a session; zero means the default.
type Lifetime struct {
	Max  time.Duration `yaml:"max"`  // 24h
	Park time.Duration `yaml:"park"` // how long unapplied changes are kept after the client left; 168h
}

// Defaults of Lifetime.
const (
	DefaultMax  = 24 * time.Hour
	DefaultPark = 7 * 24 * time.Hour
)
