package podman

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/common/pkg/seccomp"
	"golang.org/x/sys/unix"
)

// rulesFor returns the rules of the profile that name a call.
func rulesFor(t *testing.T, call string) []*seccomp.Syscall {
	t.Helper()
	data, err := containerProfile()
	require.NoError(t, err)
	var p seccomp.Seccomp
	require.NoError(t, json.Unmarshal(data, &p))
	require.Equal(t, seccomp.ActErrno, p.DefaultAction)
	var out []*seccomp.Syscall
	for _, r := range p.Syscalls {
		if r.Name == call || slices.Contains(r.Names, call) {
			out = append(out, r)
		}
	}
	return out
}

func TestProfileAllowsChromiumsSandbox(t *testing.T) {
	for _, call := range sandboxCalls {
		rules := rulesFor(t, call)
		require.Len(t, rules, 1, "%s: a rule with a condition beside would win", call)
		assert.Equal(t, seccomp.ActAllow, rules[0].Action, call)
		assert.Empty(t, rules[0].Args, call)
		assert.Empty(t, rules[0].Includes, call)
		assert.Empty(t, rules[0].Excludes, call)
	}
}

func TestProfileListsSocketFamilies(t *testing.T) {
	assert.Empty(t, rulesFor(t, "socketcall"), "it hides the family from the filter")
	allowed := map[uint64]bool{}
	for _, r := range rulesFor(t, "socket") {
		require.Equal(t, seccomp.ActAllow, r.Action)
		require.NotEmpty(t, r.Args, "a rule without a family allows all")
		require.Equal(t, uint(0), r.Args[0].Index)
		require.Equal(t, seccomp.OpEqualTo, r.Args[0].Op, "a mask would let high bits pass")
		allowed[r.Args[0].Value] = true
		if r.Args[0].Value == unix.AF_NETLINK {
			require.Len(t, r.Args, 2)
			assert.Equal(t, seccomp.Arg{Index: 2, Value: unix.NETLINK_ROUTE, Op: seccomp.OpEqualTo}, *r.Args[1])
		}
	}
	assert.Equal(t, map[uint64]bool{unix.AF_UNIX: true, unix.AF_INET: true, unix.AF_INET6: true, unix.AF_NETLINK: true}, allowed)
}

func TestProfileKeepsWhatPodmanRefuses(t *testing.T) {
	for _, call := range []string{"mount", "bpf", "perf_event_open", "kexec_load", "init_module", "open_by_handle_at", "userfaultfd", "io_uring_setup"} {
		for _, r := range rulesFor(t, call) {
			if r.Action == seccomp.ActAllow {
				assert.True(t, len(r.Includes.Caps) > 0 || call == "mount" || call == "io_uring_setup", "%s is allowed to all", call)
			}
		}
	}
}
