//go:build linux

package server

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The ring against all that was ever written, in pieces of every kind.
func TestARingKeepsBothEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{10, 5000, 200_000, 3_000_000} {
		var g ring
		var all []byte
		for len(all) < 4*most && len(all) < 5_000_000 {
			p := make([]byte, r.IntN(most))
			for i := range p {
				p[i] = byte('a' + r.IntN(26))
			}
			g.write(p)
			all = append(all, p...)
			require.Equal(t, int64(len(all)), g.total)
			for range 5 {
				off := r.IntN(len(all) + 1)
				n := r.IntN(100_000)
				b, from := g.read(nil, int64(off), n)
				require.GreaterOrEqual(t, from, int64(off))
				require.LessOrEqual(t, len(b), n)
				require.Equal(t, string(all[from:from+int64(len(b))]), string(b))
				if off < headMax || off >= len(all)-tailMax {
					require.Equal(t, int64(off), from)
				}
				if off >= len(all)-tailMax {
					require.Len(t, b, min(n, len(all)-off))
				}
			}
		}
		assert.LessOrEqual(t, g.size(), 2*headMax+2*tailMax)
		g.shrink(1000)
		b, from := g.read(nil, max(0, int64(len(all)-1000)), 2000)
		assert.Equal(t, string(all[from:]), string(b))
		g.write([]byte("more"))
		b, _ = g.read(nil, int64(len(all))-2, 100)
		assert.Equal(t, string(all[len(all)-2:])+"more", string(b))
	}
}

func TestLinesAreCounted(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "a": 1, "a\n": 1, "a\nb": 2, "\n\n": 2, "a\r\nb\n": 2} {
		var g ring
		for i := range len(text) {
			g.write([]byte{text[i]})
		}
		assert.Equal(t, want, g.lines(), "%q", text)
	}
}

// Both streams taken together: whatever is still held comes in order, and every
// byte is either read or told as gone.
func TestBothStreamsKeepTheirOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, most := range []int{3, 1000, 60_000} {
		var o output
		var all []byte
		for len(all) < 200*most && len(all) < 4_000_000 {
			p := make([]byte, 1+r.IntN(most))
			for i := range p {
				p[i] = byte(r.IntN(256))
			}
			o.write(uint8(r.IntN(2)), p)
			all = append(all, p...)
		}
		require.Equal(t, int64(len(all)), o.total)
		read := 0
		for off := int64(0); off < o.total; {
			n := 1 + r.IntN(100_000)
			b, from, next := o.read(off, n)
			require.GreaterOrEqual(t, from, off)
			require.Equal(t, from+int64(len(b)), next)
			require.Greater(t, next, off, "a read must lead on")
			require.True(t, bytes.Equal(all[from:next], b))
			read += len(b)
			off = next
		}
		if len(all) <= headMax && len(o.segs) < maxSegs {
			assert.Equal(t, len(all), read)
		}
	}
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	text := []byte(strings.Repeat("aé漢😀", 50))
	for n := range len(text) {
		head := text[:n]
		whole := head[:len(head)-cutEnd(head)]
		assert.True(t, utf8.Valid(whole), n)
		assert.Less(t, len(head)-len(whole), 4)
		tail := text[n:]
		assert.True(t, utf8.Valid(tail[cutStart(tail):]), n)
	}
	assert.Equal(t, 0, cutEnd([]byte("a\xff")), "a byte that begins no character is shown")
	assert.Equal(t, 0, cutStart([]byte("\x80\x80\x80\x80\x80")))
	assert.Equal(t, `a\xffb`, cleanText([]byte("a\xffb")))
	assert.Equal(t, `\xed\xa0\x80`, cleanText([]byte("\xed\xa0\x80")), "half of a pair is no character")
	for n := range 300 {
		b := []byte(strings.Repeat("é\xff", 100))
		assert.LessOrEqual(t, utf8.RuneCountInString(cleanText(b[:fitHead(b, n)])), n)
		assert.LessOrEqual(t, utf8.RuneCountInString(cleanText(b[len(b)-fitTail(b, n):])), n)
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add([]byte("a\xffb漢"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := cleanText(b)
		require.True(t, utf8.ValidString(s))
		require.Equal(t, utf8.RuneCountInString(s), width(b))
		if utf8.Valid(b) {
			require.Equal(t, string(b), s)
		}
	})
}

func TestTreeNumbersFitTheNamespace(t *testing.T) {
	for _, c := range []struct{ gidMap, says string }{
		{"0 100000 65536", ""}, {"0 1 999\n1000 0 1\n1001 1000 64535", ""}, {"0 100000 2000", ""}, {"", ""},
	} {
		var tr trees
		tr.init(c.gidMap)
		seen := map[int]bool{}
		for range 500 {
			n, err := tr.take(false)
			require.NoError(t, err)
			assert.False(t, seen[n])
			seen[n] = true
			assert.Greater(t, n, 1001)
			if strings.HasSuffix(c.gidMap, " 2000") {
				assert.Less(t, n, 2000)
			}
		}
	}
	var tr trees
	tr.init("0 100000 65536")
	tr.first, tr.last, tr.next = 10, 12, 10
	for range 3 {
		_, err := tr.take(false)
		require.NoError(t, err)
	}
	_, err := tr.take(false)
	require.Error(t, err)
	tr.give(11)
	n, err := tr.take(false)
	require.NoError(t, err)
	assert.Equal(t, 11, n)
}

func TestASignalMeetsNoStranger(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	reads := 0
	n := signalWhere(unix.SIGKILL, func(p *proc) bool {
		if p.pid != cmd.Process.Pid {
			return false
		}
		reads++
		return reads == 1 // as if the number were another's at the second look
	})
	assert.Equal(t, 2, reads)
	assert.Zero(t, n)
	require.NoError(t, cmd.Process.Signal(unix.Signal(0)), "it was ended")
	assert.Equal(t, 1, signalWhere(unix.SIGKILL, func(p *proc) bool { return p.pid == cmd.Process.Pid }))
	require.Error(t, cmd.Wait())
}

func TestKeysAreWhatATerminalSends(t *testing.T) {
	for k, want := range map[string]string{"ctrl-c": "\x03", "Ctrl-Z": "\x1a", "enter": "\r", "up": "\x1b[A", "alt-b": "\x1bb", "F1": "\x1bOP"} {
		b, ok := keyBytes(k)
		assert.True(t, ok, k)
		assert.Equal(t, want, string(b), k)
	}
	for _, k := range []string{"", "ctrl-", "ctrl-cc", "x", "meta-x", "alt-"} {
		_, ok := keyBytes(k)
		assert.False(t, ok, k)
	}
}
