package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func open(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, "ses_test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// written is a journal of n records and its lines.
func written(t testing.TB, n int) (path string, lines [][]byte) {
	t.Helper()
	j := open(t, t.TempDir())
	for i := range n {
		require.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Call: fmt.Sprint(i), Resource: "echo hello"}))
	}
	require.NoError(t, j.Close())
	b, err := os.ReadFile(j.Path())
	require.NoError(t, err)
	return j.Path(), bytes.SplitAfter(b, []byte("\n"))[:n]
}

func rewrite(t testing.TB, path string, lines [][]byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, bytes.Join(lines, nil), 0o600))
}

func bad(t testing.TB, path string) *BadRecord {
	t.Helper()
	_, err := Verify(path)
	var b *BadRecord
	require.ErrorAs(t, err, &b)
	return b
}

func TestASoundJournalVerifies(t *testing.T) {
	j := open(t, t.TempDir())
	require.NoError(t, j.Append(t.Context(), Event{Kind: SessionStart}))
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Call: "a"}))
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Call: "b"}))
	require.NoError(t, j.Append(t.Context(), Event{Kind: Outcome, Call: "a"}))
	rep, err := Verify(j.Path())
	require.NoError(t, err)
	assert.Equal(t, Report{Records: 4, Open: []string{"b"}}, rep, "a crash between intent and outcome is visible")
	require.NoError(t, j.Append(t.Context(), Event{Kind: Outcome, Call: "b"}))
	require.NoError(t, j.Append(t.Context(), Event{Kind: SessionEnd}))
	rep, err = Verify(j.Path())
	require.NoError(t, err)
	assert.Equal(t, Report{Records: 6, Ended: true}, rep)
	st, err := os.Stat(j.Path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
}

func TestEveryFlippedBitIsFoundAndItsRecordNamed(t *testing.T) { // A240
	path, lines := written(t, 3)
	whole := bytes.Join(lines, nil)
	begin := len(lines[0])
	for i := begin; i < begin+len(lines[1]); i++ {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			require.NoError(t, os.WriteFile(path, b, 0o600))
			found := bad(t, path)
			require.Equal(t, 2, found.Line, "byte %d, bit %d", i-begin, bit)
		}
	}
	b := bytes.Clone(whole)
	b[len(b)-1] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	assert.Equal(t, 3, bad(t, path).Line, "the last line's end")
}

func TestRemovedAddedAndMovedRecordsAreFound(t *testing.T) { // A241
	path, l := written(t, 4)
	for name, c := range map[string]struct {
		lines [][]byte
		line  int
	}{
		"the first is removed":    {[][]byte{l[1], l[2], l[3]}, 1},
		"one is removed":          {[][]byte{l[0], l[2], l[3]}, 2},
		"one is there twice":      {[][]byte{l[0], l[1], l[1], l[2], l[3]}, 3},
		"two have changed places": {[][]byte{l[0], l[2], l[1], l[3]}, 2},
		"an empty line":           {[][]byte{l[0], []byte("\n"), l[1]}, 2},
		"a made-up record":        {[][]byte{l[0], []byte(`{"v":1,"seq":2,"kind":"intent","prev":"","hash":"00"}` + "\n"), l[1]}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			rewrite(t, path, c.lines)
			assert.Equal(t, c.line, bad(t, path).Line)
		})
	}
	// A record of another journal, sound in itself.
	other := filepath.Join(t.TempDir(), "ses_other.jsonl")
	rewrite(t, other, l)
	assert.Equal(t, 1, bad(t, other).Line, "the chain is bound to its session")
}

