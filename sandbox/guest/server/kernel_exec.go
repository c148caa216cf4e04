//go:build linux

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// run is one execution and what it has shown since the last answer.
type run struct {
	handle  string
	kernel  *kernel
	id      string // of the request
	began   time.Time
	replied chan struct{}
	once    sync.Once     // closes replied
	inside  chan struct{} // closed once the kernel runs the code
	enter   sync.Once     // closes inside
	done    chan struct{}

	mu       sync.Mutex
	status   string // running, then how it ended
	reason   string
	stopping string // how it will have ended: timed_out, interrupted
	ended    time.Time
	timer    *time.Timer
	idle     bool
	reply    string
	count    int
	fresh    bool
	note     string
	outs     []*shown
	dropped  int
	clear    bool // before the next output
	held     int  // bytes of pictures
	files    int
	last     string // last line printed
}

func newRun(kn *kernel, handle string) *run {
	return &run{handle: handle, kernel: kn, began: time.Now(), status: "running", replied: make(chan struct{}), inside: make(chan struct{}), done: make(chan struct{})}
}

// limit interrupts the run after d, and ends the kernel if that does not help.
func (r *run) limit(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		r.timer = time.AfterFunc(d, func() { r.stop("timed_out") })
	}
}

// stop interrupts the run; a kernel that does not react is ended.
func (r *run) stop(why string) {
	r.mu.Lock()
	over := !r.ended.IsZero()
	if r.stopping == "" {
		r.stopping = why
	}
	r.mu.Unlock()
	if over {
		return
	}
	r.kernel.k.wg.Go(func() {
		over, cancel := context.WithTimeout(context.Background(), interruptGrace)
		defer cancel()
		// Before the code runs an interrupt would hit the kernel's own loop, which
		// then loses the request and never answers it. The kernel says that it takes
		// the code a little before it runs it.
		select {
		case <-r.done:
			return
		case <-r.inside:
		case <-over.Done():
		}
		select {
		case <-r.done:
			return
		case <-time.After(time.Until(r.began.Add(interruptNot))):
			r.kernel.interrupt()
		}
		select {
		case <-r.done:
		case <-over.Done():
			r.kernel.fail("it did not react to an interrupt and was ended")
		}
	})
}

// end ends the run once and gives the kernel's turn on.
func (r *run) end(status, reason string) {
	r.mu.Lock()
	if !r.ended.IsZero() {
		r.mu.Unlock()
		return
	}
	r.ended, r.status, r.reason = time.Now(), status, reason
	if r.stopping != "" {
		r.status = r.stopping
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.markReplied()
	close(r.done)
	if r.handle != "" {
		r.kernel.turn <- struct{}{}
	}
}

func (r *run) markReplied() { r.once.Do(func() { close(r.replied) }) }

func (r *run) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		return time.Since(r.began)
	}
	return r.ended.Sub(r.began)
}

func (r *run) lastLine() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clipLine([]byte(r.last), 0, 200)
}

// take takes one message of the run and reports whether it was the last.
func (r *run) take(m kernelMessage) bool {
	switch m.Type {
	case "execute_input":
		r.enter.Do(func() { close(r.inside) })
	case "execute_reply":
		var c replyContent
		if json.Unmarshal(m.Content, &c) != nil || c.Status == "" {
			// Too large to be taken whole, as with an error whose text is. It is the end all the same.
			c.Status = "error"
			if bytes.Contains(m.Content[:min(len(m.Content), 100)], []byte(`"status": "ok"`)) {
				c.Status = "ok"
			}
		}
		r.mu.Lock()
		r.reply, r.count = c.Status, c.Count
		r.mu.Unlock()
		r.markReplied()
		return r.maybeEnd()
	case "status":
		var c stateContent
		_ = json.Unmarshal(m.Content, &c)
		r.mu.Lock()
		r.idle = r.idle || c.State == "idle"
		r.mu.Unlock()
		return r.maybeEnd()
	case "stream", "display_data", "execute_result", "update_display_data", "error", "clear_output":
		r.mu.Lock()
		defer r.mu.Unlock()
		r.output(m)
	}
	return false
}

func (r *run) maybeEnd() bool {
	r.mu.Lock()
	over, status := r.idle && r.reply != "", r.reply
	r.mu.Unlock()
	if !over {
		return false
	}
	switch status {
	case "ok", "error":
	case "aborted", "abort":
		status = "interrupted"
	default:
		status = "error"
	}
	r.end(status, "")
	return true
}
