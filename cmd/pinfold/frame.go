package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// frameWriter writes data frames; it is safe for concurrent use.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frameWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:min(len(p), n+maxFrame/2)]
		if err := f.frame(frameData, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}

func (f *frameWriter) frame(t byte, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return writeFrame(f.w, t, body)
}

func writeFrame(w io.Writer, t byte, body []byte) error {
	b := make([]byte, 5, 5+len(body))
	b[0] = t
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

func readFrame(r io.Reader) (t byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d are taken", n, maxFrame)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

func writeMessage(w io.Writer, t byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, t, b)
}

func readMessage(r io.Reader, want byte, v any) error {
	t, body, err := readFrame(r)
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("a frame %q where %q was expected", t, want)
	}
	return json.Unmarshal(body, v)
}
