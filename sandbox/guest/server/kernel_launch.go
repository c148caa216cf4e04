//go:build linux

package server

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// launchKernel starts ipykernel as the agent, in a tree of its own.
func (s *Server) launchKernel(folder, connection string) (*kernelProc, error) {
	env, err := s.environment(map[string]string{"IPYTHONDIR": folder + "/ipython", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}, false)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := agentPipe(true)
	if err != nil {
		return nil, err
	}
	// One pipe for both of its streams: what it prints there is for us only.
	fd, err := unix.FcntlInt(rawFD(theirs), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	also := os.NewFile(uintptr(fd), "pipe")
	c, err := s.start(startSpec{programs: programOf(kernelCommand(connection)), env: env, dir: sandbox.WorkspaceDir, keep: true, stdout: theirs, stderr: also})
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &kernelProc{pid: c.pid, done: c.done, how: func() string { return howEnded(c.status) }, stderr: ours, kill: func() {
		killTree(c.gid, 2*time.Second)
		<-c.done
		s.trees.give(c.gid)
	}}, nil
}

// kernelCommand is the kernel without history, which would go to a file.
func kernelCommand(connection string) []string {
	return []string{"python3", "-m", "ipykernel_launcher", "-f", connection, "--HistoryManager.enabled=False"}
}

func howEnded(w syscall.WaitStatus) string {
	switch {
	case w.Signaled() && w.Signal() == syscall.SIGKILL:
		return "it was killed (SIGKILL), perhaps for want of memory"
	case w.Signaled():
		return "it died by signal " + strconv.Itoa(int(w.Signal())) + " (" + w.Signal().String() + ")"
	}
	return "it exited with code " + strconv.Itoa(w.ExitStatus())
}
