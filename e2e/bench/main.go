// Command bench measures a pinfold binary from outside, beside things that do
// the same without it, and prints one table: medians, p99 and ratios. It holds
// no assertion; what is slow shows.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"pinfold.dev/pinfold/e2e/story"
)

func main() {
	bin := flag.String("bin", "bin/pinfold", "the pinfold binary")
	n := flag.Int("n", 200, "runs of each quick row")
	slow := flag.Int("slow", 200, "runs of each row that starts a server, a sandbox or a browser")
	flag.Parse()
	if os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, "bench: run as a plain user; make bench arranges it")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{bin: *bin, n: *n, slow: *slow}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	bin     string
	n, slow int
	rows    []row
}

type row struct {
	name        string
	runs        int
	median, p99 time.Duration
}

// time runs f n times after a tenth as many warm-ups and adds a row.
func (b *bench) time(name string, n int, f func() error) error {
	return b.timeBetween(name, n, nil, f, nil)
}

// timeBetween is time with what has to be done before and after each run, which
// is not measured.
func (b *bench) timeBetween(name string, n int, before, f, after func() error) error {
	nothing := func() error { return nil }
	if before == nil {
		before = nothing
	}
	if after == nil {
		after = nothing
	}
	warm := max(1, n/10)
	took := make([]time.Duration, 0, n)
	for i := range warm + n {
		if err := before(); err != nil {
			return fmt.Errorf("%s, before: %w", name, err)
		}
		start := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if i >= warm {
			took = append(took, time.Since(start))
		}
		if err := after(); err != nil {
			return fmt.Errorf("%s, after: %w", name, err)
		}
	}
	slices.Sort(took)
	r := row{name, n, took[n/2], took[min(n-1, n*99/100)]}
	b.rows = append(b.rows, r)
	fmt.Fprintf(os.Stderr, "%-58s %10s\n", r.name, ms(r.median))
	return nil
}

func (b *bench) median(name string) time.Duration {
	for _, r := range b.rows {
		if r.name == name {
			return r.median
		}
	}
	return 0
}

func (b *bench) run(ctx context.Context) error {
	if err := b.starts(ctx); err != nil {
		return err
	}
	for _, via := range []string{"stdio", "http"} {
		if err := b.warm(ctx, via, "container"); err != nil {
			return err
		}
	}
	if err := b.warm(ctx, "stdio", "gvisor"); err != nil {
		return err
	}
	if err := b.browser(ctx); err != nil {
		return err
	}
	if err := b.memory(ctx); err != nil {
		return err
	}
	b.print()
	return nil
}

