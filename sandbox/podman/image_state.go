package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// buildState is the file through which every process of the user sees a build
// that one of them runs. The file alone proves nothing: a build goes on only
// while the lock beside it is held.
type buildState struct {
	Reference string    `json:"reference"`
	Stage     string    `json:"stage"`
	Percent   int       `json:"percent"`
	Updated   time.Time `json:"updated"`
	Error     string    `json:"error,omitempty"`
}

const (
	buildLockFile  = "image.lock"
	buildStateFile = "image.json"
	stateEvery     = 500 * time.Millisecond // between two writes of the state file
)

// lockBuild takes the build lock, waiting for another build until ctx ends;
// waiting is called about once a second with that build's state.
func lockBuild(ctx context.Context, dir string, waiting func(buildState)) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, buildLockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("taking the build lock: %w", err)
		}
		s, _ := readBuildState(dir) // shown only
		waiting(s)
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fromContext(ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// buildRunning reports whether some process holds the build lock.
func buildRunning(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, buildLockFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func readBuildState(dir string) (buildState, error) {
	var s buildState
	data, err := os.ReadFile(filepath.Join(dir, buildStateFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// progress receives what a build does; it writes the state file and calls the
// caller's function. Percent never goes back. Safe for concurrent use.
type progress struct {
	dir string
	ref string
	out func(stage string, percent int, line string)

	mu      sync.Mutex
	stage   string
	percent int
	written time.Time
}

func (p *progress) report(stage string, percent int, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := stage != p.stage
	p.stage = stage
	p.percent = max(p.percent, min(percent, 100))
	if changed || time.Since(p.written) >= stateEvery {
		p.write("")
	}
	if p.out != nil {
		p.out(p.stage, p.percent, line)
	}
}

// end records the outcome: the last error stays readable until the next build.
func (p *progress) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Nor is a build that somebody stopped a failure to tell of.
	if err == nil || sandbox.CodeOf(err) == sandbox.Canceled {
		os.Remove(filepath.Join(p.dir, buildStateFile))
		return
	}
	p.write(err.Error())
}

// write needs p.mu. A state file that cannot be written must not stop a build.
func (p *progress) write(failure string) {
	p.written = time.Now()
	data, err := json.Marshal(buildState{Reference: p.ref, Stage: p.stage, Percent: p.percent, Updated: p.written.UTC(), Error: failure})
	if err != nil {
		return
	}
	tmp := filepath.Join(p.dir, buildStateFile+".tmp")
	if os.WriteFile(tmp, data, 0o600) == nil {
		_ = os.Rename(tmp, filepath.Join(p.dir, buildStateFile))
	}
}

// imageState joins what the engine's storage has with what a build says.
func imageState(dir, ref, digest string) sandbox.ImageState {
	s := sandbox.ImageState{Reference: ref, Digest: digest, Ready: digest != ""}
	if s.Ready {
		return s
	}
	b, err := readBuildState(dir)
	if err != nil || b.Reference != ref {
		b = buildState{}
	}
	if s.Preparing = buildRunning(dir); s.Preparing {
		s.Stage, s.Percent = b.Stage, b.Percent
	} else {
		s.LastError = b.Error
	}
	return s
}
