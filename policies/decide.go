// Package policies judges acts, purely.
//
// Words. A [Request] asks whether a principal may do an act in a session; a
// [Decision] answers with an effect, the rule that gave it and a reason that a
// model can use. A [Policy] is an ordered set of named rules.
//
// Rules. Deciding has no side effect and needs no clock. What no rule names is
// denied. Deny beats ask, ask beats allow.
package policies

import (
	"fmt"
	"path"
	"strings"
)

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

// Decide judges a request. Of the rules that fit, a deny wins over an ask and
// an ask over an allow; of several with that effect the most specific is
// named, and of equals the first. What no rule names is denied, and so is what
// a rule with an unknown effect names.
func (p *Policy) Decide(r Request) Decision {
	var best *Rule
	rank, score := 0, 0
	for i := range p.Rules {
		rule := &p.Rules[i]
		s, ok := rule.fits(r)
		if !ok {
			continue
		}
		if k := rule.Effect.rank(); k > rank || k == rank && s > score {
			best, rank, score = rule, k, s
		}
	}
	if best == nil {
		return Decision{Effect: Deny, Rule: RuleNone,
			Reason: fmt.Sprintf("No rule of the policy %q allows %s (%s).", p.Name, r.Tool, r.Permission), Hint: hintDeny}
	}
	d := Decision{Effect: best.Effect, Rule: best.Name, Reason: best.Reason}
	switch best.Effect {
	case Allow:
	case Ask:
		d.Hint = "A person has to approve this act."
	case Deny:
		d.Hint = hintDeny
	default:
		d.Effect, d.Hint = Deny, hintDeny
		d.Reason = fmt.Sprintf("Rule %q has the effect %q, which is none; such an act is denied.", best.Name, best.Effect)
	}
	return d
}

const hintDeny = "Do not try another spelling; tell the user which rule refused it."

// rank orders effects by strictness; an unknown one is as strict as deny.
func (e Effect) rank() int {
	switch e {
	case Allow:
		return 1
	case Ask:
		return 2
	}
	return 3
}

// fits says whether the rule is about the request, and how specifically.
func (r *Rule) fits(q Request) (score int, ok bool) {
	if len(r.Tools)+len(r.Permissions) == 0 {
		return 0, false
	}
	tool, ok := bestFit(r.Tools, func(g string) bool { m, err := path.Match(g, q.Tool); return err == nil && m })
	if !ok {
		return 0, false
	}
	perm, ok := bestFit(r.Permissions, func(g string) bool { return permissionFits(g, q.Permission) })
	if !ok {
		return 0, false
	}
	// A named tool says more than the permission that several tools share.
	return 2*tool + perm + 1, true
}

// bestFit returns the specificity of the most specific pattern that fits: its
// literal characters, and a bonus when it has no wildcard. No patterns fit all.
func bestFit(globs []string, fits func(string) bool) (score int, ok bool) {
	if len(globs) == 0 {
		return 0, true
	}
	for _, g := range globs {
		if !fits(g) {
			continue
		}
		ok = true
		s := len(g) - strings.Count(g, "*") - strings.Count(g, "?")
		if s == len(g) {
			s += 100
		}
		score = max(score, s)
	}
	return score, ok
}

func permissionFits(glob string, p Permission) bool {
	if family, ok := strings.CutSuffix(glob, ".*"); ok {
		return family != "" && strings.HasPrefix(string(p), family+".")
	}
	return glob == "*" || glob == string(p)
}
