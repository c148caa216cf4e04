//go:build linux

package guest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

// slowWriter takes what it gets only after each tick of a gate.
type slowWriter struct {
	bytes.Buffer
	gate chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.gate
	return w.Buffer.Write(p)
}

func TestFollowPassesEveryByteToASlowReader(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	// Eight megabytes of a known pattern: eight times what a ring keeps.
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"sh", "-c", "seq 1 1100000; echo err >&2"}, Background: true, Lossless: true})
	w := &slowWriter{gate: make(chan struct{})}
	var errs bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stderr"}, &errs)
		assert.NoError(t, err)
	})
	done := make(chan sandbox.FollowResult)
	go func() {
		r, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stdout"}, w)
		assert.NoError(t, err)
		done <- r
	}()
	// Nothing is read: the command has to wait, and is still there.
	require.Never(t, func() bool {
		s, err := g.Status(within(t))
		return err != nil || s.Processes[0].Status != sandbox.Running
	}, 300*time.Millisecond, 50*time.Millisecond)
	close(w.gate)
	r := <-done
	wg.Wait()
	assert.Equal(t, sandbox.Exited, r.Status)
	assert.Zero(t, *r.ExitCode)
	assert.Zero(t, r.Dropped)
	assert.EqualValues(t, w.Len(), r.Bytes)
	assert.Equal(t, "err\n", errs.String())
	lines := bytes.Count(w.Bytes(), []byte("\n"))
	assert.Equal(t, 1100000, lines)
	assert.True(t, bytes.HasSuffix(w.Bytes(), []byte("\n1100000\n")))
}

func TestFollowLeavesBytesAsTheyAre(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"head", "-c", "300000", "/dev/urandom"}, Background: true, Lossless: true})
	var one, two bytes.Buffer
	_, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stdout"}, &one)
	require.NoError(t, err)
	assert.Equal(t, 300000, one.Len())
	// What the ring still holds can be followed again.
	r, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stdout"}, &two)
	require.NoError(t, err)
	assert.Zero(t, r.Dropped)
	assert.Equal(t, sha256.Sum256(one.Bytes()), sha256.Sum256(two.Bytes()))
}

func TestFollowCountsWhatALateReaderMissed(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"head", "-c", "5000000", "/dev/zero"}})
	r, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stdout"}, io.Discard)
	require.NoError(t, err)
	assert.Positive(t, r.Dropped)
	assert.EqualValues(t, 5000000, r.Bytes+r.Dropped)
}

// brokenWriter fails after its first piece.
type brokenWriter struct{ n int }

var errBroken = errors.New("the reader went away")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.n++; w.n > 1 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestFollowReturnsItsWritersErrorAndTheLinkLives(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{})
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"yes"}, Background: true, Lossless: true})
	_, err := g.Follow(within(t), sandbox.FollowRequest{Process: p.Process, Stream: "stdout"}, &brokenWriter{})
	assert.ErrorIs(t, err, errBroken)
	_, err = g.Kill(within(t), sandbox.KillRequest{Process: p.Process, Signal: "KILL"})
	require.NoError(t, err, "a reader that waits for its follower can be ended")
	assert.Equal(t, "alive\n", ok(t, g, "echo alive"))
}

func TestFollowRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t, guesttest.Options{Config: guest.Config{}})
	_, err := g.Follow(within(t), sandbox.FollowRequest{Process: "p9", Stream: "stdout"}, io.Discard)
	assert.Equal(t, sandbox.NotFound, sandbox.CodeOf(err))
	p := run(t, g, sandbox.ExecRequest{Argv: []string{"true"}})
	_, err = g.Follow(within(t), sandbox.FollowRequest{Process: p.Process}, io.Discard)
	assert.Equal(t, sandbox.InvalidArgument, sandbox.CodeOf(err))
}
