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
	"strconv"
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
func mmdebstrapPath(path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
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
	lines := &lineWriter{stage: newStages(report), log: &tail{max: 256 << 10}}
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

// cause picks the lines that say why from the program's output: of a package
// that cannot be installed, what it said last.
func (m *mmdebstrap) cause(log string) string {
	before := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "dpkg: error processing"):
			return bounded(before + "; " + line)
		case strings.Contains(line, "dpkg: error processing"):
			return bounded(line) // the package's script ended without a line break
		case strings.HasPrefix(line, "E: "):
			return bounded(line)
		}
		before = line
	}
	return lastLine(log)
}

// stages turns the program's output into a stage and a percentage.
type stages struct {
	report func(stage string, percent int, line string)
	name   string
	base   int  // percentage at which the stage begins
	next   int  // and ends
	most   bool // past the base system, with nearly all packages to come
	total  int  // packages of this apt run
	done   int  // of them, in this stage
}

func newStages(report func(string, int, string)) *stages {
	return &stages{report: report, name: "starting", next: pctFetch}
}

var newPackages = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)

// line reads one line of output.
func (s *stages) line(line string) {
	switch {
	case strings.HasPrefix(line, "I: running apt-get update"):
		s.enter("reading package lists", 1, 1)
	case strings.HasPrefix(line, "I: downloading packages"):
		s.enter("installing the base system", 2, 2)
	case strings.HasPrefix(line, "I: installing remaining packages"):
		s.enter("fetching packages", pctFetch, pctUnpack)
		s.most, s.total = true, 0
	case strings.HasPrefix(line, "I: running --customize-hook"), strings.HasPrefix(line, "I: cleaning package lists"):
		s.enter("finishing", pctPack, pctPack)
	case strings.HasPrefix(line, "I: creating tarball"):
		s.enter("packing", pctPack, pctImport)
	case !s.most: // a few lines of the base system
	case strings.HasPrefix(line, "Get:"):
		s.done++
	case strings.HasPrefix(line, "Unpacking "), strings.HasPrefix(line, "Setting up "):
		if s.name != "installing packages" {
			s.total *= 2 // each is unpacked and set up; dpkg does it in turns
		}
		s.enter("installing packages", pctUnpack, pctPack)
		s.done++
	default:
		if m := newPackages.FindStringSubmatch(line); m != nil {
			s.total, _ = strconv.Atoi(m[1])
		}
	}
	s.report(s.name, s.percent(), line)
}

// enter begins a stage unless it has begun, or a later one has.
func (s *stages) enter(name string, from, to int) {
	if s.name != name && from >= s.base {
		s.name, s.base, s.next, s.done = name, from, to, 0
	}
}

func (s *stages) percent() int {
	if s.total == 0 {
		return s.base
	}
	return s.base + (s.next-s.base)*min(s.done, s.total)/s.total
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
	_, _ = w.log.Write(p)
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
