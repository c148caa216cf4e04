package guest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pinfold.dev/pinfold/sandbox"
)

const token = "a token of sufficient length"

// fit is the report of a guest in a sandbox as it should be.
var fit = Report{PID: 1, Seccomp: 2, Filter: "on", NoNewPrivs: true, CapEffective: "00000000000005e0", UIDMap: "0 1 65536", Interfaces: []string{"lo"}}

// peer is the other end of a link, for a guest that is not ours.
func peer(t *testing.T) (host, guest net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	guest, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	host, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = guest.Close(); _ = host.Close() })
	return host, guest
}

// hostile is a guest that greets as it should and then answers each request by
// answer, which writes what it likes.
func hostile(t *testing.T, answer func(s net.Conn, r Request)) *Client {
	t.Helper()
	host, g := peer(t)
	go func() {
		if Greet(g, token, fit) != nil {
			return
		}
		link, err := ServeLink(g)
		if err != nil {
			return
		}
		for {
			s, err := link.AcceptStream()
			if err != nil {
				return
			}
			go func() {
				for {
					t, b, err := ReadFrame(s, MaxMessage)
					if err != nil {
						return
					}
					var r Request
					if t == FrameRequest && json.Unmarshal(b, &r) == nil {
						answer(s, r)
					}
				}
			}()
		}
	}()
	c, err := Connect(t.Context(), host, Expect{Token: token, Isolation: sandbox.IsolationContainer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestGreeting(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	connect := func(guest func(net.Conn)) error {
		host, g := peer(t)
		done := make(chan struct{})
		go func() { defer close(done); guest(g); _ = g.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		c, err := Connect(ctx, host, Expect{Token: token, Isolation: sandbox.IsolationContainer})
		if err == nil {
			_ = c.Close()
		}
		<-done
		return err
	}
	t.Run("a guest without the token is refused", func(t *testing.T) {
		var seen error
		err := connect(func(c net.Conn) { seen = Greet(c, "another token, as long", fit) })
		require.Error(t, err)
		assert.ErrorIs(t, seen, ErrToken, "it refuses the host too")
	})
	t.Run("a guest that only claims to know it is refused", func(t *testing.T) {
		err := connect(func(c net.Conn) {
			_ = WriteMessage(c, frameHello, guestHello{Magic: magic, Version: Version, Nonce: nonce()})
			var h hostHello
			_ = readHello(c, &h)
			_ = WriteMessage(c, frameHello, guestProof{Proof: h.Proof, Report: fit}) // the host's own, sent back
		})
		assert.ErrorIs(t, err, ErrToken)
		assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))
	})
	t.Run("another version is told", func(t *testing.T) {
		err := connect(func(c net.Conn) {
			_ = WriteMessage(c, frameHello, guestHello{Magic: magic, Version: Version + 1, Nonce: nonce()})
		})
		assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
		assert.ErrorContains(t, err, "version")
	})
	t.Run("noise is refused", func(t *testing.T) {
		for _, noise := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n", "H\xff\xff\xff\xff", "H\x00\x00\x00\x02{}", "H\x00\x00\x00\x05{\"a\"}"} {
			err := connect(func(c net.Conn) { _, _ = c.Write([]byte(noise)) })
			assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err), "%q %v", noise, err)
		}
	})
	t.Run("silence ends with the caller's time", func(t *testing.T) {
		host, _ := peer(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := Connect(ctx, host, Expect{Token: token})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestReportsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Report)
		says   string
	}{
		"not pid 1":            {func(r *Report) { r.PID = 2 }, "process 2"},
		"no filter outside":    {func(r *Report) { r.Seccomp = 0 }, "no system-call filter"},
		"no filter inside":     {func(r *Report) { r.Filter = "EINVAL" }, "EINVAL"},
		"no_new_privs off":     {func(r *Report) { r.NoNewPrivs = false }, "no_new_privs"},
		"more capabilities":    {func(r *Report) { r.CapEffective = "00000000a80425fb" }, "capabilities"},
		"capabilities unknown": {func(r *Report) { r.CapEffective = "" }, "capabilities"},
		"a network":            {func(r *Report) { r.Interfaces = []string{"lo", "eth0"} }, "eth0"},
		"host root":            {func(r *Report) { r.UIDMap = "         0          0 4294967295\n" }, "root of the host"},
		"no map":               {func(r *Report) { r.UIDMap = "" }, "root of the host"},
		"gVisor unasked":       {func(r *Report) { r.GVisor = true }, "gVisor"},
	} {
		r := fit
		c.change(&r)
		err := checkReport(r, sandbox.IsolationContainer)
		assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err), name)
		assert.ErrorContains(t, err, c.says, name)
	}
	assert.NoError(t, checkReport(fit, sandbox.IsolationContainer))
	assert.ErrorContains(t, checkReport(fit, sandbox.IsolationGVisor), "gVisor was asked for")
	own := fit
	own.GVisor, own.Seccomp, own.UIDMap = true, 0, "0 0 4294967295"
	assert.NoError(t, checkReport(own, sandbox.IsolationGVisor), "its own kernel stands in for the profile")
}

