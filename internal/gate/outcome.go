package gate

// Awaiting is what an agent is told while a gate waits, as AMP v1.0 has it.
const Awaiting = "Awaiting operator approval"

// Outcome tells the agent that asked how its gate stands: whether somebody decided, how, and
// what they wrote.
func (g *Gate) Outcome() string {
	switch {
	case g.Status == Pending:
		return "A person has to decide this (gate " + g.ID + ")."
	case g.Cause == ByExpiry && g.Status == Rejected:
		return "Nobody decided in time; the gate " + g.ID + " has expired."
	case g.Cause == ByExpiry:
		return "Nobody decided in time, and the rule approves then (" + g.ID + ")."
	}
	text := "Approved by "
	if g.Status == Rejected {
		text = "Rejected by "
	}
	if g.Cause == ByRule {
		text += "a rule (" + g.ID + ")"
	} else {
		text += "an operator (" + g.ID + ")"
	}
	if g.Note != "" {
		return text + ": " + g.Note
	}
	return text + "."
}
