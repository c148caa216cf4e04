//go:build linux

package server

import (
	"strconv"
	"strings"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// result gives what came since the last answer, within most characters.
func (r *run) result(most int) sandbox.CodeResult {
	if most <= 0 || most > 200_000 {
		most = defaultShown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res := sandbox.CodeResult{Run: r.handle, Context: r.kernel.context, Language: "python", Status: r.status, Outputs: []sandbox.CodeOutput{}, Execution: r.count}
	end := r.ended
	if end.IsZero() {
		end = time.Now()
	}
	res.DurationMS = end.Sub(r.began).Milliseconds()
	if r.note != "" {
		res.Notes = append(res.Notes, r.note)
	}
	select {
	case <-r.kernel.dead:
		res.Kernel = "dead"
		res.Notes = append(res.Notes, "The kernel has ended: "+r.kernel.reason+". Its variables are gone; the next run starts a fresh one.")
	default:
		switch {
		case res.Status == "running":
			res.Kernel = "busy"
		case r.fresh:
			res.Kernel = "restarted"
		default:
			res.Kernel = "idle"
		}
	}
	if r.dropped > 0 {
		res.Notes = append(res.Notes, strconv.Itoa(r.dropped)+" more outputs were dropped.")
		res.Truncated = true
	}
	pictures := 0
	for _, o := range r.outs {
		if o.Type == "stdout" || o.Type == "stderr" {
			o.Text, o.Truncated = o.text.String(), o.Truncated || o.text.omitted > 0
		}
		if len(o.Data) > 0 {
			if pictures += len(o.Data); pictures > inlineImages {
				pictures -= len(o.Data)
				if o.Path == "" {
					o.Path = r.save(o.Data, o.MediaType)
				}
				o.Data = nil
				o.Text = strings.TrimSpace(o.Text + " (not shown: the answer holds enough pictures)")
			}
		}
	}
	share(r.outs, most)
	for _, o := range r.outs {
		res.Truncated = res.Truncated || o.Truncated
		res.Outputs = append(res.Outputs, o.CodeOutput)
	}
	r.outs, r.dropped, r.held = nil, 0, 0
	return res
}
