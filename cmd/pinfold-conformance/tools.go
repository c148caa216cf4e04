package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	pinfold "pinfold.dev/pinfold/mcp"
)

// A picture of one pixel and a sound of no length.
const (
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	silence = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

// schema2020 has the keywords that a tool list must carry through unchanged.
const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
"phone":{"type":"string"},"email":{"type":"string"}},"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
"additionalProperties":false}`

type handler = func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error)

func add(m *server.MCPServer, name, description string, h handler, options ...mcp.ToolOption) {
	m.AddTool(mcp.NewTool(name, append([]mcp.ToolOption{mcp.WithDescription(description)}, options...)...), h)
}

// constant is a tool that always gives the same.
func constant(content ...mcp.Content) handler {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: content}, nil
	}
}

func text(s string) mcp.TextContent { return mcp.NewTextContent(s) }

func embedded(uri, mime, s string) mcp.Content {
	return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: mime, Text: s})
}

func addTools(m *server.MCPServer) {
	add(m, "test_simple_text", "Gives a text", constant(text("This is a simple text response for testing.")))
	add(m, "test_image_content", "Gives a picture", constant(mcp.NewImageContent(pixel, "image/png")))
	add(m, "test_audio_content", "Gives a sound", constant(mcp.NewAudioContent(silence, "audio/wav")))
	add(m, "test_embedded_resource", "Gives a resource", constant(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")))
	add(m, "test_multiple_content_types", "Gives several kinds of content", constant(text("Multiple content types test:"), mcp.NewImageContent(pixel, "image/png"),
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`)))
	add(m, "test_error_handling", "Fails on purpose", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
	})
	m.AddTool(mcp.Tool{Name: "json_schema_2020_12_tool", Description: "Tool with JSON Schema 2020-12 features", RawInputSchema: json.RawMessage(schema2020)}, constant(text("ok")))
	m.AddTool(mcp.Tool{Name: "test_header_param", Description: "Takes an argument that is mirrored into a header", RawInputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}},"additionalProperties":false}`)}, constant(text("ok")))
	add(m, "test_tool_with_logging", "Logs while it runs", logging(m))
	add(m, "test_logging_tool", "Logs, if the request asked for it", logging(m))
	add(m, "test_tool_with_progress", "Tells its progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
			for _, n := range []int{0, 50, 100} {
				if err := pinfold.Notify(ctx, m, string(mcp.MethodNotificationProgress),
					map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": n, "total": 100}); err != nil {
					return mcp.NewToolResultError(err.Error()), nil
				}
			}
		}
		return mcp.NewToolResultText("progress reported"), nil
	})
	add(m, "test_streaming_elicitation", "Tells its progress and asks nothing", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return server.NewInputRequestBuilder("").Elicit("name", askFor("What is your name?", "name", "string")).ToolResult(), nil
	})
	add(m, "test_missing_capability", "Needs sampling", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if c := capabilities(ctx); c == nil || c.Sampling == nil {
			return nil, mcp.MissingRequiredClientCapabilityError{Capability: "sampling"}
		}
		return mcp.NewToolResultText("sampling is declared"), nil
	})
	change := 0
	add(m, "test_trigger_tool_change", "Changes the list of tools", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		change++
		name := fmt.Sprintf("test_changed_%d", change)
		add(m, name, "Came while the server ran", constant(text("ok")))
		time.AfterFunc(time.Second, func() { m.DeleteTools(name) })
		return mcp.NewToolResultText("changed"), nil
	})
	add(m, "test_trigger_prompt_change", "Changes the list of prompts", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		m.AddPrompt(mcp.NewPrompt("test_changed_prompt", mcp.WithPromptDescription("Came while the server ran")), simplePrompt)
		time.AfterFunc(time.Second, func() { m.DeletePrompts("test_changed_prompt") })
		return mcp.NewToolResultText("changed"), nil
	})
	add(m, "test_sampling", "Asks the client's model", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // there is no stream for it: sampling was given up with the GET stream
		defer cancel()
		q := mcp.CreateMessageRequest{Request: mcp.Request{Method: string(mcp.MethodSamplingCreateMessage)}, CreateMessageParams: question(r.GetString("prompt", ""), 100)}
		a, err := m.RequestSampling(ctx, q) //lint:ignore SA1019 the older set of requirements asks for it
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(fmt.Sprintf("LLM response: %v", a.Content)), nil
	}, mcp.WithString("prompt", mcp.Required(), mcp.Description("What to ask")))
	add(m, "test_elicitation", "Asks the user", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return elicit(ctx, m, "User response", r.GetString("message", ""), `{"type":"object","properties":{
"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`)
	}, mcp.WithString("message", mcp.Required(), mcp.Description("What to ask")))
	add(m, "test_elicitation_sep1034_defaults", "Asks the user, with defaults", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return elicit(ctx, m, "Elicitation completed", "Provide your information", `{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},
"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`)
	})
	add(m, "test_elicitation_sep1330_enums", "Asks the user to choose", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return elicit(ctx, m, "Elicitation completed", "Select options", `{"type":"object","properties":{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2"],"enumNames":["Option One","Option Two"]},
"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2"]}},
"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"}]}}}}`)
	})
}

// logging sends three log messages; the library drops them for a client of the
// stateless revision that did not ask.
func logging(m *server.MCPServer) handler {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, s := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			n := mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "conformance", s)
			if err := m.SendLogMessageToClient(ctx, n); err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return mcp.NewToolResultText("Tool with logging executed successfully"), nil
	}
}

func elicit(ctx context.Context, m *server.MCPServer, what, message, schema string) (*mcp.CallToolResult, error) {
	r, err := m.RequestElicitation(ctx, mcp.ElicitationRequest{Request: mcp.Request{Method: string(mcp.MethodElicitationCreate)},
		Params: mcp.ElicitationParams{Message: message, RequestedSchema: json.RawMessage(schema)}})
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s: action=%s, content=%v", what, r.Action, r.Content)), nil
}

func question(s string, tokens int) mcp.CreateMessageParams {
	return mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: text(s)}}, MaxTokens: tokens}
}

func askFor(message, field, kind string) mcp.ElicitationParams {
	return mcp.ElicitationParams{Message: message, RequestedSchema: map[string]any{"type": "object",
		"properties": map[string]any{field: map[string]any{"type": kind}}, "required": []string{field}}}
}

// capabilities are those the client declared for this request.
func capabilities(ctx context.Context) *mcp.ClientCapabilities {
	if i := server.RequestProtocolInfoFromContext(ctx); i != nil && i.Modern {
		return i.ClientCapabilities
	}
	if s, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo); ok {
		c := s.GetClientCapabilities()
		return &c
	}
	return nil
}
