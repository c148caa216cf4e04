package podman

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/domain/entities/types"

	"pinfold.dev/pinfold/sandbox"
)

// BuildImage makes the image of a recipe unless it is there, with the copies of
// its layers for both mappings, and returns its reference and digest. Only one
// build of a user runs at a time; a second one waits for it. When ctx ends
// nothing is left behind. Progress may be nil; it is called from several
// goroutines, one at a time, with a percentage that never falls.
func (e *Engine) BuildImage(ctx context.Context, recipe sandbox.Recipe, progress func(stage string, percent int, line string)) (ref, digest string, err error) {
	return e.imageStore().build(ctx, recipe, progress)
}

// Images lists Pinfold's own images, newest first. Current is the reference of
// the recipe in use.
func (e *Engine) Images(ctx context.Context, current string) ([]sandbox.ImageInfo, error) {
	return e.imageStore().list(ctx, current)
}

// PruneImages removes Pinfold's own images but those whose reference or digest
// is in keep and those in use, and returns what it removed.
func (e *Engine) PruneImages(ctx context.Context, keep []string) ([]sandbox.ImageInfo, error) {
	return e.imageStore().prune(ctx, keep)
}

// ImageState says whether an image can be used now, and how far a build is. It
// never waits for one.
func (e *Engine) ImageState(ctx context.Context, ref string) (sandbox.ImageState, error) {
	return e.imageStore().state(ctx, ref)
}

func (e *Engine) imageStore() *imageStore {
	return &imageStore{s: e.service, dir: e.opts.CacheDir}
}

// list returns Pinfold's own images; current is the reference that this
// version uses.
func (b *imageStore) list(ctx context.Context, current string) ([]sandbox.ImageInfo, error) {
	found, err := b.summaries(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]sandbox.ImageInfo, 0, len(found))
	for _, img := range found {
		for _, tag := range ours(img) {
			infos = append(infos, sandbox.ImageInfo{
				Reference: tag, Digest: img.Digest, ID: img.ID, Bytes: img.Size,
				Created: time.Unix(img.Created, 0).UTC().Format(time.RFC3339),
				Current: tag == current, InUse: img.Containers > 0,
			})
		}
	}
	slices.SortFunc(infos, func(a, c sandbox.ImageInfo) int {
		return strings.Compare(c.Created+c.Reference, a.Created+a.Reference)
	})
	return infos, nil
}

func (b *imageStore) summaries(ctx context.Context) ([]*types.ImageSummary, error) {
	conn, err := b.s.call(ctx)
	if err != nil {
		return nil, err
	}
	found, err := images.List(conn, new(images.ListOptions).WithFilters(map[string][]string{"reference": {sandbox.ImageRepository}}))
	return found, b.s.fault("listing images", err)
}

// ours returns the tags of an image that lie in our repository.
func ours(img *types.ImageSummary) []string {
	var tags []string
	for _, tag := range img.RepoTags {
		if strings.HasPrefix(tag, sandbox.ImageRepository+":") {
			tags = append(tags, tag)
		}
	}
	return tags
}

// prune removes our images whose reference or digest is not in keep and that
// no container uses, and returns them. Other people's images are not touched:
// one that also has a foreign tag only loses ours.
func (b *imageStore) prune(ctx context.Context, keep []string) ([]sandbox.ImageInfo, error) {
	all, err := b.list(ctx, "")
	if err != nil {
		return nil, err
	}
	var removed []sandbox.ImageInfo
	var errs []error
	for _, img := range all {
		if slices.Contains(keep, img.Reference) || slices.Contains(keep, img.Digest) || img.InUse {
			continue
		}
		conn, err := b.s.call(ctx)
		if err != nil {
			return removed, err
		}
		// By tag and without force: the last tag takes the image with it, and
		// a container made meanwhile keeps it.
		if _, failed := images.Remove(conn, []string{img.Reference}, nil); len(failed) > 0 {
			errs = append(errs, b.s.fault("removing "+img.Reference, errors.Join(failed...)))
			continue
		}
		removed = append(removed, img)
	}
	return removed, errors.Join(errs...)
}

// state says whether ref can be used now. It never waits for a build.
func (b *imageStore) state(ctx context.Context, ref string) (sandbox.ImageState, error) {
	digest, err := b.digest(ctx, ref)
	if err != nil {
		return sandbox.ImageState{}, fmt.Errorf("reading the state of the image: %w", err)
	}
	s := imageState(b.dir, ref, digest)
	return s, nil
}
