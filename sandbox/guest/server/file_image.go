//go:build linux

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"

	"pinfold.dev/pinfold/sandbox"
)

const (
	maxSide       = 1568     // pixels: what models look at; more is scaled away by them
	maxImageBytes = 600_000  // so that one result, in base64, stays under 900 kB
	maxImageFile  = 64 << 20 // read at most
	maxDecode     = 10 * time.Second
	maxPixels     = 36 << 20 // decoded at most: an 8K frame; judged before decoding
)

// imageTurn lets one picture be decoded at a time, which bounds memory.
var imageTurn sync.Mutex

func decodable(mediaType string) bool {
	switch mediaType {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

func readImage(res *sandbox.ReadResult, src io.ReaderAt, n int64) error {
	if n > maxImageFile {
		return sandbox.Errorf(sandbox.ResourceExhausted, "Scale it down first, with code_run.", "%s: an image of %d bytes is too large to show (at most %d)", res.Path, n, maxImageFile)
	}
	raw, err := io.ReadAll(io.NewSectionReader(src, 0, n))
	if err != nil {
		return fileError("read", res.Path, err)
	}
	p, err := shrink(raw, res.MediaType)
	res.Width, res.Height = p.width, p.height
	if err != nil {
		return sandbox.Errorf(sandbox.FailedPrecondition, "as=hex shows its bytes; code_run can look into it.", "%s: %v", res.Path, err)
	}
	res.Kind, res.MediaType, res.Data = "image", p.mediaType, p.data
	return nil
}

type picture struct {
	mediaType     string
	data          []byte
	width, height int // as it came
}

// shrink bounds a picture in pixels and bytes. What fits already is left as it
// came, if it is PNG or JPEG; of an animation the first frame is kept.
func shrink(raw []byte, mediaType string) (picture, error) {
	var p picture
	config, decode := png.DecodeConfig, png.Decode
	switch mediaType {
	case "image/png":
	case "image/jpeg":
		config, decode = jpeg.DecodeConfig, jpeg.Decode
	case "image/gif":
		config, decode = gif.DecodeConfig, gif.Decode
	case "image/webp":
		config, decode = webp.DecodeConfig, webp.Decode
	default:
		return p, fmt.Errorf("%s cannot be shown", mediaType)
	}
	c, err := config(bytes.NewReader(raw))
	if err != nil {
		return p, fmt.Errorf("not a sound %s file (%w)", mediaType, err)
	}
	p.width, p.height = c.Width, c.Height
	if c.Width <= 0 || c.Height <= 0 || int64(c.Width)*int64(c.Height) > maxPixels {
		return p, fmt.Errorf("an image of %d × %d pixels is too large to show", c.Width, c.Height)
	}
	imageTurn.Lock()
	defer imageTurn.Unlock()
	// A file may ask for any number of passes over its pixels: the reader ends in time.
	ctx, cancel := context.WithTimeout(context.Background(), maxDecode)
	defer cancel()
	img, err := decode(contextReader{ctx, bytes.NewReader(raw)})
	if err != nil {
		return p, fmt.Errorf("not a sound %s file (%w)", mediaType, err)
	}
	fits := c.Width <= maxSide && c.Height <= maxSide
	if fits && len(raw) <= maxImageBytes && (mediaType == "image/png" || mediaType == "image/jpeg") {
		p.mediaType, p.data = mediaType, raw
		return p, nil
	}
	if int64(c.Width)*int64(c.Height) > 4<<20 {
		defer debug.FreeOSMemory()
	}
	for side := maxSide; side >= 64; side = side * 2 / 3 {
		img = scale(img, side)
		if p.mediaType, p.data = encode(img, mediaType); len(p.data) > 0 && len(p.data) <= maxImageBytes {
			return p, nil
		}
	}
	return p, errors.New("the image could not be made small enough")
}

// encode prefers PNG for what came without loss, and JPEG where PNG is too big.
func encode(img image.Image, from string) (string, []byte) {
	var b bytes.Buffer
	if from != "image/jpeg" {
		if png.Encode(&b, img) == nil && b.Len() <= maxImageBytes {
			return "image/png", b.Bytes()
		}
	}
	for _, q := range []int{88, 75} {
		b.Reset()
		if jpeg.Encode(&b, opaque(img), &jpeg.Options{Quality: q}) == nil && b.Len() <= maxImageBytes {
			break
		}
	}
	return "image/jpeg", b.Bytes()
}

func scale(img image.Image, side int) image.Image {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	if w <= side && h <= side {
		return img
	}
	if w >= h {
		w, h = side, max(1, h*side/w)
	} else {
		w, h = max(1, w*side/h), side
	}
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.ApproxBiLinear.Scale(out, out.Bounds(), img, b, draw.Src, nil)
	return out
}

// opaque lays a picture on white, since JPEG knows no transparency.
func opaque(img image.Image) image.Image {
	if o, ok := img.(interface{ Opaque() bool }); ok && o.Opaque() {
		return img
	}
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Over)
	return out
}
