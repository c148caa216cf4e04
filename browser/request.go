package browser

import (
	"encoding/json"
	"time"
)

// Step is one thing to do.
type Step struct {
	Do string // click, hover, focus, scroll_to, fill, type, press, select, check, drag, upload, scroll, mouse, wait
	On string // ref or locator

	Button    string    // click: left, right, middle
	Count     int       // click: 1 to 3
	Modifiers []string  // click: Alt, Control, Meta, Shift
	Offset    []float64 // click: from the top left corner of the target
	Force     bool      // click: without looking what covers it

	Text    *string  // fill, type; wait: until this is on the page
	Submit  bool     // fill: Enter afterwards
	DelayMS int      // type: between keys
	Keys    []string // press
	HoldMS  int      // press
	Values  []string // select: label, value or index
	Checked *bool    // check; default true
	To      string   // drag: target; scroll: top or bottom
	Steps   int      // drag: moves, default 10
	Files   []string // upload: workspace paths
	By      []float64
	Action  string // mouse: move, down, up, click, wheel
	At      []float64

	Conditions
	MS int // wait: so long
}

// Conditions are what wait and expect look for.
type Conditions struct {
	TextGone string
	State    string // of On: visible, hidden, enabled
	URL      string // glob
	Download bool
}

// Expect is what must hold after the steps.
type Expect struct {
	Text *string
	On   string
	Conditions
}

// ActRequest is a batch of steps.
type ActRequest struct {
	Tab         string
	Steps       []Step
	StopOnError *bool // default true
	Follow      *bool // default true: go to a tab that a step opened
	OnDialog    json.RawMessage
	Expect      *Expect
	Snapshot    string // diff, compact, none; default diff
	MaxChars    int
	Timeout     time.Duration // of each step; default 15 s
}

// ActResult says what was done.
type ActResult struct {
	Reply
	Steps    []string // one line per step that ran
	Done     int      // steps that succeeded
	Left     int      // steps that did not run
	Expected string   // which expectation held
	Snapshot SnapshotText
}

const (
	// DefaultStepTimeout is the time of one step.
	DefaultStepTimeout = 15 * time.Second
	// MaxSteps is the most steps of one call.
	MaxSteps = 25
	// callTime is the most that one call takes.
	callTime = 42 * time.Second
)
