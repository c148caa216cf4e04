package podman

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// box is one running container.
type box struct {
	engine  *Engine
	service *service // whose containers get this one's runtime
	plan    *plan
	info    sandbox.Info
	token   string
	rootUID int // of the host, for root inside

	attach *hijacked // stdio of pid 1
	link   *link     // nil with LinkStdio

	done  chan struct{} // closed when pid 1 has ended
	pidfd *os.File

	mu     sync.Mutex
	dialed bool
	gone   bool
}

var _ sandbox.Sandbox = (*box)(nil)

func newBox(e *Engine, s *service, p *plan) *box {
	image := p.spec.Image
	return &box{
		engine: e, service: s, plan: p, token: newToken(), done: make(chan struct{}),
		info: sandbox.Info{
			Session: p.spec.Session, Owner: p.spec.Owner, Epoch: p.spec.Epoch, State: sandbox.StateRunning,
			Image: image, Isolation: p.spec.Isolation, Runtime: p.runtime, Link: p.link,
			Workspace: p.spec.Workspace, Created: time.Now(),
		},
	}
}

// Info returns what the engine knows; State is that of this moment.
func (b *box) Info() sandbox.Info {
	info := b.info
	if b.plan.image != "" {
		info.Image = b.plan.image
	}
	select {
	case <-b.done:
		info.State = sandbox.StateDead
	default:
	}
	return info
}

// Token returns the secret that the guest got on its stdin.
func (b *box) Token() string { return b.token }

// Done is closed once pid 1 has ended, or the engine was closed.
func (b *box) Done() <-chan struct{} { return b.done }

// watch follows pid 1 by a descriptor, which no other process can take over.
func (b *box) watch(pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return err
	}
	b.pidfd = os.NewFile(uintptr(fd), "pidfd")
	raw, err := b.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	e := b.engine
	e.mu.Lock()
	if e.boxes == nil {
		e.boxes = map[*box]bool{}
	}
	e.boxes[b] = true
	e.mu.Unlock()
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		defer close(b.done)
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.boxes, b)
		}()
		_ = raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return err == nil && n > 0
		})
	}()
	return nil
}

// letGo ends what this process holds of a sandbox, but for a stream that was
// handed out.
func (b *box) letGo() {
	_ = b.attach.Close()
	_ = b.pidfd.Close()
}

// Dial returns the stream to the guest. A sandbox has one for its life.
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	if b.dialed || b.gone {
		b.mu.Unlock()
		return nil, sandbox.Lost(errors.New("the link was used up"))
	}
	b.dialed = true
	b.mu.Unlock()
	if b.link == nil {
		return b.attach, nil
	}
	// A guest that dies before it dials must not hold the caller.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-b.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := b.link.accept(ctx, b.info.Pid, b.rootUID)
	// The folder has served; what is mounted inside is empty from here on.
	e := b.engine
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		clean, cancel := e.detached(context.Background(), removeWork)
		defer cancel()
		if cerr := b.link.close(clean); cerr != nil {
			e.opts.Log.Warn("removing a link folder", "session", b.info.Session, "err", cerr)
		}
	}()
	if err == nil {
		e.wg.Add(1)
		go func() { defer e.wg.Done(); b.attach.drain() }()
		return conn, nil
	}
	select {
	case <-b.done:
		return nil, sandbox.Lost(errors.New("the guest ended: " + b.lastWords()))
	default:
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fromContext(err)
	}
	return nil, sandbox.Lost(err)
}

// lastWords is the last line that a guest which has ended wrote to stderr.
func (b *box) lastWords() string {
	_ = b.attach.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	b.attach.drain()
	return lastLine(b.attach.stderr.String())
}

// Stop ends the processes and keeps what keep says.
func (b *box) Stop(ctx context.Context, keep sandbox.Keep) error {
	switch keep {
	case sandbox.KeepNothing:
		return b.Remove(ctx)
	case sandbox.KeepWorkspace:
		return b.end(ctx, true)
	}
	e := sandbox.Errorf(sandbox.FailedPrecondition, "Keep the workspace, which includes the home folder.", "keeping %q is not available yet", string(keep))
	e.Reason = "keep_unavailable"
	return e
}

// Remove ends the sandbox and removes all that belongs to it.
func (b *box) Remove(ctx context.Context) error { return b.end(ctx, false) }

