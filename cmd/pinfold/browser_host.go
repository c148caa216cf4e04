package main

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"time"

	"pinfold.dev/pinfold/browser"
	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox"
)

const (
	// maxHandOver bounds one file that changes sides; it fits a workspace's disk.
	maxHandOver = 1 << 30
	// closeBrowser bounds the end of Chromium, which writes its profile within a
	// tenth of it. Its stream does not tell the end: Podman keeps an exec's stream
	// open until we close it.
	closeBrowser = 600 * time.Millisecond
)

// openBrowser joins a session's sandbox and its browser, which know nothing of
// each other.
func openBrowser(log *slog.Logger) func(ctx context.Context, h mcp.BrowserHost) (mcp.Browser, error) {
	return func(_ context.Context, h mcp.BrowserHost) (mcp.Browser, error) {
		b := browser.New(browserHost{h}, browser.Options{
			Home:  sandbox.BrowserDir,
			NoGPU: h.Info().Isolation == sandbox.IsolationGVisor,
			Logf:  func(format string, args ...any) { log.Debug("browser: " + fmt.Sprintf(format, args...)) },
		})
		return closingBrowser{b}, nil
	}
}

// closingBrowser bounds the browser's end.
type closingBrowser struct{ *browser.Browser }

func (b closingBrowser) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeBrowser)
	defer cancel()
	return b.Browser.Close(ctx)
}

// browserHost is the sandbox as Chromium's machine.
type browserHost struct{ h mcp.BrowserHost }

func (b browserHost) Launch(ctx context.Context, argv, env []string) (browser.Process, error) {
	return b.h.Launch(ctx, argv, env)
}

func (b browserHost) Kill(ctx context.Context) error { return b.h.KillUID(ctx, sandbox.BrowserUID) }

func (b browserHost) Import(ctx context.Context, from, name string) (string, int64, error) {
	r, err := b.h.Transfer(ctx, sandbox.TransferRequest{From: from, To: path.Join("downloads", name), MaxBytes: maxHandOver})
	return r.Path, r.Bytes, err
}

func (b browserHost) Export(ctx context.Context, workspacePath string) (string, int64, error) {
	r, err := b.h.Transfer(ctx, sandbox.TransferRequest{
		From: workspacePath, To: path.Join(sandbox.BrowserDir, "uploads", path.Base(workspacePath)), Export: true, MaxBytes: maxHandOver,
	})
	return r.Path, r.Bytes, err
}

func (b browserHost) Save(ctx context.Context, name string, data []byte) (string, error) {
	r, err := b.h.WriteFile(ctx, sandbox.WriteRequest{Path: path.Join(sandbox.SessionDir, "browser", name), Content: data, CreateDirs: true})
	return r.Path, err
}

// Listening lists the ports that answer inside, for the words of a refused connection.
func (b browserHost) Listening(ctx context.Context) ([]int, error) {
	s, err := b.h.Status(ctx)
	if err != nil {
		return nil, err
	}
	ports := make([]int, 0, len(s.Listening))
	for _, l := range s.Listening {
		ports = append(ports, l.Port)
	}
	return ports, nil
}
