package podman

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
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

// Done is closed once pid 1 has ended.
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
	b.engine.wg.Add(1)
	go func() {
		defer b.engine.wg.Done()
		defer close(b.done)
		_ = raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return err == nil && n > 0
		})
	}()
	return nil
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
		clean, cancel := context.WithTimeout(context.Background(), removeWork)
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
		return nil, sandbox.Lost(errors.New("the guest ended: " + lastLine(b.attach.stderr.String())))
	default:
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fromContext(err)
	}
	return nil, sandbox.Lost(err)
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
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWork)
	result := make(chan error, 1)
	b.engine.wg.Add(1)
	go func() {
		defer b.engine.wg.Done()
		defer cancel()
		result <- b.unmakeKeeping(work, true, keep)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fromContext(ctx.Err())
	}
}

// unmake removes all; made says whether there may be a container.
func (b *box) unmake(ctx context.Context, made bool) error { return b.unmakeKeeping(ctx, made, false) }

func (b *box) unmakeKeeping(ctx context.Context, made, keep bool) error {
	p, s := b.plan, b.service
	var errs []error
	if b.attach != nil {
		_ = b.attach.Close()
	}
	if made {
		errs = append(errs, s.removeContainer(ctx, containerName(p.spec.Session)))
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
	var names []string
	for _, v := range p.volumes() {
		kept := v.use == volWorkspace || v.use == volHome
		// A start that failed must not cost the workspace it was to resume.
		if kept && (keep || (!made && p.spec.Resume != "")) {
			continue
		}
		names = append(names, p.volumeOf(v.use))
	}
	errs = append(errs, s.removeVolumes(ctx, names...))
	if p.upper != "" && !keep && (made || p.spec.Resume == "") {
		errs = append(errs, s.removeTree(ctx, p.upper))
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

// removeContainer ends and removes a container, with whatever runs in it.
func (s *service) removeContainer(ctx context.Context, name string) error {
	call, err := s.call(ctx)
	if err != nil {
		return err
	}
	o := new(containers.RemoveOptions).WithForce(true).WithTimeout(0).WithVolumes(false).WithIgnore(true)
	_, err = containers.Remove(call, name, o)
	if err == nil || status(err) == http.StatusNotFound {
		return nil
	}
	return s.fault("removing the container", err)
}

// removeVolumes removes volumes at once; those that are gone are no error.
func (s *service) removeVolumes(ctx context.Context, names ...string) error {
	call, err := s.call(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, n := range names {
		g.Go(func() error {
			err := volumes.Remove(call, n, new(volumes.RemoveOptions).WithForce(true))
			if err == nil || status(err) == http.StatusNotFound {
				return nil
			}
			return s.fault("removing a volume", err)
		})
	}
	return g.Wait()
}
