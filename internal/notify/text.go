package notify

import (
	"fmt"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/show"
)

// Line is one line of a message: a name and a text.
type Line struct{ Name, Text string }

// How much of each text is shown, in what the channel counts. Together they stay below 4096, the
// least that a channel accepts.
const (
	maxHeadline = 200
	maxProposal = 1000
	maxSummary  = 1000
	maxReason   = 300
	maxNote     = 400
	maxName     = 100
)

// Headline says in one line what happened. It contains what an agent wrote, so the channel has to
// escape it. size is what a character takes of the channel's limit, after escaping.
func (m Message) Headline(size func(rune) int) string {
	var say string
	switch {
	case m.Event == Tested:
		return "Signalbox reaches this channel"
	case m.Gate.Status != gate.Pending:
		say = outcome(m.Gate)
	case m.Event == Escalated:
		say = "Still waits for a decision"
	default:
		say = "Decision needed"
	}
	if title := show.Text(m.Gate.Title); title != "" {
		say += ": " + title
	}
	return Cut(say, maxHeadline, size)
}

// outcome says how a gate was decided, and by whom.
func outcome(g gate.Gate) string {
	status := strings.ToUpper(string(g.Status[:1])) + string(g.Status[1:])
	switch g.Cause {
	case gate.ByExpiry:
		return status + ", since nobody decided in time"
	case gate.ByRule:
		return status + " by a rule"
	case gate.ByVote:
	}
	return status + " by " + g.ResolvedBy
}

// Lines are the rest of the message, each line cut to what the channel has room for.
func (m Message) Lines(size func(rune) int) []Line {
	if m.Event == Tested {
		return []Line{{"Test", "Gates that wait for a decision will be told here."}}
	}
	var lines []Line
	// What has lines of its own keeps them; all else is one line.
	add := func(name, text string, most int) {
		shown := show.Text
		if most > maxReason {
			shown = show.Lines
		}
		if text = strings.Trim(text, " \n"); text != "" {
			lines = append(lines, Line{name, Cut(shown(text), most, size)})
		}
	}
	g := m.Gate
	if g.Status != gate.Pending {
		add("Decided", g.ResolvedAt.UTC().Format(time.RFC1123), maxName)
		if len(g.Modified) > 0 {
			add("Changed", "approved with changes", maxName)
		}
		add("Note", g.Note, maxNote)
	}
	add("Proposes", g.ProposedAction, maxProposal)
	if g.Summary != g.ProposedAction {
		add("Summary", g.Summary, maxSummary)
	}
	add("Agent", fmt.Sprintf("%s in %s/%s", g.Agent, g.Workspace, g.Project), maxName)
	add("Risk", g.Risk, maxName)
	if g.Status == gate.Pending {
		add("Why", strings.TrimSuffix(g.Rule+": "+g.Reason, ": "), maxReason)
		add("Asks for", fmt.Sprintf("%d of %s", g.Quorum, strings.Join(g.Approvers, ", ")), maxName)
		if g.ExpiresAt != nil {
			add("Expires", g.ExpiresAt.UTC().Format(time.RFC1123)+", then "+string(g.OnExpiry), maxName)
		}
	}
	if m.Event == Escalated {
		add("Reminds", names(m), maxName)
	}
	return lines
}

// names lists the people whom the message asks.
func names(m Message) string {
	var all []string
	for _, p := range m.Asked {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}

// Cut shortens text to most, as size counts it, with an ellipsis if something is missing. It never
// cuts a character in two.
func Cut(text string, most int, size func(rune) int) string {
	const mark = '…'
	room := most - size(mark)
	used, fits := 0, 0 // fits is how many bytes leave room for the mark
	for at, r := range text {
		used += size(r)
		if used > most {
			return strings.TrimSpace(text[:fits]) + string(mark)
		}
		if used <= room {
			fits = at + len(string(r))
		}
	}
	return text
}
