//go:build linux

package server

import (
	"io"
	"strings"
	"sync"
	"time"
)

// tail keeps the end of a stream.
type tail struct {
	mu   sync.Mutex
	b    []byte
	over chan struct{}
	init sync.Once
}

func (t *tail) ended() chan struct{} {
	t.init.Do(func() { t.over = make(chan struct{}) })
	return t.over
}

func (t *tail) from(r io.Reader) {
	defer close(t.ended())
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		t.mu.Lock()
		t.b = append(t.b, buf[:n]...)
		if len(t.b) > 2*stderrKept {
			t.b = append([]byte(nil), t.b[len(t.b)-stderrKept:]...)
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wait gives the stream of a process that ended a moment to end too.
func (t *tail) wait() {
	select {
	case <-t.ended():
	case <-time.After(time.Second):
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, _ := validText(t.b[max(0, len(t.b)-stderrKept):])
	return strings.TrimSpace(stripANSI(s))
}
