package podman

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// A workspace that was just taken on lost its link folder to the reconciler,
// which had found the session without a living owner a moment before.
func TestASessionThatWasTakenOnIsNoLeftover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c claims
		c.take("ses_mine", "ses_resumed")
		removed := func() error { return errors.New("removed") }
		for _, id := range []string{"ses_mine", "ses_resumed"} {
			assert.NoError(t, c.unless(id, removed), id)
		}
		assert.Error(t, c.unless("ses_left", removed))

		// What is being removed is claimed only when that is over.
		going, taken := make(chan struct{}), atomic.Bool{}
		go func() {
			_ = c.unless("ses_left", func() error { <-going; assert.False(t, taken.Load()); return nil })
		}()
		synctest.Wait()
		go func() { c.take("ses_left"); taken.Store(true) }()
		close(going)
		synctest.Wait()
		assert.True(t, taken.Load())
		assert.NoError(t, c.unless("ses_left", removed))
	})
}
