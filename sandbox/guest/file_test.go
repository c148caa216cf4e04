//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

func write(t testing.TB, g *guesttest.Guest, path, content string) sandbox.WriteResult {
	t.Helper()
	r, err := g.WriteFile(within(t), sandbox.WriteRequest{Path: path, Content: []byte(content), CreateDirs: true})
	require.NoError(t, err, g.Log())
	return r
}

func read(t testing.TB, g *guesttest.Guest, path string) sandbox.ReadResult {
	t.Helper()
	r, err := g.ReadFile(within(t), sandbox.ReadRequest{Path: path})
	require.NoError(t, err, g.Log())
	return r
}

// refused is the error of a read that must fail, and at once.
func refused(t testing.TB, g *guesttest.Guest, path string) *sandbox.Error {
	t.Helper()
	began := time.Now()
	r, err := g.ReadFile(within(t), sandbox.ReadRequest{Path: path})
	require.Error(t, err, "%s gave %q", path, r.Text)
	var e *sandbox.Error
	require.True(t, errors.As(err, &e))
	assert.NotEqual(t, sandbox.Internal, e.Code, "%s: %v", path, e)
	assert.Less(t, time.Since(began), time.Second, path)
	return e
}

func TestFilesAreTheAgents(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	r := write(t, g, "made/by tools.txt", "Bäcker → ✓ 漢字\n")
	assert.Equal(t, "0644", r.Mode, "C144")
	assert.Equal(t, "1000:1000 644 1000 755", ok(t, g, `echo $(stat -c '%u:%g %a' "made/by tools.txt") $(stat -c '%u %a' made)`)[:22])
	assert.Equal(t, "Bäcker → ✓ 漢字\n", ok(t, g, "cat 'made/by tools.txt'"), "C57")

	var err error
	ok(t, g, "printf '#!/bin/sh\\necho one\\n' > run.sh; chmod 755 run.sh; ln -s run.sh link.sh")
	_, err = g.EditFile(within(t), sandbox.EditRequest{Path: "link.sh", Edits: []sandbox.Edit{{Old: "one", New: "two"}}})
	require.NoError(t, err)
	assert.Equal(t, "two\n", ok(t, g, "./run.sh; test -L link.sh"), "C142")

	// A link leads within the sandbox's own view, which is open, and nowhere else.
	ok(t, g, "ln -s /etc/passwd passwd; ln -s /tmp/new dangling; ln -s /no/such/new nowhere")
	for _, p := range []string{"/etc/passwd", "passwd", "//etc/passwd"} {
		assert.Equal(t, ok(t, g, "cat /etc/passwd"), read(t, g, p).Text, "A3 A6 C61: %s", p)
	}
	assert.Equal(t, "/etc/passwd", read(t, g, "passwd").Symlink)
	_, err = g.WriteFile(within(t), sandbox.WriteRequest{Path: "nowhere", Content: []byte("x")})
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err), "A8")
	write(t, g, "dangling", "x")
	assert.Equal(t, "/tmp/new\nx", ok(t, g, "readlink dangling; cat /tmp/new"), "A8: written through, as a command does; the link is kept")
	_, err = g.WriteFile(within(t), sandbox.WriteRequest{Path: "/etc/passwd", Content: []byte("x")})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), "as uid 1000, not as root")
	_, err = g.WriteFile(within(t), sandbox.WriteRequest{Path: "/etc/new", Content: []byte("x")})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err))
	_, err = g.EditFile(within(t), sandbox.EditRequest{Path: "/etc/group", Edits: []sandbox.Edit{{Old: "root", New: "agent"}}})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err))
	ok(t, g, "echo secret > closed; chmod 000 closed; echo keep > locked; chmod 444 locked")
	_, err = g.WriteFile(within(t), sandbox.WriteRequest{Path: "locked", Content: []byte("x")})
	assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), "a file's own mode holds, as for a command")
	assert.Equal(t, sandbox.PermissionDenied, refused(t, g, "closed").Code, "A40")
	_, err = g.EditFile(within(t), sandbox.EditRequest{Path: "run.sh", Edits: []sandbox.Edit{{Old: "nothing", New: "x"}}})
	assert.Equal(t, sandbox.FailedPrecondition, sandbox.CodeOf(err))
}

