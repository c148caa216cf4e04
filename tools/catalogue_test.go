package tools

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/policies"
)

var update = flag.Bool("update", false, "write the golden files")

// Every client pays for these bytes in every conversation; four bytes are taken for a token.
var budgets = map[Set]int{Minimal: 1800 * 4, Core: 4500 * 4, Full: 9000 * 4}

func TestEveryToolIsDeclaredWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, tool := range All() {
		t.Run(tool.Name, func(t *testing.T) {
			assert.False(t, seen[tool.Name], "declared twice")
			seen[tool.Name] = true
			assert.Regexp(t, regexp.MustCompile(`^[a-z]+_[a-z]+$`), tool.Name)
			assert.LessOrEqual(t, len(tool.Name), 32)
			assert.NotEmpty(t, tool.Title)
			assert.Greater(t, len(tool.Description), 40)
			assert.LessOrEqual(t, len(tool.Description), 1500)
			assert.Contains(t, policies.Permissions, tool.Permission)
			assert.Positive(t, tool.Timeout)
			assert.False(t, tool.Hints.ReadOnly && tool.Hints.Destructive, "a tool that only reads destroys nothing")
			assert.NotContains(t, string(tool.InputSchema), `"null"`)
			assert.NotContains(t, string(tool.InputSchema), `:true,"`)
			assert.NotContains(t, string(tool.OutputSchema), `"required"`, "failures are validated too")
			golden(t, filepath.Join("testdata", "tools", tool.Name+".json"), definition(t, tool))
		})
	}
}

func TestNoGoldenOutlivesItsTool(t *testing.T) {
	files, err := filepath.Glob("testdata/tools/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		name := filepath.Base(f[:len(f)-len(".json")])
		assert.True(t, slices.ContainsFunc(All(), func(t *Tool) bool { return t.Name == name }), f)
	}
}

func TestTheListStaysWithinItsBudget(t *testing.T) {
	for set, most := range budgets {
		var size int
		for _, tool := range Of(set) {
			size += len(definition(t, tool))
		}
		t.Logf("set %d: %d tools, %d bytes, about %d tokens of %d", set, len(Of(set)), size, size/4, most/4)
		assert.LessOrEqual(t, size, most, "set %d", set)
	}
}

func TestSetsGrow(t *testing.T) {
	names := func(s Set) []string {
		var out []string
		for _, tool := range Of(s) {
			out = append(out, tool.Name)
		}
		return out
	}
	assert.Equal(t, []string{"shell_run", "shell_output", "file_read", "file_write", "file_edit"}, names(Minimal))
	assert.Subset(t, names(Core), names(Minimal))
	assert.Subset(t, names(Full), names(Core))
}

// definition is the tool as tools/list carries it.
func definition(t *testing.T, tool *Tool) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"name": tool.Name, "title": tool.Title, "description": tool.Description,
		"inputSchema": tool.InputSchema, "outputSchema": tool.OutputSchema,
		"annotations": map[string]bool{"readOnlyHint": tool.Hints.ReadOnly, "destructiveHint": tool.Hints.Destructive,
			"idempotentHint": tool.Hints.Idempotent, "openWorldHint": tool.Hints.OpenWorld},
	})
	require.NoError(t, err)
	return b
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, got, "", "  "))
	pretty.WriteByte('\n')
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, pretty.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run make golden")
	assert.Equal(t, string(want), pretty.String(), "the tool's public face changed; if on purpose, make golden")
}
