package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
	"time"
)

// ScreenshotRequest asks for a picture.
type ScreenshotRequest struct {
	Tab      string
	On       string // only this target
	FullPage bool
	Clip     []float64 // x, y, width, height in page coordinates
	Format   string    // png, jpeg; default png
	Quality  int       // of jpeg; default 70
	MaxSide  int       // of the inline picture; default 1568
	Save     string    // name of the file for the original
	NoInline bool
	OnDialog json.RawMessage
	Timeout  time.Duration
}

// Picture is a PNG or JPEG as Chromium made it. It is hostile: it is passed on
// and never decoded on the host.
type Picture struct {
	MediaType string
	Data      []byte
}

// ScreenshotResult is the picture and what is needed to read it.
type ScreenshotResult struct {
	Reply
	Picture Picture // empty when not inline
	Width   int     // of the inline picture, pixels
	Height  int
	// Scale is picture pixels per page pixel: a point of the picture divided by
	// it, plus X and Y, is a point of the page.
	Scale float64
	X, Y  float64
	Files []string // originals in the sandbox, tiles in order
}

const (
	// MaxSide bounds both sides of an inline picture.
	MaxSide = 1568
	// maxPixels is what models read without scaling down.
	maxPixels = 1_150_000
	// maxInline is the size above which an inline picture is made smaller.
	maxInline = 600_000
	// tileSide bounds a side of one saved picture; formats and GPUs end above.
	tileSide  = 4000
	maxTiles  = 12
	maxExtent = 100_000 // page pixels
	// DefaultScreenshotTimeout is used when a request has none.
	DefaultScreenshotTimeout = 20 * time.Second
)

// Screenshot takes a picture of the viewport, the whole page, a part of it or
// one element. Chromium itself scales, so nothing is decoded here.
func (b *Browser) Screenshot(ctx context.Context, r ScreenshotRequest) (ScreenshotResult, error) {
	var out ScreenshotResult
	answer, err := parseAnswer(r.OnDialog)
	if err != nil {
		return out, err
	}
	if err := r.fill(); err != nil {
		return out, err
	}
	err = b.on(ctx, common{tab: r.Tab, timeout: r.Timeout, answer: answer}, &out.Reply, func(o *op) error {
		if err := o.settleBriefly(); err != nil {
			return err
		}
		return o.screenshot(r, &out)
	})
	return out, err
}

func (r *ScreenshotRequest) fill() error {
	n := 0
	for _, given := range []bool{r.On != "", r.FullPage, len(r.Clip) > 0} {
		if given {
			n++
		}
	}
	if n > 1 {
		return fail("unsupported_arg", "Give one of them.", "on, full_page and clip exclude each other")
	}
	if len(r.Clip) > 0 {
		if len(r.Clip) != 4 || r.Clip[2] < 1 || r.Clip[3] < 1 {
			return fail("bad_value", "Give [x, y, width, height] in page pixels.", "clip: not a rectangle").with("field", "clip")
		}
		for _, v := range r.Clip {
			if math.IsNaN(v) || math.Abs(v) > maxExtent {
				return fail("bad_value", "Give [x, y, width, height] in page pixels.", "clip: out of range").with("field", "clip")
			}
		}
	}
	if r.Format == "" {
		r.Format = "png"
	}
	if r.Format != "png" && r.Format != "jpeg" {
		return fail("bad_value", "Use png or jpeg.", "format: %s is not made", quote(cut(cleanText(r.Format), 20))).with("field", "format")
	}
	if r.Save != "" && (r.Save != path.Base(r.Save) || cleanName(r.Save) != r.Save || strings.HasPrefix(r.Save, ".")) {
		return fail("bad_value", "Give a plain file name such as cart.png; it is saved under /session/browser.", "save: not a plain file name").with("field", "save")
	}
	if r.Quality <= 0 {
		r.Quality = 70
	}
	if r.MaxSide <= 0 || r.MaxSide > MaxSide {
		r.MaxSide = MaxSide
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultScreenshotTimeout
	}
	return nil
}

func (o *op) screenshot(r ScreenshotRequest, out *ScreenshotResult) error {
	area, beyond, err := o.area(r)
	if err != nil {
		return err
	}
	out.X, out.Y = area.x, area.y
	scale := math.Min(1, math.Min(float64(r.MaxSide)/area.w, float64(r.MaxSide)/area.h))
	scale = math.Min(scale, math.Sqrt(maxPixels/area.area()))
	out.Scale = scale
	var data []byte
	for range 5 {
		if data, err = o.capture(area, scale, r.Format, r.Quality, beyond); err != nil {
			return err
		}
		if len(data) <= maxInline {
			break
		}
		scale *= math.Sqrt(float64(maxInline) / float64(len(data)) * 0.9)
	}
	if len(data) > maxInline {
		return fail("bad_value", "Ask for jpeg, or for a smaller part with clip.", "the picture is larger than %d kB even when scaled down", maxInline/1000)
	}
	out.Scale = scale
	if !r.NoInline {
		out.Picture = Picture{MediaType: "image/" + r.Format, Data: data}
		out.Width, out.Height = int(math.Round(area.w*scale)), int(math.Round(area.h*scale))
	}
	return o.originals(r, area, scale, data, beyond, out)
}

