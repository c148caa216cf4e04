package mcp

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/policies"
)

var update = flag.Bool("update", false, "write the golden files")

// An archive in testdata/wire holds, in sections: what the policy does with a
// tool ("tool: effect"), what the client sends, what the server answered, and
// what the journal then says. The client waits for each answer.
func TestWireGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			archive := sections(string(b))
			effects := map[string]policies.Effect{}
			for _, line := range lines(archive["policy"]) {
				tool, effect, _ := strings.Cut(line, ": ")
				effects[tool] = policies.Effect(effect)
			}
			w := newWorld(t, func(o *Options) { o.Policy = decider{effects} })
			c := dial(t, w.Edge)
			var got strings.Builder
			session := ""
			for _, line := range lines(archive["client"]) {
				before := len(c.all())
				c.send("%s", line)
				var id struct{ ID json.RawMessage }
				if json.Unmarshal([]byte(line), &id) == nil && id.ID == nil {
					continue // a notification
				}
				c.until("an answer to "+line, func(message) bool { return len(c.all()) > before })
				c.mu.Lock()
				answer := c.lines[before]
				c.mu.Unlock()
				if m := handle.FindString(string(answer)); m != "" {
					session = m
				}
				got.WriteString(normal(answer) + "\n")
			}
			var journal strings.Builder
			if session != "" {
				file, err := os.ReadFile(filepath.Join(w.state, "journals", session+".jsonl"))
				require.NoError(t, err)
				for _, line := range lines(string(file)) {
					journal.WriteString(normal([]byte(line)) + "\n")
				}
			}
			if *update {
				out := fmt.Sprintf("%s-- policy --\n%s-- client --\n%s-- server --\n%s-- journal --\n%s", archive[""], archive["policy"], archive["client"], got.String(), journal.String())
				require.NoError(t, os.WriteFile(f, []byte(out), 0o644))
				return
			}
			assert.Equal(t, archive["server"], got.String(), "run make golden when this is meant")
			assert.Equal(t, archive["journal"], journal.String(), "run make golden when this is meant")
		})
	}
}

func sections(s string) map[string]string {
	m, name := map[string]string{}, ""
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(strings.TrimSpace(line), " --") {
			name = strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "-"))
			continue
		}
		m[name] += line
	}
	return m
}

func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

var (
	handle   = regexp.MustCompile(`ses_[a-z0-9]{26}`)
	variable = []struct {
		re *regexp.Regexp
		to string
	}{
		{handle, "ses_X"},
		{regexp.MustCompile(`call_[a-z0-9]{16}`), "call_X"},
		{regexp.MustCompile(`srv_[a-z0-9]{26}`), "srv_X"},
		{regexp.MustCompile(`"(prev|hash|args_digest|digest|policy_digest)":"[^"]*"`), `"$1":"X"`},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
		{regexp.MustCompile(`,"dur_ms":\d+`), ""}, // absent when 0
		{regexp.MustCompile(`("(?:duration_ms|age_ms)"):\d+`), "$1:0"},
		{regexp.MustCompile(`\d+ ms`), "0 ms"},
		{regexp.MustCompile(`/tmp/[^" ]*/journals`), "JOURNALS"},
	}
)

func normal(b []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return string(b)
	}
	s := out.String()
	for _, v := range variable {
		s = v.re.ReplaceAllString(s, v.to)
	}
	return s
}
