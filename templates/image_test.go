package templates

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What tools and their descriptions promise must be in the image.
func TestImageRecipeHasWhatIsPromised(t *testing.T) {
	r, err := ImageRecipe()
	require.NoError(t, err)
	packages := r.PackagesFor("debian")
	for _, want := range []string{
		"python3", "python3-pip", "python3-venv", "python3-ipykernel", "python3-numpy", "python3-pandas", "python3-matplotlib",
		"python3-plotly", "python3-openpyxl", "nodejs", "npm", "git", "openssh-client", "ripgrep", "jq", "curl", "unzip", "xxd",
		"file", "procps", "sqlite3", "poppler-utils", "build-essential", "chromium-headless-shell",
	} {
		assert.Contains(t, packages, want)
	}
	for _, x := range r.Excludes {
		// dpkg compiles Python's files after unpacking and fails on absent ones.
		assert.False(t, strings.HasSuffix(x, ".py"), x)
	}
}

func TestCustomizeIsPlainShell(t *testing.T) {
	r, err := ImageRecipe()
	require.NoError(t, err)
	check := exec.Command("sh", "-n")
	check.Stdin = strings.NewReader(r.Customize)
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, user := range []string{"agent:x:1000:1000:", "browser:x:1001:1001:"} {
		assert.Contains(t, r.Customize, user)
	}
}
