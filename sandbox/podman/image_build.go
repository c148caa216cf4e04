package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/specgen"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// imageStore makes, lists and removes images in the service's storage.
type imageStore struct {
	s   *service
	dir string // cache folder with the lock and the state of a build
}

// recipeLabel carries the recipe's hash, so that an image says what it is even
// without its tag.
const recipeLabel = "dev.pinfold.recipe"

// mappings are the two user namespaces sandboxes use. Podman copies an image's
// layers with shifted owners at the first use of each, which takes 20 s for
// 1.3 GB: a build does it, not a user's first call.
var mappings = []struct {
	name    string
	space   specgen.Namespace
	percent int
}{
	{"no-map", specgen.Namespace{NSMode: specgen.NoMap}, pctNoMap},
	{"keep-id", specgen.Namespace{NSMode: specgen.KeepID, Value: "uid=1000,gid=1000"}, pctKeepID},
}

// build makes the recipe's image unless it is there, and returns its name and
// digest.
func (b *imageStore) build(ctx context.Context, recipe sandbox.Recipe, out func(stage string, percent int, line string)) (string, string, error) {
	ref := recipe.Reference()
	p := &progress{dir: b.dir, ref: ref, out: out}
	unlock, err := lockBuild(ctx, b.dir, func(s buildState) {
		if out != nil {
			out("waiting for another build: "+s.Stage, s.Percent, "")
		}
	})
	if err != nil {
		return "", "", err
	}
	defer unlock()
	b.sweep(ctx)
	digest, err := b.buildLocked(ctx, recipe, p)
	p.end(err)
	if err != nil {
		return "", "", err
	}
	p.report("ready", 100, ref)
	os.Remove(filepath.Join(b.dir, buildStateFile))
	return ref, digest, nil
}

func (b *imageStore) buildLocked(ctx context.Context, recipe sandbox.Recipe, p *progress) (string, error) {
	digest, err := b.digest(ctx, p.ref)
	if err != nil {
		return "", err
	}
	if digest == "" {
		p.report("starting", 0, p.ref)
		if err := b.make(ctx, recipe, p); err != nil {
			return "", err
		}
		if digest, err = b.digest(ctx, p.ref); err != nil {
			return "", err
		}
		if digest == "" {
			return "", sandbox.Errorf(sandbox.Internal, "", "the image %s vanished after it was imported", p.ref)
		}
	}
	for _, m := range mappings {
		stop := tick(p, "copying layers for the mapping "+m.name, m.percent)
		err := b.shift(ctx, p.ref, m.space)
		stop()
		if err != nil {
			return "", err
		}
	}
	return digest, nil
}

func (b *imageStore) make(ctx context.Context, recipe sandbox.Recipe, p *progress) error {
	if recipe.Base != "" {
		return b.fromBase(ctx, recipe, p)
	}
	release, err := readOSRelease("/etc/os-release")
	if err != nil {
		return err
	}
	if !release.hasApt() {
		e := sandbox.Errorf(sandbox.FailedPrecondition,
			"Name a Debian or Ubuntu base image (`pinfold image build --base REFERENCE`), or use a template with `image: host`.",
			"on %s the image needs a base to build on", release.Name)
		e.Reason = "no_base"
		return e
	}
	program, err := mmdebstrapPath(searchPath())
	if err != nil {
		return err
	}
	sources, err := aptSources("/etc/apt", release)
	if err != nil {
		return err
	}
	dir, unlock, err := buildDir()
	if err != nil {
		return err
	}
	defer unlock()
	defer b.removeDir(dir)
	return b.importFrom(ctx, recipe, p, &mmdebstrap{
		program: program, sources: sources, release: release, recipe: recipe, dir: dir, options: aptOptions(ctx),
	})
}

// importFrom streams the archive from mmdebstrap into the service: it never
// lies on disk twice.
func (b *imageStore) importFrom(ctx context.Context, recipe sandbox.Recipe, p *progress, m *mmdebstrap) error {
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := b.s.call(ctx)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		counted := &countWriter{w: w, report: func(n int64) {
			p.report("packing", pctPack+int(int64(pctImport-pctPack)*min(n, rootfsSize)/rootfsSize), "")
		}}
		err := m.run(ctx, counted, p.report)
		// An error here breaks the request off, so that half an archive never
		// becomes an image.
		w.CloseWithError(err)
		made <- err
	}()
	body := &eofReader{r: r, at: func() func() { return tick(p, "importing into Podman's storage", pctImport) }}
	_, err = images.Import(conn, body, &images.ImportOptions{
		Reference: new(p.ref),
		Message:   new("pinfold image " + recipe.Hash()),
		Changes:   &[]string{"ENV LANG=C.UTF-8", "LABEL " + recipeLabel + "=" + recipe.Hash()},
	})
	body.end()
	cancel() // ends mmdebstrap when it was the import that failed
	r.CloseWithError(errors.New("import ended"))
	failed := <-made
	if whole.Err() != nil {
		// What broke off because of it names its own cause, such as a signal.
		return fromContext(whole.Err())
	}
	if failed != nil && (err == nil || sandbox.CodeOf(failed) != sandbox.Canceled) {
		return failed
	}
	return b.s.fault("importing the image", err)
}

