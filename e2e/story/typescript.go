package story

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// DialTypeScript connects the official TypeScript SDK's client, which runs in
// Node from dir (bridge.mjs with its modules) and takes calls as JSON lines.
// target is {"url":…,"token":…} or {"command":…,"args":[…]}.
func DialTypeScript(ctx context.Context, dir string, target map[string]any) (Client, error) {
	b, err := json.Marshal(target)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", "bridge.mjs", string(b))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &typeScript{cmd: cmd, in: in, wait: map[int]chan bridgeLine{}, gone: make(chan struct{})}
	go t.read(out)
	if _, err := t.do(ctx, map[string]any{"do": "ready"}); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

type typeScript struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{}

	mu   sync.Mutex
	next int
	wait map[int]chan bridgeLine
}

type bridgeLine struct {
	ID     int             `json:"id"`
	Error  string          `json:"error"`
	Result json.RawMessage `json:"result"`
}

func (t *typeScript) read(out io.Reader) {
	defer close(t.gone)
	s := bufio.NewScanner(out)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var l bridgeLine
		if json.Unmarshal(s.Bytes(), &l) != nil {
			continue
		}
		t.mu.Lock()
		c := t.wait[l.ID]
		delete(t.wait, l.ID)
		t.mu.Unlock()
		if c != nil {
			c <- l
		}
	}
}

func (t *typeScript) do(ctx context.Context, m map[string]any) (json.RawMessage, error) {
	c := make(chan bridgeLine, 1)
	t.mu.Lock()
	t.next++
	m["id"] = t.next
	t.wait[t.next] = c
	b, err := json.Marshal(m)
	if err == nil {
		_, err = t.in.Write(append(b, '\n'))
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case l := <-c:
		if l.Error != "" {
			return nil, errors.New(l.Error)
		}
		return l.Result, nil
	case <-t.gone:
		return nil, errors.New("the TypeScript client ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *typeScript) Tools(ctx context.Context) ([]string, error) {
	b, err := t.do(ctx, map[string]any{"do": "tools"})
	if err != nil {
		return nil, err
	}
	var names []string
	return names, json.Unmarshal(b, &names)
}

func (t *typeScript) Call(ctx context.Context, tool string, args map[string]any) (*Reply, error) {
	b, err := t.do(ctx, map[string]any{"do": "call", "name": tool, "arguments": args})
	if err != nil {
		return nil, err
	}
	var res struct {
		IsError           bool           `json:"isError"`
		StructuredContent map[string]any `json:"structuredContent"`
		Content           []struct {
			Type, Text, MimeType string
			Data                 []byte
		} `json:"content"`
	}
	if err := json.Unmarshal(b, &res); err != nil {
		return nil, fmt.Errorf("reading the bridge: %w", err)
	}
	r := &Reply{IsError: res.IsError, Structured: res.StructuredContent}
	for _, c := range res.Content {
		switch c.Type {
		case "text":
			r.Text += c.Text
		case "image":
			r.Images = append(r.Images, Image{c.MimeType, c.Data})
		}
	}
	return r, nil
}

func (t *typeScript) Close() error {
	_ = t.in.Close() // the bridge closes its client and ends
	<-t.gone
	return t.cmd.Wait()
}
