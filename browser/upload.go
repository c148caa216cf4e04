package browser

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// maxUpload bounds one file that is handed to a page.
const maxUpload = 512 << 20

// uploadStep hands files of the workspace to a file input, or to the chooser
// that a click opens. The files are checked before the page is touched:
// Chromium takes a missing one for an empty one.
func (o *op) uploadStep(s Step, limit time.Duration) (string, error) {
	var files []string
	var sizes []int64
	for _, f := range s.Files {
		if !o.b.opts.inWorkspace(f) {
			return "", fail("file_outside_workspace", "Copy it into the workspace first.", "%s lies outside of the workspace", quote(cut(cleanText(f), 200)))
		}
		where, n, err := o.b.host.Export(o.ctx, f)
		if err != nil {
			if typedError(err) {
				return "", err
			}
			return "", fail("file_missing", "Look with file_list.", "%s cannot be read in the workspace", quote(cut(cleanText(f), 200))).because(err)
		}
		if n > maxUpload {
			return "", fail("bad_value", "Give a smaller file.", "%s is larger than 512 MB", quote(cut(cleanText(f), 200)))
		}
		files, sizes = append(files, where), append(sizes, n)
	}
	h, err := o.resolve(s.On)
	if err != nil {
		return "", err
	}
	f, err := o.field(h)
	if err != nil {
		return "", err
	}
	backend, frameID, multiple := h.key.backend, h.key.frame, f.Multiple
	if f.Kind != "file" {
		if backend, multiple, err = o.openChooser(s, h, limit); err != nil {
			return "", err
		}
		frameID = ""
	}
	if len(files) > 1 && !multiple {
		return "", fail("bad_value", "Give one file.", "%s takes one file", h).with("field", "files")
	}
	if err := o.call("DOM.setFileInputFiles", map[string]any{"files": files, "backendNodeId": backend}, nil); err != nil {
		return "", err
	}
	var have []any
	if err := o.callIn(backend, frameID, `function() { return Array.from(this.files || []).map(f => f.size) }`, nil, &have); err != nil {
		return h.String(), err
	}
	if len(have) == 0 {
		return h.String() + ": handed over; the page took the files at once", nil
	}
	var names []string
	for i, v := range have {
		if n, _ := v.(float64); i < len(sizes) && int64(n) != sizes[i] {
			return "", fail("file_missing", "Try again.", "%s arrived with %d bytes of %d", quote(s.Files[i]), int64(n), sizes[i])
		}
		if i < len(s.Files) {
			names = append(names, fmt.Sprintf("%s (%s)", path.Base(s.Files[i]), bytesText(sizes[i])))
		}
	}
	return h.String() + " = " + strings.Join(names, ", "), nil
}

// inWorkspace looks at the words of a path; links are the host's to resolve.
func (o Options) inWorkspace(p string) bool {
	if !path.IsAbs(p) {
		p = path.Join(o.Workspace, p)
	}
	return strings.HasPrefix(path.Clean(p), path.Clean(o.Workspace)+"/")
}

// openChooser clicks what opens a file chooser and returns its input.
func (o *op) openChooser(s Step, h *hit, limit time.Duration) (int64, bool, error) {
	if err := o.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil); err != nil {
		return 0, false, err
	}
	defer func() {
		_ = o.t.sess.Call(o.ctx, "Page.setInterceptFileChooserDialog", map[string]any{"enabled": false}, nil)
	}()
	o.t.mu.Lock()
	o.t.chooser = nil
	o.t.mu.Unlock()
	a, err := o.aimAt(h, s.Offset, s.Force, limit)
	if err != nil {
		return 0, false, err
	}
	if err := o.clickAt(a.x, a.y, "left", 1, 0); err != nil {
		return 0, false, err
	}
	if err := o.within(2*time.Second, func() bool { return o.t.chooser != nil }); err != nil {
		return 0, false, err
	}
	o.t.mu.Lock()
	c := o.t.chooser
	o.t.mu.Unlock()
	if c == nil || c.BackendNodeID == 0 {
		return 0, false, fail("wrong_element", "Use the file input of the snapshot, or the button that opens the chooser.", "%s is no file input and opened no file chooser", h)
	}
	return int64(c.BackendNodeID), strings.Contains(strings.ToLower(string(c.Mode)), "multiple"), nil
}
