package policies

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// judge decides as the architecture words it and no cleverer: of the rules that
// fit, deny wins over ask and ask over allow; without one it is deny.
func judge(rules []Rule, r Request) Effect {
	fits := func(patterns []string, name string) bool {
		for _, p := range patterns {
			if p == name || strings.HasSuffix(p, "*") && strings.HasPrefix(name, strings.TrimSuffix(p, "*")) {
				return true
			}
		}
		return len(patterns) == 0
	}
	said := map[Effect]bool{}
	for _, rule := range rules {
		if len(rule.Tools)+len(rule.Permissions) > 0 && fits(rule.Tools, r.Tool) && fits(rule.Permissions, string(r.Permission)) {
			said[rule.Effect] = true
		}
	}
	for _, e := range []Effect{Deny, Ask, Allow} {
		if said[e] {
			return e
		}
	}
	return Deny
}

func TestDecisionsAgreeWithANaiveEvaluatorInAnyOrder(t *testing.T) { // A209
	r := rand.New(rand.NewPCG(7, 11))
	tools := []string{"shell_run", "shell_*", "file_read", "file_*", "browser_act", "*"}
	permissions := []string{"shell.exec", "shell.*", "file.read", "file.write", "file.*", "browser.act", "*"}
	some := func(of []string) (out []string) {
		for range r.IntN(3) {
			out = append(out, of[r.IntN(len(of))])
		}
		return out
	}
	seen := map[Effect]int{}
	for range 20_000 {
		p := &Policy{}
		for i := range r.IntN(6) {
			p.Rules = append(p.Rules, Rule{Name: string(rune('a' + i)), Effect: []Effect{Allow, Ask, Deny}[r.IntN(3)], Tools: some(tools), Permissions: some(permissions), Reason: "r"})
		}
		request := Request{Tool: []string{"shell_run", "shell_kill", "file_read", "browser_act", "other"}[r.IntN(5)], Permission: []Permission{ShellExec, FileRead, FileWrite, BrowserAct, SessionRead}[r.IntN(5)]}
		want := judge(p.Rules, request)
		require.Equal(t, want, p.Decide(request).Effect, "%+v %+v", p.Rules, request)
		r.Shuffle(len(p.Rules), func(i, j int) { p.Rules[i], p.Rules[j] = p.Rules[j], p.Rules[i] })
		require.Equal(t, want, p.Decide(request).Effect, "the order does not matter: %+v %+v", p.Rules, request)
		seen[want]++
	}
	for _, e := range []Effect{Allow, Ask, Deny} {
		require.Greater(t, seen[e], 500, "the control: %s is among the answers", e)
	}
}
