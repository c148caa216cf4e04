package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func addResources(m *server.MCPServer) {
	m.AddResource(mcp.NewResource("test://static-text", "static-text", mcp.WithResourceDescription("A text"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."}}, nil
		})
	m.AddResource(mcp.NewResource("test://static-binary", "static-binary", mcp.WithResourceDescription("A picture"), mcp.WithMIMEType("image/png")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: pixel}}, nil
		})
	m.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateDescription("A text with a parameter"), mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "application/json",
				Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":%q}`, id, "Data for ID: "+id)}}, nil
		})
}

func simplePrompt(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return prompt(text("This is a simple prompt for testing.")), nil
}

func prompt(content ...mcp.Content) *mcp.GetPromptResult {
	r := &mcp.GetPromptResult{}
	for _, c := range content {
		r.Messages = append(r.Messages, mcp.PromptMessage{Role: mcp.RoleUser, Content: c})
	}
	return r
}

func addPrompts(m *server.MCPServer) {
	m.AddPrompt(mcp.NewPrompt("test_simple_prompt", mcp.WithPromptDescription("A prompt without arguments")), simplePrompt)
	m.AddPrompt(mcp.NewPrompt("test_prompt_with_arguments", mcp.WithPromptDescription("A prompt with arguments"),
		mcp.WithArgument("arg1", mcp.ArgumentDescription("First"), mcp.RequiredArgument()), mcp.WithArgument("arg2", mcp.ArgumentDescription("Second"), mcp.RequiredArgument())),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return prompt(text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", r.Params.Arguments["arg1"], r.Params.Arguments["arg2"]))), nil
		})
	m.AddPrompt(mcp.NewPrompt("test_prompt_with_embedded_resource", mcp.WithPromptDescription("A prompt with a resource"),
		mcp.WithArgument("resourceUri", mcp.ArgumentDescription("Which"), mcp.RequiredArgument())),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return prompt(embedded(r.Params.Arguments["resourceUri"], "text/plain", "Embedded resource content for testing."), text("Please process the embedded resource above.")), nil
		})
	m.AddPrompt(mcp.NewPrompt("test_prompt_with_image", mcp.WithPromptDescription("A prompt with a picture")),
		func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return prompt(mcp.NewImageContent(pixel, "image/png"), text("Please analyze the image above.")), nil
		})
}
