package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// streamWriter stands between the library and a connection. A request that is
// silent for a while becomes an event stream with comments, so that nothing in
// between cuts it; an answer that then comes as JSON is sent as an event. A
// request that ends without an answer, because it was cancelled, ends as an
// empty event stream, which no client takes amiss.
type streamWriter struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	silence time.Duration
	realID  json.RawMessage // what fakeID stands for; nil = nothing is hidden
	fakeID  json.RawMessage

	mu     sync.Mutex
	head   http.Header  // the library's, until it is sent
	sent   bool         // headers are out
	stream bool         // as an event stream
	ours   bool         // which we began
	held   bytes.Buffer // a JSON answer to be sent as an event
	timer  *time.Timer
	done   bool
}

func newStreamWriter(w http.ResponseWriter, silence time.Duration) *streamWriter {
	s := &streamWriter{w: w, c: http.NewResponseController(w), silence: silence, head: w.Header().Clone()}
	s.timer = time.AfterFunc(silence, s.beat)
	return s
}

func (s *streamWriter) Header() http.Header { return s.head }

func (s *streamWriter) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit(status)
}

// commit sends the library's headers unless an event stream has begun. The
// caller holds mu.
func (s *streamWriter) commit(status int) {
	if s.sent || s.done {
		return
	}
	s.sent = true
	s.stream = strings.HasPrefix(s.head.Get("Content-Type"), "text/event-stream")
	h := s.w.Header()
	for k, v := range s.head {
		h[k] = v
	}
	if s.stream {
		h.Set("X-Accel-Buffering", "no")
	}
	s.w.WriteHeader(status)
}

func (s *streamWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return len(b), nil
	}
	s.commit(http.StatusOK)
	if s.ours && !strings.HasPrefix(s.head.Get("Content-Type"), "text/event-stream") {
		s.held.Write(b)
		return len(b), nil
	}
	return len(b), s.put(b)
}

// put writes to the connection. The caller holds mu.
func (s *streamWriter) put(b []byte) error {
	if s.realID != nil {
		b = bytes.ReplaceAll(b, s.fakeID, s.realID)
	}
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.w.Write(b)
	s.timer.Reset(s.silence)
	return err
}

func (s *streamWriter) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent && !s.done {
		_ = s.c.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (s *streamWriter) Unwrap() http.ResponseWriter { return s.w }

// begin starts an event stream of our own. The caller holds mu.
func (s *streamWriter) begin() {
	s.sent, s.stream, s.ours = true, true, true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// beat breaks the silence.
func (s *streamWriter) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	if !s.sent {
		s.begin()
	}
	if s.stream {
		_ = s.put([]byte(": keep-alive\n\n"))
		_ = s.c.Flush()
	}
}

// finish sends what was held and ends the writer; the handler returns after it.
func (s *streamWriter) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
	if !s.sent {
		s.begin()
	}
	if s.held.Len() > 0 {
		b := bytes.TrimSpace(s.held.Bytes())
		_ = s.put(append(append([]byte("event: message\ndata: "), b...), "\n\n"...))
	}
	_ = s.c.Flush()
	s.timer.Stop()
	s.done = true
	_ = s.c.SetWriteDeadline(time.Time{})
}
