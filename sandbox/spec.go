package sandbox

import "time"

// Identities and places inside every sandbox. They are the same for every
// image, whatever its own metadata says.
const (
	AgentUID    = 1000 // commands, files, kernels
	AgentGID    = 1000
	AgentName   = "agent"
	BrowserUID  = 1001 // Chromium; its profile is closed to AgentUID
	BrowserGID  = 1001
	BrowserName = "browser"

	WorkspaceDir = "/workspace"            // what the task works on
	HomeDir      = "/home/agent"           // HOME of AgentUID
	SessionDir   = "/session"              // spills and page texts, owned by AgentUID, not part of the workspace
	BrowserDir   = "/browser"              // profile and downloads in progress, owned by BrowserUID, mode 0700
	GuestPath    = "/.pinfold/guest"       // the guest binary, read-only
	LinkDir      = "/.pinfold/link"        // folder of the link's socket, mapped root only
	LinkSocket   = LinkDir + "/guest.sock" // present only with the socket transport
)

// Isolation is how strong the wall around a sandbox is.
type Isolation string

const (
	IsolationContainer Isolation = "container" // the host's kernel, namespaces and seccomp
	IsolationGVisor    Isolation = "gvisor"    // a user-space kernel (runsc)
	IsolationVM        Isolation = "vm"        // a hardware-virtualised kernel
)

// Stronger reports whether i is at least as strong as min. An unknown value is
// never strong enough.
func (i Isolation) Stronger(min Isolation) bool {
	rank := map[Isolation]int{IsolationContainer: 1, IsolationGVisor: 2, IsolationVM: 3}
	return rank[i] > 0 && rank[min] > 0 && rank[i] >= rank[min]
}

// WorkspaceMode says what stands behind WorkspaceDir.
type WorkspaceMode string

const (
	WorkspaceVolume  WorkspaceMode = "volume"  // an empty volume; the host user is not mapped
	WorkspaceOverlay WorkspaceMode = "overlay" // a host folder, written through to a layer of its own
	WorkspaceBind    WorkspaceMode = "bind"    // a host folder itself
)

// Workspace is the source of WorkspaceDir. Path is an absolute host path and
// empty for WorkspaceVolume.
type Workspace struct {
	Mode WorkspaceMode `json:"mode"`
	Path string        `json:"path,omitempty"`
}

// Limits are upper bounds; zero means the default of the same name in
// [DefaultLimits].
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPUs   float64 `json:"cpus,omitempty"`
	Pids   int64   `json:"pids,omitempty"`
	Disk   int64   `json:"disk,omitempty"`  // bytes the sandbox may write in all
	Shm    int64   `json:"shm,omitempty"`   // bytes of /dev/shm
	Files  int64   `json:"files,omitempty"` // open descriptors a process
}

// DefaultLimits hold where a template says nothing.
var DefaultLimits = Limits{Memory: 2 << 30, CPUs: 2, Pids: 512, Disk: 10 << 30, Shm: 512 << 20, Files: 65536}

// WithDefaults fills zero fields from DefaultLimits.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	if l.Memory == 0 {
		l.Memory = d.Memory
	}
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	if l.Pids == 0 {
		l.Pids = d.Pids
	}
	if l.Disk == 0 {
		l.Disk = d.Disk
	}
	if l.Shm == 0 {
		l.Shm = d.Shm
	}
	if l.Files == 0 {
		l.Files = d.Files
	}
	return l
}

// ImageHost is the Spec.Image that stands for the host's own /usr over a
// prepared root. It is always read-only.
const ImageHost = "host"

// Spec is everything an engine needs to make one sandbox. It is plain data,
// serialisable, and holds no secret.
type Spec struct {
	Session         string            `json:"session"`         // ses_…; one sandbox per session
	Owner           string            `json:"owner"`           // server that holds the lock
	Epoch           int64             `json:"epoch,omitempty"` // raised at each adoption; an older owner is refused
	Image           string            `json:"image"`           // reference, digest, or ImageHost
	Isolation       Isolation         `json:"isolation"`
	Workspace       Workspace         `json:"workspace"`
	Limits          Limits            `json:"limits"`
	ReadOnlyRoot    bool              `json:"read_only_root,omitempty"`
	NestedSandboxes bool              `json:"nested_sandboxes,omitempty"` // commands may make user namespaces
	Link            Link              `json:"link,omitempty"`
	Env             map[string]string `json:"env,omitempty"`    // for commands, over the fixed environment
	Labels          map[string]string `json:"labels,omitempty"` // beside the engine's own
	Resume          string            `json:"resume,omitempty"` // earlier session, ended with KeepWorkspace, whose workspace and home go on here
	Created         time.Time         `json:"created"`
}

// Link is the transport between host and guest.
type Link string

const (
	LinkAuto  Link = ""       // the engine chooses
	LinkUnix  Link = "socket" // Unix socket, default runtimes
	LinkStdio Link = "stdio"  // attach stream of pid 1
)
