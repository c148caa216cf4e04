//go:build podman

package podman

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

// oddImage imports the test image's files once more, with changes to what its
// metadata says, in the words of a Containerfile.
func oddImage(t *testing.T, e *Engine, changes ...string) string {
	t.Helper()
	call, err := e.service.call(minute(t))
	require.NoError(t, err)
	name := "localhost/pinfold-odd:" + newToken()[:10]
	made, err := containers.Commit(call, baseContainer(t, e), new(containers.CommitOptions).
		WithRepo(strings.Split(name, ":")[0]).WithTag(strings.Split(name, ":")[1]).WithChanges(changes))
	require.NoError(t, err)
	t.Cleanup(func() {
		call, err := e.service.call(minute(t))
		require.NoError(t, err)
		_, errs := images.Remove(call, []string{name}, new(images.RemoveOptions).WithForce(true))
		require.Empty(t, errs)
	})
	return strings.TrimPrefix(made.ID, "sha256:")
}

// baseContainer makes a container, never started, to derive images from.
func baseContainer(t *testing.T, e *Engine) string {
	t.Helper()
	out, err := exec.Command("podman", "create", "--network=none", testImage(t), "true").Output()
	require.NoError(t, err)
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { require.NoError(t, exec.Command("podman", "rm", "-f", id).Run()) })
	return id
}

// Cases A48 to A51: what an image says of itself changes nothing.
func TestImageMetadataHasNoEffect(t *testing.T) {
	e := newTestEngine(t)
	image := oddImage(t, e,
		"USER 4294967295", "WORKDIR /proc/self/fd/8",
		"ENV LD_PRELOAD=/evil.so", "ENV PATH=/evil", "ENV AWS_SECRET_ACCESS_KEY", "ENV HOME=/root",
		`ENTRYPOINT ["/bin/sh","-c","echo taken over"]`, `CMD ["--evil"]`,
		"STOPSIGNAL 64", "VOLUME /workspace", "VOLUME /data",
		"LABEL pinfold.owner=someone-else", "LABEL pinfold.session=ses_other", "LABEL pinfold=0", "LABEL run.oci.keep_original_groups=1",
	)
	b := startTest(t, e, sandbox.Spec{Image: image})
	c := connectTest(t, b)
	out, code := shTest(t, c, "id -u; pwd; echo $PATH; echo $HOME; env; cat /proc/1/cmdline; ls -A /workspace; cat /proc/mounts")
	require.Zero(t, code, out)
	lines := strings.Split(out, "\n")
	assert.Equal(t, "1000", lines[0])
	assert.Equal(t, "/workspace", lines[1])
	assert.Equal(t, "/home/agent", lines[3])
	for _, evil := range []string{"evil", "AWS_SECRET", "taken over", " /data "} {
		assert.NotContains(t, out, evil)
	}
	call, err := e.service.call(minute(t))
	require.NoError(t, err)
	got, err := containers.Inspect(call, b.info.ID, nil)
	require.NoError(t, err)
	assert.Equal(t, e.opts.Owner, got.Config.Labels[labelOwner])
	assert.Equal(t, b.info.Session, got.Config.Labels[labelSession])
	assert.Equal(t, "1", got.Config.Labels[labelMark])
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", b.info.Pid))
	require.NoError(t, err)
	assert.Equal(t, sandbox.GuestPath+"\x00", string(line), "no argument of the image's")
	assert.NotContains(t, strings.Join(got.Config.Env, "\n"), "evil")
	if got.Config.Healthcheck != nil {
		assert.Equal(t, []string{"NONE"}, got.Config.Healthcheck.Test)
	}
	assert.NotContains(t, got.Config.Annotations, "run.oci.keep_original_groups")
}

