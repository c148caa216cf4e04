//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/e2e/story"
)

// bearer adds the server's token to each request of the Go SDK's client.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// bridge is the folder with the TypeScript client and its modules.
func bridge(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PINFOLD_TYPESCRIPT")
	require.NotEmpty(t, dir, "PINFOLD_TYPESCRIPT names the folder of the TypeScript client; make test sets it")
	return dir
}

func TestTheStoryWithEachClientOverEachTransport(t *testing.T) {
	dial := map[string]func(ctx context.Context, t *testing.T, w *world) (story.Client, error){
		"mcp-go over stdio": func(_ context.Context, t *testing.T, w *world) (story.Client, error) {
			c, _ := w.stdio(t)
			return c, nil
		},
		"Go SDK over stdio": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			cmd := exec.Command(binary(t), "serve", "--tools", "all")
			cmd.Env = w.env
			return story.DialGoSDK(ctx, &gosdk.CommandTransport{Command: cmd})
		},
		"TypeScript SDK over stdio": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			return story.DialTypeScript(ctx, bridge(t), map[string]any{"command": binary(t), "args": []string{"serve", "--tools", "all"}, "env": envMap(w.env)})
		},
		"mcp-go over HTTP": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			base, token, _ := w.http(t)
			h, err := transport.NewStreamableHTTP(base+"/mcp", transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + token}))
			require.NoError(t, err)
			return story.DialMCPGo(ctx, h)
		},
		"Go SDK over HTTP": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			base, token, _ := w.http(t)
			return story.DialGoSDK(ctx, &gosdk.StreamableClientTransport{Endpoint: base + "/mcp", HTTPClient: &http.Client{Transport: bearer{token}}})
		},
		"TypeScript SDK over HTTP": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			base, token, _ := w.http(t)
			return story.DialTypeScript(ctx, bridge(t), map[string]any{"url": base + "/mcp", "token": token})
		},
		"mcp-go over SSE": func(ctx context.Context, t *testing.T, w *world) (story.Client, error) {
			base, token, _ := w.http(t, "--sse")
			s, err := transport.NewSSE(base+"/sse", transport.WithHeaders(map[string]string{"Authorization": "Bearer " + token}))
			require.NoError(t, err)
			return story.DialMCPGo(ctx, s)
		},
	}
	for name, d := range dial {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			c, err := d(ctx, t, newWorld(t))
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			told, err := story.Tell(ctx, c, func(s story.Step) { t.Logf("%-45s %v", s.Say, s.Took.Round(time.Millisecond)) })
			require.NoError(t, err)
			requireNothingLeft(t, told.Session)
		})
	}
}

func envMap(env []string) map[string]string {
	m := map[string]string{}
	for _, kv := range env {
		for i := range kv {
			if kv[i] == '=' {
				m[kv[:i]] = kv[i+1:]
				break
			}
		}
	}
	return m
}
