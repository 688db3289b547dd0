package proxy

import (
	"cmp"
	"slices"

	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// rules says how much of requests and replies a version of the policy looks at, so that the rest need
// not be decoded. It errs on the side of decoding too much.
type rules struct {
	number   int64
	prompt   bool // some rule, or the default, decides about requests
	text     bool // some rule reads event.text
	messages bool // some rule reads event.text or event.payload: messages have to be decoded
	tools    bool // some rule, or the default, decides about tool calls
	// continued is the first enforced rule on prompts, other than allow, that reads a field of
	// incomplete; "" for none (PRX-23).
	continued string
}

// rulesOf works out what a policy looks at. Without a policy everything is judged, and blocked.
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
		r.messages = r.messages || r.text || reads("event.payload")
		if r.continued == "" && one.Mode == "enforce" && one.Then != policy.Allow && slices.ContainsFunc(incomplete, reads) {
			r.continued = one.Name
		}
	}
	return r
}

// incomplete are the fields that are incomplete in a request which continues a conversation, since
// the provider remembers the rest.
var incomplete = []string{"event.tools", "event.payload", "event.text"}

// severity orders decisions for a batch (PRX-22).
var severity = map[policy.Action]int{
	policy.Allow: 0, policy.Gate: 1, policy.Defer: 2, policy.Modify: 3, policy.Block: 4,
}

// requirePerson turns a decision into a gate with the usual conditions, for what rules cannot judge. Its
// record says so too, or a replay would count it as a change.
func requirePerson(d *rulebook.Decision, rule, why string) {
	d.Verdict = policy.Verdict{
		Action: policy.Gate, Rule: rule, Reason: why, Shadow: d.Shadow,
		Gate: policy.DefaultGate(),
	}
	d.Record.Then, d.Record.Rule, d.Record.Reason = d.Action, rule, why
}

// risks are the levels of risk, in order.
var risks = []string{"low", "medium", "high"}

// strictest is a gate that asks for no less than each of the gates (PRX-26): the largest quorum, the
// earliest expiry, the highest risk, and only approvers whom every rule names. It is false if no
// approver is left, so that nobody could decide.
func strictest(gates []gated) (policy.GateSpec, bool) {
	all := *gates[0].decision.Gate
	for _, g := range gates[1:] {
		one := g.decision.Gate
		all.Quorum, all.RejectNeeds = max(all.Quorum, one.Quorum), min(all.RejectNeeds, one.RejectNeeds)
		all.Expires, all.GoodFor = earlier(all.Expires, one.Expires), earlier(all.GoodFor, one.GoodFor)
		all.RemindAfter = earlier(all.RemindAfter, one.RemindAfter)
		if all.Uses == policy.AnyUses || one.Uses != policy.AnyUses && one.Uses < all.Uses {
			all.Uses = one.Uses
		}
		if one.OnExpiry != policy.ExpiryApprove {
			all.OnExpiry = policy.ExpiryReject
		}
		if one.Presence != "" {
			all.Presence = one.Presence
		}
		if slices.Index(risks, one.Risk) > slices.Index(risks, all.Risk) {
			all.Risk = one.Risk
		}
		if len(all.Escalation) == 0 {
			all.Escalation = one.Escalation
		}
		if all.Approvers = commonApprovers(all.Approvers, one.Approvers); len(all.Approvers) == 0 {
			return all, false
		}
	}
	return all, true
}

// earlier is the smaller of two values, of which zero means none.
func earlier[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// commonApprovers are the approvers who are on both lists. An admin may do what an operator may. Names and roles
// are not compared, since the role of a named person is not known here: ann and [operator] have
// nobody in common.
func commonApprovers(a, b []string) (list []string) {
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
