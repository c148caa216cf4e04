package podman

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.podman.io/common/pkg/seccomp"
	"golang.org/x/sys/unix"
)

// Chromium builds its own sandbox out of these. Podman's default allows them
// only under conditions on flags and capabilities; a rule appended after those
// does not win, so theirs are taken out first.
var sandboxCalls = []string{"clone", "clone3", "unshare", "setns", "chroot"}

// socketcall carries socket's arguments behind a pointer, where no filter can
// see the family; every kernel since 4.3 has socket itself for 32-bit programs.
var hiddenSockets = []string{"socket", "socketcall"}

// containerProfile is the profile of the whole container: Podman's default,
// with the calls of a nested sandbox allowed and socket families listed. The
// guest adds a stricter one for commands.
func containerProfile() ([]byte, error) {
	p := seccomp.DefaultProfile()
	taken := append(slices.Clone(sandboxCalls), hiddenSockets...)
	var rules []*seccomp.Syscall
	for _, r := range p.Syscalls {
		r.Names = slices.DeleteFunc(r.Names, func(n string) bool { return slices.Contains(taken, n) })
		if slices.Contains(taken, r.Name) {
			r.Name = ""
		}
		if len(r.Names) > 0 || r.Name != "" {
			rules = append(rules, r)
		}
	}
	rules = append(rules, &seccomp.Syscall{Names: sandboxCalls, Action: seccomp.ActAllow})
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, socketRule(&seccomp.Arg{Index: 0, Value: family, Op: seccomp.OpEqualTo}))
	}
	rules = append(rules, socketRule(
		&seccomp.Arg{Index: 0, Value: unix.AF_NETLINK, Op: seccomp.OpEqualTo},
		&seccomp.Arg{Index: 2, Value: unix.NETLINK_ROUTE, Op: seccomp.OpEqualTo}))
	p.Syscalls = rules
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding seccomp profile: %w", err)
	}
	return b, nil
}

func socketRule(args ...*seccomp.Arg) *seccomp.Syscall {
	return &seccomp.Syscall{Names: []string{"socket"}, Action: seccomp.ActAllow, Args: args}
}