func TestOneRecordIsOneLineWhateverItHolds(t *testing.T) { // A239
	evil := "ls\n{\"v\":1,\"kind\":\"outcome\",\"code\":\"ok\"}\r\u2028\u2029\x00\x1b[2J\u009b2J\x7f\u202eexe\xff"
	j := open(t, t.TempDir())
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Resource: evil, Tool: evil, Client: evil, Message: evil, Detail: DetailOf(evil)}))
	require.NoError(t, j.Append(t.Context(), Event{Kind: Outcome}))
	b, err := os.ReadFile(j.Path())
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(b, []byte("\n")))
	for _, r := range string(b) {
		assert.True(t, r == '\n' || (r >= ' ' && r < 0x7f) || r == '\uFFFD', "%U stands bare", r)
	}
	var got string
	require.NoError(t, Read(j.Path(), func(line int, e Event) error {
		if line == 1 {
			got = e.Resource
		}
		return nil
	}))
	assert.Equal(t, strings.ToValidUTF8(evil, "\uFFFD"), got, "nothing is lost by it")
}

func TestOneWriterAtATime(t *testing.T) { // A243
	dir := t.TempDir()
	j := open(t, dir)
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent}))
	_, err := Open(dir, "ses_test")
	require.ErrorIs(t, err, ErrLocked)
	// Another process sees the same.
	cmd := exec.Command(os.Args[0], "-test.run=TestHelperOpens")
	cmd.Env = append(os.Environ(), "JOURNAL_DIR="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "locked")
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Append(t.Context(), Event{}), ErrClosed)
	again := open(t, dir)
	require.NoError(t, again.Append(t.Context(), Event{Kind: Outcome}))
	rep, err := Verify(again.Path())
	require.NoError(t, err)
	assert.Equal(t, 2, rep.Records, "the chain goes on")
}

func TestHelperOpens(t *testing.T) {
	dir := os.Getenv("JOURNAL_DIR")
	if dir == "" {
		t.Skip("only as a child of another test")
	}
	if os.Getenv("JOURNAL_WRITE") == "" {
		if _, err := Open(dir, "ses_test"); err != nil {
			fmt.Println("locked:", err)
		}
		return
	}
	j, err := Open(dir, "ses_test")
	require.NoError(t, err)
	for i := 0; ; i++ { // until it is killed
		require.NoError(t, j.Append(context.Background(), Event{Kind: Intent, Call: fmt.Sprint(i), Resource: strings.Repeat("x", 3000)}))
		fmt.Println("ack", i)
	}
}

func TestNoAcknowledgedRecordIsLostInAKill(t *testing.T) { // A238
	for range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=TestHelperOpens")
		cmd.Env = append(os.Environ(), "JOURNAL_DIR="+dir, "JOURNAL_WRITE=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		buf := make([]byte, 0, 1<<20)
		chunk := make([]byte, 4096)
		for bytes.Count(buf, []byte("\n")) < 200 {
			n, err := out.Read(chunk)
			require.NoError(t, err)
			buf = append(buf, chunk[:n]...)
		}
		require.NoError(t, cmd.Process.Kill())
		for {
			n, err := out.Read(chunk)
			buf = append(buf, chunk[:n]...)
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		acks := bytes.Count(buf, []byte("\n"))
		rep, err := Verify(filepath.Join(dir, "ses_test.jsonl"))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, rep.Records, acks)
		j := open(t, dir)
		require.NoError(t, j.Append(t.Context(), Event{Kind: SessionEnd}))
		_, err = Verify(j.Path())
		require.NoError(t, err)
	}
}

func TestATornLastLineIsCutOffAndSaid(t *testing.T) { // A238
	for cut := 1; cut < 100; cut += 7 {
		path, l := written(t, 3)
		b := bytes.Join(l, nil)
		require.NoError(t, os.WriteFile(path, b[:len(b)-cut], 0o600))
		rep, err := Verify(path)
		require.NoError(t, err)
		assert.Equal(t, Report{Records: 2, Torn: true, Open: []string{"0", "1"}}, rep)
		j := open(t, filepath.Dir(path))
		require.NoError(t, j.Append(t.Context(), Event{Kind: Outcome, Call: "0"}))
		var kinds []Kind
		require.NoError(t, Read(path, func(_ int, e Event) error { kinds = append(kinds, e.Kind); return nil }))
		assert.Equal(t, []Kind{Intent, Intent, Recovered, Outcome}, kinds)
	}
}

