package policies

import (
	"fmt"
	"strings"
)

// Text says the policy in plain words, one sentence a rule, strictest first,
// for models and people.
func (p *Policy) Text() []string {
	var lines []string
	for _, want := range []struct {
		rank int
		verb string
	}{{3, "Refused"}, {2, "Asks a person"}, {1, "Allowed"}} {
		for i := range p.Rules {
			if r := &p.Rules[i]; r.Effect.rank() == want.rank {
				lines = append(lines, fmt.Sprintf("%s (%s): %s.", want.verb, r.Name, strings.TrimSuffix(r.what(), ".")))
			}
		}
	}
	return append(lines, "Everything else is refused.")
}

func (r *Rule) what() string {
	var parts []string
	if len(r.Tools) > 0 {
		parts = append(parts, "tools "+strings.Join(r.Tools, ", "))
	}
	if len(r.Permissions) > 0 {
		parts = append(parts, strings.Join(r.Permissions, ", "))
	}
	s := strings.Join(parts, " for ")
	if r.Reason != "" {
		s += " - " + r.Reason
	}
	return s
}
