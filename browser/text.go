package browser

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanText makes page text harmless for a reader: valid UTF-8, no control,
// zero-width, bidirectional, private-use and tag characters, white space
// folded to single blanks. Text that hides from people must not reach a model.
func cleanText(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	space := true // leading blanks go
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case unicode.IsSpace(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
		case invisible(r):
		default:
			b.WriteRune(r)
			space = false
		}
	}
	return strings.TrimSuffix(b.String(), " ")
}

// clean is the quick way out for plain ASCII, most of all text.
func clean(s string) bool {
	blank := true
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf || c < ' ' || c == 0x7f || (c == ' ' && blank) {
			return false
		}
		blank = c == ' '
	}
	return s == "" || !blank
}

func invisible(r rune) bool {
	switch {
	case unicode.IsControl(r), unicode.Is(unicode.Cf, r) && r != '\u200d', unicode.Is(unicode.Co, r), unicode.Is(unicode.Cs, r):
		return true
	case r == '\u115f', r == '\u1160', r == '\u3164', r == '\uffa0', r == '\u034f', r == '\u2800':
		return true // blanks that are letters or marks by name
	case r >= 0xfe00 && r <= 0xfe0e, r >= 0xe0000 && r <= 0xe0fff:
		return true // variation selectors carry data, tags too; emoji presentation stays
	}
	return false
}

// cut shortens s to n runes and tells how many were left out.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	total := utf8.RuneCountInString(s)
	if total <= n {
		return s
	}
	i := 0
	for range n {
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return fmt.Sprintf("%s…(+%d)", s[:i], total-n)
}

// quote puts a string between double quotes on one line.
func quote(s string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`) + `"`
}

// fence is what separates page text from ours. The page may print it, so the
// token is new in each reply and look-alikes are taken out of the text.
var fence = regexp.MustCompile(`(?i)[\[{<(]*\s*(/|end\s+(of\s+)?)?page[ _-]?text[ _-]+[0-9a-f]{4,}`)

func wrapPage(token, text string) string {
	text = fence.ReplaceAllString(text, "[marker removed]")
	return "[page-text " + token + "]\n" + strings.TrimSuffix(text, "\n") + "\n[end page-text " + token + "]"
}

// maxURL bounds one URL in output; a query above maxQuery is cut.
const maxURL, maxQuery = 300, 60

// shortURL makes a link of a page short: relative to the page where it can be,
// long queries cut, data URLs reduced to type and size.
func shortURL(raw, base string) string {
	if raw == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(raw, "data:"); ok {
		kind, _, _ := strings.Cut(rest, ",")
		return fmt.Sprintf("data:%s (%d bytes)", cut(cleanText(kind), 40), len(rest))
	}
	if strings.HasPrefix(strings.ToLower(raw), "javascript:") {
		return "javascript:…"
	}
	if len(raw) > 1<<16 {
		raw = raw[:1<<16]
	}
	u, err := url.Parse(raw)
	if err != nil {
		return cut(cleanText(raw), maxURL)
	}
	if len(u.RawQuery) > maxQuery {
		u.RawQuery = u.RawQuery[:maxQuery] + "…"
	}
	s := u.String()
	if b, err := url.Parse(base); err == nil && u.Host != "" && b.Host == u.Host && b.Scheme == u.Scheme && u.User == nil {
		if b.Path == u.Path && b.RawQuery == u.RawQuery && u.Fragment != "" {
			s = "#" + u.Fragment
		} else {
			rel := *u
			rel.Scheme, rel.Host = "", ""
			if s = rel.String(); s == "" {
				s = "/"
			}
		}
	}
	return cut(cleanText(s), maxURL)
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1_000_000)
}
