package podman

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// runtimes knows which runtime starts containers here. That is found out by
// starting one, and remembered on disk for as long as kernel, cgroups and the
// programs are the same.
type runtimes struct {
	cache   string            // file
	paths   map[string]string // installed, by name
	only    string            // the operator's choice for IsolationContainer
	foreign bool              // the service is not ours

	mu    sync.Mutex
	known map[string]bool // name → starts
}

// remembered is the file's content.
type remembered struct {
	Key    string          `json:"key"`
	Starts map[string]bool `json:"starts"`
}

// key names the circumstances under which an observation holds.
func (r *runtimes) key() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	parts := []any{unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), cgroups()}
	for _, name := range []string{crun, runc, runsc} {
		if st, err := os.Stat(r.paths[name]); err == nil {
			parts = append(parts, r.paths[name], st.Size(), st.ModTime().UnixNano())
		}
	}
	b, _ := json.Marshal(parts)
	return string(b)
}

// candidates are the runtimes to try for an isolation, the best first. A
// runtime seen to start goes first; one seen to fail goes last, for the fault
// may have been mended.
func (r *runtimes) candidates(isolation sandbox.Isolation) ([]string, error) {
	var names []string
	switch {
	case isolation == sandbox.IsolationGVisor:
		names = []string{runsc}
	case r.only != "":
		names = []string{r.only}
	default:
		names = []string{crun, runc}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return r.paths[n] == "" })
	if r.foreign && isolation != sandbox.IsolationGVisor {
		return []string{""}, nil // its own default, looked at afterwards
	}
	if r.foreign {
		return []string{runsc}, nil
	}
	if len(names) == 0 {
		e := sandbox.Errorf(sandbox.FailedPrecondition, "Install crun or runc (`sudo apt install crun`), or run `make setup`.", "no container runtime is installed")
		if isolation == sandbox.IsolationGVisor {
			e = sandbox.Errorf(sandbox.FailedPrecondition, "Install gVisor's runsc (`make setup` builds it), or use isolation container.", "isolation gvisor needs the program runsc, which is not installed")
		}
		e.Reason = "isolation_missing"
		return nil, e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	rank := func(n string) int {
		works, tried := r.known[n]
		switch {
		case tried && works:
			return 0
		case !tried:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names, nil
}

// load reads what was remembered, once.
func (r *runtimes) load() {
	if r.known != nil {
		return
	}
	r.known = map[string]bool{}
	var m remembered
	if b, err := os.ReadFile(r.cache); err == nil && json.Unmarshal(b, &m) == nil && m.Key == r.key() && m.Starts != nil {
		r.known = m.Starts
	}
}

// saw remembers whether a runtime started a container.
func (r *runtimes) saw(name string, starts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	if name == "" {
		return
	}
	if was, tried := r.known[name]; tried && was == starts {
		return
	}
	r.known[name] = starts
	b, err := json.Marshal(remembered{Key: r.key(), Starts: r.known})
	if err != nil || os.MkdirAll(filepath.Dir(r.cache), 0o755) != nil {
		return
	}
	// Losing it costs one more try at the next start.
	tmp := r.cache + ".new"
	if os.WriteFile(tmp, b, 0o600) == nil {
		_ = os.Rename(tmp, r.cache)
	}
}
