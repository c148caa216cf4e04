// Command soak opens, uses and closes sessions of one server for a while, and
// fails when the server, its descriptors or anything of a session grows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"pinfold.dev/pinfold/e2e/story"
)

// Growth that is allowed between the warm server and the end. The heap of a
// server in use swings by some MiB; a leak of one page a session would pass 16
// MiB only after four thousand.
const (
	warmRounds  = 3
	growRSS     = 16 << 20
	growFiles   = 4
	growThreads = 8
)

func main() {
	bin := flag.String("bin", "bin/pinfold", "the pinfold binary")
	last := flag.Duration("for", 10*time.Minute, "how long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, *bin, *last); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// usage is what one process holds.
type usage struct{ rss, files, threads int64 }

func (u usage) String() string {
	return fmt.Sprintf("%d MiB resident, %d descriptors, %d threads", u.rss>>20, u.files, u.threads)
}

func soak(ctx context.Context, bin string, last time.Duration) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, "serve", "--tools", "all")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", bin, err)
	}
	c, err := story.DialMCPGo(ctx, transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))))
	if err != nil {
		return errors.Join(fmt.Errorf("starting %s serve: %w", bin, err), cmd.Process.Kill(), cmd.Wait())
	}
	began, rounds := time.Now(), 0
	var warm, now usage
	var sessions []string
	for rounds <= warmRounds || time.Since(began) < last {
		session, failed := round(ctx, c, rounds)
		sessions = append(sessions, session)
		if err = failed; err != nil {
			break
		}
		rounds++
		if now, err = of(cmd.Process.Pid); err != nil {
			break
		}
		if rounds == warmRounds {
			warm = now
		}
		fmt.Printf("%6s  %4d sessions  %s\n", time.Since(began).Round(time.Second), rounds, now)
	}
	err = errors.Join(err, c.Close())
	if closed := in.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	if ended := cmd.Wait(); ended != nil && err == nil {
		err = fmt.Errorf("the server ended with: %w", ended)
	}
	if err != nil {
		return err
	}
	fmt.Printf("warm:  %s\nend:   %s\n", warm, now)
	if now.rss-warm.rss > growRSS || now.files-warm.files > growFiles || now.threads-warm.threads > growThreads {
		return fmt.Errorf("the server grew over %d sessions: %s, warm it had %s", rounds, now, warm)
	}
	left, err := leftovers(ctx, sessions)
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("something is left:\n%s", left)
	}
	fmt.Printf("%d sessions, nothing is left\n", rounds)
	return nil
}

// round is one session's life; every fifth has a browser.
func round(ctx context.Context, c story.Client, n int) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	opened, err := c.Call(ctx, "session_open", map[string]any{})
	if err != nil {
		return "", fmt.Errorf("session_open: %w", err)
	}
	if opened.IsError {
		return "", fmt.Errorf("session_open: %s", opened.Text)
	}
	session = opened.Str("session")
	if session == "" {
		return "", fmt.Errorf("session_open named no session: %s", opened.Text)
	}
	steps := []struct {
		tool string
		args map[string]any
	}{
		{"file_write", map[string]any{"path": "a.html", "content": "<title>soak</title><p>hello"}},
		{"shell_run", map[string]any{"command": "seq 20000; echo done >b"}},
		{"shell_run", map[string]any{"command": "sleep 600", "background": true}},
		{"code_run", map[string]any{"code": "print(sum(range(1000)))"}},
		{"file_read", map[string]any{"path": "b"}},
		{"browser_navigate", map[string]any{"url": "file:///workspace/a.html"}},
		{"session_close", map[string]any{}},
	}
	for _, s := range steps {
		if s.tool == "browser_navigate" && n%5 != 0 {
			continue
		}
		s.args["session"] = session
		r, err := c.Call(ctx, s.tool, s.args)
		if err != nil {
			return session, fmt.Errorf("%s: %w", s.tool, err)
		}
		// Whether a page of the workspace may be opened is the policy's
		// business; that it is answered is ours.
		if r.IsError && s.tool != "browser_navigate" {
			return session, fmt.Errorf("%s: %s", s.tool, r.Text)
		}
	}
	return session, nil
}

// of reads what a process holds.
func of(pid int) (usage, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return usage{}, fmt.Errorf("the server is gone: %w", err)
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return usage{}, err
	}
	u := usage{files: int64(len(fds))}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		number, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case key == "VmRSS":
			u.rss = number << 10
		case key == "Threads":
			u.threads = number
		}
	}
	return u, nil
}

// leftovers lists containers and volumes that name one of the sessions.
func leftovers(ctx context.Context, sessions []string) (string, error) {
	var left strings.Builder
	for _, argv := range [][]string{
		{"podman", "ps", "--all", "--filter", "label=pinfold.session", "--format", "container {{.Names}}"},
		{"podman", "volume", "ls", "--filter", "label=pinfold.session", "--format", "volume {{.Name}}"},
	} {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
		for line := range strings.Lines(string(out)) {
			if slices.ContainsFunc(sessions, func(s string) bool { return s != "" && strings.Contains(line, s) }) {
				left.WriteString(line)
			}
		}
	}
	return left.String(), nil
}
