package podman

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Percentages at which the stages of a build begin; measured on a build of
// 170 s whose packages came from a near mirror.
const (
	pctFetch   = 3
	pctUnpack  = 25
	pctSetUp   = 50
	pctPack    = 62
	pctImport  = 72
	pctNoMap   = 84
	pctKeepID  = 92
	rootfsSize = 1300 << 20 // bytes of the tar archive, for its part of the bar
)

// buildStop is how long mmdebstrap may take to unmount and remove its root
// after a signal, before it is killed and we remove it.
const buildStop = 20 * time.Second

// mmdebstrap makes the root file system of a recipe in a user namespace of its
// own and writes it as a tar archive. Nothing runs as the host's root.
type mmdebstrap struct {
	program string
	sources string // deb822
	release osRelease
	recipe  sandbox.Recipe
	dir     string // folder of ours with mode 0711; the mapped root must reach it
	options []string
}

// mmdebstrapPath finds the program, or says what to install.
func mmdebstrapPath() (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		p := filepath.Join(dir, "mmdebstrap")
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	e := sandbox.Errorf(sandbox.FailedPrecondition,
		"Install it (`sudo apt install mmdebstrap`, or `make setup`), or build on a base image: `pinfold image build --base REFERENCE`.",
		"mmdebstrap, which makes the image, was not found")
	e.Reason = "mmdebstrap_missing"
	return "", e
}

func (m *mmdebstrap) args() []string {
	a := []string{
		"--verbose", "--mode=unshare", "--variant=minbase", "--format=tar",
		"--include=" + strings.Join(m.recipe.PackagesFor(m.release.ID), ","),
		"--aptopt=APT::Install-Recommends false",
		"--aptopt=Acquire::Languages none",
	}
	for _, o := range m.options {
		a = append(a, "--aptopt="+o)
	}
	for _, x := range m.recipe.Excludes {
		if keep, ok := strings.CutPrefix(x, "!"); ok {
			a = append(a, "--dpkgopt=path-include="+keep)
		} else {
			a = append(a, "--dpkgopt=path-exclude="+x)
		}
	}
	return append(a, "--customize-hook="+filepath.Join(m.dir, "customize.sh"), m.release.Codename, "-", "-")
}

// run writes the archive to out and returns when the program has ended and
// removed its root.
func (m *mmdebstrap) run(ctx context.Context, out io.Writer, report func(stage string, percent int, line string)) error {
	hook := filepath.Join(m.dir, "customize.sh")
	if err := os.WriteFile(hook, []byte(m.recipe.Customize), 0o755); err != nil {
		return fmt.Errorf("writing the recipe's script: %w", err)
	}
	if err := os.Chmod(hook, 0o755); err != nil { // whatever the umask
		return fmt.Errorf("opening the recipe's script: %w", err)
	}
	cmd := exec.CommandContext(ctx, m.program, m.args()...)
	cmd.Dir = m.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + m.dir, "TMPDIR=" + m.dir, "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Stdin, cmd.Stdout = strings.NewReader(m.sources), out
	lines := &lineWriter{stage: newStages(report), log: &tail{max: 16 << 10}}
	cmd.Stderr = lines
	// Its own group keeps a Ctrl-C of the terminal from reaching its children
	// before it: it alone knows how to take its mounts down.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = buildStop

	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal follows the thread that forked
		done <- cmd.Run()
	}()
	err := <-done
	lines.flush()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left, if anything
	}
	if ctx.Err() != nil {
		return fromContext(ctx.Err())
	}
	if err == nil {
		return nil
	}
	e := sandbox.Errorf(sandbox.Unavailable,
		"Check that apt works on this host (`apt-get update`) and build again; `pinfold image build` shows the whole output.",
		"making the image's root file system failed while %s: %s", lines.stage.name, m.cause(lines.log.String()))
	e.Reason, e.Cause = "image_build", fmt.Errorf("%w: %s", err, lines.log.String())
	return hostError(errors.New(lines.log.String()), e)
}

