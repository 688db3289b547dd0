package notify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// Line is one part of a message: a name of ours, and a text in which nothing is hidden. A text of
// several lines has a bar before each, so that none looks like the next part.
type Line struct{ Name, Text string }

// Room is how much text a message of a channel holds.
type Room struct {
	Most int            // of all lines together; the headline and the link have room of their own
	Size func(rune) int // what a character takes of it, after escaping
}

const (
	maxHeadline = 200 // of what the channel counts
	maxLines    = 40  // of a message; Slack takes 50 blocks
	aroundLine  = 6   // what stands between a name and its text, and after it
	ledShare    = 8   // each part of what led to a gate takes this part of the room at most; its page has all
)

// write fills in the texts of a message for a channel. It returns why the gate cannot be decided by
// what stands there, "" if all of it does: an approval is worth what somebody has seen. What led to
// the gate may be shortened, since nobody approves it.
func (m *Message) write(room Room) (missing string) {
	m.Headline = Cut(m.say(), maxHeadline, room.Size)
	if m.Event == Tested {
		m.Lines = []Line{{"Test", "Gates that wait for a decision will be told here."}}
		return ""
	}
	lines, missing := m.parts()
	if m.Headline != m.say() {
		lines = append([]Line{{"Title", show.Text(m.Gate.Title)}}, lines...)
	}
	if room.cost(lines) > room.Most || len(lines) > maxLines {
		missing = "not all of it fits here"
		lines = room.shorten(lines[:min(len(lines), maxLines)])
	}
	for _, part := range m.Gate.Context {
		line := Line{Name: "What led to it"}
		left := room.Most - room.cost(lines) - room.cost([]Line{line})
		if left < room.Most/ledShare/ledShare || len(lines) >= maxLines {
			break
		}
		line.Text = Cut(quote(show.Lines(part.Name+": "+part.Value)), min(left, room.Most/ledShare), room.Size)
		lines = append(lines, line)
	}
	m.Lines = lines
	return missing
}

// cost is how much room lines take, or, if they do not fit, more than there is: of a gate of a megabyte
// the first page is enough to know that.
func (r Room) cost(lines []Line) (all int) {
	for _, line := range lines {
		all += aroundLine
		for _, c := range line.Name + line.Text {
			if all += r.Size(c); all > r.Most {
				return all
			}
		}
	}
	return all
}

// shorten cuts the longest lines until all fit.
func (r Room) shorten(lines []Line) []Line {
	for most := r.Most / 2; most > 0; most /= 2 {
		short := slices.Clone(lines)
		for i := range short {
			short[i].Text = Cut(short[i].Text, most, r.Size)
		}
		if r.cost(short) <= r.Most {
			return short
		}
	}
	return nil
}

// say says in one line what happened. It contains what an agent wrote, so the channel has to escape it.
func (m *Message) say() string {
	var say string
	switch {
	case m.Event == Tested:
		return "Signalbox reaches this channel"
	case m.Alarm != nil:
		return "Alarm: " + show.Text(m.Alarm.Title)
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
	return say
}

// outcome says how a gate was decided, and by whom.
func outcome(g gate.Gate) string {
	status := strings.ToUpper(string(g.Status[:1])) + string(g.Status[1:])
	switch g.Cause {
	case gate.ByExpiry:
		return status + ", since nobody decided in time"
	case gate.ByRule:
		return status + " by a rule"
	case gate.ByEnd:
		return "Withdrawn, since the run that asked has ended"
	case gate.ByVote:
	}
	return status + " by " + g.ResolvedBy
}

// parts are the rest of the message in full, and why they are not all that there is, "" if they are.
func (m *Message) parts() (lines []Line, missing string) {
	add := func(name, text string) {
		if text = strings.Trim(text, " \n"); text != "" {
			lines = append(lines, Line{name, quote(show.Lines(text))})
		}
	}
	if m.Alarm != nil {
		add("What happened", m.Alarm.Detail)
		add("Agent", m.Alarm.Agent)
		add("Workspace", m.Alarm.Workspace)
		return lines, ""
	}
	g := m.Gate
	if g.Status != gate.Pending {
		add("Decided", g.ResolvedAt.UTC().Format(time.RFC1123))
		add("Changed to", string(show.JSON(g.Modified)))
		add("Note", g.Note)
	}
	add("Proposes", g.ProposedAction)
	if g.Summary != g.ProposedAction {
		add("Summary", g.Summary)
	}
	for _, raw := range g.Artifacts {
		text, ok := artifactText(raw)
		if !ok {
			missing = "it has a picture"
		}
		add("Artifact", text)
	}
	var facts []string
	for _, f := range g.Facts {
		facts = append(facts, f.Name+": "+f.Value)
	}
	add("Facts", strings.Join(facts, "\n"))
	add("Agent", fmt.Sprintf("%s in %s/%s", g.Agent, g.Workspace, g.Project))
	add("Came from", strings.TrimSuffix(g.Origin.Protocol+" "+g.Origin.Reference+", run "+g.Origin.Run, ", run "))
	if g.Prompt != "" {
		add("Prompt of the run", g.Prompt)
	}
	add("Risk", g.Risk)
	if g.Status == gate.Pending {
		for _, v := range g.Votes {
			if len(v.Modified) > 0 {
				add("Votes with changes", v.Operator+": "+string(show.JSON(v.Modified)))
			}
		}
		add("Why", strings.TrimSuffix(g.Rule+": "+g.Reason, ": "))
		add("Asks for", fmt.Sprintf("%d of %s", g.Quorum, strings.Join(g.Approvers, ", ")))
		if g.ExpiresAt != nil {
			add("Expires", g.ExpiresAt.UTC().Format(time.RFC1123)+", then "+string(g.OnExpiry))
		}
	}
	if m.Event == Escalated {
		add("Reminds", names(m))
	}
	return lines, missing
}

// artifactText is an artifact in words: the content of one that has nothing else but a type and a name,
// and of any other its JSON, so that no member is hidden. ok is false for a picture, which nobody sees
// by its letters.
func artifactText(raw wire.Raw) (text string, ok bool) {
	if text, ok := wire.Text(raw); ok {
		return text, true
	}
	members, _ := wire.Members(raw) // of anything but an object, none
	kind, _ := wire.Text(members["type"])
	ok = !strings.EqualFold(kind, "image")
	content, isText := wire.Text(members["content"])
	if !isText {
		content = string(show.JSON(members["content"]))
	}
	var head []string
	for _, name := range []string{"title", "name", "type"} {
		if word, isText := wire.Text(members[name]); isText {
			head = append(head, word)
		}
	}
	if content == "" || len(head)+1 != len(members) {
		return string(show.JSON(raw)), ok
	}
	return strings.Join(head, ", ") + "\n" + content, ok
}

// quote puts a bar before each of several lines. Agents may write bars too; what they cannot write is a
// line without one.
func quote(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	return "\n│ " + strings.ReplaceAll(text, "\n", "\n│ ")
}

// names lists the people whom the message asks.
func names(m *Message) string {
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
			return strings.TrimRight(text[:fits], " \n\t") + string(mark)
		}
		if used <= room {
			fits = at + len(string(r))
		}
	}
	return text
}
