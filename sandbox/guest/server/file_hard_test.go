//go:build linux

package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// TestDiskFull writes to a file system of one megabyte, which takes root to
// make, in a mount namespace that ends with its thread.
func TestDiskFull(t *testing.T) { // A39
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	f, dir := testFiles(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and its mounts with it
		if !assert.NoError(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS)) || !assert.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")) ||
			!assert.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")) {
			return
		}
		get := func(name string) string {
			b, err := os.ReadFile(filepath.Join(dir, name))
			assert.NoError(t, err)
			return string(b)
		}
		old := strings.Repeat("old content\n", 40_000) // 480 kB
		for _, name := range []string{"plain", "linked"} {
			_, err := f.put(sandbox.WriteRequest{Path: name}, old[:100_000])
			assert.NoError(t, err)
		}
		assert.NoError(t, os.Link(filepath.Join(dir, "linked"), filepath.Join(dir, "twin")))
		big := strings.Repeat("x", 2<<20)
		for name, do := range map[string]func() error{
			"replace":          func() error { _, err := f.put(sandbox.WriteRequest{Path: "plain"}, big); return err },
			"append":           func() error { _, err := f.put(sandbox.WriteRequest{Path: "plain", Append: true}, big); return err },
			"replace a linked": func() error { _, err := f.put(sandbox.WriteRequest{Path: "linked"}, big); return err },
			// Fits once, as the spool, and not twice.
			"replace a linked, half": func() error { _, err := f.put(sandbox.WriteRequest{Path: "linked"}, big[:600_000]); return err },
			"append, half": func() error {
				_, err := f.put(sandbox.WriteRequest{Path: "plain", Append: true}, big[:600_000])
				return err
			},
			"new": func() error { _, err := f.put(sandbox.WriteRequest{Path: "new"}, big); return err },
			"edit": func() error {
				_, err := f.edit(context.Background(), sandbox.EditRequest{Path: "plain", Edits: []sandbox.Edit{{Old: "old content\n", New: strings.Repeat("y", 200), Count: 8333}}})
				return err
			},
		} {
			err := do()
			var e *sandbox.Error
			if assert.True(t, errors.As(err, &e), "%s: %v", name, err) {
				assert.Equal(t, sandbox.ResourceExhausted, e.Code, "%s: %v", name, err)
				assert.Equal(t, "no_space", e.Reason, name)
			}
			assert.Equal(t, old[:100_000], get("plain"), "%s: the original is intact", name)
			assert.Equal(t, old[:100_000], get("twin"), "%s: the original is intact", name)
		}
		names, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Len(t, names, 3, "nothing half-written is left")
	}()
	<-done
}

// TestWithoutOpenat2 runs the careful walk that stands in for openat2 on
// kernels that lack it, against the same traps.
func TestWithoutOpenat2(t *testing.T) {
	for _, without := range []bool{false, true} {
		f, dir := testFiles(t)
		f.noOpenat2.Store(without)
		put(t, dir, "real/file", "content")
		for link, to := range map[string]string{"l": "real/file", "dir": "real", "abs": dir + "/real", "loop": "loop", "up": "real/../l", "m1": "/proc/self/environ", "m2": "/proc/self/root", "m3": "m2", "fd": "/dev/fd"} {
			require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
		}
		for _, p := range []string{"l", "dir/file", "abs/file", "up", "./dir/../l", "real//file", "abs/../abs/./file", dir + "/l"} {
			r, err := f.read(context.Background(), sandbox.ReadRequest{Path: p})
			require.NoError(t, err, p)
			assert.Equal(t, "content", r.Text)
		}
		for p, reason := range map[string]string{"loop": "link_loop", "loop/x": "link_loop", "m1": "magic_link", "m2/etc/passwd": "magic_link", "m3/etc/passwd": "magic_link", "fd/0": "magic_link",
			"/proc/self/cwd/x": "magic_link", "/proc/self/environ": "magic_link", "/proc/thread-self/maps": "magic_link", "/proc/self/task": "magic_link", "no/such": "", "l/x": "not_a_directory"} {
			_, err := f.read(context.Background(), sandbox.ReadRequest{Path: p})
			var e *sandbox.Error
			require.ErrorAs(t, err, &e, p)
			assert.Equal(t, reason, e.Reason, "%s: %v", p, err)
		}
		r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "/proc/meminfo"})
		require.NoError(t, err)
		assert.Contains(t, r.Text, "MemTotal")
		_, err = f.openPlain(filepath.Join(dir, "dir/file"), unix.O_RDONLY)
		require.Error(t, err, "a link on the way")
		fd, err := f.openPlain(filepath.Join(dir, "real/file"), unix.O_RDONLY)
		require.NoError(t, err)
		unix.Close(fd)
	}
}

// TestReadsWhileTheFileChanges: no crash, no hang, whatever happens below.
func TestReadsWhileTheFileChanges(t *testing.T) { // A18 A23
	f, dir := testFiles(t)
	path := filepath.Join(dir, "f")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		big := bytes.Repeat([]byte("a line\n"), 400_000)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch i % 4 {
			case 0:
				_ = os.WriteFile(path, big, 0o644)
			case 1:
				_ = os.Truncate(path, 10)
			case 2:
				_ = os.Remove(path)
			case 3:
				_ = unix.Mkfifo(path, 0o644)
				_ = os.Remove(path)
			}
		}
	}()
	until := time.Now().Add(1500 * time.Millisecond)
	reads := 0
	for ; time.Now().Before(until); reads++ {
		began := time.Now()
		_, err := f.read(context.Background(), sandbox.ReadRequest{Path: "f", From: -5})
		if err != nil {
			assert.NotEqual(t, sandbox.Internal, sandbox.CodeOf(err), "%v", err)
		}
		require.Less(t, time.Since(began), time.Second)
	}
	close(stop)
	<-done
	assert.Greater(t, reads, 10)
}

