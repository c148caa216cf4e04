package sandbox

// The types below travel between host and guest as JSON. Durations are whole
// milliseconds; texts are valid UTF-8, with invalid bytes written as \xNN.

// ExecRequest is one command. Command runs in a shell (bash -lc where present,
// else sh -c); Argv runs without one. Exactly one of them is set.
type ExecRequest struct {
	Command    string            `json:"command,omitempty"`
	Argv       []string          `json:"argv,omitempty"`
	Dir        string            `json:"dir,omitempty"` // relative to the workspace or absolute; default the workspace
	Env        map[string]string `json:"env,omitempty"` // over the session's environment
	Stdin      []byte            `json:"stdin,omitempty"`
	OpenStdin  bool              `json:"open_stdin,omitempty"` // keep a pipe for Input; else stdin is closed after Stdin
	TTY        *TermSize         `json:"tty,omitempty"`
	TimeoutMS  int64             `json:"timeout_ms,omitempty"` // hard, ends the tree; 0 = none
	WaitMS     int64             `json:"wait_ms,omitempty"`    // soft: answer "running" after this; 0 with Background answers at once
	Background bool              `json:"background,omitempty"` // answer as soon as it runs; the tree outlives the call
	MaxOutput  int               `json:"max_output,omitempty"` // characters of stdout and of stderr in the answer
	ProgressMS int64             `json:"progress_ms,omitempty"`
	// Lossless has the command wait for whoever follows its streams, so that not
	// a byte is dropped. Nobody following holds it up for good.
	Lossless bool `json:"lossless,omitempty"`
}

// TermSize is a terminal's size in cells.
type TermSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Status of a process.
type Status string

const (
	Running  Status = "running"
	Exited   Status = "exited"    // ExitCode holds
	Signaled Status = "signaled"  // Signal holds; not by us
	Killed   Status = "killed"    // by Kill, cancel or the end of the session
	TimedOut Status = "timed_out" // by its own TimeoutMS
)

// ExecResult is the state of one command when the call answered.
type ExecResult struct {
	Process      string      `json:"process"` // handle for Output, Input, Kill; valid until ten minutes after the end
	Status       Status      `json:"status"`
	ExitCode     *int        `json:"exit_code,omitempty"` // only when Status is Exited
	Signal       string      `json:"signal,omitempty"`    // "SIGSEGV"
	Stdout       Output      `json:"stdout"`
	Stderr       Output      `json:"stderr"`
	DurationMS   int64       `json:"duration_ms"`
	StillRunning []ChildInfo `json:"still_running,omitempty"` // children that outlived the command; ended by Kill of Process
	Waiting      string      `json:"waiting_for_input,omitempty"`
	NextOffset   int64       `json:"next_offset"` // where Output goes on
}

// Output is one stream with its head and tail kept.
type Output struct {
	Text      string `json:"text"`
	Bytes     int64  `json:"bytes"` // written by the command in all
	Lines     int64  `json:"lines"`
	Truncated bool   `json:"truncated,omitempty"`
	Omitted   int64  `json:"omitted_bytes,omitempty"`
	Spill     string `json:"spill,omitempty"` // file in SessionDir with the whole (or as much as was kept)
}

// ChildInfo is one process seen inside.
type ChildInfo struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// ExecProgress is sent while an Exec waits: the last line and the bytes so far.
type ExecProgress struct {
	Process   string `json:"process"`
	LastLine  string `json:"last_line"`
	Bytes     int64  `json:"bytes"`
	ElapsedMS int64  `json:"elapsed_ms"`
}

// OutputRequest reads what a process wrote. Stream is "stdout", "stderr" or
// empty for both as they came.
type OutputRequest struct {
	Process   string `json:"process"`
	Since     *int64 `json:"since,omitempty"` // byte offset; negative counts from the end; nil = where the last read ended
	WaitMS    int64  `json:"wait_ms,omitempty"`
	Match     string `json:"match,omitempty"` // RE2; answer once this appears
	Stream    string `json:"stream,omitempty"`
	MaxOutput int    `json:"max_output,omitempty"`
}

// OutputResult is a piece of output.
type OutputResult struct {
	Process  string `json:"process"`
	Status   Status `json:"status"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	Text     string `json:"text"`
	Offset   int64  `json:"offset"`            // of the first byte of Text
	Next     int64  `json:"next_offset"`       // after the last byte of Text
	Total    int64  `json:"total_bytes"`       // written so far
	Dropped  int64  `json:"dropped,omitempty"` // bytes asked for that the ring no longer holds
	More     bool   `json:"more,omitempty"`    // Next < Total
	Matched  *bool  `json:"matched,omitempty"` // when Match was given
	Waiting  string `json:"waiting_for_input,omitempty"`
}

// FollowRequest asks for all bytes of one stream as they come: "stdout", which
// is the terminal's too, or "stderr".
type FollowRequest struct {
	Process string `json:"process"`
	Stream  string `json:"stream"`
}

// FollowResult says how a followed process ended.
type FollowResult struct {
	Status   Status `json:"status"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	Bytes    int64  `json:"bytes"`
	Dropped  int64  `json:"dropped,omitempty"` // never with Lossless
}

// InputRequest types into a process.
type InputRequest struct {
	Process string    `json:"process"`
	Data    []byte    `json:"data,omitempty"`
	Keys    []string  `json:"keys,omitempty"` // ctrl-c, enter, up …; terminals only
	EOF     bool      `json:"eof,omitempty"`
	Resize  *TermSize `json:"resize,omitempty"`
	WaitMS  int64     `json:"wait_ms,omitempty"` // for what appears
}

// KillRequest ends processes. Process empty with All ends every command of the
// session.
type KillRequest struct {
	Process string `json:"process,omitempty"`
	All     bool   `json:"all,omitempty"`
	Signal  string `json:"signal,omitempty"` // TERM, with KILL after GraceMS
	GraceMS int64  `json:"grace_ms,omitempty"`
}

// KillResult lists what was ended.
type KillResult struct {
	Processes []ProcessInfo `json:"processes"`
}

// ProcessInfo is one command known to the guest.
type ProcessInfo struct {
	Process    string `json:"process"`
	Command    string `json:"command"`
	Status     Status `json:"status"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	PID        int    `json:"pid,omitempty"`
	StartedMS  int64  `json:"age_ms"`
	Bytes      int64  `json:"output_bytes"`
	Background bool   `json:"background,omitempty"`
	Children   int    `json:"children,omitempty"` // living processes of its tree
}

// GuestStatus is what the guest says of itself and of the sandbox. It is
// hostile data like all that comes from below.
type GuestStatus struct {
	Version   string        `json:"version"`
	UptimeMS  int64         `json:"uptime_ms"`
	RSS       int64         `json:"rss"` // of the guest, bytes
	Processes []ProcessInfo `json:"processes"`
	Table     []PSInfo      `json:"table"` // every process inside, capped
	Listening []Listener    `json:"listening"`
	Kernels   []KernelInfo  `json:"kernels"`
	Disk      int64         `json:"workspace_bytes_free"`
	Mem       int64         `json:"memory_bytes"` // resident, of all processes
}

// PSInfo is a row of the process table.
type PSInfo struct {
	PID     int    `json:"pid"`
	PPID    int    `json:"ppid"`
	UID     int    `json:"uid"`
	State   string `json:"state"`
	CPUMS   int64  `json:"cpu_ms"`
	RSS     int64  `json:"rss"`
	Command string `json:"command"`
}

// Listener is a listening TCP socket inside.
type Listener struct {
	Address string `json:"address"` // "127.0.0.1" or "::1"
	Port    int    `json:"port"`
}
