package cli

import (
	"fmt"

	"signalbox/internal/audit"
	"signalbox/internal/cli/output"
)

// auditLine says in one line how far the server is with auditing itself.
func auditLine(s audit.Status) string {
	text := "everything: not yet since the start"
	if s.Last != nil {
		text = fmt.Sprintf("everything was audited %s: %s entries, %s rows of %d tables", output.Since(s.Last.At),
			output.Thousands(s.Last.Entries), output.Thousands(s.Last.Rows), s.Last.Tables)
	}
	if s.Of > 0 {
		text += fmt.Sprintf("; again now (%s), at entry %s of %s", s.Doing, output.Thousands(s.At), output.Thousands(s.Of))
	}
	if s.Fast != nil {
		text += fmt.Sprintf("; the last entries and all that grants power %s, in %.0f s", output.Since(s.Fast.At),
			s.Fast.Seconds)
	}
	return text
}

// examineAudit is what doctor says of the audit: how far it is, and what it has found.
func examineAudit(s audit.Status) []finding {
	all := []finding{{"audit", true, auditLine(s)}}
	if s.Problem != "" {
		all = append(all, finding{"audit", false, "not everything can be audited: " + s.Problem})
	}
	for _, f := range s.Findings {
		text := fmt.Sprintf("%s, %s", f.Title(), output.Count(int(f.Count), "time"))
		if len(f.Details) > 0 {
			text += ": " + f.Details[0]
		}
		all = append(all, finding{"audit", false, text + " " + f.Repair})
	}
	return all
}
