package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// served waits until an HTTP server says where it is, and returns that and its token.
func (p *program) served(t *testing.T) (url, tokenFile, token string) {
	t.Helper()
	require.Eventually(t, func() bool {
		url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`).FindString(p.stderr.String())
		tokenFile = regexp.MustCompile(`/\S+/token\b`).FindString(p.stderr.String())
		return url != "" && tokenFile != ""
	}, patience, 10*time.Millisecond)
	b, err := os.ReadFile(tokenFile)
	require.NoError(t, err)
	return url, tokenFile, strings.TrimSpace(string(b))
}

// post sends one message with headers and returns status and headers; the body is read.
func post(t *testing.T, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a, string(b)
}

func TestHTTPNeedsItsToken(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve", "--http", "127.0.0.1:0")
	url, tokenFile, token := p.served(t)
	st, err := os.Stat(tokenFile)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	assert.NotContains(t, p.stderr.String(), token, "stderr ends up in logs")

	for auth, want := range map[string]int{"": http.StatusUnauthorized, "Bearer wrong": http.StatusUnauthorized, "Bearer " + token: http.StatusOK} {
		headers := map[string]string{}
		if auth != "" {
			headers["Authorization"] = auth
		}
		a, _ := post(t, url, initialize, headers)
		assert.Equal(t, want, a.StatusCode, auth)
	}

	require.NoError(t, p.in.Close(), "HTTP servers do not hang on stdin")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Zero(t, p.ended(t, 10*time.Second))
	assert.NoFileExists(t, tokenFile)
}

func TestATakenPortIsNamed(t *testing.T) {
	quiet(t)
	p := start(t, nil, "serve", "--http", "127.0.0.1:0")
	url, _, _ := p.served(t)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	second := start(t, nil, "serve", "--http", address)
	assert.Equal(t, exitFailure, second.ended(t, patience))
	assert.Contains(t, second.stderr.String(), address+" cannot be listened on")
	assert.Contains(t, second.stderr.String(), "Choose another port")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ended(t, patience)
}
