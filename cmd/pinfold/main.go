// Command pinfold gives an LLM agent hands inside one rootless Podman sandbox
// per session: an MCP server and the verbs of the people around it.
//
// Exit codes: 0 done, 1 failure, 2 wrong usage; run passes the command's own
// on, 128+N for signal N, and has 125 for a failure of Pinfold itself, 126 for
// a command that cannot be run and 127 for one that is not there.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A reader of ours that goes away must show as an error of the write, not as
	// a death without cleaning up. Ignoring the signal would pass on to children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	rememberOrigin()
	if err := becomePlainUser(); err != nil {
		what, next := explain(err)
		fmt.Fprintf(os.Stderr, "pinfold: %s\n%s\n", what, next)
		os.Exit(exitFailure)
	}
	os.Exit(process())
}

// process is the program in its own process: environment, signals, streams.
func process() int {
	deriveEnvironment()
	ctx, stop := signals(context.Background())
	defer stop()
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// run is the whole program but for the process's own state; it returns the
// exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.report(root.ExecuteContext(ctx))
}

// signals ends the context on the first SIGINT, SIGTERM or SIGHUP; a second
// one ends the process at once.
func signals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s, ok := <-c
		if !ok {
			return
		}
		cancel(signalled{s.(syscall.Signal)})
		if s, ok = <-c; ok {
			os.Exit(128 + int(s.(syscall.Signal)))
		}
	}()
	return ctx, func() { signal.Stop(c); close(c); cancel(nil) }
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return s.signal.String() }