// Case A49: a USER that is no name, root, or beyond any id.
func TestImageUserIsOurs(t *testing.T) {
	e := newTestEngine(t)
	for _, user := range []string{"root:root", "nobody-has-this-name", "0:0", "4294967296", "-1", ""} {
		b := startTest(t, e, sandbox.Spec{Image: emptyImage(t, e, map[string]any{"User": user, "WorkingDir": "/proc/self/fd/8"}, nil)})
		o, err := observe(b.info.Pid)
		require.NoError(t, err)
		assert.Equal(t, o.uids.toHost(0), b.rootUID, user)
		status, err := connectTest(t, b).Status(minute(t))
		require.NoError(t, err)
		require.NotEmpty(t, status.Table)
		assert.Equal(t, 0, status.Table[0].UID, "the guest is root of its namespace, whatever the image says")
	}
}

// Case A48: an image whose annotations give orders to the runtime is refused.
func TestImageAnnotationsThatSteerAreRefused(t *testing.T) {
	e := newTestEngine(t)
	for annotation, want := range map[string]string{
		"io.podman.annotations.checkpoint.runtime.name": "image_refused",
		"run.oci.hooks.stderr":                          "image_refused",
		"dev.gvisor.spec.mount.x.type":                  "image_refused",
		"org.example.harmless":                          "",
	} {
		name := emptyImage(t, e, nil, map[string]any{annotation: "1"})
		b, err := e.Start(minute(t), sandbox.Spec{Session: newSession(), Image: name})
		if want != "" {
			var typed *sandbox.Error
			require.ErrorAs(t, err, &typed, annotation)
			assert.Equal(t, want, typed.Reason, annotation)
			assert.Contains(t, typed.Message, annotation)
			continue
		}
		// The image is empty but for the guest's own needs; it starts all the same.
		require.NoError(t, err, annotation)
		call, err := e.service.call(minute(t))
		require.NoError(t, err)
		got, err := containers.Inspect(call, b.Info().ID, nil)
		require.NoError(t, err)
		assert.Empty(t, got.Config.Annotations[annotation], "its value does not reach the runtime")
		require.NoError(t, b.Remove(minute(t)))
	}
}

// emptyImage loads an image that holds nothing but folders, with a
// configuration and annotations of its manifest.
func emptyImage(t *testing.T, e *Engine, settings, annotations map[string]any) string {
	t.Helper()
	type blob = map[string]any
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	put := func(media string, data []byte) blob {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		files["blobs/sha256/"+digest] = data
		return blob{"mediaType": media, "digest": "sha256:" + digest, "size": len(data)}
	}
	toJSON := func(v any) []byte { b, err := json.Marshal(v); require.NoError(t, err); return b }

	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"etc/", "proc/", "sys/", "dev/", "tmp/", "run/"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}))
	}
	require.NoError(t, w.Close())
	l := put("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	merged := blob{"Labels": blob{"of": newToken()[:8]}} // no two are the same image
	maps.Copy(merged, settings)
	config := put("application/vnd.oci.image.config.v1+json", toJSON(blob{
		"architecture": runtime.GOARCH, "os": "linux", "config": merged,
		"rootfs": blob{"type": "layers", "diff_ids": []any{l["digest"]}},
	}))
	name := "localhost/pinfold-odd:" + newToken()[:10]
	m := put("application/vnd.oci.image.manifest.v1+json", toJSON(blob{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []any{l}, "annotations": annotations,
	}))
	m["annotations"] = blob{"org.opencontainers.image.ref.name": name}
	files["index.json"] = toJSON(blob{"schemaVersion": 2, "manifests": []any{m}})

	var archive bytes.Buffer
	w = tar.NewWriter(&archive)
	for path, data := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}))
		_, err := w.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	call, err := e.service.call(minute(t))
	require.NoError(t, err)
	_, err = images.Load(call, io.Reader(&archive))
	require.NoError(t, err)
	t.Cleanup(func() {
		call, err := e.service.call(minute(t))
		require.NoError(t, err)
		_, errs := images.Remove(call, []string{name}, new(images.RemoveOptions).WithForce(true))
		require.Empty(t, errs)
	})
	return name
}
