package podman

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/errorhandling"

	"pinfold.dev/pinfold/sandbox"
)

// makeRuntimeDir is the cure for a runtime folder that nobody made, as after a
// start of a machine where no login does it.
const makeRuntimeDir = "Run `sudo loginctl enable-linger $USER`; without systemd `sudo install -d -m 0700 -o $USER /run/user/$(id -u)`, after each start of the machine."

// hostFaults are texts by which Podman and its runtimes tell of a host that
// cannot run rootless containers. Their commands have no codes for these.
var hostFaults = []struct {
	texts   []string
	reason  string
	code    sandbox.Code
	message string
	hint    string
}{
	{[]string{"no subuid ranges found", "no subgid ranges found", "cannot find mappings for user", "there might not be enough IDs available", "insufficient UIDs or GIDs", "potentially insufficient"},
		"no_subids", sandbox.FailedPrecondition,
		"this user has no subordinate ids, which rootless containers need",
		"Run `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER` and then `podman system migrate`; or run `make setup`."},
	{[]string{"cannot clone: Operation not permitted", "user namespaces are not enabled", "cannot clone: No space left", "unshare(CLONE_NEWUSER)", "creating new namespace: permission denied"},
		"userns_forbidden", sandbox.FailedPrecondition,
		"this host forbids user namespaces to plain users",
		"As root run `sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=28633` (Ubuntu: also `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile)."},
	{[]string{"newuidmap", "newgidmap"},
		"no_newuidmap", sandbox.FailedPrecondition,
		"newuidmap and newgidmap do not work here",
		"Install the package uidmap (`sudo apt install uidmap`) and check that the two programs are setuid root."},
	{[]string{"mkdir /run/user/"},
		"no_runtime_dir", sandbox.FailedPrecondition,
		"this user has no runtime folder, which Podman wants where it was at its first start",
		makeRuntimeDir},
	{[]string{"no space left on device", "disk quota exceeded"},
		"no_space", sandbox.ResourceExhausted,
		"the disk that holds Podman's storage is full",
		"Free space there (`podman system df` shows what takes it), then call again."},
}

// hostError returns the typed error for a fault of the host found in cause, or
// otherwise.
func hostError(cause error, otherwise *sandbox.Error) *sandbox.Error {
	if cause == nil {
		return otherwise
	}
	text := strings.ToLower(cause.Error())
	for _, f := range hostFaults {
		for _, t := range f.texts {
			if strings.Contains(text, strings.ToLower(t)) {
				return &sandbox.Error{Code: f.code, Reason: f.reason, Message: f.message, Hint: f.hint, Cause: cause}
			}
		}
	}
	return otherwise
}

// podmanMissing is the error when the program cannot be run at all.
func podmanMissing(path string, cause error) *sandbox.Error {
	e := sandbox.Errorf(sandbox.FailedPrecondition,
		"Install Podman 4.3 or newer (`sudo apt install podman crun uidmap`), or run `make setup`.",
		"Podman was not found (looked for %q)", path)
	if !errors.Is(cause, exec.ErrNotFound) && !errors.Is(cause, os.ErrNotExist) {
		e.Message = "Podman cannot be started: " + cause.Error()
	}
	e.Reason, e.Cause = "podman_missing", cause
	return e
}

// noSubordinateIDs is the error of a user whom the two files give too few ids.
func noSubordinateIDs(why string, cause error) *sandbox.Error {
	f := hostFaults[0]
	return &sandbox.Error{Code: f.code, Reason: f.reason, Message: f.message + ": " + why, Hint: f.hint, Cause: cause}
}

// imageMissing is the error of a spec whose image is not in the storage.
func imageMissing(image string, cause error) *sandbox.Error {
	hint := "Ask the user to fetch it with `podman pull`, or name an image that `podman images` lists."
	if strings.HasPrefix(image, "localhost/pinfold:") {
		hint = "Ask the user to run `pinfold image build`."
	}
	return &sandbox.Error{Code: sandbox.NotFound, Reason: "image_missing", Cause: cause,
		Message: "the image " + image + " is not on this machine", Hint: hint}
}

// fromContext turns the end of a context into its typed error.
func fromContext(err error) *sandbox.Error {
	e := sandbox.Errorf(sandbox.Canceled, "", "the call was cancelled")
	if errors.Is(err, context.DeadlineExceeded) {
		e = sandbox.Errorf(sandbox.DeadlineExceeded, "Call again; the machine may have been busy.", "the deadline passed while Podman was working")
	}
	e.Cause = err
	return e
}

// fault makes a typed error of what a call to Podman answered. What says what
// was being done ("starting the container").
func (s *service) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	var typed *sandbox.Error
	if errors.As(err, &typed) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fromContext(err)
	}
	if s.lost(err) {
		return s.gone(err)
	}
	e := sandbox.Errorf(sandbox.Unavailable, "Call again; if it fails again run `pinfold doctor`.", "Podman failed while %s: %s", what, firstLine(err.Error()))
	e.Reason, e.Cause = "podman_failed", err
	return hostError(err, e)
}

// unreachable reports whether err means that no service answered, as against
// one that answered with an error.
func unreachable(err error) bool {
	var model *errorhandling.ErrorModel
	if err == nil || errors.As(err, &model) {
		return false
	}
	var connect bindings.ConnectError
	var op *net.OpError
	return errors.As(err, &connect) || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// status returns the HTTP status of Podman's answer in err, or 0.
func status(err error) int {
	var model *errorhandling.ErrorModel
	if errors.As(err, &model) {
		return model.ResponseCode
	}
	return 0
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return bounded(line)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return bounded(s[strings.LastIndexByte(s, '\n')+1:])
}

// bounded keeps a foreign text short enough for a message.
func bounded(s string) string {
	if len(s) > 400 {
		s = s[:400] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
