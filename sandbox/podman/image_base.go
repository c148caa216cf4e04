package podman

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	buildah "github.com/containers/buildah/define"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/domain/entities/types"

	"pinfold.dev/pinfold/sandbox"
)

// fromBase builds the recipe's Containerfile on a base image, for hosts whose
// own packages cannot make one. The base comes from wherever the user's Podman
// fetches images.
func (b *imageStore) fromBase(ctx context.Context, recipe sandbox.Recipe, p *progress) error {
	dir, release, err := buildDir()
	if err != nil {
		return err
	}
	defer release()
	defer b.removeDir(dir)
	if err := writeContext(dir, recipe); err != nil {
		return err
	}
	conn, err := b.s.call(ctx)
	if err != nil {
		return err
	}
	// Podman's steps and apt's lines come in one stream.
	lines := &lineWriter{log: &tail{max: 16 << 10}, stage: baseStages(func(_ string, percent int, line string) {
		p.report("building on "+recipe.Base, min(pctFetch+percent, pctNoMap-1), line)
	})}
	stop := tick(p, "building on "+recipe.Base, 1)
	_, err = images.Build(conn, []string{filepath.Join(dir, "Containerfile")}, types.BuildOptions{BuildOptions: buildah.BuildOptions{
		ContextDirectory:        dir,
		Output:                  p.ref,
		Args:                    map[string]string{"BASE": recipe.Base},
		Labels:                  []string{recipeLabel + "=" + recipe.Hash()},
		Layers:                  false,
		ForceRmIntermediateCtrs: true, RemoveIntermediateCtrs: true,
		CommonBuildOpts: &buildah.CommonBuildOptions{},
		// As mmdebstrap does it: a changed root in a user namespace. It needs no
		// runtime, of which the service's default may not start on this host.
		Isolation: buildah.IsolationChroot,
		Out:       lines, Err: lines,
	}})
	stop()
	lines.flush()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fromContext(ctx.Err())
	}
	e := sandbox.Errorf(sandbox.Unavailable,
		"Check that Podman can fetch the base and that it is a Debian or Ubuntu image; `pinfold image build` shows the whole output.",
		"building the image on %s failed: %s", recipe.Base, firstLine(err.Error()))
	e.Reason, e.Cause = "image_build", fmt.Errorf("%w: %s", err, lines.log.String())
	return hostError(err, e)
}

// writeContext writes the build context of the Containerfile.
func writeContext(dir string, recipe sandbox.Recipe) error {
	var excludes bytes.Buffer
	for _, x := range recipe.Excludes {
		if keep, ok := strings.CutPrefix(x, "!"); ok {
			fmt.Fprintf(&excludes, "path-include=%s\n", keep)
		} else {
			fmt.Fprintf(&excludes, "path-exclude=%s\n", x)
		}
	}
	files := map[string]string{
		"Containerfile": recipe.Containerfile,
		"customize.sh":  recipe.Customize,
		"excludes.cfg":  excludes.String(),
	}
	// One list for each distribution: which one the base is shows only inside.
	for _, id := range []string{"debian", "ubuntu"} {
		files["packages."+id] = strings.Join(recipe.PackagesFor(id), "\n") + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the build context: %w", err)
		}
	}
	return nil
}

// baseStages reads apt's output without mmdebstrap's headings.
func baseStages(report func(string, int, string)) *stages {
	s := newStages(report)
	s.enter("fetching packages", pctFetch, pctUnpack)
	s.most = true
	return s
}
