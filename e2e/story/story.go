package story

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // the pictures that results bring
	_ "image/png"
	"strings"
	"time"
)

//go:embed shop.py
var shop string

// analysis computes over the CSV that the browser downloaded and draws a chart.
const analysis = `import pandas as pd
import matplotlib.pyplot as plt
orders = pd.read_csv("CSV")
totals = orders.groupby("item")["amount"].sum().sort_index()
print(totals.to_string())
print("total:", int(totals.sum()))
fig, ax = plt.subplots(figsize=(5, 3))
totals.plot.bar(ax=ax, title="Orders")
fig.tight_layout()
fig.savefig("chart.png")
plt.show()
orders`

// Step is one call of the story and what came of it.
type Step struct {
	Say   string
	Tool  string
	Args  map[string]any
	Reply *Reply
	Took  time.Duration
}

// Told is what the story leaves for whoever told it.
type Told struct {
	Session string
	CSV     string // workspace path of the download
	Shot    *Reply
	Chart   *Reply
}

// Tell plays the whole story on a connected client: a web app is written,
// started, browsed and filled in; its CSV is downloaded, computed over and
// drawn; the session is closed. Each step is reported as it ends. Every answer
// is checked; the first that is wrong ends the story with an error.
func Tell(ctx context.Context, c Client, report func(Step)) (Told, error) {
	var told Told
	do := func(say, tool string, args map[string]any, ok func(r *Reply) string) (*Reply, error) {
		if told.Session != "" {
			args["session"] = told.Session
		}
		start := time.Now()
		r, err := c.Call(ctx, tool, args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tool, err)
		}
		report(Step{say, tool, args, r, time.Since(start)})
		if r.IsError {
			return r, fmt.Errorf("%s failed: %s", tool, r.Text)
		}
		if why := ok(r); why != "" {
			return r, fmt.Errorf("%s: %s; the answer was:\n%s", tool, why, r.Text)
		}
		if told.Session == "" {
			told.Session = r.Str("session")
		}
		return r, nil
	}
	fine := func(*Reply) string { return "" }
	has := func(what string) func(*Reply) string {
		return func(r *Reply) string {
			if !strings.Contains(r.Text, what) {
				return fmt.Sprintf("%q is not in the text", what)
			}
			return ""
		}
	}

	if _, err := do("write a small web app", "file_write", map[string]any{"path": "shop/app.py", "content": shop}, func(r *Reply) string {
		if r.Str("session") == "" {
			return "no session is named"
		}
		return ""
	}); err != nil {
		return told, err
	}
	if _, err := do("start it in the background", "shell_run", map[string]any{"command": "python3 shop/app.py", "background": true}, fine); err != nil {
		return told, err
	}
	if _, err := do("open it", "browser_navigate", map[string]any{"url": "http://localhost:8000/", "wait_server_ms": 15000}, has("Orders")); err != nil {
		return told, err
	}
	for _, order := range [][2]string{{"apples", "3"}, {"pears", "4"}, {"apples", "5"}} {
		if _, err := do("fill its form", "browser_act", map[string]any{"steps": []any{
			map[string]any{"do": "fill", "on": "label=Item", "text": order[0]},
			map[string]any{"do": "fill", "on": "label=Amount", "text": order[1]},
			map[string]any{"do": "click", "on": `role=button name="Add"`},
		}}, has(order[0])); err != nil {
			return told, err
		}
	}
	r, err := do("download its CSV", "browser_act", map[string]any{"steps": []any{
		map[string]any{"do": "click", "on": `role=link name="Download CSV"`},
	}}, has("downloads/"))
	if err != nil {
		return told, err
	}
	told.CSV = downloadPath(r.Text)
	if _, err := do("look at what the browser saved from the shell", "shell_run", map[string]any{"command": []any{"cat", told.CSV}}, has("apples,3")); err != nil {
		return told, err
	}
	if _, err := do("compute over it", "code_run", map[string]any{"language": "python", "code": strings.Replace(analysis, "CSV", told.CSV, 1)}, func(r *Reply) string {
		switch {
		case !strings.Contains(r.Text, "total: 12"):
			return "the total is not 12"
		case len(r.Images) == 0:
			return "no chart came back"
		}
		return picture(r, 200, 100)
	}); err != nil {
		return told, err
	}
	if told.Chart, err = do("read the chart", "file_read", map[string]any{"path": "chart.png"}, func(r *Reply) string { return picture(r, 200, 100) }); err != nil {
		return told, err
	}
	if told.Shot, err = do("take a screenshot", "browser_screenshot", map[string]any{}, func(r *Reply) string { return picture(r, 400, 300) }); err != nil {
		return told, err
	}
	_, err = do("close the session", "session_close", map[string]any{}, fine)
	return told, err
}

// downloadPath takes the workspace path of a download out of a reply's text.
func downloadPath(text string) string {
	i := strings.Index(text, "downloads/")
	path := text[i:]
	if end := strings.IndexAny(path, " \n\t,;)\"'"); end >= 0 {
		path = path[:end]
	}
	return path
}

// picture says what is wrong with a reply's first picture, "" if nothing.
func picture(r *Reply, w, h int) string {
	if len(r.Images) == 0 {
		return "no picture came back"
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(r.Images[0].Data))
	if err != nil {
		return "the picture does not decode: " + err.Error()
	}
	if c.Width < w || c.Height < h || c.Width > 1568 || c.Height > 1568 {
		return fmt.Sprintf("the picture has %d by %d pixels", c.Width, c.Height)
	}
	return ""
}

// Compact writes arguments on one line, cut for people.
func Compact(args map[string]any, most int) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // people read it
	if err := e.Encode(args); err != nil {
		return err.Error()
	}
	r := []rune(strings.TrimSpace(b.String()))
	if len(r) > most {
		return string(r[:most]) + "…"
	}
	return string(r)
}
