package signal

import (
	"signalbox/internal/gate"
	"signalbox/internal/policy"
)

// Messages that need no explanation of a rule or a person.
const (
	noGate   = "No gate required"
	awaiting = gate.Awaiting
)

// outcome is what the agent is answered about a signal.
type outcome struct {
	status  gate.Status
	message string
}

// settle is the truth table of when a gate opens (SIG-20): the agent declares it and a rule
// confirms it. A rule may open one without a declaration only with even_if_undeclared
// (SIG-21). Receive has dealt with defer before.
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
	// SIG-22: a payload is never changed, and an action that we do not know is not an approval.
	return outcome{
		gate.Rejected,
		"The rule " + v.Rule + " says " + string(v.Action) +
			", which is not possible for a signal. An operator should change the policy.",
	}
}

// gateOutcome is the state of a gate as its agent is told. There is no status for a gate that
// expired: it is approved or rejected, and the message says why (SIG-28). Names of operators
// stay out of it (SIG-29).
func gateOutcome(g gate.Gate) outcome {
	switch {
	case g.Status == gate.Pending:
		return outcome{g.Status, awaiting}
	case g.Cause == gate.ByExpiry:
		return outcome{g.Status, "Gate expired"}
	case g.Cause == gate.ByRule || g.Cause == gate.ByEnd:
		return outcome{g.Status, explain("Gate "+string(g.Status)+" by rule", g.Note)}
	}
	return outcome{g.Status, explain("Gate "+string(g.Status)+" by operator", g.Note)}
}

// explain adds a reason to a message, if there is one.
func explain(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
