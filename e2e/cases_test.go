//go:build !e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// caseCounts is how many ids of each kind there are; a row that gets lost shows.
var caseCounts = map[byte]int{'A': 223, 'B': 78, 'C': 109}

func TestEveryCaseHasATestOrAReason(t *testing.T) {
	tests := testNames(t, "..")
	text, err := os.ReadFile("CASES.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| ([ABC]\d+) \| (.+?) \| (\w+) \| (.*?) ?\| (.*?) ?\|$`)
	seen, count := map[string]bool{}, map[byte]int{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		id, named, reason := m[1], strings.TrimSpace(m[4]), strings.TrimSpace(m[5])
		assert.False(t, seen[id], "%s stands twice", id)
		seen[id] = true
		count[id[0]]++
		if named == "" {
			assert.NotEmpty(t, reason, "%s has neither a test nor a reason", id)
			continue
		}
		for n := range strings.FieldsFuncSeq(named, func(r rune) bool { return r == ',' || r == ' ' }) {
			assert.True(t, tests[n], "%s names %s, which does not exist", id, n)
		}
	}
	assert.Equal(t, caseCounts, count)
}

func TestEveryPromiseNamesATestThatExists(t *testing.T) {
	tests := testNames(t, "..")
	text, err := os.ReadFile("../PROMISES.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (.+?) \| (Test.+) \|$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(rows), 30)
	for _, m := range rows {
		for n := range strings.SplitSeq(m[2], ", ") {
			assert.True(t, tests[n], "the promise %q names %s, which does not exist", m[1], n)
		}
	}
}

// testNames finds the test functions of the module.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	fn := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range fn.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	}))
	return names
}
