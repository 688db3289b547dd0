package signal

import (
	"signalbox/internal/gate"
	"signalbox/internal/policy"
)

// The messages that say nothing else.
const (
	noGate   = "No gate required"
	awaiting = gate.Awaiting
)

// outcome is what becomes of a signal.
type outcome struct {
	status  gate.Status
	message string
}

// settle is the truth table of when a gate fires: the agent's declaration and the
// operator's rule, both. A rule that says defer does not come here.
func settle(declared bool, v policy.Verdict) outcome {
	switch {
	case v.Action == policy.Block:
		return outcome{gate.Rejected, v.Reason}
	case v.Action == policy.Gate && (declared || v.Gate.EvenIfUndeclared):
		return outcome{gate.Pending, awaiting}
	case v.Action == policy.Allow && declared:
		return outcome{gate.Approved, explain("Approved by the rule "+v.Rule, v.Reason)}
	case v.Action == policy.Allow || v.Action == policy.Gate:
		return outcome{gate.Approved, noGate}
	}
	// Nothing is allowed by accident: a signal cannot be modified.
	return outcome{
		gate.Rejected,
		"The rule " + v.Rule + " says " + string(v.Action) +
			", which a signal cannot be. An operator should change the policy.",
	}
}

// resolution is what an agent hears of a gate.
func resolution(g gate.Gate) outcome {
	switch {
	case g.Status == gate.Pending:
		return outcome{g.Status, awaiting}
	case g.Cause == gate.ByExpiry:
		return outcome{g.Status, "Gate expired"}
	case g.Cause == gate.ByRule:
		return outcome{g.Status, explain("Gate "+string(g.Status)+" by rule", g.Note)}
	}
	return outcome{g.Status, explain("Gate "+string(g.Status)+" by operator", g.Note)}
}

func explain(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