func TestWritesOfEverySizeArrive(t *testing.T) { // C53 C54
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	for _, n := range []int{0, 1, 20_000, 65_536, 2 << 20, 64 << 20} {
		body := bytes.Repeat([]byte("The quick brown fox\n"), n/20+1)[:n]
		_, err := g.WriteFile(within(t), sandbox.WriteRequest{Path: "body", Content: body})
		require.NoError(t, err, "%d bytes", n)
		sum := sha256.Sum256(body)
		assert.Equal(t, hex.EncodeToString(sum[:]), strings.Fields(ok(t, g, "sha256sum body"))[0], "%d bytes", n)
	}
	assert.NotContains(t, ok(t, g, "ls -A"), "tmp", "no temporary file is left")
}

func TestACancelledWriteLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	write(t, g, "f", "old")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := g.WriteFile(ctx, sandbox.WriteRequest{Path: "f", Content: bytes.Repeat([]byte{'x'}, 256<<20)})
	require.Error(t, err)
	assert.Equal(t, "old", read(t, g, "f").Text)
	require.Eventually(t, func() bool { return ok(t, g, "ls -A | wc -l") == "1\n" }, 5*time.Second, 20*time.Millisecond, "the temporary file goes")
}

func TestTheGuestsOwnProcessStaysClosed(t *testing.T) { // A15 A16
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{Env: []string{"SECRET_OF_PID_1=hunter2"}})
	ok(t, g, `ln -s /proc/self/root/etc/passwd a; ln -s /proc/1/environ b; ln -s /proc/self/cwd c; mkdir d; ln -s /proc/self/fd d/fds`)
	paths := []string{
		"/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/proc/self/cmdline", "/proc/self/status", "/proc/self/auxv",
		"/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/root/etc/passwd", "/proc/1/fd/0", "/proc/1/task/1/environ",
		"/proc/thread-self/environ", "/proc/self/task/1/environ", "/proc//self/./environ", "/proc/../proc/1/environ", "/proc/self/../1/environ",
		"/proc/self/root/etc/passwd", "/proc/self/fd/3", "/proc/self/fd/0", "/proc/self/cwd/../etc/passwd", "/proc/self/exe", "/proc/self/ns/user",
		"/dev/stdin", "/dev/fd/0", "/dev/fd/3", "a", "b", "c/../etc/passwd", "d/fds/0", "/proc/self/net/tcp", "/proc/mounts",
	}
	for tid := 2; tid < 40; tid++ {
		paths = append(paths, fmt.Sprintf("/proc/%d/environ", tid)) // the guest's threads answer under their numbers
	}
	for _, p := range paths {
		e := refused(t, g, p)
		assert.NotContains(t, e.Error(), "hunter2")
	}
	for _, dir := range []string{"/proc/self", "/proc/1", "/proc/self/fd", "/proc/1/fd", "/proc/self/root", "/proc/self/cwd", "/proc/1/task", "c"} {
		_, err := g.List(within(t), sandbox.ListRequest{Path: dir})
		assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), dir)
		_, err = g.Search(within(t), sandbox.SearchRequest{Path: dir, Query: "hunter"})
		assert.Equal(t, sandbox.PermissionDenied, sandbox.CodeOf(err), dir)
	}
	for _, p := range []string{"/proc/self/fd/1", "/proc/1/oom_score_adj", "/proc/self/comm", "/proc/sys/kernel/hostname", "/proc/self/cwd/x", "b"} {
		_, err := g.WriteFile(within(t), sandbox.WriteRequest{Path: p, Content: []byte("x"), CreateDirs: true})
		require.Error(t, err, p)
		assert.NotEqual(t, sandbox.Internal, sandbox.CodeOf(err), p)
	}
	found, err := g.Search(within(t), sandbox.SearchRequest{Path: "/", Query: "hunter2", Literal: true, Glob: "proc/**"})
	require.NoError(t, err)
	assert.Zero(t, found.Matches)

	// What is not the guest's is open, as it is to a command.
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"sleep", "60"}, Env: map[string]string{"MINE": "yes"}, Background: true})
	var pid int
	require.Eventually(t, func() bool {
		s, err := g.Status(within(t))
		require.NoError(t, err)
		for _, x := range s.Processes {
			if x.Process == p.Process {
				pid = x.PID
			}
		}
		return pid != 0
	}, 5*time.Second, 10*time.Millisecond)
	r := read(t, g, fmt.Sprintf("/proc/%d/status", pid))
	assert.Contains(t, r.Text, "sleep")
	assert.Contains(t, read(t, g, "/proc/meminfo").Text, "MemTotal")
}

