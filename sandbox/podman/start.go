package podman

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"golang.org/x/sync/errgroup"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
)

// Start makes a sandbox. See sandbox.Engine.
//
// The work is not bound to ctx: an API call that is cut off may still take
// effect. When ctx ends first, Start answers at once and what was made is
// removed behind it; Close waits for that.
func (e *Engine) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := e.validate(&spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fromContext(err)
	}
	type result struct {
		box *box
		err error
	}
	e.claims.take(spec.Session, workspaceSession(spec))
	done := make(chan result)
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		work, cancel := e.detached(ctx, startWork)
		defer cancel()
		b, err := e.start(work, ctx, spec)
		select {
		case done <- result{b, err}:
		case <-ctx.Done():
			if b != nil {
				e.abandon(b)
			}
		}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.box, nil
	case <-ctx.Done():
		return nil, fromContext(ctx.Err())
	}
}

// detached returns a context that does not end with ctx, but with its own
// time or when Close gives up.
func (e *Engine) detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	stop := context.AfterFunc(e.ctx, cancel)
	return work, func() { stop(); cancel() }
}

// abandon removes a sandbox that nobody waits for.
func (e *Engine) abandon(b *box) {
	ctx, cancel := e.detached(context.Background(), removeWork)
	defer cancel()
	if err := b.Remove(ctx); err != nil {
		e.opts.Log.Warn("removing an abandoned sandbox", "session", b.info.Session, "err", err)
	}
}

// start tries the runtimes in turn. Caller says whether anyone still waits.
func (e *Engine) start(ctx, caller context.Context, spec sandbox.Spec) (*box, error) {
	f, err := e.unpacker.get()
	if err != nil {
		return nil, err
	}
	names, err := e.runtimes.candidates(spec.Isolation)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		b, err := e.startWith(ctx, caller, spec, f, name, i < len(names)-1)
		if err == nil {
			e.runtimes.saw(name, true)
			return b, nil
		}
		var broken *runtimeError
		if !errors.As(err, &broken) {
			return nil, err
		}
		e.runtimes.saw(name, false)
		e.opts.Log.Warn("runtime does not start containers here", "runtime", name, "err", broken.cause)
		if i == len(names)-1 {
			return nil, broken.typed()
		}
	}
	panic("unreachable: candidates is never empty")
}

// runtimeError is a container that its runtime did not start.
type runtimeError struct {
	runtime string
	cause   error
}

func (r *runtimeError) Error() string { return r.runtime + ": " + r.cause.Error() }

func (r *runtimeError) typed() *sandbox.Error {
	e := sandbox.Errorf(sandbox.FailedPrecondition, "Run `pinfold doctor`; it tries each runtime and says what to do.",
		"the runtime %s does not start containers on this host: %s", r.runtime, firstLine(r.cause.Error()))
	e.Reason, e.Cause = "runtime_broken", r.cause
	return hostError(r.cause, e)
}