// cause picks the line that says why from the end of the program's output.
func (m *mmdebstrap) cause(log string) string {
	found := lastLine(log)
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "E: ") {
			return bounded(strings.TrimSpace(line))
		}
	}
	return found
}

// stages turns the program's output into a stage and a percentage.
type stages struct {
	report   func(stage string, percent int, line string)
	name     string
	base     int
	next     int
	total    int // packages
	unpacked int
	set      int
	fetched  int
}

func newStages(report func(string, int, string)) *stages {
	return &stages{report: report, name: "starting", next: pctFetch}
}

var newPackages = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)

// line reads one line of output.
func (s *stages) line(line string) {
	switch {
	case strings.HasPrefix(line, "I: running apt-get update"):
		s.name, s.base, s.next = "reading package lists", 1, pctFetch
	case strings.HasPrefix(line, "I: downloading packages"), strings.HasPrefix(line, "I: installing remaining packages"):
		s.name, s.base, s.next = "fetching packages", pctFetch, pctUnpack
		s.fetched, s.unpacked, s.set, s.total = 0, 0, 0, 0
	case strings.HasPrefix(line, "I: extracting archives"), strings.HasPrefix(line, "I: installing essential"):
		s.name, s.base, s.next = "installing the base system", pctFetch, pctFetch
	case strings.HasPrefix(line, "I: running --customize-hook"), strings.HasPrefix(line, "I: cleaning package lists"):
		s.name, s.base, s.next = "finishing", pctPack, pctPack
	case strings.HasPrefix(line, "I: creating tarball"):
		s.name, s.base, s.next = "packing", pctPack, pctImport
	case strings.HasPrefix(line, "Get:"):
		s.fetched++
	case strings.HasPrefix(line, "Unpacking "):
		if s.total > 0 {
			s.name, s.base, s.next = "unpacking packages", pctUnpack, pctSetUp
		}
		s.unpacked++
	case strings.HasPrefix(line, "Setting up "):
		if s.total > 0 && s.unpacked >= s.total/2 {
			s.name, s.base, s.next = "setting up packages", pctSetUp, pctPack
		}
		s.set++
	default:
		if m := newPackages.FindStringSubmatch(line); m != nil {
			fmt.Sscan(m[1], &s.total)
		}
	}
	s.report(s.name, s.percent(), line)
}

func (s *stages) percent() int {
	done := 0
	switch s.name {
	case "fetching packages":
		done = s.fetched
	case "unpacking packages":
		done = s.unpacked
	case "setting up packages":
		done = s.set
	}
	if s.total == 0 {
		return s.base
	}
	return s.base + (s.next-s.base)*min(done, s.total)/s.total
}

// lineWriter splits what a program prints into lines.
type lineWriter struct {
	mu    sync.Mutex
	rest  []byte
	stage *stages
	log   *tail
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.Write(p)
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexAny(w.rest, "\r\n")
		if i < 0 {
			break
		}
		if line := strings.TrimSpace(string(w.rest[:i])); line != "" {
			w.stage.line(bounded(line))
		}
		w.rest = w.rest[i+1:]
	}
	if len(w.rest) > 64<<10 {
		w.rest = nil // no line of apt is that long
	}
	return len(p), nil
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := strings.TrimSpace(string(w.rest)); line != "" {
		w.stage.line(bounded(line))
	}
	w.rest = nil
}

// aptOptions returns the host's own way to its mirror: proxies, retries, and
// whether old indexes are accepted.
func aptOptions(ctx context.Context) []string {
	cmd := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", `%f "%v"%n`, "Acquire")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	out, err := cmd.Output()
	if err != nil {
		return nil // a host without own configuration
	}
	var options []string
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		name, _, _ := strings.Cut(sc.Text(), " ")
		lower := strings.ToLower(name)
		for _, wanted := range []string{"acquire::http::", "acquire::https::", "acquire::check-valid-until", "acquire::check-date", "acquire::retries"} {
			if strings.HasPrefix(lower, wanted) && !strings.Contains(lower, "user-agent") {
				options = append(options, sc.Text())
				break
			}
		}
	}
	return options
}