// shift makes the copy of an image's layers for a mapping: creating a
// container does it; nothing is started.
func (b *imageStore) shift(ctx context.Context, image string, space specgen.Namespace) error {
	conn, err := b.s.call(ctx)
	if err != nil {
		return err
	}
	g := specgen.NewSpecGenerator(image, false)
	g.Command = []string{"/bin/true"}
	g.UserNS = space
	g.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	g.Labels = map[string]string{recipeLabel: "shift"}
	var id string
	if err := b.s.alone(ctx, func() error {
		made, err := containers.CreateWithSpec(conn, g, nil)
		id = made.ID
		return err
	}); err != nil {
		return b.s.fault("copying the image's layers", err)
	}
	// The container must go even when the caller gave up meanwhile.
	conn, err = b.s.call(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	_, err = containers.Remove(conn, id, new(containers.RemoveOptions).WithForce(true).WithIgnore(true))
	return b.s.fault("removing the container of the copy", err)
}

// digest returns the digest of an image, or "" when it is not there.
func (b *imageStore) digest(ctx context.Context, ref string) (string, error) {
	conn, err := b.s.call(ctx)
	if err != nil {
		return "", err
	}
	img, err := images.GetImage(conn, ref, nil)
	if status(err) == 404 {
		return "", nil
	}
	if err != nil {
		return "", b.s.fault("looking for the image", err)
	}
	return string(img.Digest), nil
}

// buildPrefix begins the names of this user's build folders.
func buildPrefix() string { return fmt.Sprintf("pinfold-build-%d-", os.Getuid()) }

// buildDir makes a folder that the mapped root of mmdebstrap can pass through,
// and holds a lock on it until it is released: that marks it as in use, whatever
// cache folder its builder has. Not below the home, which is usually closed to
// the mapped root, and not in /tmp, which is memory on newer systems.
func buildDir() (dir string, release func(), err error) {
	for range 3 {
		dir, err = os.MkdirTemp("/var/tmp", buildPrefix())
		if err != nil {
			return "", nil, fmt.Errorf("making the build folder: %w", err)
		}
		if err = os.Chmod(dir, 0o711); err != nil {
			continue
		}
		var unlock func()
		if unlock, err = lockDir(dir); err != nil {
			continue // another build took it for a leftover
		}
		if exists(dir) {
			return dir, unlock, nil
		}
		unlock()
	}
	return "", nil, fmt.Errorf("making the build folder: %w", err)
}

// lockDir locks a folder for this process, without waiting.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// removeDir removes a build folder. What mmdebstrap left there when it was
// killed belongs to subordinate ids, which only a user namespace can remove.
func (b *imageStore) removeDir(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.s.removeTree(ctx, dir); err != nil {
		b.s.log.Warn("build folder left", "path", dir, "error", err)
	}
}

// sweep removes what builds that were killed have left.
func (b *imageStore) sweep(ctx context.Context) {
	dirs, _ := filepath.Glob(filepath.Join("/var/tmp", buildPrefix()+"*")) // the pattern is well formed
	for _, dir := range dirs {
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || ownerOf(st) != os.Getuid() || ctx.Err() != nil {
			continue
		}
		if unlock, err := lockDir(dir); err == nil {
			b.removeDir(dir)
			unlock()
		}
	}
}

// tick reports a stage every five seconds until stopped: a person sees that it
// lives.
func tick(p *progress, stage string, percent int) (stop func()) {
	started, quit, done := time.Now(), make(chan struct{}), make(chan struct{})
	p.report(stage, percent, "")
	go func() {
		defer close(done)
		t := time.NewTicker(5 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				p.report(stage, percent+min(int(time.Since(started)/(5*time.Second)), 6), fmt.Sprintf("%.0f s", time.Since(started).Seconds()))
			}
		}
	}()
	return func() { close(quit); <-done }
}

// countWriter reports how much went through, once a MiB.
type countWriter struct {
	w       io.Writer
	n, last int64
	report  func(n int64)
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if c.n-c.last >= 16<<20 {
		c.last = c.n
		c.report(c.n)
	}
	return n, err
}

// eofReader calls at when its source is drained: from then on the service works.
type eofReader struct {
	r  io.Reader
	at func() func()

	mu    sync.Mutex // the transport reads in a goroutine of its own
	stop  func()
	ended bool
}

func (e *eofReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err == io.EOF {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.stop == nil && !e.ended {
			e.stop = e.at()
		}
	}
	return n, err
}

func (e *eofReader) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	if e.stop != nil {
		e.stop()
	}
}