func TestAHundredWritersKeepOneOrder(t *testing.T) { // A249
	j := open(t, t.TempDir())
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := range 20 {
				assert.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Call: fmt.Sprintf("%d-%d", w, i)}))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	next := map[string]int{}
	require.NoError(t, Read(j.Path(), func(_ int, e Event) error {
		assert.False(t, seen[e.Call])
		seen[e.Call] = true
		who, i, _ := strings.Cut(e.Call, "-")
		assert.Equal(t, fmt.Sprint(next[who]), i)
		next[who]++
		return nil
	}))
	assert.Len(t, seen, 2000)
}

func TestAFullDiskLeavesAReadableJournal(t *testing.T) { // A248
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	j := open(t, t.TempDir())
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent}))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	file := j.f
	j.f = full
	require.Error(t, j.Append(t.Context(), Event{Kind: Outcome}))
	require.Error(t, j.Append(t.Context(), Event{Kind: Outcome}), "what could not be undone is not written over")
	_ = full.Close()
	j.f = file
	rep, err := Verify(j.Path())
	require.NoError(t, err)
	assert.Equal(t, 1, rep.Records)
}

func TestStrangeNamesAndFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "../x", "a/b", ".hidden"} {
		_, err := Open(dir, name)
		assert.Error(t, err, name)
	}
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "ses_link.jsonl")))
	_, err := Open(dir, "ses_link")
	require.Error(t, err, "a link is not followed")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ses_junk.jsonl"), []byte("junk\n"), 0o600))
	_, err = Open(dir, "ses_junk")
	require.Error(t, err, "nothing is written after what cannot be read")
}

func TestARecordIsBounded(t *testing.T) {
	j := open(t, t.TempDir())
	require.NoError(t, j.Append(t.Context(), Event{Kind: Intent, Resource: strings.Repeat("\x00", 1<<20)}))
	require.Error(t, j.Append(t.Context(), Event{Kind: Intent, Detail: DetailOf(strings.Repeat("x", maxRecord))}))
	rep, err := Verify(j.Path())
	require.NoError(t, err)
	assert.Equal(t, 1, rep.Records)
}

func TestTheShapeOfARecord(t *testing.T) {
	j := open(t, t.TempDir())
	code := 3
	require.NoError(t, j.Append(t.Context(), Event{Kind: Outcome, Call: "call_a", Tool: "shell_run", Code: "ok", ExitCode: &code, Bytes: 5, DurMS: 7}))
	b, err := os.ReadFile(j.Path())
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	delete(m, "time")
	delete(m, "hash")
	delete(m, "prev")
	assert.Equal(t, map[string]any{"v": 1.0, "seq": 1.0, "kind": "outcome", "session": "ses_test", "call": "call_a", "tool": "shell_run", "code": "ok",
		"exit_code": 3.0, "bytes": 5.0, "dur_ms": 7.0}, m)
}

// Whatever a file holds, reading it ends, and counts no more records than lines.
func FuzzVerify(f *testing.F) {
	path, lines := written(f, 3)
	f.Add(bytes.Join(lines, nil))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), filepath.Base(path))
		require.NoError(t, os.WriteFile(p, b, 0o600))
		rep, _ := Verify(p)
		assert.LessOrEqual(t, rep.Records, bytes.Count(b, []byte("\n")))
		if j, err := Open(filepath.Dir(p), "ses_test"); err == nil {
			assert.NoError(t, j.Close())
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	j := open(b, b.TempDir())
	for b.Loop() {
		require.NoError(b, j.Append(b.Context(), Event{Kind: Intent, Call: "call_0123456789", Tool: "shell_run", Resource: "echo hello", Rule: "inside"}))
	}
}
