package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pinfold.dev/pinfold/mcp"
	"pinfold.dev/pinfold/sandbox/podman"
	"pinfold.dev/pinfold/templates"
)

const serveLong = `Serve MCP. A client starts this command and speaks over stdin and stdout;
with --http it listens on a loopback address instead.

Every session gets one rootless Podman sandbox, started behind its first call.
The server ends within three seconds of its client, and its sandboxes with it;
one whose workspace holds changes is kept and can be resumed.

Every flag can stand in config.yaml too (log-level as log_level), and in the
environment (PINFOLD_LOG_LEVEL). A flag wins over the environment, that over
the user's file, and the operator's /etc/pinfold/config.yaml over all.`

func serveCommand(a *app) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP to a client, over stdio or HTTP",
		Long:  serveLong,
		Example: examples("pinfold serve", "pinfold serve --workspace ~/src/shop:overlay",
			"pinfold serve --template untrusted-code --tools minimal", "pinfold serve --http 127.0.0.1:7300"),
		Args: args(cobra.NoArgs, "serve takes no arguments; a folder is given by --workspace"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadSettings(cmd.Flags(), os.Environ(), config)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), a, s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config, "config", "", "settings file (default $XDG_CONFIG_HOME/pinfold/config.yaml)")
	f.String("http", "", "listen on this loopback address instead of stdio, such as 127.0.0.1:7300")
	f.Bool("sse", false, "with --http: serve the older SSE transport too")
	f.Bool("no-auth", false, "with --http: ask for no token; any program of any user of this machine may then call")
	f.String("template", "offline", "template that sessions start from")
	f.String("workspace", "", "workspace of sessions, DIR[:mode], mode overlay; or \"volume\" (default: by the template)")
	f.StringArray("roots", nil, "folder under which the model may place an overlay; may be repeated")
	f.String("policy", "default", "policy by name, from $XDG_CONFIG_HOME/pinfold/policies")
	f.String("tools", "core", "tools to offer: minimal, core or all")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-file", "", "write the log to this file too, as JSON")
	completeWords(cmd, "tools", "minimal", "core", "all")
	completeWords(cmd, "log-level", "debug", "info", "warn", "error")
	completeTemplates(cmd)
	return cmd
}

// serving is one running server and what it holds on the host.
type serving struct {
	log      *slog.Logger
	logFile  io.Closer
	instance *instance
	engine   *podman.Engine
	server   *mcp.Server
	control  *control
	stopTidy context.CancelFunc
	tidied   chan struct{}
}

func serve(ctx context.Context, a *app, s settings) error {
	if s.HTTP != "" {
		return serveHTTP(ctx, a, s)
	}
	ppid := os.Getppid()
	out, err := a.protocolStream()
	if err != nil {
		return err
	}
	v, err := open(a, s, "stdio")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// From the first sign of the client's end a clock runs, whatever hangs.
	clock := &deadman{stderr: a.stderr}
	defer clock.disarm()
	defer context.AfterFunc(ctx, clock.arm)()
	stop, err := watchParent(ppid, cancel)
	if err != nil {
		return errors.Join(err, v.close(clock.context))
	}
	defer stop()
	if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.stderr, "Waiting for an MCP client on stdin, which is a terminal; 'pinfold config CLIENT' says how clients start this themselves.")
	}
	err = v.server.ServeStdio(ctx, &eofReader{Reader: a.stdin, onEOF: clock.arm}, out)
	v.log.Info("server ends", "why", why(ctx, err))
	return errors.Join(ended(ctx, err), v.close(clock.context))
}

// open makes everything of a server that touches no engine, or nothing.
func open(a *app, s settings, transport string) (*serving, error) {
	v := &serving{}
	if err := v.fill(a, s, transport); err != nil {
		// Nothing runs yet that could take its time to end.
		return nil, errors.Join(err, v.close(func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }))
	}
	v.tidy()
	return v, nil
}

func (v *serving) fill(a *app, s settings, transport string) error {
	set, err := loadTemplates()
	if err != nil {
		return err
	}
	if err := checkStart(set, &s); err != nil {
		return err
	}
	policy, err := loadPolicy(s.Policy)
	if err != nil {
		return err
	}
	if v.log, v.logFile, err = newLog(a.stderr, s.LogLevel, s.LogFile); err != nil {
		return err
	}
	if v.instance, err = newInstance(); err != nil {
		return err
	}
	if v.engine, err = openEngine(v.instance, v.log); err != nil {
		return err
	}
	if v.server, err = newServer(s, v.instance, v.engine, set, policy, v.log); err != nil {
		return err
	}
	info := serverInfo{ID: v.instance.id, PID: os.Getpid(), Version: version, Transport: transport, Started: time.Now().UTC()}
	if v.control, err = listenControl(v.instance.socket(), info, v.server, v.log); err != nil {
		return err
	}
	v.log.Info("server starts", "server", v.instance.id, "version", version, "transport", transport,
		"template", s.Template, "policy", policy.Name, "policy_sha256", policy.Digest())
	return nil
}

// checkStart refuses at the start what every session would be refused for, and
// resolves the host's folders.
func checkStart(set *templates.Set, s *settings) error {
	t, err := set.Get(s.Template)
	if err != nil {
		return err
	}
	if s.Workspace.Mode != "" {
		spec, err := t.Spec("check", "", templates.Choice{Workspace: s.Workspace})
		if err != nil {
			return err
		}
		s.Workspace = spec.Workspace
	}
	for i, r := range s.Roots {
		if s.Roots[i], err = templates.Source(r); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes what servers that no longer live left behind. It runs beside the
// server, which answers its client meanwhile.
func (v *serving) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	v.tidied = make(chan struct{})
	v.stopTidy = cancel
	go func() {
		defer close(v.tidied)
		defer cancel()
		if err := v.engine.Reconcile(ctx, alive); err != nil {
			v.log.Debug("removing what earlier servers left", "err", err)
		}
		if err := sweep(); err != nil {
			v.log.Debug("removing folders of earlier servers", "err", err)
		}
	}()
}

// close ends the sessions and lets go of everything that there is.
func (v *serving) close(bound func() (context.Context, context.CancelFunc)) error {
	ctx, cancel := bound()
	defer cancel()
	if v.control != nil {
		v.control.Close()
	}
	if v.stopTidy != nil {
		v.stopTidy()
	}
	var errs []error
	if v.server != nil {
		errs = append(errs, v.server.Close(ctx))
	}
	if v.tidied != nil {
		<-v.tidied
	}
	if v.engine != nil {
		errs = append(errs, v.engine.Close())
	}
	if v.instance != nil {
		errs = append(errs, v.instance.Close())
	}
	if v.logFile != nil {
		errs = append(errs, v.logFile.Close())
	}
	return errors.Join(errs...)
}

// protocolStream is where answers go: the real stdout, put out of reach of
// everything else, or the writer of a test.
func (a *app) protocolStream() (*os.File, error) {
	if f, ok := a.stdout.(*os.File); ok && f.Fd() == 1 {
		return protectStdout()
	}
	f, ok := a.stdout.(*os.File)
	if !ok {
		return nil, fail("Run it with stdout open.", "serve needs a stream to answer on")
	}
	return f, nil
}

func why(ctx context.Context, err error) string {
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause.Error()
	case err != nil:
		return err.Error()
	}
	return "stdin ended"
}

// ended turns the ways in which a server ends in order into none.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("serving: %w", err)
}
