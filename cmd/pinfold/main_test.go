package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// asPinfold has the test binary be the program: what is tested is then a real
// process, with its own streams, parent and signals.
const asPinfold = "PINFOLD_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asPinfold) != "" {
		os.Unsetenv(asPinfold)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		os.Exit(process())
	}
	os.Exit(m.Run())
}

// home gives the test folders of its own, as a user's environment would.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pf") // short: sockets go below it
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, kv := range [][2]string{{"HOME", ""}, {"XDG_RUNTIME_DIR", "run"}, {"XDG_CONFIG_HOME", "config"}, {"XDG_STATE_HOME", "state"}, {"XDG_CACHE_HOME", "cache"}} {
		d := filepath.Join(dir, kv[1])
		require.NoError(t, os.MkdirAll(d, 0o700))
		t.Setenv(kv[0], d)
	}
	return dir
}

// pinfold runs the program in this process and returns what it said.
func pinfold(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	assert.Equal(t, string(want), got)
}
