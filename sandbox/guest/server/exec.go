//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"pinfold.dev/pinfold/sandbox"
)

// Bounds of a request.
const (
	maxArgs   = 1 << 20 // bytes of a command, of its arguments, of its environment
	killLimit = 3 * time.Second
)

// handleExec runs a command and answers at its end, at its soft limit, or at
// once when it is to run in the background.
func handleExec(ctx context.Context, s *Server, args json.RawMessage, st *stream) (any, error) {
	began := time.Now()
	r, err := decode[sandbox.ExecRequest](args)
	if err != nil {
		return nil, err
	}
	p, err := s.run(r)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(r.WaitMS) * time.Millisecond
	if r.Background && r.WaitMS == 0 {
		return s.result(p, r, began), nil
	}
	s.await(ctx, p, r, wait, func() {
		_ = st.Event(p.progress())
	})
	return s.result(p, r, began), nil
}

// run checks the request, starts the command and sets its readers going.
func (s *Server) run(r sandbox.ExecRequest) (*process, error) {
	spec, err := s.specOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	p := &process{command: commandText(r), started: time.Now(), background: r.Background,
		status: sandbox.Running, tty: r.TTY != nil, lossless: r.Lossless, eof: make(chan struct{}), ended: make(chan struct{})}
	stdin, err := p.connect(&spec, r)
	if err != nil {
		return nil, ioError(err)
	}
	p.child, err = s.start(spec)
	if err != nil {
		for _, f := range append(p.readers, stdin) {
			if f != nil {
				_ = f.Close()
			}
		}
		return nil, err
	}
	p.stdin = stdin
	s.procs.add(p)
	var left sync.WaitGroup
	left.Add(len(p.readers))
	for i, f := range p.readers {
		go p.read(f, uint8(i), &left)
	}
	go func() {
		left.Wait()
		close(p.eof)
	}()
	if r.TimeoutMS > 0 {
		p.mu.Lock()
		p.limit = time.AfterFunc(time.Duration(r.TimeoutMS)*time.Millisecond, func() { s.end(p, sandbox.TimedOut, killLimit) })
		p.mu.Unlock()
	}
	go s.finish(p)
	if stdin != nil && len(r.Stdin) > 0 {
		go p.feed(r.Stdin, !r.OpenStdin && !p.tty)
	}
	return p, nil
}

// feed writes the given input, and closes it behind when no more can come.
func (p *process) feed(data []byte, last bool) {
	p.mu.Lock()
	f := p.stdin
	p.mu.Unlock()
	if f != nil {
		_, _ = f.Write(data) // a command need not read its input
	}
	if last {
		p.closeStdin()
	}
}

