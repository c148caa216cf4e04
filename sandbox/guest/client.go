package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"pinfold.dev/pinfold/sandbox"
)

// helloTimeout bounds the greeting of a guest that is up.
const helloTimeout = 10 * time.Second

// Expect is what the host knows of the sandbox behind a stream.
type Expect struct {
	Token     string
	Isolation sandbox.Isolation
}

// Client is the host's end of one guest. Its methods are safe for concurrent
// use. A call ends with ctx, with the guest's answer, or with sandbox.Lost when
// the link is gone; nothing the guest does makes it hang or grow without bound.
type Client struct {
	link   *yamux.Session
	report Report

	mu   sync.Mutex
	idle []*callStream
}

// Connect greets the guest behind conn and checks what it reports. It owns conn
// from here on, on failure too.
func Connect(ctx context.Context, conn net.Conn, want Expect) (*Client, error) {
	_ = conn.SetDeadline(time.Now().Add(helloTimeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	report, err := greet(conn, want.Token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = checkReport(report, want.Isolation)
	}
	if err != nil {
		_ = conn.Close()
		return nil, connectError(ctx, err)
	}
	_ = conn.SetDeadline(time.Time{})
	link, err := openLink(conn)
	if err != nil {
		_ = conn.Close()
		return nil, connectError(ctx, err)
	}
	c := &Client{link: link, report: report}
	go c.refuse()
	return c, nil
}

func connectError(ctx context.Context, err error) error {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &sandbox.Error{Code: sandbox.Unavailable, Reason: "guest_unreachable", Retry: true, Cause: err,
		Message: "the sandbox started but its guest did not answer as it should", Hint: "Try again; pinfold doctor tells what does not work here."}
}

// refuse takes the streams that the guest opens, none of which has a use yet,
// and drops them. It ends with the link.
func (c *Client) refuse() {
	for {
		s, err := c.link.AcceptStream()
		if err != nil {
			return
		}
		_ = s.Close()
	}
}

// wantCaps are the capabilities of pid 1: KILL, SETGID, SETUID, SETPCAP and
// NET_BIND_SERVICE.
const wantCaps = 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10

// checkReport holds the guest's report against what every sandbox must have.
func checkReport(r Report, isolation sandbox.Isolation) error {
	var bad []string
	if r.PID != 1 {
		bad = append(bad, fmt.Sprintf("the guest is process %d, not 1", r.PID))
	}
	if r.Filter != "on" {
		bad = append(bad, "commands would run without the guest's system-call filter ("+clip(r.Filter)+")")
	}
	caps, err := strconv.ParseUint(strings.TrimPrefix(r.CapEffective, "0x"), 16, 64)
	if err != nil || caps&^wantCaps != 0 {
		bad = append(bad, fmt.Sprintf("the guest has capabilities %s, at most %x are allowed", clip(r.CapEffective), wantCaps))
	}
	for _, i := range r.Interfaces {
		if i != "lo" {
			bad = append(bad, "there is a network interface "+clip(i))
		}
	}
	switch {
	case isolation == sandbox.IsolationGVisor && !r.GVisor:
		bad = append(bad, "gVisor was asked for and the kernel inside is not gVisor's")
	case isolation == sandbox.IsolationContainer && r.GVisor:
		bad = append(bad, "the kernel inside is gVisor's, which was not asked for")
	}
	// gVisor's own kernel stands in the place of the container's profile.
	if isolation != sandbox.IsolationGVisor && r.Seccomp != 2 {
		bad = append(bad, "the container has no system-call filter")
	}
	if !r.NoNewPrivs {
		bad = append(bad, "no_new_privs is off")
	}
	if isolation == sandbox.IsolationContainer && hostRootMapped(r.UIDMap) {
		bad = append(bad, "root inside is root of the host")
	}
	if len(bad) == 0 {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.FailedPrecondition, Reason: "weak_sandbox",
		Message: "the sandbox lacks protection and was refused: " + strings.Join(bad, "; "),
		Hint:    "pinfold doctor says which part of this host is at fault.",
		Details: map[string]any{"missing": bad},
	}
}

// hostRootMapped reports whether uid 0 inside is uid 0 outside the namespace.
func hostRootMapped(m string) bool {
	for line := range strings.Lines(m) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "0" && f[1] == "0" {
			return true
		}
	}
	return strings.TrimSpace(m) == ""
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// Report returns what the guest said of its sandbox at the start.
func (c *Client) Report() Report { return c.report }

// Done is closed once the link is gone.
func (c *Client) Done() <-chan struct{} { return c.link.CloseChan() }

// Close ends the link; the guest then ends everything inside, unless it was
// told to wait for a redial.
func (c *Client) Close() error { return c.link.Close() }
