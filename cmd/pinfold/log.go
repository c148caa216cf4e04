package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"

	slogmulti "github.com/samber/slog-multi"
)

// newLog writes to stderr, and in full detail of its level to a file when one
// is named. The caller closes what it gets back.
func newLog(stderr io.Writer, level slog.Level, file string) (*slog.Logger, io.Closer, error) {
	opt := &slog.HandlerOptions{Level: level}
	handlers := []slog.Handler{slog.NewTextHandler(stderr, opt)}
	var closer io.Closer = io.NopCloser(nil)
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, nil, fail("Check the path, or leave --log-file out.", "the folder of the log file %s cannot be made", file)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fail("Check the path, or leave --log-file out.", "the log file %s cannot be written", file)
		}
		handlers = append(handlers, slog.NewJSONHandler(f, opt))
		closer = f
	}
	return slog.New(slogmulti.Fanout(handlers...)), closer, nil
}