func TestWhatIsNoFile(t *testing.T) { // A9 A18 A20 A26
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	ok(t, g, `mkfifo pipe; ln -s loop2 loop1; ln -s loop1 loop2; ln -s pipe topipe; mkdir dir
for i in $(seq 60); do ln -s chain$((i+1)) chain$i; done; echo end > chain61
python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("sock")'`)
	for path, reason := range map[string]string{
		"pipe": "not_a_file", "topipe": "not_a_file", "sock": "not_a_file", "/dev/zero": "not_a_file", "/dev/urandom": "not_a_file", "/dev/full": "not_a_file",
		"loop1": "link_loop", "chain1": "link_loop", "dir/../loop2/x": "link_loop", strings.Repeat("a/", 2500): "name_too_long", strings.Repeat("n", 300): "name_too_long",
		"pipe/x": "not_a_directory", strings.Repeat("d/", 400) + "x": "", "/dev/tty": "not_a_file",
	} {
		assert.Equal(t, reason, refused(t, g, path).Reason, path)
	}
	for _, p := range []string{"pipe", "topipe", "sock", "/dev/null", "/dev/full", "loop1", "dir"} {
		_, err := g.WriteFile(within(t), sandbox.WriteRequest{Path: p, Content: []byte("x")})
		require.Error(t, err, p)
		assert.NotEqual(t, sandbox.Internal, sandbox.CodeOf(err), p)
	}
	assert.Equal(t, "fifo directory", ok(t, g, `echo $(stat -c %F pipe dir)`)[:14])
	found, err := g.Search(within(t), sandbox.SearchRequest{Query: "end"})
	require.NoError(t, err)
	assert.Equal(t, 1, found.Matches, "A19")
	assert.Contains(t, strings.Join(found.Notes, ";"), "2 pipes, sockets or devices skipped")
}

