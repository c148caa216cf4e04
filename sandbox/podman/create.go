package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	"github.com/containers/podman/v5/pkg/domain/entities"
	"github.com/containers/podman/v5/pkg/specgen"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/image/v5/manifest"
	"golang.org/x/sync/errgroup"

	"pinfold.dev/pinfold/sandbox"
)

// guestCaps are all capabilities of pid 1; commands have none.
var guestCaps = []string{"CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}

// Mappings of the sandbox's user namespace.
const (
	noMap  = "no-map"  // the host user is nobody inside
	keepID = "keep-id" // the host user is uid 1000 inside, so both sides own the files
)

func mappingOf(spec sandbox.Spec) string {
	if spec.Workspace.Mode == sandbox.WorkspaceVolume {
		return noMap
	}
	return keepID
}

// volumeUID is the id, in Podman's namespace, of a uid of the sandbox.
func volumeUID(mapping string, uid int) int {
	switch {
	case mapping == noMap:
		return uid + 1
	case uid == sandbox.AgentUID:
		return 0
	case uid < sandbox.AgentUID:
		return uid + 1
	}
	return uid
}

// plan is everything that one Start makes, so that it can be unmade.
type plan struct {
	spec     sandbox.Spec
	runtime  string
	others   bool // there are other runtimes to try
	link     sandbox.Link
	image    string // id in the storage; empty with a root folder
	mapping  string
	files    files
	linkDir  string
	stateDir string // of the engine
	merged   string // where an overlay workspace is mounted; empty without one
	rootfs   string
	rootBind []specs.Mount
	path     []string          // folders of the host's toolchains, for commands
	annulled map[string]string // the image's annotations, emptied

	mu   sync.Mutex
	made made
}

// made is what this start has made so far. A start that fails takes back
// nothing else: the names may be those of a living session.
type made struct {
	volumes   []string
	folder    bool // the session's folder
	mount     bool // the overlay in it
	container bool
}

func (p *plan) madeVolume(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made.volumes = append(p.made.volumes, name)
}

// volumeUse is a volume of a sandbox: where it is mounted and who owns it.
type volumeUse struct {
	use  string
	dest string
	uid  int
}

func (p *plan) volumes() []volumeUse {
	v := []volumeUse{
		{volHome, sandbox.HomeDir, sandbox.AgentUID},
		{volSession, sandbox.SessionDir, sandbox.AgentUID},
		{volBrowser, sandbox.BrowserDir, sandbox.BrowserUID},
	}
	if p.spec.Workspace.Mode == sandbox.WorkspaceVolume {
		v = append(v, volumeUse{volWorkspace, sandbox.WorkspaceDir, sandbox.AgentUID})
	}
	return v
}

// isKept reports whether KeepWorkspace keeps the volume for a use.
func isKept(use string) bool { return use == volWorkspace || use == volHome }

// volumeOf names the volume for a use; the workspace and the home of a resumed
// session are the earlier one's.
func (p *plan) volumeOf(use string) string {
	if isKept(use) {
		return volumeName(workspaceSession(p.spec), use)
	}
	return volumeName(p.spec.Session, use)
}

// makeVolumes makes all volumes at once. A resumed one must be there already.
// One that fails does not cut the others off: a call without an answer could
// leave a volume that nobody knows of.
func (p *plan) makeVolumes(ctx context.Context) error {
	var g errgroup.Group
	for _, v := range p.volumes() {
		name := p.volumeOf(v.use)
		g.Go(func() error {
			if p.spec.Resume != "" && (v.use == volWorkspace || v.use == volHome) {
				ok, err := volumes.Exists(ctx, name, nil)
				if err == nil && !ok {
					return workspaceGone(p.spec.Resume)
				}
				return err
			}
			id := volumeUID(p.mapping, v.uid)
			_, err := volumes.Create(ctx, entities.VolumeCreateOptions{
				Name:    name,
				Options: map[string]string{"o": fmt.Sprintf("uid=%d,gid=%d", id, id)},
				Label: map[string]string{
					labelMark: "1", labelSession: p.spec.Session, labelOwner: p.spec.Owner, labelVolume: v.use, labelState: p.stateDir,
				},
			}, nil)
			if err == nil || status(err) == 0 { // an answer that never came may stand for a volume
				p.madeVolume(name)
			}
			return err
		})
	}
	return g.Wait()
}

func ptr[T any](v T) *T { return &v }

// generator is the container as Podman's API takes it. Whatever an image could
// set (user, folder, environment, volumes, health check, stop signal, labels,
// annotations) is set here.
func (p *plan) generator() (*specgen.SpecGenerator, error) {
	labels, err := ownLabels(p.spec, p.runtime, p.link)
	if err != nil {
		return nil, fmt.Errorf("encoding spec: %w", err)
	}
	g := &specgen.SpecGenerator{}
	g.Name = containerName(p.spec.Session)
	g.Image, g.Rootfs = p.image, p.rootfs
	g.RawImageName = p.image
	g.ImageVolumeMode = "ignore"
	g.Labels, g.Annotations = labels, p.annulled
	g.Entrypoint, g.Command = []string{sandbox.GuestPath}, []string{}
	g.Env, g.UnsetEnvAll = map[string]string{"PATH": systemPath}, ptr(true)
	g.EnvHost, g.HTTPProxy = ptr(false), ptr(false)
	g.WorkDir = "/"
	g.User = "0:0"
	g.Stdin, g.Terminal = ptr(true), ptr(false)
	g.StopSignal, g.StopTimeout = ptr(syscall.SIGKILL), ptr(uint(0))
	g.HealthConfig = &manifest.Schema2HealthConfig{Test: []string{"NONE"}}
	g.HealthLogDestination = "local"                        // Podman 5.3 and newer refuse an empty one, though there is no check to log
	g.LogConfiguration = &specgen.LogConfig{Driver: "none"} // the attach stream would be copied to disk
	g.OCIRuntime = p.runtime
	g.Systemd, g.SdNotifyMode, g.RestartPolicy = "false", "ignore", "no"
	g.Hostname = "pinfold"
	g.Passwd = ptr(false)
	g.Timezone = ""

	g.CapDrop, g.CapAdd = []string{"ALL"}, guestCaps
	g.NoNewPrivileges, g.Privileged = ptr(true), ptr(false)
	g.SeccompProfilePath = p.files.seccomp
	// Without the second, Podman 5 makes /dev/shm read-only too; the memory file
	// systems it would add are all named by our own mounts.
	g.ReadOnlyFilesystem, g.ReadWriteTmpfs = ptr(p.spec.ReadOnlyRoot), ptr(true)
	g.UserNS = specgen.Namespace{NSMode: specgen.NoMap}
	if p.mapping == keepID {
		g.UserNS = specgen.Namespace{NSMode: specgen.KeepID, Value: fmt.Sprintf("uid=%d,gid=%d", sandbox.AgentUID, sandbox.AgentGID)}
	}
	private := specgen.Namespace{NSMode: specgen.Private}
	g.PidNS, g.IpcNS, g.UtsNS, g.CgroupNS = private, private, private, private
	g.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	g.UseImageHosts, g.UseImageResolvConf = ptr(true), ptr(true)

	limits := p.spec.Limits.WithDefaults()
	g.ShmSize = ptr(limits.Shm)
	g.ResourceLimits = resourceLimits(limits, delegated())

	for _, v := range p.volumes() {
		g.Volumes = append(g.Volumes, &specgen.NamedVolume{
			Name: p.volumeOf(v.use), Dest: v.dest,
			Options: []string{"rw", "nosuid", "nodev", "nocopy"}, // an image's own files there stay out
		})
	}
	g.Mounts = p.mounts(limits)
	return g, nil
}

// mounts are the read-only files of ours and the memory file systems.
func (p *plan) mounts(limits sandbox.Limits) []specs.Mount {
	bind := func(from, to string) specs.Mount {
		return specs.Mount{Type: "bind", Source: from, Destination: to, Options: []string{"bind", "ro", "nosuid", "nodev", "rprivate"}}
	}
	memory := func(to string, size int64, mode string) specs.Mount {
		return specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: to,
			Options: []string{"rw", "nosuid", "nodev", "rprivate", "mode=" + mode, fmt.Sprintf("size=%d", size)}}
	}
	m := []specs.Mount{
		bind(p.files.guest, sandbox.GuestPath),
		bind(p.files.hosts, "/etc/hosts"),
		bind(p.files.name, "/etc/hostname"),
		bind(p.files.resolve, "/etc/resolv.conf"),
		bind(p.files.mark, "/run/.containerenv"),
		memory("/tmp", limits.Memory/2, "1777"),
	}
	if p.link == sandbox.LinkUnix {
		m = append(m, bind(p.linkDir, sandbox.LinkDir))
	}
	if p.merged != "" {
		m = append(m, specs.Mount{Type: "bind", Source: p.merged, Destination: sandbox.WorkspaceDir,
			Options: []string{"bind", "rw", "nosuid", "nodev", "rprivate"}})
	}
	if p.spec.ReadOnlyRoot {
		m = append(m, memory("/run", limits.Memory/8, "755"), memory("/var/tmp", limits.Memory/4, "1777"))
	}
	return append(m, p.rootBind...)
}

// create makes the container and returns its id.
func (p *plan) create(ctx context.Context) (string, error) {
	g, err := p.generator()
	if err != nil {
		return "", err
	}
	made, err := containers.CreateWithSpec(ctx, g, nil)
	if err != nil {
		return "", err
	}
	return made.ID, nil
}

// createFault words an error of create or volume making.
func (s *service) createFault(spec sandbox.Spec, err error) error {
	var typed *sandbox.Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	text := strings.ToLower(err.Error())
	switch {
	case status(err) == http.StatusNotFound && (strings.Contains(text, "image") || strings.Contains(text, "manifest")):
		return imageMissing(spec.Image, err)
	case status(err) == http.StatusConflict || strings.Contains(text, "already in use") || strings.Contains(text, "already exists"):
		return sandboxExists(spec.Session, err)
	}
	return s.fault("making the container", err)
}

func sandboxExists(session string, cause error) *sandbox.Error {
	e := sandbox.Errorf(sandbox.AlreadyExists, "Close that session first, or choose another id.", "a sandbox of session %s exists", session)
	e.Reason, e.Cause = "sandbox_exists", cause
	return e
}
