package sandboxtest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

// identity is case A53.
func (s *suite) identity(t *testing.T) {
	r := s.start(t, s.engine(t), s.spec())
	assert.Equal(t, "1000 1000", r.sh("echo $(id -u) $(id -g)"))
	for _, g := range strings.Fields(r.sh("id -G")) {
		assert.NotEqual(t, "0", g)
	}
	status := statusOf(r.sh("cat /proc/self/status"))
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		assert.Empty(t, strings.Trim(status[set], "0"), set)
	}
	assert.Equal(t, "1", status["NoNewPrivs"])
	if r.Info().Isolation == sandbox.IsolationContainer {
		assert.Equal(t, "2", status["Seccomp"])
		outside := r.sh("awk '$1 <= 1000 && 1000 < $1 + $3 { print $2 }' /proc/self/uid_map")
		assert.NotEqual(t, "0", outside)
		pid := r.Info().Pid
		require.Positive(t, pid)
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/uid_map")
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			assert.NotEqual(t, "0", f[1], "root of the host is mapped: %s", line)
		}
	}
	assert.Equal(t, "/workspace", r.sh("pwd"))
	assert.Equal(t, "/home/agent", r.sh("echo $HOME"))
	assert.Equal(t, "pinfold", r.sh("cat /proc/sys/kernel/hostname"))
	_, code := r.try("touch /usr/x /etc/x /x")
	assert.NotZero(t, code)
	r.sh("touch /workspace/x ~/x /session/x /tmp/x /dev/shm/x && ! ls /browser")
	assert.Equal(t, "lo", r.sh("ls /sys/class/net 2>/dev/null || awk -F: 'NR > 2 { print $1 }' /proc/net/dev | tr -d ' '"))
}

func statusOf(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}

func (s *suite) posture(t *testing.T) {
	spec := s.spec()
	spec.Epoch = 3
	e := s.engine(t)
	r := s.start(t, e, spec)
	info := r.Info()
	assert.Equal(t, spec.Session, info.Session)
	assert.Equal(t, int64(3), info.Epoch)
	assert.NotEmpty(t, info.ID)
	assert.NotEmpty(t, info.Runtime)
	assert.Equal(t, sandbox.StateRunning, info.State)
	p := info.Posture
	assert.Equal(t, "none", p.Network)
	assert.True(t, p.NoNewPrivs)
	assert.False(t, p.HostUserMapped, "a volume needs no host user inside")
	assert.Equal(t, []string{"CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}, p.Capabilities)
	assert.NotEmpty(t, p.Seccomp)
	for _, d := range p.Degraded {
		assert.Contains(t, d, ": ", "in words, after the limit's name")
	}
	listed, ok := find(t, e, spec.Session)
	require.True(t, ok)
	assert.Equal(t, info.Owner, listed.Owner)
	assert.Equal(t, info.Runtime, listed.Runtime)
	assert.Equal(t, info.Link, listed.Link)
}

func (s *suite) isolated(t *testing.T) {
	e := s.engine(t)
	a, b := s.start(t, e, s.spec()), s.start(t, e, s.spec())
	a.sh("echo secret-of-a > /workspace/f; echo secret-of-a > /tmp/f; echo secret-of-a > /dev/shm/f; echo secret-of-a > ~/f; (sleep 60 & exec -a secret-of-a sleep 60) >/dev/null 2>&1 &")
	out, _ := b.try("cat /workspace/* /tmp/* /dev/shm/* ~/* /session/*; cat /proc/*/cmdline | tr '\\0' ' '; cat /proc/mounts; env")
	assert.NotContains(t, out, "secret-of-a")
	assert.NotContains(t, out, a.Info().Session)
	_, code := b.try("kill -0 " + strconv.Itoa(a.Info().Pid))
	assert.NotZero(t, code)
	assert.NotEqual(t, a.Token(), b.Token())
	// Abstract sockets and System V queues go by namespace.
	if _, code := a.try("command -v python3"); code == 0 {
		a.sh(`python3 -c 'import socket,os
s=socket.socket(socket.AF_UNIX); s.bind("\0pinfold-test"); s.listen()
if os.fork(): os._exit(0)
import time; time.sleep(30)' >/dev/null 2>&1`)
		_, code = b.try(`python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("\0pinfold-test")'`)
		assert.NotZero(t, code)
	}
}

func (s *suite) readOnly(t *testing.T) {
	spec := s.spec()
	spec.ReadOnlyRoot = true
	r := s.start(t, s.engine(t), spec)
	assert.True(t, r.Info().Posture.ReadOnlyRoot)
	r.sh("touch /tmp/x /var/tmp/x /workspace/x ~/x")
	// Root of the sandbox cannot write either: it is the mount that refuses.
	st, err := r.Exec(r.ctx, sandbox.ExecSpec{Argv: []string{"/bin/sh", "-c", "touch /etc/x /usr/x /x"}, UID: 0, GID: 0})
	require.NoError(t, err)
	defer st.Close()
	_, _ = st.Read(make([]byte, 1))
	code, err := st.Wait(r.ctx)
	require.NoError(t, err)
	assert.NotZero(t, code)
	assert.Contains(t, st.Stderr(), "Read-only file system")
}