func TestNamesAreCarriedWithoutLoss(t *testing.T) { // A25 A4
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	ok(t, g, `python3 - <<'END'
import os
os.mkdir(b"odd")
for i, n in enumerate([b"new\nline", b"tab\there", b"\x1b[31mred", b"-rf", b" lead", b"x" * 255, b"inv\xff\xfe", "rtl\u202egnp".encode(), b"back\\x41", b"back\\xff", b"..%2f..", "．．".encode(), b"c:\\dir\\f"]):
    open(b"odd/" + n, "w").write(str(i))
END`)
	l, err := g.List(within(t), sandbox.ListRequest{Path: "odd", Hidden: true})
	require.NoError(t, err)
	require.Len(t, l.Entries, 13)
	seen := map[string]bool{}
	for _, e := range l.Entries {
		assert.NotContains(t, e.Path, "\n")
		assert.NotContains(t, e.Path, "\x1b")
		seen[read(t, g, "odd/"+e.Path).Text] = true
	}
	assert.Len(t, seen, 13, "each name reads back as its own file")
	var paths []string
	for _, e := range l.Entries {
		paths = append(paths, e.Path)
	}
	assert.Contains(t, paths, `inv\xff\xfe`)
	assert.Contains(t, paths, `new\x0aline`)
	assert.Contains(t, paths, `back\x41`)
	assert.Contains(t, paths, `back\x5cxff`)
	_, err = g.ReadFile(within(t), sandbox.ReadRequest{Path: "a.txt\x00.png"})
	assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err), "A5")
	assert.Equal(t, sandbox.NotFound, refused(t, g, "~/.ssh/id_rsa").Code, "A3: literal")
	assert.Equal(t, sandbox.NotFound, refused(t, g, "$HOME/x").Code)
	assert.Equal(t, sandbox.NotFound, refused(t, g, "file:///etc/passwd").Code)
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	write(t, g, "up.csv", "a,b\n")
	out, err := g.Transfer(within(t), sandbox.TransferRequest{From: "up.csv", To: "uploads/up.csv", Export: true})
	require.NoError(t, err, g.Log())
	assert.Equal(t, "/browser/uploads/up.csv", out.Path)
	assert.Equal(t, sandbox.PermissionDenied, refused(t, g, "/browser/uploads/up.csv").Code, "the browser's folder is closed to the agent")
	assert.NotContains(t, sh(t, g, "cat /browser/uploads/up.csv").Stdout.Text, "a,b")

	for i, want := range []string{"/workspace/downloads/up.csv", "/workspace/downloads/up (1).csv", "/workspace/downloads/up (2).csv"} {
		in, err := g.Transfer(within(t), sandbox.TransferRequest{From: "/browser/uploads/up.csv", To: "/workspace/downloads/up.csv"})
		require.NoError(t, err, "%d: %s", i, g.Log())
		assert.Equal(t, want, in.Path)
		assert.EqualValues(t, 4, in.Bytes)
	}
	assert.Equal(t, "1000 1000 1000\n", ok(t, g, "echo $(stat -c %u downloads/*)"))
	assert.Equal(t, "3\n", ok(t, g, "ls -A downloads | wc -l"), "no temporary file is left")

	ok(t, g, "ln -s /etc/passwd l; ln -s /tmp away; mkfifo p; mkdir real; echo x > real/f; ln -s real way")
	for _, r := range []sandbox.TransferRequest{
		{From: "l", To: "x", Export: true}, {From: "p", To: "x", Export: true}, {From: "real", To: "x", Export: true}, {From: "way/f", To: "x", Export: true},
		{From: "uploads/up.csv", To: "away/x"}, {From: "/browser/../etc/passwd", To: "x"}, {From: "../workspace/up.csv", To: "x"}, {From: "no such", To: "x"},
		{From: "up.csv", To: "x", Export: true, MaxBytes: 3}, {From: "/proc/1/environ", To: "x", Export: true}, {From: "up.csv", To: "/proc/1/x"},
	} {
		_, err := g.Transfer(within(t), r)
		require.Error(t, err, "%+v", r)
		assert.NotEqual(t, sandbox.Internal, sandbox.CodeOf(err), "%+v: %v", r, err)
	}
	assert.Equal(t, "0\n", ok(t, g, "ls -A /tmp | wc -l"))
}

func TestFilesUnderParallelCalls(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	ctx := within(t)
	errs := make(chan error, 64)
	for i := range 64 {
		go func() {
			path := fmt.Sprintf("p/%d/f", i%8)
			_, err := g.WriteFile(ctx, sandbox.WriteRequest{Path: path, Content: []byte(strings.Repeat(string(rune('a'+i%26)), 10_000)), CreateDirs: true})
			if err == nil {
				var r sandbox.ReadResult
				if r, err = g.ReadFile(ctx, sandbox.ReadRequest{Path: path}); err == nil && strings.Trim(r.Text, r.Text[:1]) != "" {
					err = errors.New("a torn file")
				}
			}
			errs <- err
		}()
	}
	for range 64 {
		require.NoError(t, <-errs)
	}
}