// starts measures what happens from nothing.
func (b *bench) starts(ctx context.Context) error {
	if err := b.time("spawn to initialized, stdio", b.slow, func() error {
		c, err := b.dial(ctx, "serve", "--tools", "all")
		if err != nil {
			return err
		}
		return c.Close()
	}); err != nil {
		return err
	}
	c, err := b.dial(ctx, "serve", "--tools", "all")
	if err != nil {
		return err
	}
	defer c.Close()
	for _, isolation := range []string{"container", "gvisor"} {
		var session string
		if err := b.timeBetween("first result from nothing, "+isolation, b.slow, nil, func() error {
			r, err := call(ctx, c, "session_open", map[string]any{"isolation": isolation})
			if err != nil {
				return err
			}
			session = r.Str("session")
			_, err = call(ctx, c, "shell_run", map[string]any{"session": session, "command": []any{"true"}})
			return err
		}, func() error { // removal is no part of a start
			_, err := call(ctx, c, "session_close", map[string]any{"session": session})
			return err
		}); err != nil {
			return err
		}
	}
	r, err := call(ctx, c, "session_open", map[string]any{})
	if err != nil {
		return err
	}
	id, err := container(ctx, r.Str("session"))
	if err != nil {
		return err
	}
	image, err := output(ctx, "podman", "inspect", "--format", "{{.Image}}", id)
	if err != nil {
		return err
	}
	for name, runtime := range map[string]string{"podman run --rm true, same image": "runc"} {
		if err := b.time(name, b.slow, func() error {
			_, err := output(ctx, "podman", "--runtime", runtime, "run", "--rm", "--network=none", "--log-driver=none", "--entrypoint=", image, "true")
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// warm measures calls on a session that runs.
func (b *bench) warm(ctx context.Context, via, isolation string) error {
	c, err := b.connect(ctx, via)
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := call(ctx, c, "session_open", map[string]any{"isolation": isolation})
	if err != nil {
		return err
	}
	session := r.Str("session")
	note := strings.Repeat("x", 1023) + "\n"
	where := ", " + via + ", " + isolation
	rows := []struct {
		name, tool string
		args       map[string]any
	}{
		{"no-op (shell_output of an ended process)", "shell_output", nil},
		{`shell_run ["true"]`, "shell_run", map[string]any{"command": []any{"/bin/true"}}},
		{`shell_run "true"`, "shell_run", map[string]any{"command": "true"}},
		{"file_write 1 kB", "file_write", map[string]any{"path": "note", "content": note}},
		{"file_read 1 kB", "file_read", map[string]any{"path": "note"}},
		{"code_run 1+1", "code_run", map[string]any{"language": "python", "code": "1+1"}},
	}
	for _, w := range rows {
		args := w.args
		if args == nil {
			p, err := call(ctx, c, "shell_run", map[string]any{"session": session, "command": []any{"/bin/true"}})
			if err != nil {
				return err
			}
			args = map[string]any{"process": p.Str("process")}
		}
		args["session"] = session
		if err := b.time(w.name+where, b.n, func() error { _, err := call(ctx, c, w.tool, args); return err }); err != nil {
			return err
		}
	}
	if via == "stdio" {
		id, err := container(ctx, session)
		if err != nil {
			return err
		}
		if isolation == "container" {
			api, err := newExecAPI(ctx)
			if err != nil {
				return err
			}
			defer api.close()
			if err := b.time("Podman exec API, true", b.n, func() error { return api.exec(ctx, id, "/bin/true") }); err != nil {
				return err
			}
		}
	}
	_, err = call(ctx, c, "session_close", map[string]any{"session": session})
	return err
}

func (b *bench) browser(ctx context.Context) error {
	c, err := b.connect(ctx, "stdio")
	if err != nil {
		return err
	}
	defer c.Close()
	page := "<!doctype html><title>Rows</title><button onclick=\"this.textContent='clicked '+(window.n=(window.n||0)+1)\">Click</button><table>"
	for i := range 200 {
		page += fmt.Sprintf("<tr><td>%d<td>name %d<td><a href='#%d'>open</a></tr>", i, i, i)
	}
	serve := func(session string) error {
		for _, s := range []struct {
			tool string
			args map[string]any
		}{
			{"file_write", map[string]any{"path": "index.html", "content": page}},
			{"shell_run", map[string]any{"command": "python3 -m http.server 8000", "background": true}},
			{"shell_run", map[string]any{"command": "until curl -sf -o /dev/null localhost:8000; do sleep 0.05; done"}},
		} {
			s.args["session"] = session
			if _, err := call(ctx, c, s.tool, s.args); err != nil {
				return err
			}
		}
		return nil
	}
	var session string
	open := func() error {
		r, err := call(ctx, c, "session_open", map[string]any{})
		if err != nil {
			return err
		}
		session = r.Str("session")
		return serve(session)
	}
	closed := func() error {
		_, err := call(ctx, c, "session_close", map[string]any{"session": session})
		return err
	}
	if err := b.timeBetween("first page of a cold browser", b.slow, open, func() error {
		_, err := call(ctx, c, "browser_navigate", map[string]any{"session": session, "url": "http://localhost:8000/"})
		return err
	}, closed); err != nil {
		return err
	}
	if err := open(); err != nil {
		return err
	}
	if _, err := call(ctx, c, "browser_navigate", map[string]any{"session": session, "url": "http://localhost:8000/"}); err != nil {
		return err
	}
	for _, w := range []struct {
		name, tool string
		n          int
		args       map[string]any
	}{
		{"browser_navigate, snapshot of 200 rows with it", "browser_navigate", b.n, map[string]any{"url": "http://localhost:8000/"}},
		{"browser_navigate, no snapshot", "browser_navigate", b.n, map[string]any{"url": "http://localhost:8000/", "snapshot": "none"}},
		{"browser_snapshot of 200 rows", "browser_snapshot", b.n, map[string]any{}},
		{"browser_act click", "browser_act", b.n, map[string]any{"steps": []any{map[string]any{"do": "click", "on": "css=button"}}}},
		{"browser_screenshot", "browser_screenshot", b.n, map[string]any{}},
	} {
		w.args["session"] = session
		if err := b.time(w.name, w.n, func() error { _, err := call(ctx, c, w.tool, w.args); return err }); err != nil {
			return err
		}
	}
	_, err = call(ctx, c, "session_close", map[string]any{"session": session})
	return err
}

// memory reads what an idle session costs beyond the server and the service.
func (b *bench) memory(ctx context.Context) error {
	c, err := b.connect(ctx, "stdio")
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := call(ctx, c, "session_open", map[string]any{})
	if err != nil {
		return err
	}
	session := r.Str("session")
	if _, err := call(ctx, c, "shell_run", map[string]any{"session": session, "command": []any{"/bin/true"}}); err != nil {
		return err
	}
	id, err := container(ctx, session)
	if err != nil {
		return err
	}
	pid, err := output(ctx, "podman", "inspect", "--format", "{{.State.Pid}} {{.State.ConmonPid}}", id)
	if err != nil {
		return err
	}
	for i, p := range strings.Fields(pid) {
		kb, err := rss(p)
		if err != nil {
			return err
		}
		fmt.Printf("resident memory of an idle session: %s %.1f MB\n", []string{"guest", "monitor"}[i], float64(kb)/1024)
	}
	_, err = call(ctx, c, "session_close", map[string]any{"session": session})
	return err
}

func rss(pid string) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b)
	if m == nil {
		return 0, errors.New("no VmRSS for " + pid)
	}
	return strconv.Atoi(string(m[1]))
}

func (b *bench) print() {
	fmt.Printf("\n%-62s %5s %11s %11s\n", "what", "runs", "median", "p99")
	for _, r := range b.rows {
		fmt.Printf("%-62s %5d %11s %11s\n", r.name, r.runs, ms(r.median), ms(r.p99))
	}
	fmt.Println()
	noop := b.median("no-op (shell_output of an ended process), stdio, container")
	direct := b.median(`shell_run ["true"], stdio, container`)
	fmt.Printf("%-62s %s\n", `shell_run ["true"] beyond the no-op`, ms(direct-noop))
	ratio := func(what, a, c string) {
		if x, y := b.median(a), b.median(c); x > 0 && y > 0 {
			fmt.Printf("%-62s %.2f\n", what, float64(x)/float64(y))
		}
	}
	ratio(`Podman exec API over shell_run ["true"]`, "Podman exec API, true", `shell_run ["true"], stdio, container`)
	ratio("first result from nothing over podman run", "first result from nothing, container", "podman run --rm true, same image")
	ratio(`shell_run ["true"], gVisor over container`, `shell_run ["true"], stdio, gvisor`, `shell_run ["true"], stdio, container`)
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64) + " ms"
}

func (b *bench) dial(ctx context.Context, args ...string) (story.Client, error) {
	return story.DialMCPGo(ctx, transport.NewStdio(b.bin, os.Environ(), args...))
}

// connect returns a client of a fresh server over a transport.
func (b *bench) connect(ctx context.Context, via string) (story.Client, error) {
	if via == "stdio" {
		return b.dial(ctx, "serve", "--tools", "all")
	}
	cmd := exec.CommandContext(ctx, b.bin, "serve", "--tools", "all", "--http", "127.0.0.1:0", "--no-auth")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var log lockedBuffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if base := address.FindString(log.String()); base != "" {
			h, err := transport.NewStreamableHTTP(base + "/mcp")
			if err != nil {
				return nil, err
			}
			c, err := story.DialMCPGo(ctx, h)
			return &ofServer{c, cmd, in}, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no address on stderr: %s", log.String())
		}
	}
}

// ofServer ends its server with the client.
type ofServer struct {
	story.Client
	cmd *exec.Cmd
	in  io.Closer
}

func (o *ofServer) Close() error {
	err := o.Client.Close()
	return errors.Join(err, o.in.Close(), o.cmd.Process.Signal(os.Interrupt), ignoreExit(o.cmd.Wait()))
}

func ignoreExit(err error) error {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return nil
	}
	return err
}

func call(ctx context.Context, c story.Client, tool string, args map[string]any) (*story.Reply, error) {
	r, err := c.Call(ctx, tool, args)
	if err != nil {
		return nil, err
	}
	if r.IsError {
		return nil, fmt.Errorf("%s: %s", tool, r.Text)
	}
	return r, nil
}

func container(ctx context.Context, session string) (string, error) {
	return output(ctx, "podman", "ps", "-q", "--filter", "label=pinfold.session="+session)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
