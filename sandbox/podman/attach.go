package podman

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/errorhandling"
)

// frameMax bounds a frame of the service's stream; Podman sends at most 32 KiB.
const frameMax = 1 << 20

// stderrKept is how much of a process's stderr is kept for messages.
const stderrKept = 64 << 10

// hijacked is the raw stream behind an attach or an exec: stdin as it is, and
// stdout and stderr in frames of eight bytes header. It is a net.Conn of stdin
// and stdout; stderr is kept apart.
//
// The bindings' own way swaps the transport of the shared client, which races
// with every other call, so the upgrade is made here.
type hijacked struct {
	conn   *net.UnixConn
	stderr *tail

	rmu    sync.Mutex
	r      *bufio.Reader
	head   [8]byte // of the frame being read
	got    int     // bytes of head read so far
	left   int     // of the frame's body
	isErr  bool    // the frame is stderr
	closed sync.Once
}

// hijack posts to path and returns the stream the service answers with.
func (s *service) hijack(ctx context.Context, path string, query url.Values, body any) (*hijacked, error) {
	if _, err := s.call(ctx); err != nil { // starts the service when it is gone
		return nil, err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r, err := upgrade(conn, path, query, body)
	if !stop() || err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, fromContext(ctx.Err())
		}
		return nil, err
	}
	return &hijacked{conn: conn, r: r, stderr: &tail{max: stderrKept}}, nil
}

func newReader(c net.Conn) *bufio.Reader { return bufio.NewReaderSize(c, 64<<10) }

func upgrade(conn net.Conn, path string, query url.Values, body any) (*bufio.Reader, error) {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	u := url.URL{Scheme: "http", Host: "d", Path: "/v4.0.0/libpod" + path, RawQuery: query.Encode()}
	req, err := http.NewRequest(http.MethodPost, u.String(), bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	req.Header.Set("Content-Type", "application/json")
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("asking for a stream: %w", err)
	}
	r := newReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("reading answer: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		model := &errorhandling.ErrorModel{}
		if json.Unmarshal(text, model) != nil || model.Message == "" {
			model.Message = string(text)
		}
		model.ResponseCode = resp.StatusCode
		return nil, model
	}
	return r, nil
}

// Read returns stdout. A deadline that passes inside a frame loses nothing.
func (h *hijacked) Read(p []byte) (int, error) {
	h.rmu.Lock()
	defer h.rmu.Unlock()
	for {
		if h.left == 0 {
			if err := h.header(); err != nil {
				return 0, err
			}
			continue
		}
		if h.isErr {
			var buf [4096]byte
			n, err := h.r.Read(buf[:min(len(buf), h.left)])
			h.left -= n
			_, _ = h.stderr.Write(buf[:n])
			if err != nil {
				return 0, err
			}
			continue
		}
		n, err := h.r.Read(p[:min(len(p), h.left)])
		h.left -= n
		return n, err
	}
}

// header reads the next frame's header.
func (h *hijacked) header() error {
	for h.got < len(h.head) {
		n, err := h.r.Read(h.head[h.got:])
		h.got += n
		if err != nil {
			return err
		}
	}
	h.got = 0
	size := binary.BigEndian.Uint32(h.head[4:])
	if size > frameMax {
		return fmt.Errorf("stream from podman: a frame of %d bytes", size)
	}
	switch h.head[0] {
	case 0, 1:
		h.isErr = false
	case 2:
		h.isErr = true
	default:
		text := make([]byte, min(size, 4096))
		_, _ = io.ReadFull(h.r, text)
		return fmt.Errorf("stream from podman: %s", bounded(string(text)))
	}
	h.left = int(size)
	return nil
}

// drain reads the stream to its end, keeping only stderr.
func (h *hijacked) drain() {
	buf := make([]byte, 4096)
	for {
		if _, err := h.Read(buf); err != nil {
			return
		}
	}
}

func (h *hijacked) Write(p []byte) (int, error)        { return h.conn.Write(p) }
func (h *hijacked) CloseWrite() error                  { return h.conn.CloseWrite() }
func (h *hijacked) LocalAddr() net.Addr                { return h.conn.LocalAddr() }
func (h *hijacked) RemoteAddr() net.Addr               { return h.conn.RemoteAddr() }
func (h *hijacked) SetDeadline(t time.Time) error      { return h.conn.SetDeadline(t) }
func (h *hijacked) SetReadDeadline(t time.Time) error  { return h.conn.SetReadDeadline(t) }
func (h *hijacked) SetWriteDeadline(t time.Time) error { return h.conn.SetWriteDeadline(t) }

func (h *hijacked) Close() error {
	err := net.ErrClosed
	h.closed.Do(func() { err = h.conn.Close() })
	return err
}