// connect makes the pipes or the terminal of a command. It returns our end of
// its stdin, if it has one.
func (p *process) connect(spec *startSpec, r sandbox.ExecRequest) (stdin *os.File, err error) {
	if r.TTY != nil {
		master, slave, err := openTerminal(*r.TTY)
		if err != nil {
			return nil, err
		}
		p.readers = []*os.File{master}
		spec.stdin, spec.stdout, spec.stderr, spec.tty = slave, slave, slave, true
		return master, nil
	}
	needIn := len(r.Stdin) > 0 || r.OpenStdin
	var fds [3][2]int
	err = actAs(sandbox.AgentUID, sandbox.AgentGID, func() error {
		for i := range fds {
			if i == 0 && !needIn {
				continue
			}
			if err := syscall.Pipe2(fds[i][:], syscall.O_CLOEXEC); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		for _, fd := range slices.Concat(fds[0][:], fds[1][:], fds[2][:]) {
			if fd > 0 {
				_ = syscall.Close(fd)
			}
		}
		return nil, err
	}
	p.readers = make([]*os.File, 2)
	if needIn {
		stdin, spec.stdin = wrapPipe(fds[0], false)
	}
	p.readers[stdout], spec.stdout = wrapPipe(fds[1], true)
	p.readers[stderr], spec.stderr = wrapPipe(fds[2], true)
	return stdin, nil
}

// specOf turns a request into what is started.
func (s *Server) specOf(r sandbox.ExecRequest) (startSpec, error) {
	var spec startSpec
	switch {
	case (r.Command == "") == (len(r.Argv) == 0):
		return spec, field("command", "Give a shell command, or a list of program and arguments.", "exactly one of command and argv is needed")
	case len(r.Command) > maxArgs:
		return spec, field("command", "Put it into a file and run that.", "is longer than 1 MiB")
	case r.Command != "":
		spec.programs = []program{
			{path: "/bin/bash", argv: []string{"bash", "-lc", r.Command}},
			{path: "/usr/bin/bash", argv: []string{"bash", "-lc", r.Command}},
			{path: "/bin/sh", argv: []string{"sh", "-c", r.Command}},
		}
	default:
		n := 0
		for _, a := range r.Argv {
			n += len(a) + 1
		}
		if r.Argv[0] == "" || n > maxArgs {
			return spec, field("command", "Give the program first.", "the program is empty, or the arguments are longer than 1 MiB")
		}
		spec.programs = programOf(r.Argv)
	}
	if t := r.TTY; t != nil && (t.Cols < 1 || t.Rows < 1 || t.Cols > 1000 || t.Rows > 1000) {
		return spec, field("tty", "80 by 24 is usual.", "columns and rows must be between 1 and 1000")
	}
	env, err := s.environment(r.Env, r.TTY != nil)
	if err != nil {
		return spec, err
	}
	spec.env, spec.dir = env, workDir(r.Dir)
	return spec, nil
}

// workDir resolves a folder as the tools mean it. It is left as written: with
// links, what stands before .. decides where that leads.
func workDir(dir string) string {
	switch {
	case dir == "":
		return sandbox.WorkspaceDir
	case dir[0] == '/':
		return dir
	}
	return sandbox.WorkspaceDir + "/" + dir
}

// Where user installs go, and the variable with which a PATH passes the
// system's profile.
const (
	npmPrefix    = sandbox.HomeDir + "/.local"
	ownPath      = npmPrefix + "/bin"
	pathVariable = "PINFOLD_PATH"
)

// profile is written to the agent's home when it has none.
const profile = `# Made by Pinfold. Commands run in a login shell, for which /etc/profile sets
# PATH anew: this puts back what was asked for, or adds the user's own folders.
if [ -n "${` + pathVariable + `-}" ]; then
	PATH=$` + pathVariable + `
	unset ` + pathVariable + `
else
	PATH=` + ownPath + `:$PATH
fi
`

// environment is what a command sees: the fixed part, the session's, the
// request's. Nothing of pid 1's own goes in, which the image could have set.
func (s *Server) environment(own map[string]string, tty bool) ([]string, error) {
	env := map[string]string{
		"PATH": ownPath + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NPM_CONFIG_PREFIX": npmPrefix,
		"HOME": sandbox.HomeDir, "USER": sandbox.AgentName, "LOGNAME": sandbox.AgentName,
		"LANG": "C.UTF-8", "TERM": "dumb", "SHELL": loginShell(),
	}
	if tty {
		env["TERM"] = "xterm-256color"
	}
	for k, v := range s.cfg.Env {
		env[k] = v
	}
	size := 0
	for k, v := range own {
		if err := checkEnv(k, v); err != nil {
			return nil, err
		}
		size += len(k) + len(v) + 2
		env[k] = v
	}
	if size > maxArgs {
		return nil, field("env", "Put large values into a file.", "is larger than 1 MiB")
	}
	// /etc/profile of most images sets PATH anew; the agent's own profile puts
	// back what was asked for.
	for _, m := range []map[string]string{own, s.cfg.Env} {
		if p, ok := m["PATH"]; ok {
			env[pathVariable] = p
			break
		}
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list, nil
}

// loginShell is the best shell that the image has.
var loginShell = sync.OnceValue(func() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
})

// checkEnv refuses what would not reach the command as it was given.
func checkEnv(k, v string) error {
	switch {
	case k == "":
		return field("env", "Name every variable.", "holds a variable without a name")
	case strings.ContainsAny(k, "=\n\r") || strings.ContainsRune(k, 0):
		return field("env", "Use letters, digits and underscores.", "the name "+clip(strings.ToValidUTF8(k, "?"))+" holds =, a newline or a NUL")
	case strings.ContainsRune(v, 0):
		return field("env", "Take the NUL out.", "the value of "+clip(k)+" holds a NUL")
	}
	return nil
}

func field(name, hint, message string) error {
	return &sandbox.Error{Code: sandbox.InvalidArgument, Message: name + ": " + message, Hint: hint, Details: map[string]any{"field": name}}
}

func commandText(r sandbox.ExecRequest) string {
	if r.Command != "" {
		return clipTo(r.Command, 500)
	}
	return clipTo(strings.Join(r.Argv, " "), 500)
}

// clipTo shortens to n bytes of valid UTF-8.
func clipTo(s string, n int) string {
	if len(s) > n {
		s = s[:n-cutEnd([]byte(s[:n]))] + "…"
	}
	return cleanText([]byte(s))
}

// startError words why a program could not be started.
func startError(stage int, e syscall.Errno, spec startSpec) error {
	name := clip(cleanText([]byte(spec.programs[0].path)))
	if stage == stageDir {
		err := &sandbox.Error{Code: sandbox.NotFound, Reason: "cwd", Message: "cwd: " + clip(cleanText([]byte(spec.dir))) + " does not exist",
			Hint: "Make the folder first, or leave cwd out for " + sandbox.WorkspaceDir + ".", Details: map[string]any{"field": "cwd"}}
		switch e {
		case syscall.ENOENT:
		case syscall.ENOTDIR:
			err.Code, err.Message = sandbox.FailedPrecondition, "cwd: "+clip(cleanText([]byte(spec.dir)))+" is not a folder"
		default:
			err.Code, err.Message = sandbox.PermissionDenied, "cwd: "+clip(cleanText([]byte(spec.dir)))+": "+e.Error()
		}
		return err
	}
	if stage == stageExec {
		switch e {
		case syscall.ENOENT, syscall.ENOTDIR:
			if len(spec.programs) > 1 {
				return sandbox.Errorf(sandbox.FailedPrecondition, "Give the command as a list to run a program without a shell.", "the image has neither bash nor sh")
			}
			if strings.Contains(spec.programs[0].path, "/") {
				return &sandbox.Error{Code: sandbox.NotFound, Reason: "program", Message: "command: " + name + " does not exist, or the interpreter that it names does not",
					Hint: "Check the path with file_list."}
			}
			return &sandbox.Error{Code: sandbox.NotFound, Reason: "program", Message: "command: there is no program " + name + " in PATH",
				Hint: "Install it, give its path, or pass the command as one string for shell builtins."}
		case syscall.EACCES:
			return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "not_executable", Message: "command: " + name + " may not be executed",
				Hint: "chmod +x it, or name its interpreter first."}
		case syscall.ENOEXEC:
			return &sandbox.Error{Code: sandbox.FailedPrecondition, Reason: "not_executable", Message: "command: " + name + " is no program for this machine",
				Hint: "A script needs a first line such as #!/bin/sh; else name its interpreter first."}
		case syscall.E2BIG:
			return field("command", "Put long arguments into a file.", "arguments and environment are longer than the system takes")
		}
	}
	switch e {
	case syscall.EAGAIN, syscall.ENOMEM:
		return &sandbox.Error{Code: sandbox.ResourceExhausted, Reason: "processes", Retry: true,
			Message: "the session is at its limit of processes or memory", Hint: "End some: shell_kill; session_status shows what runs."}
	}
	return sandbox.Errorf(sandbox.Internal, "", "starting %s: %v", name, e)
}

// ioError words what pipes and terminals can fail with.
func ioError(err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EAGAIN) {
		return &sandbox.Error{Code: sandbox.ResourceExhausted, Reason: "descriptors", Retry: true, Message: "the session has no descriptors or terminals left", Hint: "End some commands: shell_kill."}
	}
	return err
}
