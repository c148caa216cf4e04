// Package keep holds the module's requirements while the parts that use them are being written.
package keep

import (
	_ "github.com/chromedp/chromedp"
	_ "github.com/containers/podman/v5/pkg/bindings"
	_ "github.com/containers/podman/v5/pkg/bindings/containers"
	_ "github.com/containers/podman/v5/pkg/bindings/images"
	_ "github.com/containers/podman/v5/pkg/bindings/system"
	_ "github.com/containers/podman/v5/pkg/bindings/volumes"
	_ "github.com/containers/podman/v5/pkg/specgen"
	_ "github.com/creack/pty"
	_ "github.com/goccy/go-yaml"
	_ "github.com/hashicorp/yamux"
	_ "github.com/mark3labs/mcp-go/client"
	_ "github.com/mark3labs/mcp-go/server"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/moby/profiles/seccomp"
	_ "github.com/pmezard/go-difflib/difflib"
	_ "github.com/samber/slog-multi"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	_ "golang.org/x/net/bpf"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/encoding/unicode"
)
