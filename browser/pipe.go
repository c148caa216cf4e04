package browser

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/chromedp/chromedp"
)

// maxMessage bounds one DevTools message. A picture of a whole page and the
// tree of a page of 100,000 nodes stay below it; what is above comes from a
// browser that lies.
const maxMessage = 128 << 20

var errMessageTooLarge = errors.New("a DevTools message is too large")

// pipe is the stream of a Process as chromedp wants it: closed once, with the
// length of a message bounded. Messages end with a zero byte.
type pipe struct {
	Process
	limit   int
	pending int // bytes since the last zero byte; only the reader goroutine touches it
	once    sync.Once
	err     error
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.Process.Read(b)
	if i := bytes.LastIndexByte(b[:n], 0); i >= 0 {
		p.pending = n - i - 1
	} else if p.pending += n; p.pending > p.limit {
		return 0, errMessageTooLarge
	}
	return n, err
}

func (p *pipe) Close() error {
	p.once.Do(func() { p.err = p.Process.Close() })
	return p.err
}

var _ io.ReadWriteCloser = (*pipe)(nil)

// attacher is the allocator of a browser that already speaks: it starts
// nothing, so that no context of chromedp owns the process.
type attacher struct{ browser *chromedp.Browser }

func (a attacher) Allocate(context.Context, ...chromedp.BrowserOption) (*chromedp.Browser, error) {
	return a.browser, nil
}
func (attacher) Wait()          {}
func (attacher) Attaches() bool { return true }
