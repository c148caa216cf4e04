//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

const forwardTimeout = 5 * time.Second

// handleForward connects to a place on the sandbox's own loopback and turns the
// stream into that connection. Unix sockets are dialled as the agent.
func handleForward(ctx context.Context, s *Server, args json.RawMessage, st *stream) (any, error) {
	r, err := decode[struct {
		Network string `json:"network"`
		Addr    string `json:"addr"`
	}](args)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	switch r.Network {
	case "tcp", "tcp4", "tcp6":
		ap, perr := netip.ParseAddrPort(r.Addr)
		if perr != nil || !ap.Addr().IsLoopback() {
			return nil, field("addr", "Give 127.0.0.1:PORT or [::1]:PORT.", clip(r.Addr)+" is not on the sandbox's loopback")
		}
		d := net.Dialer{Timeout: forwardTimeout}
		conn, err = d.DialContext(ctx, r.Network, ap.String())
	case "unix":
		err = asAgent(func() error {
			// Non-blocking from the start: connecting to a local socket does not wait.
			d := net.Dialer{Timeout: forwardTimeout}
			c, derr := d.DialContext(ctx, "unix", r.Addr)
			conn = c
			return derr
		})
	default:
		return nil, field("network", "tcp, tcp4, tcp6 or unix.", clip(r.Network)+" is not forwarded")
	}
	if err != nil {
		return nil, dialError(r.Addr, err)
	}
	defer conn.Close()
	st.answer(nil, nil)
	st.taken = true
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, st.r)
		if h, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}()
	_, _ = io.Copy(st.conn, conn)
	_ = st.conn.Close() // ends the other direction too once the host closes
	_ = conn.Close()
	<-sent
	return nil, nil
}

func dialError(addr string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return sandbox.Errorf(sandbox.NotFound, "Start the server first; session_status lists the listening ports.", "nothing listens on %s inside", clip(addr))
	}
	return sandbox.Errorf(sandbox.Unavailable, "Try again once the server answers.", "connecting to %s inside: %v", clip(addr), err)
}
