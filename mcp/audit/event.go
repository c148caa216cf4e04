// Package audit is the journal: what was asked, what was decided, what came of
// it.
//
// Words. An [Event] is one fact. A [Journal] is an append-only file of events,
// one JSON record a line, each carrying the SHA-256 of the one before it, so
// that [Verify] finds a record that was changed, removed, added or moved.
//
// Rules. Append is synchronous and its error stops the act that it was to
// record. One process writes a journal at a time. A record holds digests and
// sizes, no file contents. The chain proves order and wholeness up to its last
// record; a cut at the end shows only as a missing end record, since nothing
// outside the file vouches for its length.
package audit

import (
	"encoding/json"
	"time"
)

// Version of the record's shape.
const Version = 1

// Kind says what an event tells.
type Kind string

const (
	SessionStart Kind = "session_start" // policy digest, template, what was asked for
	SandboxStart Kind = "sandbox_start" // posture as read back, or why it failed
	SandboxLost  Kind = "sandbox_lost"
	Intent       Kind = "intent"    // of every call, before anything runs
	Outcome      Kind = "outcome"   // of every call whose intent was recorded
	Attach       Kind = "attach"    // a person's terminal
	Recovered    Kind = "recovered" // a torn last line was cut off
	SessionEnd   Kind = "session_end"
)

// Event is one record. V, Seq, Time, Prev and Hash are set by Append.
type Event struct {
	V         int       `json:"v"`
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Kind      Kind      `json:"kind"`
	Session   string    `json:"session,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Client    string    `json:"client,omitempty"`
	Call      string    `json:"call,omitempty"`
	Tool      string    `json:"tool,omitempty"`

	Permission string `json:"permission,omitempty"`
	Resource   string `json:"resource,omitempty"` // what the policy judged, at most MaxResource bytes
	ArgsBytes  int    `json:"args_bytes,omitempty"`
	ArgsDigest string `json:"args_digest,omitempty"` // sha256:… of the arguments as received

	Effect string `json:"effect,omitempty"` // allow, ask, deny; empty when it did not come to a decision
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`

	Code     string `json:"code,omitempty"` // of the failure; "ok" otherwise
	Message  string `json:"message,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Digest   string `json:"digest,omitempty"`
	DurMS    int64  `json:"dur_ms,omitempty"`

	Detail json.RawMessage `json:"detail,omitempty"` // of session and sandbox events
	Prev   string          `json:"prev"`
	Hash   string          `json:"hash,omitempty"` // of the record without this field; always last
}

// MaxResource bounds Event.Resource; the digest of the arguments covers the rest.
const MaxResource = 4096

// maxRecord bounds one line, written or read.
const maxRecord = 64 << 10

// DetailOf encodes v for Event.Detail. What cannot be encoded is named instead.
func DetailOf(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"unencodable": err.Error()})
	}
	return b
}
