package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
)

var update = flag.Bool("update", false, "write the golden files")

// messages are all that the two sides say to each other, by name.
var messages = []struct {
	name string
	v    any
}{
	{"config", Config{}}, {"guest hello", guestHello{}}, {"host hello", hostHello{}}, {"guest proof", guestProof{}},
	{"request", Request{}}, {"error", sandbox.Error{}},
	{"exec", sandbox.ExecRequest{}}, {"exec event", sandbox.ExecProgress{}}, {"exec result", sandbox.ExecResult{}},
	{"output", sandbox.OutputRequest{}}, {"output result", sandbox.OutputResult{}}, {"input", sandbox.InputRequest{}},
	{"follow", sandbox.FollowRequest{}}, {"follow result", sandbox.FollowResult{}},
	{"kill", sandbox.KillRequest{}}, {"kill result", sandbox.KillResult{}}, {"status result", sandbox.GuestStatus{}},
	{"file_read", sandbox.ReadRequest{}}, {"file_read result", sandbox.ReadResult{}},
	{"file_write", sandbox.WriteRequest{}}, {"file_write result", sandbox.WriteResult{}},
	{"file_edit", sandbox.EditRequest{}}, {"file_edit result", sandbox.EditResult{}},
	{"file_list", sandbox.ListRequest{}}, {"file_list result", sandbox.ListResult{}},
	{"file_search", sandbox.SearchRequest{}}, {"file_search result", sandbox.SearchResult{}},
	{"transfer", sandbox.TransferRequest{}}, {"transfer result", sandbox.TransferResult{}},
	{"code", sandbox.CodeRequest{}}, {"code event", sandbox.CodeProgress{}}, {"code result", sandbox.CodeResult{}},
}

// TestTheWireIsAsItWas shows each message with every field set. A change here is
// a change of the protocol: older guests and newer hosts must still agree, or
// Version must rise.
func TestTheWireIsAsItWas(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version %d\n", Version)
	for _, m := range messages {
		p := reflect.New(reflect.TypeOf(m.v))
		fill(p.Elem(), "x")
		raw, err := json.Marshal(p.Interface())
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s\n  %s\n", m.name, raw)
		back := reflect.New(reflect.TypeOf(m.v))
		require.NoError(t, Decode(raw, back.Interface()), "%s is not read by the side that wrote it", m.name)
		require.Error(t, Decode([]byte(`{"no_such_field":1}`), back.Interface()), m.name)
	}
	for _, f := range []FrameType{FrameRequest, FrameData, FrameEnd, FrameCancel, FrameEvent, FrameResult, FrameError} {
		var w bytes.Buffer
		require.NoError(t, WriteFrame(&w, f, []byte("ab")))
		fmt.Fprintf(&b, "frame %q\n", w.String())
	}
	const file = "testdata/wire.golden"
	if *update {
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "run with -update if the protocol was meant to change")
}

// fill sets every field to something that is not its zero value.
func fill(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Type.Kind() != reflect.Interface {
				fill(v.Field(i), strings.ToLower(v.Type().Field(i).Name))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), s)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("{}"))
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("bytes"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), s)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, s)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), e)
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	}
}

func TestFramesAreBounded(t *testing.T) {
	frame := func(kind byte, n uint32, payload string) io.Reader {
		b := []byte{kind}
		b = binary.BigEndian.AppendUint32(b, n)
		return bytes.NewReader(append(b, payload...))
	}
	for name, r := range map[string]io.Reader{
		"longer than the limit":      frame('R', MaxMessage+1, "x"),
		"longer than an int":         frame('R', 0xffffffff, "x"),
		"data longer than a piece":   frame('D', MaxData+1, "x"),
		"cut within its payload":     frame('R', 10, "x"),
		"cut within a large payload": frame('R', MaxMessage, "x"),
		"cut within its head":        bytes.NewReader([]byte("R\x00")),
	} {
		_, _, err := ReadFrame(r, MaxMessage)
		assert.ErrorIs(t, err, ErrFrame, name)
	}
	_, _, err := ReadFrame(bytes.NewReader(nil), MaxMessage)
	assert.ErrorIs(t, err, io.EOF)
	assert.ErrorIs(t, WriteFrame(io.Discard, FrameResult, make([]byte, MaxMessage+1)), ErrFrame)
}

func TestDecodeIsStrict(t *testing.T) {
	var r Request
	require.NoError(t, Decode([]byte(`{"op":"exec"} `), &r))
	for _, bad := range []string{``, `{`, `{"op":1}`, `{"op":"a"}{}`, `{"op":"a"} x`, `{"other":1}`, `[]`} {
		assert.Error(t, Decode([]byte(bad), &r), bad)
	}
	deep := strings.Repeat(`{"op":"x","args":`, 1) + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}"
	assert.Error(t, Decode([]byte(deep), &r), "nesting is bounded by the decoder")
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("R\x00\x00\x00\x02{}"))
	f.Add([]byte("D\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, p, err := ReadFrame(bytes.NewReader(b), MaxMessage)
		if err == nil {
			var w bytes.Buffer
			require.NoError(t, WriteFrame(&w, kind, p))
			require.True(t, bytes.HasPrefix(b, w.Bytes()))
		}
	})
}
