package browser

import (
	"bytes"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func decode(t *testing.T, data []byte) image.Image {
	t.Helper()
	i, _, err := image.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	return i
}

func shoot(t *testing.T, b *Browser, r ScreenshotRequest) ScreenshotResult {
	t.Helper()
	s, err := b.Screenshot(callCtx(t), r)
	require.NoError(t, err)
	return s
}

func TestScreenshotOfTheView(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/roles"))
	s := shoot(t, b, ScreenshotRequest{})
	i := decode(t, s.Picture.Data)
	assert.Equal(t, s.Width, i.Bounds().Dx())
	assert.Equal(t, s.Height, i.Bounds().Dy())
	assert.Equal(t, 1280, s.Width)
	assert.Equal(t, "image/png", s.Picture.MediaType)
	assert.Empty(t, s.Files)
	if dir := os.Getenv("PINFOLD_SHOTS"); dir != "" {
		require.NoError(t, os.WriteFile(dir+"/view.png", s.Picture.Data, 0o644))
	}
	s = shoot(t, b, ScreenshotRequest{MaxSide: 400, Format: "jpeg"})
	i = decode(t, s.Picture.Data)
	assert.LessOrEqual(t, i.Bounds().Dx(), 400)
	assert.Equal(t, "image/jpeg", s.Picture.MediaType)
	assert.InDelta(t, 400.0/1280, s.Scale, 0.01)
	require.Len(t, s.Files, 1, "B11: the original in a file")
	full, err := os.ReadFile(s.Files[0])
	require.NoError(t, err)
	assert.Equal(t, 1280, decode(t, full).Bounds().Dx())
}

func TestB10HighPageIsTiled(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/12000"))
	s := shoot(t, b, ScreenshotRequest{FullPage: true, Save: "high.png"})
	i := decode(t, s.Picture.Data)
	assert.LessOrEqual(t, i.Bounds().Dy(), MaxSide)
	assert.Len(t, s.Files, 4)
	height := 0
	for k, f := range s.Files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		h := decode(t, data).Bounds().Dy()
		assert.LessOrEqual(t, h, tileSide)
		height += h
		if dir := os.Getenv("PINFOLD_SHOTS"); dir != "" && k == 1 {
			require.NoError(t, os.WriteFile(dir+"/tile.png", data, 0o644))
		}
	}
	assert.Greater(t, height, 12000)
	if dir := os.Getenv("PINFOLD_SHOTS"); dir != "" {
		require.NoError(t, os.WriteFile(dir+"/high.png", s.Picture.Data, 0o644))
	}
}

func TestScreenshotOfAPart(t *testing.T) {
	b, _ := use(t)
	open(t, b, fixture("/b41"))
	s := shoot(t, b, ScreenshotRequest{On: "text=Deep button"})
	assert.Less(t, s.Width, 300)
	assert.Greater(t, s.Y, 2000.0, "in page pixels")
	if dir := os.Getenv("PINFOLD_SHOTS"); dir != "" {
		require.NoError(t, os.WriteFile(dir+"/part.png", s.Picture.Data, 0o644))
	}
	s = shoot(t, b, ScreenshotRequest{Clip: []float64{0, 2400, 300, 200}})
	assert.Equal(t, 300, s.Width)
	assert.Equal(t, 200, s.Height)
	s = shoot(t, b, ScreenshotRequest{NoInline: true})
	assert.Empty(t, s.Picture.Data)
	assert.Len(t, s.Files, 1)
	for _, bad := range []ScreenshotRequest{{FullPage: true, On: "e1"}, {Clip: []float64{1, 2, 3}}, {Clip: []float64{0, 0, 0, 5}}, {Format: "gif"}, {Save: "../x.png"}, {Save: "a/b.png"}} {
		_, err := b.Screenshot(callCtx(t), bad)
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "invalid_argument", e.Code)
	}
}
