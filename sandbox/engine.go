package sandbox

import (
	"context"
	"io"
	"net"
	"time"
)

// Engine makes sandboxes. Implementations are safe for concurrent use. Every
// engine passes the suite in sandbox/sandboxtest.
type Engine interface {
	// Start makes a sandbox and returns once its effective state was checked
	// and its guest has been given its token. When ctx ends or a check fails,
	// nothing is left behind.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Adopt takes over a sandbox that an earlier owner left, under a new owner
	// and a higher epoch.
	Adopt(ctx context.Context, id, owner string) (Sandbox, error)
	// List returns all sandboxes of this engine, whoever owns them.
	List(ctx context.Context) ([]Info, error)
	// Remove ends a sandbox and removes all that belongs to it. Removing what
	// is gone is no error.
	Remove(ctx context.Context, id string) error
	// Probe tries what a session needs by really starting something.
	Probe(ctx context.Context) (Report, error)
	// Close releases what the engine holds on the host; it does not end sandboxes.
	Close() error
}

// Sandbox is one running container. Methods are safe for concurrent use.
type Sandbox interface {
	Info() Info
	// Dial returns the byte stream to the guest. It retries until the guest
	// greets or ctx ends. Only one stream is open at a time.
	Dial(ctx context.Context) (net.Conn, error)
	// Token proves the host to the guest; it never stands in an environment or a label.
	Token() string
	// Exec starts one process beside the guest, through the engine, under the
	// container's own seccomp profile. Chromium is started by it.
	Exec(ctx context.Context, spec ExecSpec) (Stream, error)
	// Stop ends the processes and keeps what keep says.
	Stop(ctx context.Context, keep Keep) error
	// Done is closed once pid 1 has ended.
	Done() <-chan struct{}
	// Remove ends it and removes all that belongs to it.
	Remove(ctx context.Context) error
}

// Keep says what a stop leaves.
type Keep string

const (
	KeepNothing   Keep = "nothing"
	KeepWorkspace Keep = "workspace"
	KeepRoot      Keep = "root" // root file system and workspace
)

// ExecSpec is one process of the engine's own exec, without a terminal.
type ExecSpec struct {
	Argv []string
	UID  int
	GID  int
	Dir  string
	Env  []string // KEY=value; the whole environment apart from what the engine adds
}

// Stream is the stdio of an exec. Close ends the stream; the process inside is
// ended by the guest.
type Stream interface {
	io.ReadWriteCloser                              // stdout and stdin
	Stderr() string                                 // last 64 KiB of stderr
	Wait(ctx context.Context) (code int, err error) // exit code of the process
}

// State of a sandbox as its engine sees it.
type State string

const (
	StateRunning State = "running"
	StateStopped State = "stopped"
	StateDead    State = "dead"
)

// Info is what an engine knows about a sandbox.
type Info struct {
	ID        string    `json:"id"`
	Session   string    `json:"session"`
	Owner     string    `json:"owner"`
	Epoch     int64     `json:"epoch"`
	State     State     `json:"state"`
	Image     string    `json:"image"` // digest or ImageHost
	Isolation Isolation `json:"isolation"`
	Runtime   string    `json:"runtime"` // crun, runc, runsc
	Link      Link      `json:"link"`
	Workspace Workspace `json:"workspace"`
	Created   time.Time `json:"created"`
	Pid       int       `json:"pid,omitempty"`
	Posture   Posture   `json:"posture"`
}

// Posture is what was read back from the running sandbox, not what was asked
// for.
type Posture struct {
	UserNamespace  string   `json:"user_namespace"` // "no-map" or "keep-id"
	HostUserMapped bool     `json:"host_user_mapped"`
	Seccomp        string   `json:"seccomp"` // "host-checked", "guest-reported" or "own-kernel"
	NoNewPrivs     bool     `json:"no_new_privs"`
	Capabilities   []string `json:"capabilities"`
	ReadOnlyRoot   bool     `json:"read_only_root"`
	Network        string   `json:"network"`            // "none"
	Degraded       []string `json:"degraded,omitempty"` // limits the host does not hold, in plain words
}

// Report is the outcome of Engine.Probe.
type Report struct {
	Engine     string            `json:"engine"`  // "podman 4.3.1"
	Service    string            `json:"service"` // how it is reached
	Storage    string            `json:"storage"` // "overlay"
	CgroupMode string            `json:"cgroups"` // "v2", "v1", "hybrid"
	Runtimes   []RuntimeReport   `json:"runtimes"`
	Limits     map[string]string `json:"limits"` // limit → "held", "best effort: …", "not held: …"
	Findings   []Finding         `json:"findings"`
}

// RuntimeReport says whether a runtime truly starts a container here.
type RuntimeReport struct {
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	Version   string    `json:"version"`
	Isolation Isolation `json:"isolation"`
	Works     bool      `json:"works"`
	Why       string    `json:"why,omitempty"`
	StartMS   int64     `json:"start_ms,omitempty"`
}

// Finding is one fault of the host, with its cause and its cure.
type Finding struct {
	ID    string `json:"id"` // "no-subids", "userns-forbidden", …
	Fatal bool   `json:"fatal"`
	Cause string `json:"cause"`
	Cure  string `json:"cure"`
}
