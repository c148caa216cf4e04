package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bearer sends the token with every request.
type bearer struct{ http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+testToken)
	return b.RoundTripper.RoundTrip(r)
}

// pipes joins a client of this process to ServeStdio.
func pipes(t testing.TB, e *Edge) (in io.WriteCloser, out io.ReadCloser) {
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.ServeStdio(context.Background(), inR, outW)
		_ = inR.Close()
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		<-done
		_ = outR.Close()
	})
	return inW, outR
}

func TestTheGoSDKOverEachTransport(t *testing.T) {
	for _, name := range []string{"stdio", "http", "sse"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			var tr gosdk.Transport
			hc := &http.Client{Transport: bearer{&http.Transport{DisableKeepAlives: true}}}
			switch name {
			case "stdio":
				in, out := pipes(t, w.Edge)
				tr = &gosdk.IOTransport{Reader: out, Writer: in}
			case "http":
				tr = &gosdk.StreamableClientTransport{Endpoint: newSite(t, w.Edge, nil).URL + "/mcp", HTTPClient: hc}
			case "sse":
				tr = &gosdk.SSEClientTransport{Endpoint: newSite(t, w.Edge, nil).URL + "/sse", HTTPClient: hc}
			}
			var progress atomic.Int64
			c := gosdk.NewClient(&gosdk.Implementation{Name: "go-sdk", Version: "1"}, &gosdk.ClientOptions{
				ProgressNotificationHandler: func(context.Context, *gosdk.ProgressNotificationClientRequest) { progress.Add(1) },
			})
			s, err := c.Connect(t.Context(), tr, nil)
			require.NoError(t, err)
			defer s.Close()
			l, err := s.ListTools(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, l.Tools, len(w.opt.Tools))
			open, err := s.CallTool(t.Context(), &gosdk.CallToolParams{Name: "session_open", Arguments: map[string]any{}})
			require.NoError(t, err)
			require.False(t, open.IsError)
			id := open.StructuredContent.(map[string]any)["session"].(string)

			p := &gosdk.CallToolParams{Name: "shell_run", Arguments: map[string]any{"session": id, "command": "for i in 1 2 3; do echo $i; sleep 0.3; done; exit 4"}}
			p.SetProgressToken("token")
			r, err := s.CallTool(t.Context(), p)
			require.NoError(t, err)
			assert.False(t, r.IsError)
			assert.EqualValues(t, 4, r.StructuredContent.(map[string]any)["exit_code"])
			require.Eventually(t, func() bool { return progress.Load() >= 2 }, patience, 5*time.Millisecond)

			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for alive(w, id) != 1 {
					time.Sleep(5 * time.Millisecond)
				}
				cancel()
			}()
			_, err = s.CallTool(ctx, &gosdk.CallToolParams{Name: "shell_run", Arguments: map[string]any{"session": id, "command": "sleep 77"}})
			require.Error(t, err)
			require.Eventually(t, func() bool { return alive(w, id) == 0 }, patience, 5*time.Millisecond, "a cancel ends the work")
			r, err = s.CallTool(t.Context(), &gosdk.CallToolParams{Name: "shell_run", Arguments: map[string]any{"session": id, "command": "true"}})
			require.NoError(t, err, "the connection lives on")
			assert.False(t, r.IsError)
		})
	}
}

func TestMCPGosClientOverEachTransport(t *testing.T) {
	for _, name := range []string{"stdio", "http", "sse"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			auth := map[string]string{"Authorization": "Bearer " + testToken}
			var c *mcpgo.Client
			var err error
			switch name {
			case "stdio":
				in, out := pipes(t, w.Edge)
				c = mcpgo.NewClient(transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))))
			case "http":
				c, err = mcpgo.NewStreamableHttpClient(newSite(t, w.Edge, nil).URL+"/mcp", transport.WithHTTPHeaders(auth))
			case "sse":
				c, err = mcpgo.NewSSEMCPClient(newSite(t, w.Edge, nil).URL+"/sse", transport.WithHeaders(auth))
			}
			require.NoError(t, err)
			require.NoError(t, c.Start(t.Context()))
			defer c.Close()
			var init mcp.InitializeRequest
			init.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
			init.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
			_, err = c.Initialize(t.Context(), init)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					var r mcp.CallToolRequest
					r.Params.Name = "shell_run"
					r.Params.Arguments = map[string]any{"command": fmt.Sprintf("echo out-%d; exit %d", i, i)}
					res, err := c.CallTool(t.Context(), r)
					if !assert.NoError(t, err) {
						return
					}
					m, _ := res.StructuredContent.(map[string]any)
					assert.EqualValues(t, i, m["exit_code"])
				})
			}
			wg.Wait()
			assert.Equal(t, 1, w.launcher.launches(), "one default session for the client")
		})
	}
}
