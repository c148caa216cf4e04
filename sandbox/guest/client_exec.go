package guest

import (
	"context"
	"encoding/json"
	"net"

	"pinfold.dev/pinfold/sandbox"
)

// Exec runs a command and waits for its end, its soft limit or ctx. When ctx
// ends first the guest ends the command's whole tree; the result then names the
// process, whose output stays readable, and the error is of ctx.
func (c *Client) Exec(ctx context.Context, r sandbox.ExecRequest, progress func(sandbox.ExecProgress)) (sandbox.ExecResult, error) {
	var out sandbox.ExecResult
	err := c.call(ctx, "exec", r, &out, callOptions{event: func(raw json.RawMessage) error {
		var p sandbox.ExecProgress
		if err := Decode(raw, &p); err != nil {
			return err
		}
		if progress != nil {
			progress(p)
		}
		return nil
	}})
	return out, err
}

// Output reads what a process wrote.
func (c *Client) Output(ctx context.Context, r sandbox.OutputRequest) (sandbox.OutputResult, error) {
	var out sandbox.OutputResult
	err := c.into(ctx, "output", r, &out)
	return out, err
}

// Input types into a process and returns what appeared within r.WaitMS.
func (c *Client) Input(ctx context.Context, r sandbox.InputRequest) (sandbox.OutputResult, error) {
	var out sandbox.OutputResult
	err := c.into(ctx, "input", r, &out)
	return out, err
}

// Kill ends processes with all that they started.
func (c *Client) Kill(ctx context.Context, r sandbox.KillRequest) (sandbox.KillResult, error) {
	var out sandbox.KillResult
	err := c.into(ctx, "kill", r, &out)
	return out, err
}

// KillUID ends every process of uid, which must not be 0.
func (c *Client) KillUID(ctx context.Context, uid int) error {
	return c.call(ctx, "kill_uid", map[string]int{"uid": uid}, nil, callOptions{})
}

// Status tells what runs inside.
func (c *Client) Status(ctx context.Context) (sandbox.GuestStatus, error) {
	var out sandbox.GuestStatus
	err := c.into(ctx, "status", struct{}{}, &out)
	return out, err
}

// Shutdown has the guest end everything and itself. It returns once the link is
// gone or ctx ends.
func (c *Client) Shutdown(ctx context.Context) error {
	_ = c.call(ctx, "shutdown", struct{}{}, nil, callOptions{})
	select {
	case <-c.Done():
		return c.Close()
	case <-ctx.Done():
		return canceled(ctx)
	}
}

// Forward connects to addr ("127.0.0.1:8000") on the sandbox's own loopback.
// network is tcp, tcp4, tcp6 or unix; the guest takes no other place.
func (c *Client) Forward(ctx context.Context, network, addr string) (net.Conn, error) {
	s, err := c.stream()
	if err != nil {
		return nil, sandbox.Lost(err)
	}
	raw, err := json.Marshal(map[string]string{"network": network, "addr": addr})
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	err = c.exchange(s, Request{Op: "forward", Args: raw}, nil, callOptions{})
	if !stop() {
		return nil, canceled(ctx)
	}
	if err != nil {
		_ = s.Close()
		if sandbox.CodeOf(err) == sandbox.Internal && c.link.IsClosed() {
			err = sandbox.Lost(err)
		}
		return nil, err
	}
	return &forwarded{callStream: s}, nil
}

// forwarded is a stream after its handshake: what was read ahead comes first.
type forwarded struct{ *callStream }

func (f *forwarded) Read(p []byte) (int, error) { return f.r.Read(p) }

// into is call with a result and nothing else.
func (c *Client) into(ctx context.Context, op string, args, result any) error {
	return c.call(ctx, op, args, result, callOptions{})
}
