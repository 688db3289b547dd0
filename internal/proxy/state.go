package proxy

import (
	"cmp"
	"slices"

	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// rules is what a version of the policy looks at in requests and replies.
type rules struct {
	number int64
	prompt bool // some rule looks at requests
	text   bool // and at the text in them
	said   bool // or at anything in their messages
	tools  bool // some rule looks at tool calls
	// continued is the name of the first rule on prompts that reads what a request which continues
	// a conversation does not repeat.
	continued string
}

// rulesOf reads a policy. Without one, everything is judged.
func rulesOf(number int64, now *policy.Policy) *rules {
	r := &rules{number: number, prompt: true, tools: true}
	if now == nil {
		return r
	}
	r.prompt, r.tools = now.Defaults()[policy.OnPrompt] != policy.Allow, now.Defaults()[policy.OnToolCall] != policy.Allow
	for _, one := range now.Rules() {
		r.tools = r.tools || slices.Contains(one.Points, policy.OnToolCall)
		if !slices.Contains(one.Points, policy.OnPrompt) {
			continue
		}
		reads := func(field string) bool { return now.Reads(one.Name, field) }
		r.prompt = true
		r.text = r.text || reads("event.text")
		r.said = r.said || r.text || reads("event.payload")
		if r.continued == "" && one.Mode == "enforce" && one.Then != policy.Allow && slices.ContainsFunc(remembered, reads) {
			r.continued = one.Name
		}
	}
	return r
}

// remembered are the fields that a request which continues a conversation leaves to the provider's
// memory.
var remembered = []string{"event.tools", "event.payload", "event.text"}

var severity = map[policy.Action]int{
	policy.Allow: 0, policy.Gate: 1, policy.Defer: 2, policy.Modify: 3, policy.Block: 4,
}

// requirePerson turns a decision into a gate.
func requirePerson(d *rulebook.Decision, rule, why string) {
	d.Verdict = policy.Verdict{
		Action: policy.Gate, Rule: rule, Reason: why, Shadow: d.Shadow,
		Gate: &policy.GateSpec{
			OnExpiry: policy.ExpiryReject, Approvers: []string{"operator"}, Quorum: 1, RejectNeeds: 1,
			Risk: "medium",
		},
	}
	d.Record.Then, d.Record.Rule, d.Record.Reason = d.Action, rule, why
}

var risks = []string{"low", "medium", "high"}

// strictest is a gate that asks for no less than each of the gates. It is false if there is none,
// since nobody may decide all of them.
func strictest(gates []gated) (policy.GateSpec, bool) {
	all := *gates[0].decision.Gate
	for _, g := range gates[1:] {
		one := g.decision.Gate
		all.Quorum, all.RejectNeeds = max(all.Quorum, one.Quorum), min(all.RejectNeeds, one.RejectNeeds)
		all.Expires, all.Window = sooner(all.Expires, one.Expires), sooner(all.Window, one.Window)
		all.RemindAfter = sooner(all.RemindAfter, one.RemindAfter)
		all.SingleUse = all.SingleUse || one.SingleUse
		if one.OnExpiry != policy.ExpiryApprove {
			all.OnExpiry = policy.ExpiryReject
		}
		if slices.Index(risks, one.Risk) > slices.Index(risks, all.Risk) {
			all.Risk = one.Risk
		}
		if len(all.Escalation) == 0 {
			all.Escalation = one.Escalation
		}
		if all.Approvers = both(all.Approvers, one.Approvers); len(all.Approvers) == 0 {
			return all, false
		}
	}
	return all, true
}

// sooner is the smaller of two values, of which zero means none.
func sooner[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// both are the approvers who are on both lists. An admin counts as an operator; which role a named
// person has is not known here.
func both(a, b []string) (list []string) {
	has := func(of []string, who string) bool {
		return slices.Contains(of, who) || who == "admin" && slices.Contains(of, "operator")
	}
	for _, who := range slices.Concat(a, b) {
		if has(a, who) && has(b, who) && !slices.Contains(list, who) {
			list = append(list, who)
		}
	}
	return list
}
