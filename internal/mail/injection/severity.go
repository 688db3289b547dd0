package injection

// Severity is how strongly the scan suspects a message. It decides together with the policy.
type Severity int

// The severities (MSG-49): Low is delivered, Medium is delivered with flags, High is held for a
// person, Critical is refused.
const (
	Low Severity = iota
	Medium
	High
	Critical
)

// SeverityOf counts categories. One may be a colleague's way to talk; two together are seldom an
// accident; a text that overrides, extracts and sends away is an attack.
func SeverityOf(categories []string) Severity { return min(Severity(len(categories)), Critical) }
