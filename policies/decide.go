// Package policies judges acts, purely.
//
// Words. A [Request] asks whether a principal may do an act in a session; a
// [Decision] answers with an effect, the rule that gave it and a reason that a
// model can use. A [Policy] is an ordered set of named rules.
//
// Rules. Deciding has no side effect and needs no clock. What no rule names is
// denied. Deny beats ask, ask beats allow.
package policies

// Effect is what becomes of an act.
type Effect string

const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
)

// Principal is who acts: for now the uid of the user that runs the server.
type Principal struct {
	Kind string `json:"kind"` // "local"
	Name string `json:"name"` // "uid:1000"
}

// Request is the question.
type Request struct {
	Principal  Principal
	Session    string
	Template   string
	Tool       string
	Permission Permission
	Resource   string
	Args       []byte // JSON, as the handler will see it
}

// Decision is the answer.
type Decision struct {
	Effect Effect `json:"effect"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}
