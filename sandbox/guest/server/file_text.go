//go:build linux

package server

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Encodings as they are reported.
const (
	encUTF8    = "utf-8"
	encUTF8BOM = "utf-8-bom"
	encUTF16LE = "utf-16le"
	encUTF16BE = "utf-16be"
	encOther   = "unknown-8bit" // text with bytes that are not UTF-8, shown as \xNN
	encBinary  = "binary"
)

// sniffBytes is how much of a file's head decides what it is.
const sniffBytes = 8192

var utf8BOM = []byte{0xef, 0xbb, 0xbf}

// sniff tells the encoding from a file's head; whole says that the head is all.
func sniff(head []byte, whole bool) string {
	switch {
	case bytes.HasPrefix(head, utf8BOM):
		return encUTF8BOM
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}) && !bytes.HasPrefix(head, []byte{0xff, 0xfe, 0, 0}):
		return encUTF16LE
	case bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return encUTF16BE
	}
	if t := mediaType(head); t != "" {
		return encBinary
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return sniffWide(head)
	}
	bad, control := 0, 0
	for rest := head; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n <= 1:
			if !whole && !utf8.FullRune(rest) {
				rest = rest[len(rest):] // cut in the middle of a character
				continue
			}
			bad++
		case r < 0x20 && !strings.ContainsRune("\t\n\r\f\v\b\x1b", r):
			control++
		}
		rest = rest[n:]
	}
	switch {
	case control > len(head)/20 || bad > len(head)*3/10:
		return encBinary
	case bad > 0:
		return encOther
	}
	return encUTF8
}

// sniffWide finds UTF-16 without a mark: mostly Latin, so every other byte is 0.
func sniffWide(head []byte) string {
	var zeros [2]int
	for i, c := range head {
		if c == 0 {
			zeros[i&1]++
		}
	}
	half := len(head) / 2
	switch {
	case half < 2:
	case zeros[1] > half*7/10 && zeros[0] <= half/50:
		return encUTF16LE
	case zeros[0] > half*7/10 && zeros[1] <= half/50:
		return encUTF16BE
	}
	return encBinary
}

// mediaTypes are told by their first bytes.
var mediaTypes = []struct{ magic, name string }{
	{"\x89PNG\r\n\x1a\n", "image/png"}, {"\xff\xd8\xff", "image/jpeg"}, {"GIF87a", "image/gif"}, {"GIF89a", "image/gif"},
	{"%PDF-", "application/pdf"}, {"PK\x03\x04", "application/zip"}, {"PK\x05\x06", "application/zip"}, {"\x1f\x8b", "application/gzip"},
	{"\x7fELF", "application/x-elf"}, {"SQLite format 3\x00", "application/vnd.sqlite3"}, {"BZh", "application/x-bzip2"},
	{"\xfd7zXZ\x00", "application/x-xz"}, {"(\xb5/\xfd", "application/zstd"}, {"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"},
	{"OggS", "audio/ogg"}, {"ID3", "audio/mpeg"}, {"fLaC", "audio/flac"}, {"\x00asm", "application/wasm"}, {"PAR1", "application/vnd.apache.parquet"},
	{"wOFF", "font/woff"}, {"wOF2", "font/woff2"}, {"\x00\x01\x00\x00\x00", "font/ttf"}, {"II*\x00", "image/tiff"}, {"MM\x00*", "image/tiff"},
}

func mediaType(head []byte) string {
	for _, m := range mediaTypes {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.name
		}
	}
	if len(head) >= 12 && bytes.HasPrefix(head, []byte("RIFF")) {
		switch string(head[8:12]) {
		case "WEBP":
			return "image/webp"
		case "WAVE":
			return "audio/wav"
		}
	}
	if len(head) >= 12 && string(head[4:8]) == "ftyp" {
		return "video/mp4"
	}
	if len(head) > 262 && string(head[257:262]) == "ustar" {
		return "application/x-tar"
	}
	return ""
}

// decodeUTF16 turns UTF-16 with its mark, if any, into UTF-8; exact says that
// encodeUTF16 gives the same bytes again.
func decodeUTF16(b []byte, enc string) (text []byte, bom, exact bool) {
	order := wide(enc)
	exact = len(b)%2 == 0
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = order.Uint16(b[2*i:])
	}
	if len(u) > 0 && u[0] == 0xfeff {
		bom, u = true, u[1:]
	}
	text = []byte(string(utf16.Decode(u)))
	return text, bom, exact && slices.Equal(utf16.Encode([]rune(string(text))), u)
}

func encodeUTF16(text []byte, enc string, bom bool) []byte {
	order := wide(enc)
	var out []byte
	if bom {
		out = order.AppendUint16(out, 0xfeff)
	}
	for _, c := range utf16.Encode([]rune(string(text))) {
		out = order.AppendUint16(out, c)
	}
	return out
}

type wideOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func wide(enc string) wideOrder {
	if enc == encUTF16BE {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// endings counts line ends over any number of pieces.
type endings struct {
	lf, crlf int64
	last     byte // last byte seen
	any      bool
}

func (e *endings) add(b []byte) {
	if len(b) == 0 {
		return
	}
	n := int64(bytes.Count(b, []byte{'\n'}))
	crlf := int64(bytes.Count(b, []byte("\r\n")))
	if e.any && e.last == '\r' && b[0] == '\n' {
		crlf++
	}
	e.crlf += crlf
	e.lf += n - crlf
	e.last, e.any = b[len(b)-1], true
}

// lines counts a last line without an end too.
func (e *endings) lines() int64 {
	n := e.lf + e.crlf
	if e.any && e.last != '\n' {
		n++
	}
	return n
}

func (e *endings) name() string {
	switch {
	case e.lf == 0 && e.crlf == 0:
		return "none"
	case e.lf == 0:
		return "crlf"
	case e.crlf == 0:
		return "lf"
	}
	return "mixed"
}

// hexDump writes 16 bytes a line as xxd does.
func hexDump(b []byte, offset int64) string {
	var out strings.Builder
	for len(b) > 0 {
		row := b[:min(16, len(b))]
		h := hex.EncodeToString(row)
		var spaced strings.Builder
		for i := 0; i < len(h); i += 4 {
			spaced.WriteString(h[i:min(i+4, len(h))])
			spaced.WriteByte(' ')
		}
		ascii := make([]byte, len(row))
		for i, c := range row {
			ascii[i] = '.'
			if c >= 0x20 && c < 0x7f {
				ascii[i] = c
			}
		}
		fmt.Fprintf(&out, "%08x: %-40s %s\n", offset, spaced.String(), ascii)
		b, offset = b[len(row):], offset+int64(len(row))
	}
	return out.String()
}
