package browser

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// waitFor waits for one condition and says which held after how long.
func (o *op) waitFor(s Step) (string, error) {
	start := time.Now()
	if s.MS > 0 {
		return fmt.Sprintf("%d ms", s.MS), o.sleep(time.Duration(s.MS) * time.Millisecond)
	}
	text := ""
	if s.Text != nil {
		text = *s.Text
	}
	what, err := o.hold(text, s.On, s.Conditions)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s after %d ms", what, time.Since(start).Milliseconds()), nil
}

// expect checks what must hold after the steps; it waits for it a little.
func (o *op) expect(r ActRequest, out *ActResult) error {
	text := ""
	if r.Expect.Text != nil {
		text = *r.Expect.Text
	}
	held, err := o.timed(min(r.Timeout, 5*time.Second), func(o *op) (string, error) { return o.hold(text, r.Expect.On, r.Expect.Conditions) })
	if err != nil {
		if isReason(err, "timeout") {
			e := fail("expectation_failed", "The steps were done; look at the page before doing them again.", "expected, but not so: %s", plain(err))
			out.Expected = plain(err)
			return o.stepErrorDone(e, out)
		}
		return err
	}
	out.Expected = held
	return nil
}

func (o *op) stepErrorDone(e *Error, out *ActResult) error {
	return e.with("steps_done", out.Done).with("steps_left", out.Left)
}

// hold waits until every given condition holds.
func (o *op) hold(text, on string, c Conditions) (string, error) {
	var held []string
	for _, check := range []struct {
		given bool
		what  string
		test  func() (bool, string, error)
	}{
		{text != "", "text " + quote(cut(cleanText(text), 60)), func() (bool, string, error) { return o.hasText(text) }},
		{c.TextGone != "", "text gone " + quote(cut(cleanText(c.TextGone), 60)), func() (bool, string, error) {
			has, _, err := o.hasText(c.TextGone)
			return !has, "it is still there", err
		}},
		{c.URL != "", "url " + quote(cut(c.URL, 100)), func() (bool, string, error) { return o.hasURL(c.URL) }},
		{on != "", firstOf("visible", c.State) + " " + cut(cleanText(on), 60), func() (bool, string, error) { return o.hasState(on, firstOf("visible", c.State)) }},
		{c.Download, "download", o.noDownload},
	} {
		if !check.given {
			continue
		}
		if err := o.poll(check.what, check.test); err != nil {
			return strings.Join(held, ", "), err
		}
		held = append(held, check.what)
	}
	return strings.Join(held, ", "), nil
}

// poll tries until a test holds; on timeout it tells what was seen instead.
func (o *op) poll(what string, test func() (bool, string, error)) error {
	seen := ""
	for wait := 40 * time.Millisecond; ; wait = min(wait*3/2, 400*time.Millisecond) {
		ok, evidence, err := test()
		if err != nil && o.ctx.Err() == nil {
			return err
		}
		if err == nil {
			seen = evidence
		}
		if ok && err == nil {
			return nil
		}
		if o.sleep(wait) != nil {
			if cause := context.Cause(o.ctx); cause != nil && typedError(cause) {
				return cause
			}
			m := "waited for " + what
			if seen != "" {
				m += "; " + seen
			}
			return fail("timeout", "Look at the page, or raise timeout_ms.", "%s", m)
		}
	}
}

func (o *op) hasText(want string) (bool, string, error) {
	p, err := o.look()
	if err != nil {
		return false, "", err
	}
	root, _ := o.build(p)
	all := strings.ToLower(joinText(root.kids, 1<<20))
	want = strings.ToLower(cleanText(want))
	if strings.Contains(all, want) {
		return true, "", nil
	}
	near := ""
	if words := strings.Fields(want); len(words) > 1 {
		if i := strings.Index(all, words[0]); i >= 0 {
			near = "similar: " + quote(cut(all[i:], 60))
		}
	}
	return false, near, nil
}

func (o *op) hasURL(glob string) (bool, string, error) {
	var s strings.Builder
	for i, part := range strings.Split(glob, "*") {
		if i > 0 {
			s.WriteString(".*")
		}
		s.WriteString(regexp.QuoteMeta(part))
	}
	re, err := regexp.Compile(s.String())
	if err != nil {
		return false, "", fail("bad_value", "Give an address with * for any part.", "url: %s", quote(cut(cleanText(glob), 100)))
	}
	o.t.mu.Lock()
	url := o.t.url
	o.t.mu.Unlock()
	return re.MatchString(url), "the address is " + cut(cleanText(url), maxURL), nil
}

func (o *op) hasState(on, state string) (bool, string, error) {
	h, err := o.resolve(on)
	switch {
	case isReason(err, "not_found"), isReason(err, "stale_ref"):
		return state == "hidden", "it is not on the page", nil
	case err != nil:
		return false, "", err
	}
	box, err := o.boxOf(h)
	visible := err == nil && box.area() >= 1
	if err != nil && !isReason(err, "not_visible") {
		return false, "", err
	}
	switch state {
	case "visible":
		return visible, "it has no size", nil
	case "hidden":
		return !visible, "it is visible", nil
	}
	s, err := o.stateOf(h)
	return err == nil && !s.disabled && visible, "it is disabled", err
}

// noDownload holds once a download that this call saw is in the workspace.
func (o *op) noDownload() (bool, string, error) {
	open, _ := o.b.downloads.openSince(0)
	if len(open) > 0 {
		return false, fmt.Sprintf("%s of %s arrived", bytesText(open[0].received), quote(open[0].name)), nil
	}
	return o.b.downloads.seq() > 0, "no download began", nil
}
