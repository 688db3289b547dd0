package gate

// Awaiting is the message for an agent while its gate waits. AMP v1.0 fixes the words.
const Awaiting = "Awaiting operator approval"

// Outcome is the sentence for the agent that asked: how its gate stands, what decided it, and
// the note that came with the decision. It never names the operator; the ledger does.
func (g *Gate) Outcome() string {
	switch {
	case g.Status == Pending:
		return "A person has to decide this (gate " + g.ID + ")."
	case g.Cause == ByExpiry && g.Status == Rejected:
		return "Nobody decided in time; the gate " + g.ID + " has expired."
	case g.Cause == ByEnd:
		return "The run that asked has ended; the gate " + g.ID + " was withdrawn."
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

// Word is how a gate stands, in a word for people.
func (g *Gate) Word() string {
	if g.Cause == ByEnd {
		return "withdrawn"
	}
	return string(g.Status)
}
