package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// The link is multiplexed with yamux and not with HTTP/2: it is symmetrical, so
// that the guest can open streams too (the way out needs that); it takes any
// byte stream as it is; a call on a stream that is used again is one small
// frame each way, without header tables; and it brings 60 kB into the guest,
// where net/http brings 4 MB and 3 ms of start. What it lacks is bounds on a
// hostile peer and writes in one piece: linkConn adds both.

// Bounds and times of the link.
const (
	window       = 256 << 10        // of a stream; the smallest yamux takes, 63 MB/s all the same
	backlog      = 128              // streams opened and not yet accepted
	writeTimeout = 30 * time.Second // a peer that takes nothing for so long is gone
	hostClose    = 2 * time.Second  // until a stream that we closed is dropped, whatever the guest still sends
	guestClose   = 5 * time.Minute  // the same in the guest: the host may read slowly what was forwarded
	maxStreams   = 1024             // opened by the guest over the life of a second
)

func linkConfig(closeTimeout time.Duration) *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false // the link is local: its end is seen at once, and an idle session should cost nothing
	c.ConnectionWriteTimeout = writeTimeout
	c.MaxStreamWindowSize = window
	c.StreamCloseTimeout = closeTimeout
	c.StreamOpenTimeout = 0 // costs a goroutine and a timer for each stream
	c.LogOutput = io.Discard
	return c
}

// ServeLink makes the guest's end of a link from a greeted connection.
func ServeLink(conn net.Conn) (*yamux.Session, error) {
	return yamux.Server(&linkConn{Conn: conn}, linkConfig(guestClose))
}

// openLink makes the host's end.
func openLink(conn net.Conn) (*yamux.Session, error) {
	return yamux.Client(&linkConn{Conn: conn, police: true}, linkConfig(hostClose))
}

// Header of a yamux frame: version, type, flags (2), stream (4), length (4).
const (
	muxHead    = 12
	muxData    = 0
	muxPing    = 2
	muxFlagSYN = 1
)

// linkConn joins the header and the body of a data frame, which yamux writes
// apart, into one system call and one wake-up of the peer. On the host it also
// reads along and ends the link when the guest does what would make yamux spend
// without bound: pings (a goroutine each) and streams without end.
type linkConn struct {
	net.Conn
	police bool

	// Writer, used by yamux's send loop alone.
	head [muxHead]byte
	held bool
	buf  []byte

	// Reader, used by yamux's receive loop alone.
	rhead [muxHead]byte
	rgot  int
	rbody int64
	syns  int
	since time.Time
}

// Write holds back the header of a data frame until its body comes.
func (c *linkConn) Write(p []byte) (int, error) {
	if c.held {
		c.held = false
		c.buf = append(append(c.buf[:0], c.head[:]...), p...)
		n, err := c.Conn.Write(c.buf)
		if cap(c.buf) > 2*MaxData {
			c.buf = nil // a large body passed: an idle link should be small
		}
		return max(0, n-muxHead), err
	}
	if len(p) == muxHead && p[1] == muxData && binary.BigEndian.Uint32(p[8:]) > 0 {
		copy(c.head[:], p)
		c.held = true
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// errHostile is the end of a link whose guest does not behave.
var errHostile = errors.New("the guest broke the rules of the link")

func (c *linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.police {
		if perr := c.check(p[:n]); perr != nil {
			return 0, perr
		}
	}
	return n, err
}

func (c *linkConn) check(p []byte) error {
	for len(p) > 0 {
		if c.rbody > 0 {
			n := min(c.rbody, int64(len(p)))
			c.rbody -= n
			p = p[n:]
			continue
		}
		n := copy(c.rhead[c.rgot:], p)
		c.rgot += n
		p = p[n:]
		if c.rgot < muxHead {
			return nil
		}
		c.rgot = 0
		if err := c.frame(); err != nil {
			return err
		}
	}
	return nil
}

func (c *linkConn) frame() error {
	kind, flags := c.rhead[1], binary.BigEndian.Uint16(c.rhead[2:])
	if kind == muxPing && flags&muxFlagSYN != 0 {
		return fmt.Errorf("%w: a ping", errHostile)
	}
	if flags&muxFlagSYN != 0 {
		if now := time.Now(); now.Sub(c.since) > time.Second {
			c.since, c.syns = now, 0
		}
		if c.syns++; c.syns > maxStreams {
			return fmt.Errorf("%w: more than %d streams in a second", errHostile, maxStreams)
		}
	}
	if kind == muxData {
		c.rbody = int64(binary.BigEndian.Uint32(c.rhead[8:]))
		if c.rbody > window {
			return fmt.Errorf("%w: a frame of %d bytes", errHostile, c.rbody)
		}
	}
	return nil
}