func TestAnHostileGuestEndsItsSession(t *testing.T) {
	head := func(kind FrameType, n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{byte(kind)}, n) }
	for name, answer := range map[string]func(s net.Conn){
		"a frame longer than the bound":  func(s net.Conn) { _, _ = s.Write(head(FrameResult, MaxMessage+1)) },
		"a frame of no known type":       func(s net.Conn) { _ = WriteFrame(s, 'Z', nil) },
		"a request":                      func(s net.Conn) { _ = WriteFrame(s, FrameRequest, []byte("{}")) },
		"a result with an unknown field": func(s net.Conn) { _ = WriteFrame(s, FrameResult, []byte(`{"process":"p1","sudo":true}`)) },
		"a result of another type":       func(s net.Conn) { _ = WriteFrame(s, FrameResult, []byte(`{"process":7}`)) },
		"a result and more":              func(s net.Conn) { _ = WriteFrame(s, FrameResult, []byte(`{} {}`)) },
		"an error without a code":        func(s net.Conn) { _ = WriteFrame(s, FrameError, []byte(`{}`)) },
		"data no one asked for":          func(s net.Conn) { _ = WriteFrame(s, FrameData, []byte("x")) },
		"an event that is none":          func(s net.Conn) { _ = WriteFrame(s, FrameEvent, []byte("x")) },
		"events without end": func(s net.Conn) {
			for WriteFrame(s, FrameEvent, []byte(`{"process":"","last_line":"","bytes":0,"elapsed_ms":0}`)) == nil {
			}
		},
		"the end of the stream": func(s net.Conn) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			c := hostile(t, func(s net.Conn, _ Request) { answer(s) })
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := c.Exec(ctx, sandbox.ExecRequest{Argv: []string{"true"}}, nil)
			require.Error(t, err)
			assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err), "%v", err)
			assert.NoError(t, ctx.Err())
		})
	}
}

func TestAGuestThatDoesNotAnswerHoldsNoOne(t *testing.T) {
	c := hostile(t, func(net.Conn, Request) {})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.Exec(ctx, sandbox.ExecRequest{Argv: []string{"true"}}, nil)
	assert.Equal(t, sandbox.DeadlineExceeded, sandbox.CodeOf(err))
	assert.Less(t, time.Since(began), cancelGrace+time.Second)
}

func TestErrorsOfTheGuestAreCut(t *testing.T) {
	c := hostile(t, func(s net.Conn, _ Request) {
		_ = WriteMessage(s, FrameError, sandbox.Errorf(sandbox.NotFound, strings.Repeat("h", 1<<20), "%s", strings.Repeat("é", 1<<20)))
	})
	_, err := c.Exec(t.Context(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
	assert.Less(t, len(err.Error()), 20_000)
	_, err = c.Exec(t.Context(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err), "the link lives on")
}

func TestFloodsOnTheLinkEndIt(t *testing.T) {
	mux := func(kind byte, flags uint16, stream, length uint32) []byte {
		b := []byte{0, kind}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = binary.BigEndian.AppendUint32(b, stream)
		return binary.BigEndian.AppendUint32(b, length)
	}
	for name, flood := range map[string]func(g net.Conn){
		"a ping": func(g net.Conn) { _, _ = g.Write(mux(muxPing, muxFlagSYN, 0, 1)) },
		"streams": func(g net.Conn) {
			for id := uint32(2); id < 20_000; id += 2 {
				if _, err := g.Write(mux(1, muxFlagSYN, id, 0)); err != nil {
					return
				}
			}
		},
		"a frame beyond the window": func(g net.Conn) { _, _ = g.Write(mux(muxData, muxFlagSYN, 2, window+1)) },
		"noise":                     func(g net.Conn) { _, _ = g.Write([]byte(strings.Repeat("noise", 100))) },
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			host, g := peer(t)
			go func() {
				if Greet(g, token, fit) == nil {
					flood(g)
				}
			}()
			c, err := Connect(t.Context(), host, Expect{Token: token, Isolation: sandbox.IsolationContainer})
			require.NoError(t, err)
			defer c.Close()
			select {
			case <-c.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("the link lives on")
			}
			_, err = c.Exec(t.Context(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
			assert.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))
		})
	}
}

func TestStreamsAreUsedAgain(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := hostile(t, func(s net.Conn, _ Request) { _ = WriteFrame(s, FrameResult, []byte("{}")) })
	defer c.Close()
	for range 200 {
		_, err := c.Exec(t.Context(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, c.link.NumStreams())
	before := runtime.NumGoroutine()
	for range 200 {
		_, err := c.Exec(t.Context(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+1)
}

// TestYamuxIsWhatWePolice holds the numbers that linkConn reads along by.
func TestYamuxIsWhatWePolice(t *testing.T) {
	assert.Equal(t, uint32(window), yamux.DefaultConfig().MaxStreamWindowSize)
}
