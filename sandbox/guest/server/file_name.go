//go:build linux

package server

import (
	"strings"
	"unicode/utf8"
)

// encodeName writes a name as it stands in results: bytes that are not UTF-8,
// control characters and marks that turn or hide text as \xNN, so that one name
// is one line and reads as what it is. A backslash that would read as such an
// escape becomes \x5c; decodeName undoes all of it without loss.
func encodeName(s string) string {
	if plainName(s) {
		return s
	}
	const hexDigits = "0123456789abcdef"
	var b strings.Builder
	escape := func(raw string) {
		for i := range len(raw) {
			b.WriteString(`\x`)
			b.WriteByte(hexDigits[raw[i]>>4])
			b.WriteByte(hexDigits[raw[i]&15])
		}
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1, hidden(r):
			escape(s[i : i+n])
		case r == '\\':
			if _, ok := escaped(s[i:]); ok {
				escape(s[i : i+1])
			} else {
				b.WriteByte('\\')
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// decodeName is the inverse of encodeName and leaves other text as it is.
func decodeName(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if c, ok := escaped(s[i:]); ok {
			b.WriteByte(c)
			i += 4
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func plainName(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f || s[i] == '\\' {
			return false
		}
	}
	return true
}

// escaped reads \xNN at the head of s, for those values only that encodeName
// writes: plain printable text such as \x41 is a name of its own.
func escaped(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] != 'x' {
		return 0, false
	}
	hi, lo := nibble(s[2]), nibble(s[3])
	if hi < 0 || lo < 0 {
		return 0, false
	}
	c := byte(hi<<4 | lo)
	return c, c < 0x20 || c >= 0x7f || c == '\\'
}

func nibble(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// hidden are characters that a reader does not see or that move the others.
func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x2069, r == 0xfeff:
		return true
	}
	return false
}

// validText makes b valid UTF-8, with other bytes as \xNN, and counts them.
func validText(b []byte) (string, int) {
	if utf8.Valid(b) {
		return string(b), 0
	}
	const hexDigits = "0123456789abcdef"
	var out strings.Builder
	out.Grow(len(b) + 64)
	bad := 0
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			out.WriteString(`\x`)
			out.WriteByte(hexDigits[b[0]>>4])
			out.WriteByte(hexDigits[b[0]&15])
			bad++
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String(), bad
}
