package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// execAPI runs commands the way a tool without a guest would: through Podman's
// own exec endpoints, over a service and a connection that stay open.
type execAPI struct {
	cmd    *exec.Cmd
	dir    string
	client *http.Client
}

func newExecAPI(ctx context.Context) (*execAPI, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	sock := filepath.Join(dir, "s")
	a := &execAPI{dir: dir, cmd: exec.CommandContext(ctx, "podman", "--runtime", "runc", "system", "service", "--time=0", "unix://"+sock)}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", sock)
	}}}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = a.do(ctx, http.MethodGet, "/_ping", nil); err == nil {
			return a, nil
		}
		if time.Now().After(deadline) {
			a.close()
			return nil, err
		}
	}
}

func (a *execAPI) close() {
	_ = a.cmd.Process.Signal(os.Interrupt)
	_ = a.cmd.Wait()
	_ = os.RemoveAll(a.dir)
}

func (a *execAPI) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://d/v4.0.0/libpod"+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, out)
	}
	return out, err
}

// exec creates, starts and inspects one exec session.
func (a *execAPI) exec(ctx context.Context, container string, argv ...string) error {
	b, err := a.do(ctx, http.MethodPost, "/containers/"+container+"/exec", map[string]any{"Cmd": argv, "AttachStdout": true, "AttachStderr": true, "User": "1000:1000"})
	if err != nil {
		return err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(b, &made); err != nil {
		return err
	}
	if _, err := a.do(ctx, http.MethodPost, "/exec/"+made.ID+"/start", map[string]any{"Detach": false}); err != nil {
		return err
	}
	b, err = a.do(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil)
	if err != nil {
		return err
	}
	var state struct {
		ExitCode int
		Running  bool
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return err
	}
	if state.Running || state.ExitCode != 0 {
		return fmt.Errorf("exec ended with %+v", state)
	}
	return nil
}
