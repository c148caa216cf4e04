package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// The state of a call that waits for input passes through the client, which
// must not be able to make one up.
var stateKey = func() []byte { k := make([]byte, 32); _, _ = rand.Read(k); return k }()

func sign(state string) string {
	h := hmac.New(sha256.New, stateKey)
	h.Write([]byte(state))
	return state + "." + hex.EncodeToString(h.Sum(nil))
}

var errState = errors.New("the request state was changed on its way")

// check returns what was signed.
func check(signed string) (string, error) {
	i := strings.LastIndexByte(signed, '.')
	if i < 0 || !hmac.Equal([]byte(sign(signed[:i])), []byte(signed)) {
		return "", errState
	}
	return signed[:i], nil
}

func addInputTools(m *server.MCPServer) {
	tool := func(name string, h handler) {
		add(m, "test_input_required_result_"+name, "Asks the client for input: "+name, h)
	}
	name := askFor("What is your name?", "name", "string")
	confirm := askFor("Please confirm", "ok", "boolean")

	tool("elicitation", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := server.ElicitationResponse(r.Params.InputResponses, "user_name"); a != nil {
			return mcp.NewToolResultText(fmt.Sprintf("Hello, %v!", field(a, "name"))), nil
		}
		return server.NewInputRequestBuilder("").Elicit("user_name", name).ToolResult(), nil
	})
	tool("sampling", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := server.SamplingResponse(r.Params.InputResponses, "capital_question"); a != nil {
			return mcp.NewToolResultText(fmt.Sprintf("The model says: %v", a.Content)), nil
		}
		return server.NewInputRequestBuilder("").Sample("capital_question", question("What is the capital of France?", 100)).ToolResult(), nil
	})
	tool("list_roots", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := server.RootsResponse(r.Params.InputResponses, "client_roots"); a != nil {
			return mcp.NewToolResultText(fmt.Sprintf("Roots: %v", a.Roots)), nil
		}
		return server.NewInputRequestBuilder("").Roots("client_roots").ToolResult(), nil
	})
	state := func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if server.ElicitationResponse(r.Params.InputResponses, "confirm") == nil {
			return server.NewInputRequestBuilder(sign("confirm")).Elicit("confirm", confirm).ToolResult(), nil
		}
		if _, err := check(r.Params.RequestState); err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("state-ok"), nil
	}
	tool("request_state", state)
	tool("tampered_state", state)
	tool("multiple_inputs", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		in := r.Params.InputResponses
		n, g, roots := server.ElicitationResponse(in, "user_name"), server.SamplingResponse(in, "greeting"), server.RootsResponse(in, "client_roots")
		if n == nil || g == nil || roots == nil {
			return server.NewInputRequestBuilder(sign("inputs")).Elicit("user_name", name).Sample("greeting", question("Generate a greeting", 50)).Roots("client_roots").ToolResult(), nil
		}
		if _, err := check(r.Params.RequestState); err != nil {
			return nil, err
		}
		return mcp.NewToolResultText(fmt.Sprintf("%v, %v: %d roots", g.Content, field(n, "name"), len(roots.Roots))), nil
	})
	tool("multi_round", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		round := ""
		if r.Params.RequestState != "" {
			var err error
			if round, err = check(r.Params.RequestState); err != nil {
				return nil, err
			}
		}
		in := r.Params.InputResponses
		switch {
		case round == "two" && server.ElicitationResponse(in, "step2") != nil:
			return mcp.NewToolResultText("Both steps are done."), nil
		case round == "two" || (round == "one" && server.ElicitationResponse(in, "step1") != nil):
			return server.NewInputRequestBuilder(sign("two")).Elicit("step2", askFor("Step 2: What is your favorite color?", "color", "string")).ToolResult(), nil
		}
		return server.NewInputRequestBuilder(sign("one")).Elicit("step1", askFor("Step 1: What is your name?", "name", "string")).ToolResult(), nil
	})
	tool("capabilities", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		b, asked := server.NewInputRequestBuilder(""), false
		c := capabilities(ctx)
		if c != nil && c.Elicitation != nil && server.ElicitationResponse(r.Params.InputResponses, "ask") == nil {
			b, asked = b.Elicit("ask", name), true
		}
		if c != nil && c.Sampling != nil && server.SamplingResponse(r.Params.InputResponses, "sample") == nil {
			b, asked = b.Sample("sample", question("Say something", 50)), true
		}
		if !asked {
			return mcp.NewToolResultText("nothing to ask"), nil
		}
		return b.ToolResult(), nil
	})
	m.AddPrompt(mcp.NewPrompt("test_input_required_result_prompt", mcp.WithPromptDescription("Asks for its context")),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			if a := server.ElicitationResponse(r.Params.InputResponses, "user_context"); a != nil {
				return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Role: mcp.RoleUser, Content: text(fmt.Sprintf("Context: %v", field(a, "context")))}}}, nil
			}
			return server.NewInputRequestBuilder("").Elicit("user_context", askFor("What context should the prompt use?", "context", "string")).PromptResult(), nil
		})
}

func field(r *mcp.ElicitationResult, name string) any {
	if m, ok := r.Content.(map[string]any); ok {
		return m[name]
	}
	return nil
}
