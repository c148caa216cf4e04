package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"pinfold.dev/pinfold/sandbox"
)

// ReadFile reads a file or a part of it.
func (c *Client) ReadFile(ctx context.Context, r sandbox.ReadRequest) (sandbox.ReadResult, error) {
	var out sandbox.ReadResult
	err := c.into(ctx, "file_read", r, &out)
	return out, err
}

// WriteFile writes r.Content, which travels as a body, and holds what the guest
// says it wrote against what was sent.
func (c *Client) WriteFile(ctx context.Context, r sandbox.WriteRequest) (sandbox.WriteResult, error) {
	var out sandbox.WriteResult
	if err := c.call(ctx, "file_write", r, &out, callOptions{body: bytes.NewReader(r.Content)}); err != nil {
		return out, err
	}
	sum := sha256.Sum256(r.Content)
	want := "sha256:" + hex.EncodeToString(sum[:])
	if out.Bytes != int64(len(r.Content)) || (out.Hash != want && (!r.Append || out.Created)) {
		return out, &sandbox.Error{Code: sandbox.Unavailable, Reason: "bad_copy", Retry: true,
			Message: r.Path + ": what arrived is not what was sent", Hint: "Read the file and write it again."}
	}
	return out, nil
}

// EditFile replaces texts in a file, all or none.
func (c *Client) EditFile(ctx context.Context, r sandbox.EditRequest) (sandbox.EditResult, error) {
	var out sandbox.EditResult
	err := c.into(ctx, "file_edit", r, &out)
	return out, err
}

// List lists a folder, a page at a time.
func (c *Client) List(ctx context.Context, r sandbox.ListRequest) (sandbox.ListResult, error) {
	var out sandbox.ListResult
	err := c.into(ctx, "file_list", r, &out)
	return out, err
}

// Search looks for a pattern in files, a page at a time.
func (c *Client) Search(ctx context.Context, r sandbox.SearchRequest) (sandbox.SearchResult, error) {
	var out sandbox.SearchResult
	err := c.into(ctx, "file_search", r, &out)
	return out, err
}

// Transfer hands a file over between the agent and the browser.
func (c *Client) Transfer(ctx context.Context, r sandbox.TransferRequest) (sandbox.TransferResult, error) {
	var out sandbox.TransferResult
	err := c.into(ctx, "transfer", r, &out)
	return out, err
}
