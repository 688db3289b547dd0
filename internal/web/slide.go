package web

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/show"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// slide is one gate with everything that somebody needs to decide: what is proposed, why it waits,
// what it would cost, how this agent's earlier requests were decided, and whether this person may
// vote, for whom, and with which changes.
type slide struct {
	gateView
	Run       string      // the run that asks, "" if there is none
	Approvals int         // so far
	Needed    int         // approvals that are still needed
	Refusal   string      // why who looks may not decide, "" when they may
	Operator  bool        // who looks is one, and may delegate
	Signs     bool        // a vote may have to be signed with a passkey
	For       []string    // whose votes who looks may cast, beside their own
	Modify    string      // what can be changed, as JSON to begin with; "" when nothing can
	History   []gate.Gate // of the same agent, the newest first
	Record    record
	Trace     []ledger.Entry // everything that belongs together, in order
}

// gateView is what people read of a gate. Gate.Digest names all of it, and their votes carry that.
type gateView struct {
	Gate      gate.Gate
	Facts     []gate.Fact // but for the cost
	Cost      string      // against the price table
	Artifacts []artifact
}

// newGateView prepares a gate for the template "shown".
func newGateView(g gate.Gate) gateView {
	g.Digest = g.ShownDigest()
	s := gateView{Gate: g}
	for _, fact := range g.Facts {
		if fact.Name == "cost" {
			s.Cost = fact.Value
			// A cost that differs from the price table says so itself, in words.
			if !strings.Contains(s.Cost, " ") {
				s.Cost += ", the same by the price table"
			}
		} else {
			s.Facts = append(s.Facts, fact)
		}
	}
	for i, raw := range g.Artifacts {
		a := readArtifact(raw)
		a.Number, a.Download = i+1, fmt.Sprintf("/ops/gates/%s/artifacts/%d", g.ID, i+1)
		s.Artifacts = append(s.Artifacts, a)
	}
	for i, u := range g.Unshown {
		s.Artifacts[u.Artifact-1].Cut = &g.Unshown[i]
	}
	return s
}

// record sums up the agent's history.
type record struct{ Approved, Rejected int }

const (
	// How many earlier gates of the agent, and how many entries of the trace, are shown.
	historyRows = 8
	traceRows   = 30
)

// loadSlide reads a gate for the person who looks at it: what is proposed, who has voted, whether
// this person may vote, and for whom.
func (w *Web) loadSlide(r *Request, gateID string) (*slide, error) {
	g, err := w.Gates.Show(r.Context(), gateID)
	if err != nil {
		return nil, err
	}
	s := &slide{
		gateView: newGateView(g), Modify: modifiable(&g), Operator: r.May(roster.Operator),
		Approvals: gate.People(g.Votes, true),
	}
	s.Needed = max(0, g.Quorum-s.Approvals)
	if s.For, err = w.Gates.Delegators(r.Context(), r.Who.Name, w.Now()); err != nil {
		return nil, err
	}
	// Who has voted already, and who has cast a vote, is not asked again: a quorum counts people.
	s.For = slices.DeleteFunc(s.For, func(name string) bool {
		return slices.ContainsFunc(g.Votes, func(v gate.Vote) bool { return v.Operator == name || v.CastBy == r.Who.Name })
	})
	// Whether a vote for a colleague has to be signed depends on that colleague; the script asks.
	s.Signs = g.Presence != "" || g.Risk == "high" && len(s.For) > 0
	// The buttons are hidden from people who may not vote, with the reason in their place.
	if err := g.Admits(r.Who, true); err != nil {
		s.Refusal = messageOf(err)
	}
	return s, w.loadRelated(r.Context(), s)
}

// loadRelated reads which run asks, how gates of the same agent were decided before, and what else is in the same
// trace.
func (w *Web) loadRelated(ctx context.Context, s *slide) (err error) {
	g := &s.Gate
	// The agent says which run it is. A run of another workspace is none of its own.
	if g.Origin.Run != "" {
		if run, err := w.Runs.Get(ctx, g.Origin.Run); err == nil && run.Workspace == g.Workspace {
			s.Run = run.ID
		} else if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if id := g.AgentID(); id != "" {
		// Only decided gates: those that wait say nothing about the agent.
		for _, status := range []gate.Status{gate.Approved, gate.Rejected} {
			some, _, err := w.Gates.List(ctx, gate.Filter{Workspace: g.Workspace, Agents: []string{id}, Status: status}, nil,
				historyRows)
			if err != nil {
				return err
			}
			s.History = append(s.History, some...)
		}
	}
	s.History = slices.DeleteFunc(s.History, func(other gate.Gate) bool { return other.ID == g.ID })
	for i := range s.History {
		if s.History[i].Status == gate.Approved {
			s.Record.Approved++
		} else {
			s.Record.Rejected++
		}
	}
	slices.SortFunc(s.History, func(a, b gate.Gate) int { return b.OpenedAt.Compare(a.OpenedAt) })
	s.History = s.History[:min(len(s.History), historyRows)]
	// Without a trace at least the gate's own entries belong together.
	if g.Trace == "" {
		s.Trace, err = w.ledger.Entries(ctx,
			ledger.Query{Subject: g.ID, Workspace: g.Workspace, Newest: true, Limit: traceRows})
	} else {
		s.Trace, err = w.ledger.Entries(ctx,
			ledger.Query{Trace: g.Trace, Workspace: g.Workspace, Newest: true, Limit: traceRows})
	}
	return err
}

// Share is how many of the needed approvals are there, in percent.
func (s *slide) Share() int { return 100 * min(s.Approvals, s.Gate.Quorum) / max(s.Gate.Quorum, 1) }

// Here reports whether an entry is about the gate itself.
func (s *slide) Here(e ledger.Entry) bool { return e.Subject == s.Gate.ID }

// maxEdited is the longest payload that a page offers for changes, in bytes.
const maxEdited = 64 << 10

// modifiable is a starting point for what an operator may say instead of a plain yes, "" where the
// protocol has no place for it.
func modifiable(g *gate.Gate) string {
	switch g.Origin.Protocol {
	// A step can be approved with other arguments; the artifact is the step's payload. What is longer
	// than a form is edited elsewhere.
	case "ahp":
		if len(g.Artifacts) == 1 && len(g.Artifacts[0]) <= maxEdited && len(g.Unshown) == 0 {
			return pretty(wire.Raw(show.JSON(g.Artifacts[0]))) // a form sends back what stands in it
		}
	// An escalation can be answered with another action; a plan is approved as it is or not at all.
	case "task":
		if strings.HasPrefix(g.Origin.Reference, string(amp.TypeEscalation)+"-") {
			return "{\n  \"action\": \"resume\",\n  \"reset_reject_count\": true\n}"
		}
	}
	return ""
}