func TestReadOfALargeFile(t *testing.T) {
	f, dir := testFiles(t)
	file, err := os.Create(filepath.Join(dir, "big"))
	require.NoError(t, err)
	line := []byte(strings.Repeat("z", 99) + "\n")
	chunk := bytes.Repeat(line, 10_000)
	for range 300 { // 300 MB
		_, err := file.Write(chunk)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "big", From: -2})
	require.NoError(t, err)
	t.Logf("300 MB in %v", time.Since(began))
	runtime.ReadMemStats(&after)
	assert.EqualValues(t, 3_000_000, r.Lines)
	assert.EqualValues(t, 2_999_999, r.From)
	assert.Equal(t, string(line)+string(line), r.Text)
	assert.NotEmpty(t, r.Hash)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "streamed")
}

func noise(w, h int) image.Image {
	r := rand.New(rand.NewPCG(1, 1))
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range img.Pix {
		img.Pix[i] = byte(r.Uint32())
	}
	return img
}

func TestImages(t *testing.T) { // C56 C58
	f, dir := testFiles(t)
	encode := func(name string, img image.Image) {
		var b bytes.Buffer
		switch filepath.Ext(name) {
		case ".png":
			require.NoError(t, png.Encode(&b, img))
		case ".jpg":
			require.NoError(t, jpeg.Encode(&b, img, nil))
		case ".gif":
			require.NoError(t, gif.Encode(&b, img, nil))
		}
		put(t, dir, name, b.String())
	}
	plain := image.NewUniform(color.RGBA{200, 10, 10, 255})
	big := image.NewRGBA(image.Rect(0, 0, 3840, 2160))
	for i := range big.Pix {
		big.Pix[i] = byte(i / 4000)
	}
	encode("4k.png", big)
	encode("noise.png", noise(1500, 1500))
	encode("noise.jpg", noise(1568, 1568))
	small := image.NewRGBA(image.Rect(0, 0, 30, 20))
	for i := range small.Pix {
		small.Pix[i] = 255
	}
	encode("small.png", small)
	encode("photo.jpg", big)
	encode("anim.gif", image.NewPaletted(image.Rect(0, 0, 2000, 10), color.Palette{plain.C, color.White}))
	for _, name := range []string{"4k.png", "noise.png", "noise.jpg", "small.png", "photo.jpg", "anim.gif"} {
		r, err := f.read(context.Background(), sandbox.ReadRequest{Path: name, MaxBytes: 1 << 30})
		require.NoError(t, err, name)
		require.Equal(t, "image", r.Kind, name)
		c, kind, err := image.DecodeConfig(bytes.NewReader(r.Data))
		require.NoError(t, err, name)
		assert.Equal(t, "image/"+kind, r.MediaType)
		assert.Contains(t, []string{"image/png", "image/jpeg"}, r.MediaType)
		assert.LessOrEqual(t, max(c.Width, c.Height), 1568, name)
		assert.LessOrEqual(t, len(r.Data), maxImageBytes, name)
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, digest(raw), r.Hash, "of the file, not of what is shown")
		assert.EqualValues(t, len(raw), r.Size)
		if name == "small.png" {
			assert.Equal(t, raw, r.Data, "as it came")
		}
	}
	r, err := f.read(context.Background(), sandbox.ReadRequest{Path: "4k.png", As: "base64", MaxBytes: 1000})
	require.NoError(t, err)
	assert.True(t, r.Truncated)
	assert.LessOrEqual(t, len(r.Text), 1000)

	// Headers that promise more than anyone should decode.
	header := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x01\x00\x00\x00\x01\x00\x00\x08\x06\x00\x00\x00")
	put(t, dir, "bomb.png", string(append(header, 0xc9, 0xbe, 0x18, 0x29)))
	put(t, dir, "cut.png", get(t, filepath.Join(dir, "4k.png"))[:5000])
	put(t, dir, "not.png", "\x89PNG\r\n\x1a\nnothing of the kind")
	for _, name := range []string{"bomb.png", "cut.png", "not.png"} {
		_, err := f.read(context.Background(), sandbox.ReadRequest{Path: name})
		assert.Equal(t, sandbox.FailedPrecondition, code(t, err), name)
		r, err := f.read(context.Background(), sandbox.ReadRequest{Path: name, As: "hex", To: 2})
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(r.Text, "00000000: 8950 4e47 0d0a 1a0a"), r.Text)
	}
}

func TestRawReadsGoOn(t *testing.T) { // C52
	f, dir := testFiles(t)
	raw := make([]byte, 10_000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	put(t, dir, "bin", string(raw))
	var all strings.Builder
	for line := int64(1); line > 0; {
		res, err := f.read(context.Background(), sandbox.ReadRequest{Path: "bin", As: "base64", From: line, MaxBytes: 2000})
		require.NoError(t, err)
		all.WriteString(res.Text)
		line = res.NextLine
	}
	got, err := base64All(all.String())
	require.NoError(t, err)
	assert.Equal(t, raw, got)
}

func base64All(s string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.ReplaceAll(s, "\n", ""))
}