func (b *box) end(ctx context.Context, keep bool) error {
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	// Cut off in the middle it would leave a rest, so it runs to its own end.
	work, cancel := b.engine.detached(ctx, removeWork)
	result := make(chan error, 1)
	b.engine.wg.Add(1)
	go func() {
		defer b.engine.wg.Done()
		defer cancel()
		if keep {
			// Written first: whatever happens now, the workspace is not taken for a rest.
			if err := b.engine.writeRecord(record{Spec: b.plan.spec, Kept: true}); err != nil {
				result <- err
				return
			}
		}
		result <- b.unmake(work, b.plan.all(), keep)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fromContext(ctx.Err())
	}
}

// all says that everything of a started sandbox is there.
func (p *plan) all() made {
	m := made{container: true, folder: true, mount: p.merged != ""}
	for _, v := range p.volumes() {
		m.volumes = append(m.volumes, p.volumeOf(v.use))
	}
	return m
}

// unmake removes what there is, but for the workspace and the home when keep
// says so.
func (b *box) unmake(ctx context.Context, there made, keep bool) error {
	p, s := b.plan, b.service
	var errs []error
	if b.attach != nil {
		_ = b.attach.Close()
	}
	if b.pidfd != nil {
		// Dead before Podman looks, it is removed in half the time.
		if raw, err := b.pidfd.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
		}
	}
	if b.pidfd != nil && there.container {
		s.waitExit(b.info.ID, b.done)
	}
	if there.container {
		errs = append(errs, s.removeContainer(ctx, containerName(p.spec.Session)))
		if neverUp := b.info.ID != "" && b.info.Pid == 0; neverUp || s.stateLeft(p.runtime, b.info.ID) {
			errs = append(errs, b.engine.endStrays(ctx, p.runtime, b.info.ID))
		}
	}
	if b.pidfd != nil {
		select {
		case <-b.done:
		case <-time.After(time.Second): // a runtime that lied about the end
		}
		_ = b.pidfd.Close()
	} else {
		b.closeDone()
	}
	if b.link != nil {
		errs = append(errs, b.link.close(ctx))
	}
	names := slices.DeleteFunc(slices.Clone(there.volumes), func(name string) bool {
		return keep && (name == p.volumeOf(volWorkspace) || name == p.volumeOf(volHome))
	})
	errs = append(errs, s.removeVolumes(ctx, names...))
	if there.mount {
		errs = append(errs, s.unmountLayer(ctx, p.merged))
	}
	if there.folder && !keep {
		errs = append(errs, s.removeTree(ctx, b.engine.sessionDir(workspaceSession(p.spec))))
	}
	return errors.Join(errs...)
}

func (b *box) closeDone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
	default:
		close(b.done)
	}
}

// exitWait bounds the wait for the monitor's note of a container's end. It is
// there a few milliseconds after; without it Podman takes the container for a
// running one, fails to kill it, and the removal must be tried again.
const exitWait = 100 * time.Millisecond

func (s *service) waitExit(id string, done <-chan struct{}) {
	run := s.runtimeDir()
	notes := filepath.Join(run, "libpod", "tmp", "exits")
	if run == "" || !isDir(notes) {
		return // a service that keeps them elsewhere
	}
	end := time.NewTimer(exitWait)
	defer end.Stop()
	select {
	case <-done:
	case <-end.C:
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !exists(filepath.Join(notes, id)) {
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// removeTries bounds how often a removal is tried that Podman refuses because
// the container is just ending: its monitor's own clean-up runs at that time.
const removeTries = 20

// removeContainer ends and removes a container, with whatever runs in it.
func (s *service) removeContainer(ctx context.Context, name string) error {
	o := new(containers.RemoveOptions).WithForce(true).WithTimeout(0).WithVolumes(false).WithIgnore(true)
	for try := 1; ; try++ {
		call, err := s.call(ctx)
		if err != nil {
			return err
		}
		_, err = containers.Remove(call, name, o)
		if err == nil || status(err) == http.StatusNotFound {
			return nil
		}
		if status(err) == 0 || try == removeTries {
			return s.fault("removing the container", err)
		}
		s.log.Debug("removing again", "try", try, "err", err)
		select {
		case <-ctx.Done():
			return s.fault("removing the container", err)
		case <-time.After(time.Duration(try) * 5 * time.Millisecond):
		}
	}
}

// removeVolumes removes volumes at once; those that are gone are no error. One
// that a container uses is not forced away: that would take the container too.
func (s *service) removeVolumes(ctx context.Context, names ...string) error {
	call, err := s.call(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, n := range names {
		g.Go(func() error {
			err := volumes.Remove(call, n, nil)
			if err == nil || status(err) == http.StatusNotFound {
				return nil
			}
			return s.fault("removing a volume", err)
		})
	}
	return g.Wait()
}
