//go:build linux

package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ZMTP 3.0 as a Jupyter kernel speaks it: NULL mechanism, we connect, DEALER or
// SUB. It stands here, in two hundred lines, because the library there is
// (go-zeromq/zmq4) reads frames of any length into memory and brings its own
// reconnecting goroutines; a kernel is hostile, and one that goes away is dead.

// Bounds of what a kernel sends.
const (
	maxFrame    = 16 << 20 // a longer one is read and thrown away
	maxParts    = 64       // frames of a message
	maxMessage  = 32 << 20 // of all of its frames
	keptOfFrame = 64 << 10 // of one that is thrown away: enough to say what it was
	dialTimeout = 5 * time.Second
)

var errZMTP = errors.New("not ZMTP as a kernel speaks it")

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// peer is one connection to a socket of a kernel.
type peer struct {
	conn net.Conn
	r    *bufio.Reader
	mu   sync.Mutex // guards writes of whole messages
}

// parts is one message. cut is how many bytes of it were thrown away.
type parts struct {
	frames [][]byte
	cut    int64
}

// greet shakes hands on a fresh connection; it owns conn, on failure too.
func greetPeer(conn net.Conn, socketType string) (*peer, error) {
	p := &peer{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	err := p.greet(socketType)
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return p, nil
}

func (p *peer) greet(socketType string) error {
	var hello [64]byte
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	if _, err := p.conn.Write(hello[:]); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(p.r, theirs[:]); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9]&1 == 0 || theirs[10] < 3 || string(bytes.TrimRight(theirs[12:32], "\x00")) != "NULL" {
		return errZMTP
	}
	ready := []byte("\x05READY")
	ready = property(ready, "Socket-Type", socketType)
	ready = property(ready, "Identity", "")
	if err := p.write(frame(nil, flagCommand, ready)); err != nil {
		return err
	}
	flags, body, _, err := readFrame(p.r, maxFrame)
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("%w: no READY", errZMTP)
	}
	return nil
}

func property(b []byte, name, value string) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// frame appends one frame to b.
func frame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// send writes one message.
func (p *peer) send(frames [][]byte) error {
	var b []byte
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		b = frame(b, flags, f)
	}
	return p.write(b)
}

func (p *peer) write(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(dialTimeout)) // a kernel that reads nothing
	_, err := p.conn.Write(b)
	return err
}

// receive reads one message, whatever its size in bounded memory.
func (p *peer) receive() (parts, error) { return readParts(p.r) }

func readParts(r *bufio.Reader) (parts, error) {
	var m parts
	left := maxMessage
	for n := 0; ; n++ {
		if n > maxParts {
			return m, fmt.Errorf("%w: more than %d frames in a message", errZMTP, maxParts)
		}
		flags, body, cut, err := readFrame(r, min(maxFrame, left))
		if err != nil {
			return m, err
		}
		if flags&flagCommand != 0 {
			continue // PING and the like, which version 3.0 does not need answered
		}
		left -= len(body)
		m.frames = append(m.frames, body)
		m.cut += cut
		if flags&flagMore == 0 {
			return m, nil
		}
	}
}

// readFrame reads a frame. Of one over limit it keeps keptOfFrame bytes, half
// from each end, and counts the rest. Memory grows with what arrives, not with what the length claims.
func readFrame(r *bufio.Reader, limit int) (flags byte, body []byte, cut int64, err error) {
	flags, err = r.ReadByte()
	if err != nil {
		return 0, nil, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || (flags&flagCommand != 0 && flags&flagMore != 0) {
		return 0, nil, 0, fmt.Errorf("%w: flags %#x", errZMTP, flags)
	}
	var size uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, nil, 0, noEOF(err)
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, 0, noEOF(err)
		}
		size = uint64(b)
	}
	if size > 1<<40 {
		return 0, nil, 0, fmt.Errorf("%w: a frame of %d bytes", errZMTP, size)
	}
	if size > uint64(limit) {
		body = make([]byte, min(limit, keptOfFrame))
		cut = int64(size) - int64(len(body))
		half := len(body) / 2
		if _, err = io.ReadFull(r, body[:half]); err == nil {
			_, err = io.CopyN(io.Discard, r, cut)
		}
		if err == nil {
			_, err = io.ReadFull(r, body[half:])
		}
		return flags, body, cut, noEOF(err)
	}
	if size <= 64<<10 {
		body = make([]byte, size)
		_, err = io.ReadFull(r, body)
		return flags, body, 0, noEOF(err)
	}
	var b bytes.Buffer
	_, err = io.CopyN(&b, r, int64(size))
	return flags, b.Bytes(), 0, noEOF(err)
}

// noEOF tells an end within a frame from one between two.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
