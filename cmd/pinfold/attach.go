package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/sandbox"
)

const attachLong = `Open a terminal in the sandbox of a running session, as the same user that the
agent's commands run as. The session's journal records that it was attached.

Ctrl-] leaves the terminal; the shell in it ends, the session goes on. SESSION
may be shortened to what is unambiguous.`

func attachCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "attach SESSION",
		Short:             "Open a terminal in a running session's sandbox",
		Long:              attachLong,
		Example:           examples("pinfold attach ses_4f1k2m", "pinfold sessions"),
		Args:              args(cobra.ExactArgs(1), "attach needs one session; 'pinfold sessions' lists them"),
		ValidArgsFunction: completeSessions,
		RunE: func(cmd *cobra.Command, given []string) error {
			dir, id, err := findSession(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			return a.attach(cmd.Context(), dir, id)
		},
	}
}

// findSession looks a session up by its id, its name or the beginning of its id.
func findSession(ctx context.Context, want string) (dir, id string, err error) {
	type hit struct{ dir, id string }
	var exact, prefix []hit
	for _, s := range servers(ctx) {
		for _, x := range s.Sessions {
			switch h := (hit{s.dir, x.ID}); {
			case x.State == parkedState:
				if x.ID == want {
					return "", "", fail("An agent resumes it with session_open; there is nothing to attach to until then.", "the session %s is parked", x.ID)
				}
			case x.ID == want || x.Name != "" && x.Name == want:
				exact = append(exact, h)
			case strings.HasPrefix(x.ID, want) || strings.HasPrefix(x.ID, "ses_"+want):
				prefix = append(prefix, h)
			}
		}
	}
	found := exact
	if len(found) == 0 {
		found = prefix
	}
	switch len(found) {
	case 1:
		return found[0].dir, found[0].id, nil
	case 0:
		return "", "", fail("List the sessions with 'pinfold sessions'.", "no running session is called %q", printable(want))
	}
	return "", "", fail("Give more of the id; 'pinfold sessions' lists them.", "%d sessions begin with %q", len(found), printable(want))
}

// ctrlD ends the input of a terminal.
const ctrlD = 0x04

func (a *app) attach(ctx context.Context, dir, id string) error {
	conn, err := dialControl(ctx, dir)
	if err != nil {
		return fail("List the sessions with 'pinfold sessions'.", "the server of session %s does not answer", id)
	}
	defer conn.Close()
	t, err := takeTerminal(a.stdin)
	if err != nil {
		return err
	}
	defer t.giveBack()
	if t != nil {
		fmt.Fprintf(a.stderr, "Attached to %s; ctrl-] leaves.\r\n", id)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := writeMessage(conn, frameRequest, controlRequest{Op: "attach", Session: id, Size: t.size()}); err != nil {
		return err
	}
	out := &frameWriter{w: conn}
	wg.Go(func() {
		t.watchSize(ctx, func(s sandbox.TermSize) {
			if b, err := json.Marshal(s); err == nil {
				_ = out.frame(frameSize, b)
			}
		})
	})
	keys := &detachReader{r: a.stdin}
	// The goroutine may stay in Read when the shell ends first; the process ends then.
	go func() {
		_, _ = io.Copy(out, keys)
		if t == nil && !keys.detached.Load() {
			// What was piped in has ended: the shell is told as a person would, and
			// answers what it still has to.
			_, _ = out.Write([]byte{ctrlD})
			return
		}
		// The server takes the end of our half as the end of the attach.
		_ = conn.CloseWrite()
	}()
	end, err := readAttach(conn, a.stdout)
	t.giveBack()
	if t != nil {
		fmt.Fprintf(a.stderr, "\r\nLeft %s.\r\n", id)
	}
	switch {
	case keys.detached.Load():
		return nil
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fail("The session may have ended; 'pinfold sessions' lists the others.", "the connection to the session was lost")
	case end.Error != nil:
		return end.Error.failure()
	case end.ExitCode != 0:
		return exitCode(end.ExitCode)
	}
	return nil
}

// readAttach copies the terminal's output until its end.
func readAttach(r io.Reader, out io.Writer) (attachEnd, error) {
	for {
		t, body, err := readFrame(r)
		if err != nil {
			return attachEnd{}, err
		}
		switch t {
		case frameData:
			if _, err := out.Write(body); err != nil {
				return attachEnd{}, err
			}
		case frameEnd:
			var e attachEnd
			return e, json.Unmarshal(body, &e)
		case frameReply:
			var r controlReply
			if err := json.Unmarshal(body, &r); err != nil {
				return attachEnd{}, err
			}
			return attachEnd{Error: r.Error}, nil
		default:
			return attachEnd{}, errors.New("a frame of an unknown type")
		}
	}
}