// area is the rectangle of the page that is asked for.
func (o *op) area(r ScreenshotRequest) (area rect, beyond bool, err error) {
	view, page, err := o.metrics()
	if err != nil {
		return area, false, err
	}
	switch {
	case r.On != "":
		target, err := o.resolve(r.On)
		if err != nil {
			return area, false, err
		}
		if err := o.scrollTo(target); err != nil {
			return area, false, err
		}
		box, err := o.boxOf(target)
		if err != nil {
			return area, false, err
		}
		if view, _, err = o.metrics(); err != nil {
			return area, false, err
		}
		area, beyond = rect{box.x + view.x, box.y + view.y, box.w, box.h}, true
	case r.FullPage:
		area, beyond = rect{0, 0, math.Max(page.w, view.w), math.Max(page.h, view.h)}, true
	case len(r.Clip) == 4:
		area, beyond = rect{r.Clip[0], r.Clip[1], r.Clip[2], r.Clip[3]}, true
	default:
		area = view
	}
	area.w, area.h = math.Min(area.w, maxExtent), math.Min(area.h, maxExtent)
	if area.w < 1 || area.h < 1 {
		return area, false, fail("not_visible", "Take a browser_snapshot and choose something that is shown.", "there is nothing to see: it has no size")
	}
	return area, beyond, nil
}

// capture takes one picture; Chromium scales it.
func (o *op) capture(area rect, scale float64, format string, quality int, beyond bool) ([]byte, error) {
	params := map[string]any{"format": format, "clip": map[string]any{"x": area.x, "y": area.y, "width": area.w, "height": area.h, "scale": scale},
		"captureBeyondViewport": beyond, "optimizeForSpeed": false}
	if format == "jpeg" {
		params["quality"] = quality
	}
	var res struct {
		Data []byte `json:"data"`
	}
	if err := o.call("Page.captureScreenshot", params, &res); err != nil {
		return nil, err
	}
	if !pictureOf(res.Data, format) {
		return nil, fail("browser_gone", "Try again.", "Chromium sent something that is no %s", format)
	}
	return res.Data, nil
}

// pictureOf looks at the first bytes only.
func pictureOf(data []byte, format string) bool {
	if format == "png" {
		return len(data) > 24 && string(data[:8]) == "\x89PNG\r\n\x1a\n"
	}
	return len(data) > 4 && data[0] == 0xff && data[1] == 0xd8
}

// originals saves the picture in full size when the inline one is smaller or a
// name was given; what is too large for one file is cut into tiles.
func (o *op) originals(r ScreenshotRequest, area rect, scale float64, inline []byte, beyond bool, out *ScreenshotResult) error {
	if scale >= 1 && r.Save == "" && !r.NoInline {
		return nil
	}
	stem, ext := strings.TrimSuffix(r.Save, path.Ext(r.Save)), strings.Replace(r.Format, "jpeg", "jpg", 1)
	named := stem != ""
	save := func(data []byte, n, of int) error {
		name := ""
		switch {
		case !named:
			name = o.b.fileName("shot", ext)
		case of == 1:
			name = stem + "." + ext
		default:
			name = fmt.Sprintf("%s-%d.%s", stem, n, ext)
		}
		where, err := o.b.host.Save(o.ctx, name, data)
		if err != nil {
			if typedError(err) {
				return err
			}
			return fail("browser_gone", "Try again.", "the picture could not be saved").because(err)
		}
		out.Files = append(out.Files, where)
		return nil
	}
	if scale >= 1 {
		return save(inline, 1, 1)
	}
	tiles := int(math.Ceil(area.h / tileSide))
	w := math.Min(area.w, 2*tileSide)
	for i := range min(tiles, maxTiles) {
		part := rect{area.x, area.y + float64(i*tileSide), w, math.Min(tileSide, area.h-float64(i*tileSide))}
		data, err := o.capture(part, 1, r.Format, r.Quality, beyond)
		if err != nil {
			return err
		}
		if err := save(data, i+1, tiles); err != nil {
			return err
		}
	}
	return nil
}
