package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A stream carries frames: one byte of type, four of length (big endian), then
// that many bytes. A call is one [FrameRequest], its body if it has one, then
// from the guest any number of events and data, closed by one result or error.
// A stream is used again for the next call once one has ended cleanly.
type FrameType byte

const (
	FrameRequest FrameType = 'Q' // host: JSON Request
	FrameData    FrameType = 'D' // either: a piece of a body
	FrameEnd     FrameType = 'E' // host: the body of the request is complete
	FrameCancel  FrameType = 'C' // host: give up this call; it still answers
	FrameEvent   FrameType = 'V' // guest: JSON, while the call goes on
	FrameResult  FrameType = 'R' // guest: JSON, the call is over
	FrameError   FrameType = 'X' // guest: JSON sandbox.Error, the call is over
)

// Bounds of a frame. A message holds an answer of at most a million
// characters, which JSON may write as six bytes each; a piece of a body is small
// so that calls share the link fairly.
const (
	MaxMessage = 8 << 20
	MaxData    = 64 << 10
	frameHead  = 5
)

// Request is the header of a call.
type Request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	Body bool            `json:"body,omitempty"` // data frames and an end frame follow
}

// ErrFrame is the error of a peer that does not keep to the frames; the link is
// ended.
var ErrFrame = errors.New("malformed frame")

// WriteFrame writes one frame in one Write.
func WriteFrame(w io.Writer, t FrameType, payload []byte) error {
	if len(payload) > MaxMessage {
		return fmt.Errorf("%w: %d bytes in a frame, at most %d", ErrFrame, len(payload), MaxMessage)
	}
	b := make([]byte, frameHead+len(payload))
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	copy(b[frameHead:], payload)
	_, err := w.Write(b)
	return err
}

// WriteMessage writes v as the JSON of one frame.
func WriteMessage(w io.Writer, t FrameType, v any) error {
	var b bytes.Buffer
	b.Write(make([]byte, frameHead))
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	f := b.Bytes()[:b.Len()-1] // without the encoder's newline
	if len(f)-frameHead > MaxMessage {
		return fmt.Errorf("%w: a message of %d bytes, at most %d", ErrFrame, len(f)-frameHead, MaxMessage)
	}
	f[0] = byte(t)
	binary.BigEndian.PutUint32(f[1:], uint32(len(f)-frameHead))
	_, err := w.Write(f)
	return err
}

// ReadFrame reads one frame of at most limit bytes, and nothing beyond it. The memory it takes grows
// with what arrives, not with what the length claims.
func ReadFrame(r io.Reader, limit int) (FrameType, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: ends within its head", ErrFrame)
		}
		return 0, nil, err
	}
	t, n := FrameType(head[0]), int(binary.BigEndian.Uint32(head[1:]))
	if t == FrameData {
		limit = min(limit, MaxData)
	}
	if n > limit {
		return 0, nil, fmt.Errorf("%w: %q of %d bytes, at most %d", ErrFrame, t, n, limit)
	}
	if n <= MaxData {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return 0, nil, fmt.Errorf("%w: cut short: %w", ErrFrame, err)
		}
		return t, b, nil
	}
	var b bytes.Buffer
	if m, err := io.CopyN(&b, r, int64(n)); err != nil {
		return 0, nil, fmt.Errorf("%w: %d of %d bytes: %w", ErrFrame, m, n, err)
	}
	return t, b.Bytes(), nil
}

// Decode decodes a message strictly: no unknown field, nothing after it.
func Decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the message")
	}
	return nil
}
