// Package story drives Pinfold through real MCP clients and tells one session
// from opening to nothing left. The demo plays it, the end-to-end tests assert
// it.
package story

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Client is one connected MCP client, whichever library it is made of.
type Client interface {
	// Call calls a tool. A failure that the tool reports is in the reply; an
	// error means that the protocol broke.
	Call(ctx context.Context, tool string, args map[string]any) (*Reply, error)
	// Tools lists the names of the tools.
	Tools(ctx context.Context) ([]string, error)
	Close() error
}

// Reply is a tool's result.
type Reply struct {
	IsError    bool
	Text       string
	Images     []Image
	Structured map[string]any
}

// Image is a picture in a reply.
type Image struct {
	MediaType string
	Data      []byte
}

// Str returns a field of the structured content as text, "" if absent. path is
// dotted.
func (r *Reply) Str(path string) string {
	var v any = r.Structured
	for p := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[p]
	}
	if v == nil {
		return ""
	}
	if s, ok := v.(string); ok {
		return s
	}
	return strings.TrimSuffix(fmt.Sprint(v), ".0")
}

// DialMCPGo connects mcp-go's client over a started transport, in the older era
// (initialize).
func DialMCPGo(ctx context.Context, t transport.Interface) (Client, error) {
	c := client.NewClient(t)
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	var req mcp.InitializeRequest
	req.Params.ProtocolVersion = "2025-11-25"
	req.Params.ClientInfo = mcp.Implementation{Name: "pinfold-story", Version: "1"}
	if _, err := c.Initialize(ctx, req); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &mcpGo{c}, nil
}

type mcpGo struct{ c *client.Client }

func (m *mcpGo) Close() error { return m.c.Close() }

func (m *mcpGo) Tools(ctx context.Context) ([]string, error) {
	l, err := m.c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range l.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

func (m *mcpGo) Call(ctx context.Context, tool string, args map[string]any) (*Reply, error) {
	var req mcp.CallToolRequest
	req.Params.Name, req.Params.Arguments = tool, args
	res, err := m.c.CallTool(ctx, req)
	if err != nil {
		return nil, err
	}
	r := &Reply{IsError: res.IsError}
	r.Structured, _ = res.StructuredContent.(map[string]any)
	for _, c := range res.Content {
		switch c := c.(type) {
		case mcp.TextContent:
			r.Text += c.Text
		case mcp.ImageContent:
			b, err := base64.StdEncoding.DecodeString(c.Data)
			if err != nil {
				return nil, err
			}
			r.Images = append(r.Images, Image{c.MIMEType, b})
		}
	}
	return r, nil
}

// DialGoSDK connects the official Go SDK's client; it speaks the newest
// revision by itself.
func DialGoSDK(ctx context.Context, t gosdk.Transport) (Client, error) {
	c := gosdk.NewClient(&gosdk.Implementation{Name: "pinfold-story", Version: "1"}, nil)
	s, err := c.Connect(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	return &goSDK{s}, nil
}

type goSDK struct{ s *gosdk.ClientSession }

func (g *goSDK) Close() error { return g.s.Close() }

func (g *goSDK) Tools(ctx context.Context) ([]string, error) {
	l, err := g.s.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range l.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

func (g *goSDK) Call(ctx context.Context, tool string, args map[string]any) (*Reply, error) {
	res, err := g.s.CallTool(ctx, &gosdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, err
	}
	r := &Reply{IsError: res.IsError}
	if b, err := json.Marshal(res.StructuredContent); err == nil {
		_ = json.Unmarshal(b, &r.Structured) // absent content stays nil
	}
	for _, c := range res.Content {
		switch c := c.(type) {
		case *gosdk.TextContent:
			r.Text += c.Text
		case *gosdk.ImageContent:
			r.Images = append(r.Images, Image{c.MIMEType, c.Data})
		}
	}
	return r, nil
}
