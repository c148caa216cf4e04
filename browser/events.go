package browser

import (
	"fmt"
	"slices"
	"sync"
)

// Event is something that happened since the last reply.
type Event struct {
	Kind  string `json:"kind"` // navigated, tab_opened, tab_closed, dialog, download, crashed, console, requests, restarted, recovered
	Tab   string `json:"tab,omitempty"`
	Text  string `json:"text"`
	Path  string `json:"path,omitempty"`  // of a finished download, in the workspace
	Bytes int64  `json:"bytes,omitempty"` // of a finished download
}

// maxEvents bounds what waits for the next reply; the oldest go first, counted.
const maxEvents = 60

// eventLog collects events between replies. Console errors and failed requests
// are only counted, with the first of each.
type eventLog struct {
	mu      sync.Mutex
	events  []Event
	dropped int
	counts  map[string]*tally // by kind and tab
	order   []string
}

type tally struct {
	Event
	n int
}

func (l *eventLog) add(e Event) {
	e.Text = cut(e.Text, 400)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) >= maxEvents {
		l.events = slices.Delete(l.events, 0, 1)
		l.dropped++
	}
	l.events = append(l.events, e)
}

// count folds events of one kind of one tab into a line.
func (l *eventLog) count(kind, tab, first string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := kind + " " + tab
	if t := l.counts[key]; t != nil {
		t.n++
		return
	}
	if l.counts == nil {
		l.counts = map[string]*tally{}
	}
	l.counts[key] = &tally{Event{Kind: kind, Tab: tab, Text: cut(cleanText(first), 160)}, 1}
	l.order = append(l.order, key)
}

// take empties the log.
func (l *eventLog) take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.events
	if l.dropped > 0 {
		out = append([]Event{{Kind: "dropped", Text: fmt.Sprintf("%d older events", l.dropped)}}, out...)
	}
	for _, key := range l.order {
		t := l.counts[key]
		what := map[string]string{"console": "console errors", "requests": "failed requests"}[t.Kind]
		t.Text = fmt.Sprintf("%d %s, first: %s", t.n, what, t.Text)
		out = append(out, t.Event)
	}
	l.events, l.counts, l.order, l.dropped = nil, nil, nil, 0
	return out
}
