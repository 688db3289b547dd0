package screen

import (
	"fmt"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/output"
	"signalbox/internal/gate"
	"signalbox/internal/show"
)

// sideBySideFrom is the width from which list and gate fit beside each other.
const sideBySideFrom = 100 // columns

// draw shows a head, the list beside or above the gate under the cursor, and a foot.
func (w *watch) draw(width, height int) []string {
	w.height = height
	if width < 20 || height < 6 {
		return []string{"Make the terminal larger."}
	}
	lines := []string{w.head(width)}
	room := height - 2
	switch {
	case w.help:
		lines = append(lines, fill(strings.Split("\n"+watchKeys, "\n"), width, room)...)
	case len(w.shown) == 0:
		lines = append(lines, fill([]string{"", "  " + w.nothing()}, width, room)...)
	case width >= sideBySideFrom:
		left := min(56, width*2/5)
		list, slide := w.list(left, room), w.slide(width-left-3, room)
		for i := range room {
			lines = append(lines, list[i]+faint.of(" │ ")+slide[i])
		}
	default:
		// A third of the height for the list, but an even number of rows, as each gate
		// takes two.
		top := max(4, room/3/2*2)
		lines = append(lines, w.list(width, top)...)
		lines = append(lines, faint.of(strings.Repeat("─", width)))
		lines = append(lines, w.slide(width, room-top-1)...)
	}
	return append(lines, w.foot(width))
}

// nothing is the text in place of an empty list. "Nothing waits" is only said after the
// server has said so.
func (w *watch) nothing() string {
	switch {
	case !w.ready:
		return "Asking the server …"
	case w.search != "":
		return "No gate matches. esc shows them all."
	}
	return good.of("✓") + " Nothing waits for a decision."
}

// head is the first row: how many gates wait, the search, and whether the server can be
// reached.
func (w *watch) head(width int) string {
	state := good.of("● live ")
	if w.away != "" {
		state = danger.of("○ away ")
	}
	title := " Signalbox   " + output.GatesWait(int(w.waits))
	if w.search != "" {
		title += "   /" + show.Text(w.search)
	}
	return spread(bold.of(title), state, width)
}

// foot is the last row: the line that is being typed, or else the last result, or else
// the keys. What is typed wins over everything, since people have to see what they are
// about to send.
func (w *watch) foot(width int) string {
	cursor := bar.of(" ")
	switch {
	case w.asking == "search":
		return fit(" /"+show.Text(w.typed)+cursor, width)
	case w.asking != "" && w.note != "" && w.typed == "":
		return fit(" "+w.note+"  "+cursor, width)
	case w.asking == confirm:
		return fit(danger.of(" "+w.steps[0].text)+"; type "+w.steps[0].number+" to go on: "+show.Text(w.typed)+cursor, width)
	case w.asking == api.Approve:
		return fit(good.of(" Approve")+", with a note if you like; enter does it: "+show.Text(w.typed)+cursor, width)
	case w.asking == api.Reject:
		return fit(danger.of(" Reject")+" because: "+show.Text(w.typed)+cursor, width)
	case w.away != "":
		return fit(danger.of(" "+show.Text(w.away)), width)
	case w.note != "":
		return fit(" "+w.note, width)
	}
	return fit(faint.of(" j k move   a approve   r reject   / search   ? keys   q leave"), width)
}

// list shows the gates around the cursor, two rows for each.
func (w *watch) list(width, height int) []string {
	var lines []string
	rows := max(1, height/2)
	// The cursor is in the middle, except near both ends of the list.
	first := max(0, min(w.place()-rows/2, len(w.shown)-rows))
	for _, i := range w.shown[first:min(len(w.shown), first+rows)] {
		g := &w.gates[i]
		title, under := " "+show.Text(g.Title), fmt.Sprintf("   %s %s · %s · %s", riskMark(g.Risk),
			show.Text(g.Agent), g.Origin.Protocol, show.Text(g.Project))
		age := output.Since(g.OpenedAt) + " "
		if g.ID == w.at {
			lines = append(lines, bar.of(fit(title, width)))
		} else {
			lines = append(lines, fit(bold.of(title), width))
		}
		lines = append(lines, spread(under, faint.of(age), width))
	}
	return fill(lines, width, height)
}

