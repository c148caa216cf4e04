package browser

import (
	"context"
	"io"
)

// Host is the machine that Chromium runs on: the sandbox. Its methods may be
// called concurrently. Errors that have a method Typed are passed on as they
// are; others are wrapped as unavailable.
type Host interface {
	// Launch starts one process as the browser's own user and returns its
	// stdin and stdout as one stream. argv holds a fixed shell script and
	// flags; env is the whole environment. The process lives until Kill, until
	// it ends by itself, or until its Process is closed; ctx bounds the start
	// only.
	Launch(ctx context.Context, argv, env []string) (Process, error)
	// Kill ends every process of the browser's user and waits until they are
	// gone. Nothing to end is no error.
	Kill(ctx context.Context) error
	// Import moves a finished download out of the browser's folder into the
	// workspace. from is an absolute path as Chromium sees it; name is a cleaned
	// file name without folders. It never overwrites: the answer is the path
	// that was really used, relative to the workspace, and the size in bytes.
	Import(ctx context.Context, from, name string) (workspacePath string, bytes int64, err error)
	// Export makes one regular file of the workspace readable for Chromium and
	// returns the path as Chromium sees it and the size in bytes. A missing
	// file, a folder, a device and a path that leads out of the workspace are
	// errors.
	Export(ctx context.Context, workspacePath string) (browserPath string, bytes int64, err error)
	// Save writes data under /session/browser as the user of the agent and
	// returns the absolute path in the sandbox. name has no folders.
	Save(ctx context.Context, name string, data []byte) (path string, err error)
}

// Listener is an optional part of a Host: the TCP ports on which something
// listens inside, for the error of a refused connection.
type Listener interface {
	Listening(ctx context.Context) ([]int, error)
}

// Process is one exec in the sandbox: its stdin and stdout as a stream. Close
// ends the stream and, as far as the engine can, the process.
type Process interface {
	io.ReadWriteCloser
	// Stderr returns what the process wrote to stderr so far, or its end, at
	// most a few kilobytes.
	Stderr() string
}

// Options tells where the browser keeps its files and how it is started.
type Options struct {
	// Home is the browser's own folder as Chromium sees it; it holds profile,
	// downloads and caches. Default /browser.
	Home string
	// Workspace is the tree that files are uploaded from. Default /workspace.
	Workspace string
	// NoGPU adds the switches that Chromium needs under gVisor.
	NoGPU bool
	// Logf gets what is worth a debug line: never page text. Default: nothing.
	Logf func(format string, args ...any)
}
