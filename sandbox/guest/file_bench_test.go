//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

func BenchmarkFile(b *testing.B) {
	g := guesttest.Start(b, guesttest.Options{})
	ctx := context.Background()
	body := bytes.Repeat([]byte("0123456789abcde\n"), 64)
	b.Run("write 1 kB", func(b *testing.B) {
		for b.Loop() {
			_, err := g.WriteFile(ctx, sandbox.WriteRequest{Path: "f", Content: body, CreateDirs: true})
			require.NoError(b, err)
		}
	})
	b.Run("read 1 kB", func(b *testing.B) {
		for b.Loop() {
			_, err := g.ReadFile(ctx, sandbox.ReadRequest{Path: "f"})
			require.NoError(b, err)
		}
	})
	b.Run("edit 1 kB", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := g.EditFile(ctx, sandbox.EditRequest{Path: "f", Edits: []sandbox.Edit{{Old: "e\n", New: "f\n", Count: 64}, {Old: "f\n", New: "e\n", Count: 64}, {Old: "0123456789abcde\n", New: "0123456789abcde\n\n", Count: 64}, {Old: "\n\n", New: "\n", Count: 64}}})
			require.NoError(b, err)
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			_, err := g.List(ctx, sandbox.ListRequest{})
			require.NoError(b, err)
		}
	})
}
