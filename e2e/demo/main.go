// Command demo plays one real MCP session over stdio against a pinfold binary
// and prints each call and its result as it goes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"pinfold.dev/pinfold/e2e/story"
)

// goneWithin bounds how long the engine's own monitors may take to end after a close.
const goneWithin = 5 * time.Second

func main() {
	bin := flag.String("bin", "bin/pinfold", "the pinfold binary")
	keep := flag.String("pictures", "", "folder to write the chart and the screenshot to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, *bin, *keep); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "\ndemo: stopped; the server has ended, and the session with it.")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, bin, keep string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	began := time.Now()
	// A server in a group of its own: Ctrl-C ends our calls, and closing its stdin
	// lets it tidy up; killing it, as the transport would, leaves that to its next start.
	t := transport.NewStdioWithOptions(bin, nil, []string{"serve", "--tools", "all"}, transport.WithCommandFunc(
		func(_ context.Context, command string, env, args []string) (*exec.Cmd, error) {
			cmd := exec.Command(command, args...)
			cmd.Env = append(os.Environ(), env...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd, nil
		}))
	c, err := story.DialMCPGo(ctx, t)
	if err != nil {
		return fmt.Errorf("starting %s serve: %w", bin, err)
	}
	defer func() {
		if err != nil { // or the server would keep the workspace, for it holds changes
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_, _ = c.Call(end, "session_close", map[string]any{})
		}
		err = errors.Join(err, c.Close())
	}()
	fmt.Printf("── %s serve --tools all, initialized over stdio  %s\n", filepath.Base(bin), took(time.Since(began)))
	told, err := story.Tell(ctx, c, func(s story.Step) {
		fmt.Printf("\n── %s  %s\n→ %s %s\n", s.Say, took(s.Took), s.Tool, story.Compact(s.Args, 300))
		for line := range strings.Lines(cut(s.Reply.Text, 18)) {
			fmt.Print("← ", line)
		}
		for _, i := range s.Reply.Images {
			fmt.Printf("← [%s, %d bytes]\n", i.MediaType, len(i.Data))
		}
	})
	if err != nil {
		return err
	}
	if keep != "" {
		for name, r := range map[string]*story.Reply{"chart": told.Chart, "screenshot": told.Shot} {
			ext := strings.TrimPrefix(r.Images[0].MediaType, "image/")
			if err := os.WriteFile(filepath.Join(keep, name+"."+ext), r.Images[0].Data, 0o644); err != nil {
				return err
			}
		}
	}
	start := time.Now()
	for err = nothingLeft(ctx, bin, told.Session); err != nil; err = nothingLeft(ctx, bin, told.Session) {
		if time.Since(start) > goneWithin {
			return err
		}
	}
	fmt.Printf("\n── nothing is left of %s: no session, container, volume or process  %s\n", told.Session, took(time.Since(start)))
	fmt.Printf("\nThe whole story took %s.\n", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// nothingLeft asks past our own server: Podman for what carries the session's
// label, the system for processes that name it, our own verb for the session.
func nothingLeft(ctx context.Context, bin, session string) error {
	for _, ask := range [][]string{
		{"podman", "ps", "--all", "--quiet", "--filter", "label=pinfold.session=" + session},
		{"podman", "volume", "ls", "--quiet", "--filter", "label=pinfold.session=" + session},
	} {
		out, err := exec.CommandContext(ctx, ask[0], ask[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(ask, " "), err)
		}
		if len(out) > 0 {
			return fmt.Errorf("something of %s is left: %s printed %s", session, strings.Join(ask, " "), out)
		}
	}
	out, err := exec.CommandContext(ctx, bin, "sessions", "--json").Output()
	if err != nil {
		return fmt.Errorf("pinfold sessions --json: %w", err)
	}
	if strings.Contains(string(out), session) {
		return fmt.Errorf("%s is still listed:\n%s", session, out)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range lines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), session) {
			return fmt.Errorf("a process of %s is left: %s", session, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return nil
}

func took(d time.Duration) string { return "[" + d.Round(100*time.Microsecond).String() + "]" }

// cut keeps the first lines of a text and says how many there were.
func cut(s string, most int) string {
	lines := strings.SplitAfter(strings.TrimRight(s, "\n")+"\n", "\n")
	if len(lines) <= most {
		return strings.Join(lines, "")
	}
	return strings.Join(lines[:most], "") + fmt.Sprintf("… %d more lines\n", len(lines)-most-1)
}
