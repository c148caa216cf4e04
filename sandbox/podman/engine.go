package podman

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Deadlines of the engine's own work, which goes on when a caller has left so
// that nothing half made stays behind.
const (
	startWork  = 3 * time.Minute // the first use of an image copies its layers
	removeWork = time.Minute
	// closeWork is how long Close waits for it. A server must end within three
	// seconds of its client's; what is left then, the next start removes.
	closeWork = 1500 * time.Millisecond
)

// Engine makes sandboxes with rootless Podman. It is safe for concurrent use.
type Engine struct {
	opts     Options
	dir      string   // this engine's folder for sockets
	service  *service // for all that is not bound to a runtime
	runtimes *runtimes
	unpacker *unpacker
	images   imageCache
	claims   claims

	mu       sync.Mutex
	services map[string]*service // by runtime; of ours, or the one foreign service under ""
	boxes    map[*box]bool       // whose process is being watched

	wg     sync.WaitGroup  // work that outlives its caller
	ctx    context.Context // of that work; ends when Close gives up waiting
	giveUp context.CancelFunc
}

var _ sandbox.Engine = (*Engine)(nil)

// New makes an engine. It does not touch Podman; the first call that needs it,
// or Warm, does.
func New(opts Options) (*Engine, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts:     opts,
		dir:      filepath.Join(opts.RuntimeDir, "e", opts.Owner),
		unpacker: &unpacker{dir: opts.CacheDir, guest: opts.GuestPath},
		runtimes: &runtimes{cache: filepath.Join(opts.CacheDir, "runtimes.json"), paths: findRuntimes(), only: opts.Runtime, foreign: opts.Host != ""},
	}
	e.ctx, e.giveUp = context.WithCancel(context.Background())
	first := ""
	if opts.Host == "" {
		if names, err := e.runtimes.candidates(sandbox.IsolationContainer); err == nil {
			first = names[0]
		}
	}
	if e.service, err = e.serviceFor(first); err != nil {
		return nil, err
	}
	for _, d := range []string{filepath.Join(opts.RuntimeDir, "e"), e.dir, e.linkFolder()} {
		if err := privateDir(d); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// serviceFor returns the service whose containers get a runtime. Podman 4
// ignores the runtime that a request names, so each has a service of its own.
func (e *Engine) serviceFor(runtime string) (*service, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opts.Host != "" {
		runtime = ""
	}
	if s := e.services[runtime]; s != nil {
		return s, nil
	}
	s := &service{host: e.opts.Host, log: e.opts.Log, socket: filepath.Join(e.dir, runtime+".sock")}
	conf, err := writeConf(e.opts.CacheDir, e.runtimes.paths, runtime, e.opts.GVisorPlatform)
	if err != nil {
		return nil, err
	}
	s.env = serviceEnv(conf)
	if s.host != "" {
		if s.socket, err = unixPath(s.host); err != nil {
			return nil, err
		}
	}
	// With a foreign service the program is wanted, not needed.
	if s.podman, err = findPodman(e.opts.Podman); err != nil && s.host == "" {
		s.missing = err
	}
	if e.services == nil {
		e.services = map[string]*service{}
	}
	e.services[runtime] = s
	return s, nil
}

func (e *Engine) linkFolder() string { return filepath.Join(e.dir, "l") }

// Warm starts the service and unpacks the guest, so that the first Start does
// not pay for it.
func (e *Engine) Warm(ctx context.Context) error {
	if _, err := e.unpacker.get(); err != nil {
		return err
	}
	_, err := e.service.call(ctx)
	return err
}

// Adopt takes over a sandbox of an earlier owner. A running guest belongs to
// the link of its first owner and ends with it, so only kept workspaces can be
// taken on: by Start with Spec.Resume.
func (e *Engine) Adopt(ctx context.Context, id, owner string) (sandbox.Sandbox, error) {
	err := sandbox.Errorf(sandbox.FailedPrecondition, "Start a new sandbox that resumes the kept workspace of that session.",
		"the sandbox %s cannot be taken over while it runs", bounded(id))
	err.Reason = "adopt_unavailable"
	return nil, err
}

// Close ends our own service and removes this engine's folder, after a short
// wait for work that callers left behind. Sandboxes are let go of, not ended;
// each ends by itself soon after, because its guest has lost its host.
func (e *Engine) Close() error {
	e.mu.Lock()
	for b := range e.boxes {
		b.letGo()
	}
	e.mu.Unlock()
	idle := make(chan struct{})
	go func() { e.wg.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(closeWork):
		e.opts.Log.Warn("unfinished work is given up; the next start removes what is left")
	}
	e.giveUp()
	<-idle // soon: every call it makes has ended
	e.mu.Lock()
	for _, s := range e.services {
		s.close()
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), removeWork)
	defer cancel()
	return e.service.removeTree(ctx, e.dir)
}