// slide shows the part of the gate that the scroll position selects. It limits the
// position here, because only here the number of rows is known.
func (w *watch) slide(width, height int) []string {
	g := w.current()
	if g == nil {
		return fill(nil, width, height)
	}
	if of := fmt.Sprint(g.ID, g.Digest, width); of != w.open.of {
		w.open = reading{of: of, digest: g.Digest}
	}
	if at := output.Since(g.OpenedAt) + expiry(g); at != w.open.at {
		w.open.at, w.open.rows = at, describe(g, width)
	}
	all := w.open.rows
	w.scroll = min(w.scroll, max(0, len(all)-height))
	w.open.to = max(w.open.to, w.scroll+height)
	return fill(all[w.scroll:], width, height)
}

// reading is the gate that is on the screen, in rows, and how far it was shown. A long one is not
// made into rows again with every key.
type reading struct {
	of, digest string // the gate, in a width
	at         string // the time that the rows tell
	rows       []string
	to         int // how many of them were shown
}

// below is how many rows have not been shown.
func (r *reading) below() int { return max(0, len(r.rows)-r.to) }

// describe is everything that the decision is about, in rows: the same content as `gates
// show`.
func describe(g *gate.Gate, width int) []string {
	lines := wrapped(g.Title, width)
	for i := range lines {
		lines[i] = bold.of(lines[i])
	}
	lines = append(lines, riskMark(g.Risk)+faint.of("  opened "+output.Since(g.OpenedAt)+expiry(g)), "")
	section := func(name, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		lines = append(lines, faint.of(name))
		lines = append(lines, wrapped(text, width)...)
		lines = append(lines, "")
	}
	section("What was done", g.Summary)
	section("What is proposed", g.ProposedAction)
	var facts []string
	for _, f := range g.Facts {
		facts = append(facts, f.Name+": "+f.Value)
	}
	section("Facts", strings.Join(facts, "\n"))
	section("Rule", strings.TrimSpace(g.Rule+"\n"+g.Reason))
	section("Who decides", fmt.Sprintf("%d of %s", g.Quorum, strings.Join(g.Approvers, ", ")))
	for _, v := range g.Votes {
		say := map[bool]string{true: "approved", false: "rejected"}[v.Approve]
		section("Vote", strings.TrimSpace(v.Operator+" "+say+". "+v.Note+"\n"+string(v.Modified)))
	}
	for i, raw := range g.Artifacts {
		a := gate.ReadArtifact(raw)
		section(fmt.Sprintf("Artifact %d, %s %s", i+1, a.Type, show.Text(a.Title)), a.Lines())
	}
	for _, u := range g.Unshown {
		section("Not shown", u.String())
	}
	section("Run", strings.TrimSpace(g.Origin.Run+"\n"+g.Prompt))
	// Each row is marked, since a text could have the name of another part in it.
	for _, part := range g.Context {
		lines = append(lines, faint.of("What led to it, not part of what is approved: "+show.Text(part.Name)))
		for _, row := range wrapped(part.Value, width-2) {
			lines = append(lines, faint.of("│ ")+row)
		}
		lines = append(lines, "")
	}
	section("Gate", g.ID+"\n"+g.Workspace+"/"+g.Agent)
	return lines
}

// expiry says what happens to a gate that nobody decides, and when.
func expiry(g *gate.Gate) string {
	if g.ExpiresAt == nil {
		return ""
	}
	left := time.Until(*g.ExpiresAt).Round(time.Minute)
	return fmt.Sprintf(", %s by itself in %s", strings.TrimSuffix(string(g.OnExpiry), "d")+"d",
		strings.TrimSuffix(left.String(), "0s"))
}
