package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/containers/podman/v5/pkg/bindings/images"

	"pinfold.dev/pinfold/sandbox"
)

// steering are the beginnings of annotations by which an image would give
// orders to Podman or a runtime. They can be emptied but not taken away, and
// some of them act by being there, so such an image is refused.
var steering = []string{
	"io.podman.annotations.", "io.podman.checkpoint", "io.kubernetes.", "io.container.", "io.cri-o.",
	"run.oci.", "org.criu.", "org.systemd.", "dev.gvisor.", "io.katacontainers.", "module.wasm.", "run.runc.", "org.opencontainers.runc.",
}

// imageFacts is what of an image's metadata matters.
type imageFacts struct {
	id       string
	annulled map[string]string // annotations, each with an empty value
}

// imageCache remembers images by id; a name is looked up anew each time, since
// it can move.
type imageCache struct {
	mu   sync.Mutex
	byID map[string]imageFacts
}

// facts finds an image by name, digest or id.
func (e *Engine) facts(ctx context.Context, name string) (imageFacts, error) {
	e.images.mu.Lock()
	f, ok := e.images.byID[strings.TrimPrefix(name, "sha256:")]
	e.images.mu.Unlock()
	if ok {
		return f, nil
	}
	got, err := images.GetImage(ctx, name, nil)
	if err != nil {
		if status(err) == http.StatusNotFound {
			// Without ids an image helps nothing: the first cure is named first.
			if why := subordinateIDs("/etc/subuid", "/etc/subgid"); why != "" {
				return f, noSubordinateIDs(why, err)
			}
			if strings.HasPrefix(name, sandbox.ImageRepository+":") {
				// Our own: perhaps it is being made right now.
				missing := imageState(e.opts.CacheDir, name, "").Missing()
				missing.Cause = err
				return f, missing
			}
			return f, imageMissing(name, err)
		}
		return f, e.service.fault("looking up the image", err)
	}
	if got.ImageData == nil || got.ID == "" {
		return f, e.service.fault("looking up the image", errors.New("podman answered without an image"))
	}
	if f, err = judge(name, got.ID, got.Annotations); err != nil {
		return f, err
	}
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	if e.images.byID == nil || len(e.images.byID) > 256 {
		e.images.byID = map[string]imageFacts{}
	}
	e.images.byID[f.id] = f
	return f, nil
}

// judge refuses an image that gives orders, and empties its other annotations.
func judge(name, id string, annotations map[string]string) (imageFacts, error) {
	f := imageFacts{id: id, annulled: map[string]string{}}
	for k := range annotations {
		if slices.ContainsFunc(steering, func(s string) bool { return strings.HasPrefix(strings.ToLower(k), s) }) {
			e := sandbox.Errorf(sandbox.FailedPrecondition, "Use another image, or build this one without the annotation.",
				"the image %s carries the annotation %q, which gives orders to the container runtime", name, bounded(k))
			e.Reason = "image_refused"
			return f, e
		}
		f.annulled[k] = ""
	}
	return f, nil
}

// checkImageName keeps what is no image's name from reaching Podman.
func checkImageName(name string) error {
	if name == "" || len(name) > 512 || strings.HasPrefix(name, "-") ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@") != "" || strings.Contains(name, "..") {
		return sandbox.Errorf(sandbox.InvalidArgument, "Name an image as `podman images` does, by digest or by id.", "%s is no image's name", fmt.Sprintf("%q", bounded(name)))
	}
	return nil
}
