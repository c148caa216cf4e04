//go:build linux

package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	big := bytes.Repeat([]byte("ab"), maxFrame)
	var wire []byte
	wire = frame(wire, flagMore, []byte("first"))
	wire = frame(wire, flagMore, nil)
	wire = frame(wire, flagCommand, []byte("\x04PING"))
	wire = frame(wire, 0, bytes.Repeat([]byte{'x'}, 300))
	wire = frame(wire, flagMore, []byte("second"))
	wire = frame(wire, 0, big)
	wire = frame(wire, 0, []byte("third"))
	r := bufio.NewReader(bytes.NewReader(wire))
	m, err := readParts(r)
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("first"), {}, bytes.Repeat([]byte{'x'}, 300)}, m.frames)
	m, err = readParts(r)
	require.NoError(t, err)
	assert.EqualValues(t, len(big)-keptOfFrame, m.cut, "too large: both ends are kept, the rest counted")
	assert.Equal(t, big[:keptOfFrame], m.frames[1])
	m, err = readParts(r)
	require.NoError(t, err)
	assert.Equal(t, "third", string(m.frames[0]))
	_, err = readParts(r)
	assert.ErrorIs(t, err, io.EOF)
}

func TestAPeerThatLies(t *testing.T) {
	for name, wire := range map[string][]byte{
		"endless message":   bytes.Repeat(frame(nil, flagMore, []byte("x")), maxParts+2),
		"unknown flags":     {0x80, 1, 'x'},
		"absurd length":     append([]byte{flagLong}, binary.BigEndian.AppendUint64(nil, 1<<60)...),
		"ends in its frame": {0, 10, 'x'},
	} {
		_, err := readParts(bufio.NewReader(bytes.NewReader(wire)))
		require.Error(t, err, name)
		assert.NotErrorIs(t, err, io.EOF, name)
	}
	for _, hello := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64), "\xff" + strings.Repeat("\x00", 63)} {
		a, b := net.Pipe()
		go func() {
			_, _ = io.CopyN(io.Discard, b, 64)
			_, _ = io.WriteString(b, hello)
			_ = b.Close()
		}()
		_, err := greetPeer(a, "DEALER")
		require.Error(t, err)
	}
}

func TestSignatures(t *testing.T) {
	s := newSigner()
	_, frames, err := s.encode("execute_request", map[string]string{"code": "1"})
	require.NoError(t, err)
	m, err := s.decode(parts{frames: append([][]byte{[]byte("topic")}, frames...)})
	require.NoError(t, err)
	assert.Equal(t, "execute_request", m.Type)
	for i := range frames[1:] {
		bad := append([][]byte(nil), frames...)
		bad[i+1] = append(bytes.Clone(bad[i+1]), ' ')
		_, err := s.decode(parts{frames: bad})
		assert.True(t, errors.Is(err, errZMTP), "frame %d", i+1)
	}
	_, err = newSigner().decode(parts{frames: frames})
	assert.Error(t, err, "another key")
}

func FuzzFrames(f *testing.F) {
	f.Add(frame(frame(nil, flagMore, []byte("a")), 0, []byte("b")))
	f.Add([]byte{flagLong, 0, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Add([]byte{flagLong, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bufio.NewReader(bytes.NewReader(wire))
		for {
			m, err := readParts(r)
			if err != nil {
				return
			}
			size := 0
			for _, p := range m.frames {
				size += len(p)
			}
			if size > len(wire) || len(m.frames) > maxParts+1 {
				t.Fatalf("%d bytes in %d frames out of %d", size, len(m.frames), len(wire))
			}
			_, _ = newSigner().decode(m)
		}
	})
}

func TestProgressBars(t *testing.T) {
	for _, tt := range []struct {
		chunks []string
		want   string
	}{
		{[]string{"a\nb\n"}, "a\nb\n"},
		{[]string{"1%\r2%\r3%\n"}, "3%\n"},
		{[]string{"1%\r", "2%\r", "3%"}, "3%"},
		{[]string{"\r1%", "\r2%", "\nend\n"}, "2%\nend\n"},
		{[]string{"win\r\ndows\r\n"}, "win\ndows\n"},
		{[]string{"win\r", "\ndows"}, "win\ndows"},
		{[]string{"\x1b[31mred\x1b[0m\x1b]0;title\x07!"}, "red!"},
		{[]string{"x\r"}, "x"},
	} {
		var c capped
		for _, s := range tt.chunks {
			c.add(s)
		}
		assert.Equal(t, tt.want, c.String(), "%q", tt.chunks)
	}
	var c capped
	for range 50_000 {
		c.add("a line of some length\n")
	}
	assert.Less(t, len(c.String()), streamKept+streamKept/2+100)
	assert.Positive(t, c.omitted)
}