// startWith makes a sandbox with one runtime, and unmakes it when any step
// fails. Others says that another runtime could be tried.
func (e *Engine) startWith(ctx, caller context.Context, spec sandbox.Spec, f files, runtime string, others bool) (_ *box, err error) {
	s, err := e.serviceFor(runtime)
	if err != nil {
		return nil, err
	}
	call, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{spec: spec, runtime: runtime, mapping: mappingOf(spec), files: f, link: spec.Link, others: others, stateDir: e.opts.StateDir}
	if p.link == sandbox.LinkAuto {
		p.link = sandbox.LinkUnix
		if runtime == runsc {
			p.link = sandbox.LinkStdio // gVisor lets no socket of the host in
		}
	}
	if p.link == sandbox.LinkUnix && runtime == runsc {
		e := sandbox.Errorf(sandbox.FailedPrecondition, "Use link stdio.", "a socket of the host cannot be reached under gVisor")
		e.Reason = "link_unavailable"
		return nil, e
	}
	b := newBox(e, s, p)
	step := stopwatch{}
	step.mark("begin")
	defer func() {
		if err != nil {
			undo, cancel := e.detached(ctx, removeWork)
			defer cancel()
			// A start that failed must not cost the workspace it was to resume.
			if rerr := b.unmake(undo, p.made, spec.Resume != ""); rerr != nil {
				e.opts.Log.Warn("removing a sandbox that did not start", "session", spec.Session, "err", rerr)
			}
		}
	}()

	var g errgroup.Group
	g.Go(func() error {
		if spec.Image == sandbox.ImageHost {
			base, err := hostRootBase()
			if err != nil {
				return err
			}
			h, err := prepareHostRoot(ctx, s, base)
			if err == nil {
				p.rootfs, p.rootBind, p.path = h.dir, h.binds(), h.path
			}
			return err
		}
		facts, err := e.facts(call, spec.Image)
		p.image, p.annulled = facts.id, facts.annulled
		return err
	})
	if spec.Workspace.Mode == sandbox.WorkspaceOverlay {
		if err := e.prepareLayer(ctx, s, p); err != nil {
			return nil, err
		}
	}
	g.Go(func() error { return s.createFault(spec, p.makeVolumes(call)) })
	if p.link == sandbox.LinkUnix {
		p.linkDir = filepath.Join(e.linkFolder(), spec.Session)
		g.Go(func() (err error) { b.link, err = s.newLink(ctx, p.linkDir); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	step.mark("prepare")
	if err := caller.Err(); err != nil {
		return nil, fromContext(err)
	}
	if err := s.alone(caller, func() (err error) { b.info.ID, err = p.create(call); return err }); err != nil {
		// An answer that never came says nothing of what was done.
		p.made.container = status(err) == 0
		return nil, s.createFault(spec, err)
	}
	p.made.container = true
	step.mark("create")
	if err := caller.Err(); err != nil {
		return nil, fromContext(err)
	}
	if err := e.run(ctx, call, b, &step); err != nil {
		return nil, err
	}
	e.opts.Log.Debug("sandbox started", append([]any{"session", spec.Session, "runtime", p.runtime}, step.attrs()...)...)
	return b, nil
}

// run attaches to the container, starts it, reads its state back, and only
// then hands over the token.
func (e *Engine) run(ctx, call context.Context, b *box, step *stopwatch) error {
	p, s := b.plan, b.service
	broken := func(err error) error {
		if status(err) == 0 {
			return s.fault("starting the container", err)
		}
		return &runtimeError{runtime: p.runtime, cause: err}
	}
	q := url.Values{"stream": {"true"}, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
		"detachKeys": {""}} // else two bytes of the stream would end it
	var err error
	if b.attach, err = s.hijack(ctx, "/containers/"+b.info.ID+"/attach", q, nil); err != nil {
		return broken(err)
	}
	step.mark("attach")
	if err := containers.Start(call, b.info.ID, nil); err != nil {
		return broken(err)
	}
	step.mark("start")
	inspect, err := containers.Inspect(call, b.info.ID, nil)
	if err != nil {
		return s.fault("reading the container's state", err)
	}
	if err := p.checkRuntime(inspect.OCIRuntime); err != nil {
		return err
	}
	b.info.Runtime = p.runtime
	step.mark("inspect")
	pid := inspect.State.Pid
	if pid <= 1 {
		return &runtimeError{runtime: p.runtime, cause: fmt.Errorf("the guest ended at once: %s", b.lastWords())}
	}
	if err := b.watch(pid); err != nil {
		return s.fault("watching the container", err)
	}
	if p.runtime != runsc {
		if err := waitGuest(ctx, pid, p.files.guest); err != nil {
			return refuse([]string{err.Error()})
		}
	}
	o, err := observe(pid)
	if err != nil {
		return refuse([]string{"its state cannot be read: " + err.Error()})
	}
	if b.info.Posture, err = p.check(o); err != nil {
		return err
	}
	if loose := b.info.Posture.Degraded; len(loose) > 0 && p.others {
		return &runtimeError{runtime: p.runtime, cause: errors.New(loose[0])}
	}
	b.info.Posture.Degraded = append(b.info.Posture.Degraded, degraded(limitsHeld(pid, p.spec.Limits.WithDefaults()))...)
	b.info.Pid, b.rootUID = pid, o.uids.toHost(0)
	if err := b.handOver(); err != nil {
		return err
	}
	step.mark("check")
	return nil
}

// handOver writes the token and the rest of the configuration to the guest.
func (b *box) handOver() error {
	s := b.plan.spec
	env := maps.Clone(s.Env)
	if len(b.plan.path) > 0 && env["PATH"] == "" {
		if env == nil {
			env = map[string]string{}
		}
		env["PATH"] = agentPath + ":" + strings.Join(b.plan.path, ":") + ":" + systemPath
	}
	line, err := json.Marshal(guest.Config{
		Version: guest.Version, Token: b.token, Link: b.plan.link, Isolation: s.Isolation,
		Limits: s.Limits.WithDefaults(), NestedSandboxes: s.NestedSandboxes, Env: env,
	})
	if err != nil {
		return err
	}
	if len(line) >= configMax {
		return sandbox.Errorf(sandbox.InvalidArgument, "Set fewer or shorter variables.", "the session's environment is longer than %d KiB", configMax>>10)
	}
	_ = b.attach.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, err := b.attach.Write(append(line, '\n')); err != nil {
		return b.service.fault("handing the guest its configuration", err)
	}
	return b.attach.SetWriteDeadline(time.Time{})
}

// Parts of the PATH of commands: what the agent installs itself comes first,
// what the host brings for `image: host` before the system's own.
const (
	agentPath  = sandbox.HomeDir + "/.local/bin:" + sandbox.HomeDir + "/.npm-global/bin"
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// configMax is the guest's limit for its configuration line.
const configMax = 64 << 10

func newToken() string {
	var t [32]byte
	_, _ = rand.Read(t[:]) // never fails
	return hex.EncodeToString(t[:])
}
