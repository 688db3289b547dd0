package proxy

import (
	"slices"

	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// rules says how much of requests and replies the policy looks at, so that the rest need
// not be decoded. It errs on the side of decoding too much.
type rules struct {
	of       *policy.Policy // of one layer alone
	prompt   bool           // some rule, or the default, decides about requests
	text     bool           // some rule reads event.text
	messages bool           // some rule reads event.text or event.payload: messages have to be decoded
	tools    bool           // some rule, or the default, decides about tool calls
	// continued is the first enforced rule on prompts, other than allow, that reads a field of
	// incomplete; "" for none (PRX-23).
	continued string
	layer     string // that continued is of, "" for the server's
}

// rulesOf works out what a layer of the policy looks at.
func rulesOf(now *policy.Policy, layer string) *rules {
	by := now.Defaults()
	r := &rules{
		of: now, prompt: by[policy.OnPrompt] != policy.Allow,
		tools: by[policy.OnToolCall] != policy.Allow || now.NeedsScopes(),
	}
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
			r.continued, r.layer = one.Name, layer
		}
	}
	return r
}

// and is what two layers look at.
func (r *rules) and(other *rules) *rules {
	both := &rules{
		prompt: r.prompt || other.prompt, text: r.text || other.text, messages: r.messages || other.messages,
		tools: r.tools || other.tools, continued: r.continued, layer: r.layer,
	}
	if both.continued == "" {
		both.continued, both.layer = other.continued, other.layer
	}
	return both
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
func requirePerson(d *rulebook.Decision, rule, layer, why string) {
	d.Verdict = policy.Verdict{
		Action: policy.Gate, Rule: rule, Layer: layer, Reason: why, Shadow: d.Shadow,
		Gate: policy.DefaultGate(),
	}
	d.Record.Then, d.Record.Rule, d.Record.Layer, d.Record.Reason = d.Action, rule, layer, why
}
