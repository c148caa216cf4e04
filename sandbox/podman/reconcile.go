package podman

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// halfMade is how old a folder without a record must be before it is taken for
// the rest of a start that was cut off.
const halfMade = time.Minute

// Reconcile removes what belongs to owners of whom alive says that they are
// gone: containers in any state, volumes, link folders and sockets. Kept
// workspaces stay, and so does everything that is not ours by name and label.
// It is safe beside living servers and other reconcilers.
func (e *Engine) Reconcile(ctx context.Context, alive func(owner string) bool) error {
	dead := func(owner string) bool { return owner != "" && owner != e.opts.Owner && !alive(owner) }
	f, err := e.find(ctx)
	if err != nil {
		return err
	}
	var errs []error
	kept := e.kept(f)
	inUse := map[string]bool{} // sessions whose volumes a living sandbox uses
	for s, c := range f.containers {
		if !dead(c.spec.Owner) {
			inUse[s], inUse[workspaceSession(c.spec)] = true, true
			continue
		}
		e.opts.Log.Info("removing a sandbox whose server is gone", "session", s, "owner", c.spec.Owner)
		errs = append(errs, e.claims.unless(s, func() error { return e.removeSession(ctx, f, s, kept) }))
		delete(f.containers, s)
		delete(f.volumes, s)
	}
	for s, vols := range f.volumes {
		if !inUse[s] && dead(vols[0].owner) {
			errs = append(errs, e.claims.unless(s, func() error { return e.removeSession(ctx, f, s, kept) }))
		}
	}
	for _, s := range f.folders {
		r, ok := e.readRecord(s)
		if inUse[s] || r.Kept || ok && !dead(r.Spec.Owner) || !ok && !older(e.sessionDir(s), halfMade) {
			continue
		}
		errs = append(errs, e.claims.unless(s, func() error {
			return errors.Join(e.service.unmountLayer(ctx, filepath.Join(e.sessionDir(s), "merged")), e.service.removeTree(ctx, e.sessionDir(s)))
		}))
	}
	owners, err := os.ReadDir(filepath.Dir(e.dir))
	errs = append(errs, err)
	for _, o := range owners {
		if dead(o.Name()) {
			errs = append(errs, e.service.removeTree(ctx, filepath.Join(filepath.Dir(e.dir), o.Name())))
		}
	}
	return errors.Join(errs...)
}

func older(path string, age time.Duration) bool {
	st, err := os.Lstat(path)
	return err == nil && time.Since(st.ModTime()) > age
}

// claims are the sessions that this engine has started, those included whose
// workspaces it took on. What an earlier server left of them is ours by then,
// and no leftover: a reconciler that looked a moment before must not remove it.
type claims struct {
	mu  sync.Mutex
	ids map[string]bool
}

// take claims sessions; it waits while one of them is being removed.
func (c *claims) take(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[string]bool{}
	}
	for _, id := range ids {
		c.ids[id] = true
	}
}

// unless runs f unless the session is claimed, and keeps it from being claimed
// meanwhile.
func (c *claims) unless(id string, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[id] {
		return nil
	}
	return f()
}
