package browser

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "record pages from Chromium anew and rewrite the golden text")

// recording is what one look at a page brought, as it came from Chromium.
type recording struct {
	Frames []frameInfo         `json:"frames"`
	AX     map[string][]axNode `json:"ax"` // by frame id
	DOM    domSnapshot         `json:"dom"`
	View   [2]float64          `json:"view"`
}

// view rebuilds the look from the recording, as op.look does from the wire.
func (r *recording) view() *pageView {
	p := &pageView{view: rect{0, 0, r.View[0], r.View[1]}, docs: map[string]string{}}
	var docs []*domDoc
	byFrame := map[string]*domDoc{}
	for i := range r.DOM.Documents {
		d := index(&r.DOM, i)
		docs = append(docs, d)
		byFrame[d.str(d.raw.FrameID)] = d
	}
	for i, info := range r.Frames {
		p.docs[info.ID] = info.LoaderID
		f := &frame{frameInfo: info, n: i, dom: byFrame[info.ID]}
		f.take(r.AX[info.ID])
		p.frames = append(p.frames, f)
	}
	p.place(docs)
	return p
}

// Recorded pages give the same text as ever: a change of the golden text is a
// change of what every model sees.
func TestGoldenSnapshots(t *testing.T) {
	for _, name := range []string{"roles", "form", "b42", "b43", "b95", "b66"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".json")
			if *update {
				record(t, name, file)
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var r recording
			require.NoError(t, json.Unmarshal(data, &r))
			o := &op{t: &Tab{}}
			o.t.refs.init()
			var got strings.Builder
			for _, mode := range []string{"compact", "full", "interactive"} {
				p := r.view()
				root, built := o.build(p)
				rd := renderer{mode: mode}
				rd.render(root.kids, 0, -1, false)
				got.WriteString("== " + mode + "\n")
				for _, l := range rd.lines {
					got.WriteString(l.indent() + "\n")
				}
				if built.hidden > 0 && mode == "compact" {
					got.WriteString("(hidden)\n")
				}
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got.String())
		})
	}
}

// The same page read from its elements alone says the same in the main.
func TestGoldenWithoutAccessibility(t *testing.T) {
	data, err := os.ReadFile("testdata/roles.json")
	require.NoError(t, err)
	var r recording
	require.NoError(t, json.Unmarshal(data, &r))
	r.AX = nil
	o := &op{t: &Tab{}}
	o.t.refs.init()
	root, _ := o.build(r.view())
	rd := renderer{mode: "full"}
	rd.render(root.kids, 0, -1, false)
	var got strings.Builder
	for _, l := range rd.lines {
		got.WriteString(l.indent() + "\n")
	}
	for _, want := range []string{`"One" -> /one`, `"A picture"`, "plain item", `button`, `"Do"`, "bold", `disabled`} {
		assert.Contains(t, got.String(), want)
	}
	assert.NotContains(t, got.String(), "hidden part")
}

// record looks at a fixture with Chromium and keeps what it said, with the
// server's port taken out.
func record(t *testing.T, name, file string) {
	b, _ := use(t)
	open(t, b, fixture("/"+name))
	tab := b.byName("")
	ctx := callCtx(t)
	o := &op{b: b, t: tab, base: ctx, ctx: ctx}
	var r recording
	var err error
	r.Frames, err = o.frameDocs()
	require.NoError(t, err)
	view, _, err := o.metrics()
	require.NoError(t, err)
	r.View = [2]float64{view.w, view.h}
	require.NoError(t, o.call("DOMSnapshot.captureSnapshot", map[string]any{"computedStyles": styles, "includeDOMRects": true}, &r.DOM))
	r.AX = map[string][]axNode{}
	for _, f := range r.Frames {
		var res struct {
			Nodes []axNode `json:"nodes"`
		}
		require.NoError(t, o.call("Accessibility.getFullAXTree", map[string]any{"frameId": f.ID}, &res))
		r.AX[f.ID] = res.Nodes
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	data = []byte(strings.ReplaceAll(string(data), fixtures.s.URL, "http://localhost:8000"))
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(file, append(data, '\n'), 0o644))
}
