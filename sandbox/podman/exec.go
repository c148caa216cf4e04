package podman

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/api/handlers"
	"github.com/containers/podman/v5/pkg/bindings/containers"
	dockercontainer "github.com/docker/docker/api/types/container"

	"pinfold.dev/pinfold/sandbox"
)

// Exec starts one process under the container's own seccomp profile.
func (b *box) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Stream, error) {
	if len(spec.Argv) == 0 || spec.UID < 0 || spec.GID < 0 || (spec.Dir != "" && !path.IsAbs(spec.Dir)) {
		return nil, sandbox.Errorf(sandbox.InvalidArgument, "Give a command, ids of the sandbox and an absolute folder.", "the process to start is not described")
	}
	for _, kv := range spec.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return nil, sandbox.Errorf(sandbox.InvalidArgument, "Write KEY=value.", "%q is no environment variable", bounded(kv))
		}
	}
	select {
	case <-b.done:
		return nil, sandbox.Lost(nil)
	default:
	}
	s := b.service
	call, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	id, err := containers.ExecCreate(call, b.info.ID, &handlers.ExecCreateConfig{ExecOptions: dockercontainer.ExecOptions{
		// A bare uid would get group 0.
		User: fmt.Sprintf("%d:%d", spec.UID, spec.GID), Cmd: spec.Argv, Env: spec.Env, WorkingDir: dir,
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	}})
	if err != nil {
		return nil, b.execFault(spec, err)
	}
	h, err := s.hijack(ctx, "/exec/"+id+"/start", url.Values{}, map[string]bool{"Detach": false, "Tty": false})
	if err != nil {
		return nil, b.execFault(spec, err)
	}
	return &execStream{hijacked: h, box: b, id: id}, nil
}

func (b *box) execFault(spec sandbox.ExecSpec, err error) error {
	select {
	case <-b.done:
		return sandbox.Lost(err)
	default:
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "executable file not found"), strings.Contains(text, "no such file or directory"):
		e := sandbox.Errorf(sandbox.NotFound, "Use an image that has it.", "%s is not in the sandbox's image", spec.Argv[0])
		e.Reason, e.Cause = "missing_program", err
		return e
	case status(err) == http.StatusNotFound, status(err) == http.StatusConflict:
		return sandbox.Lost(err)
	}
	return b.service.fault("starting a process", err)
}

// execStream is the stdio of one exec.
type execStream struct {
	*hijacked
	box *box
	id  string
}

// Stderr returns the last 64 KiB that were read along with stdout.
func (e *execStream) Stderr() string { return e.stderr.String() }

// Wait returns the exit code once the process has ended.
func (e *execStream) Wait(ctx context.Context) (int, error) {
	s := e.box.service
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		call, err := s.call(ctx)
		if err != nil {
			return -1, err
		}
		got, err := containers.ExecInspect(call, e.id, nil)
		switch {
		case err != nil && status(err) == http.StatusNotFound:
			return -1, sandbox.Errorf(sandbox.Unavailable, "", "the process ended and its exit code is no longer known")
		case err != nil:
			return -1, s.fault("waiting for a process", err)
		case !got.Running:
			return got.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return -1, fromContext(ctx.Err())
		case <-e.box.done:
			return -1, sandbox.Lost(nil)
		case <-tick.C:
		}
	}
}
