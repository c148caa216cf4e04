package guest

import (
	"context"
	"encoding/json"

	"pinfold.dev/pinfold/sandbox"
)

// RunCode runs code in a kernel and waits for its end, its soft limit or ctx.
// When ctx ends first the guest interrupts the run; the error is of ctx.
func (c *Client) RunCode(ctx context.Context, r sandbox.CodeRequest, progress func(sandbox.CodeProgress)) (sandbox.CodeResult, error) {
	var out sandbox.CodeResult
	err := c.call(ctx, "code", r, &out, callOptions{event: func(raw json.RawMessage) error {
		var p sandbox.CodeProgress
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
