package sandbox

// CodeRequest runs code in a named kernel, which keeps its state.
type CodeRequest struct {
	Code       string `json:"code"`
	Language   string `json:"language"`             // python
	Context    string `json:"context,omitempty"`    // kernel name; default "default"
	Reset      bool   `json:"reset,omitempty"`      // a fresh kernel first
	TimeoutMS  int64  `json:"timeout_ms,omitempty"` // hard: interrupt, then restart
	WaitMS     int64  `json:"wait_ms,omitempty"`    // soft: answer "running"
	MaxOutput  int    `json:"max_output,omitempty"`
	ProgressMS int64  `json:"progress_ms,omitempty"`
	Run        string `json:"run,omitempty"` // go on waiting for an earlier run instead of starting one
}

// CodeResult is what a run showed, in order.
type CodeResult struct {
	Run        string       `json:"run"` // handle of the run
	Context    string       `json:"context"`
	Language   string       `json:"language"`
	Status     string       `json:"status"` // ok, error, running, timed_out, interrupted, kernel_died
	Outputs    []CodeOutput `json:"outputs"`
	Execution  int          `json:"execution_count,omitempty"`
	DurationMS int64        `json:"duration_ms"`
	Kernel     string       `json:"kernel"` // idle, busy, restarted, dead
	Truncated  bool         `json:"truncated,omitempty"`
	Notes      []string     `json:"notes,omitempty"`
}

// CodeOutput is one output of a run.
type CodeOutput struct {
	Type      string `json:"type"`           // stdout, stderr, result, display, error
	Text      string `json:"text,omitempty"` // text, markdown, JSON, or the cleaned traceback
	MediaType string `json:"media_type,omitempty"`
	Data      []byte `json:"data,omitempty"` // PNG or JPEG, at most 1568 pixels a side
	Path      string `json:"path,omitempty"` // file with the whole: HTML, SVG, CSV of a table, image as it came
	Rows      int    `json:"rows,omitempty"` // of a table
	Name      string `json:"name,omitempty"` // exception class
	Truncated bool   `json:"truncated,omitempty"`
}

// CodeProgress is sent while a run goes on.
type CodeProgress struct {
	LastLine  string `json:"last_line"`
	ElapsedMS int64  `json:"elapsed_ms"`
}

// KernelInfo is one live kernel.
type KernelInfo struct {
	Context  string `json:"context"`
	Language string `json:"language"`
	State    string `json:"state"`
	PID      int    `json:"pid"`
}
