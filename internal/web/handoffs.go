package web

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"signalbox/internal/address"
	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/scope"
	"signalbox/internal/wire"
)

// handoffList is a page of handoffs.
type handoffList struct {
	Agent, User, Work string
	All               bool
	Handoffs          []handoff.Handoff
	Next              string
}

// Narrow reports whether the filter may hide handoffs.
func (v *handoffList) Narrow() bool { return v.Agent+v.User+v.Work != "" }

const (
	// How many handoffs one page lists, how many decisions under one, and how many handoffs the pages of what they are
	// about link to.
	handoffRows   = 50
	handoffMade   = 40
	handoffLinked = 20
)

// loadHandoffs reads a page of handoffs.
func (w *Web) loadHandoffs(r *Request) (any, error) {
	v := &handoffList{Agent: r.Query("agent"), User: r.Query("user"), Work: r.Query("work"), All: r.Query("all") == "1"}
	all, next, err := w.Handoffs.List(r.Context(), handoff.Filter{Agent: v.Agent, User: v.User, Work: v.Work, All: v.All},
		wire.Paging{Cursor: r.Query("cursor"), Limit: handoffRows})
	if fault.Is(err, fault.NotFound) { // there is no such agent or user
		return v, nil
	}
	v.Handoffs, v.Next = all, nextPage(r, next)
	return v, err
}

// chainPage is a handoff with all above it, and what was decided under it.
type chainPage struct {
	Hops []chainHop // the first one first
	Last *handoff.Handoff
	Made []ledger.Entry
}

// chainHop is a hop of a chain, beside the one above it.
type chainHop struct {
	handoff.Handoff
	LostScopes, LostTools []string // what the one above has and it has not
	Budgets               []budgetLine
}

// AllScopes reports that no scope is left out, which an empty list does not say.
func (h chainHop) AllScopes() bool { return h.Scopes == nil }

// AllTools reports that no tool is left out.
func (h chainHop) AllTools() bool { return h.Tools == nil }

// budgetLine is a limit, with how much of it is used.
type budgetLine struct {
	What, Used, Limit string
	Percent           int
}

// PageTitle is who has handed work on to whom.
func (p *chainPage) PageTitle() string { return cut(60, p.Last.From+" → "+p.Last.To) }

// loadHandoff reads a chain.
func (w *Web) loadHandoff(r *Request) (any, error) {
	chain, err := w.Handoffs.Chain(r.Context(), r.Who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p := &chainPage{Last: &chain[len(chain)-1]}
	for i := range chain {
		hop := chainHop{Handoff: chain[i], Budgets: budgetLines(&chain[i])}
		if i > 0 {
			hop.LostScopes = lost(chain[i-1].Scopes, func(s string) bool {
				return hop.Scopes == nil || scope.Has(hop.Scopes, s)
			})
			hop.LostTools = lost(chain[i-1].Tools, func(s string) bool {
				return hop.Tools == nil || policy.ToolsWithin([]string{s}, hop.Tools) == ""
			})
		}
		p.Hops = append(p.Hops, hop)
	}
	p.Made, err = w.Behalf.Entries(r.Context(), behalf.Query{
		Query:   ledger.Query{Workspace: p.Last.Workspace, Newest: true, Limit: handoffMade},
		Handoff: p.Last.ID,
	})
	slices.Reverse(p.Made)
	return p, err
}

// lost are the members of a list that are not kept.
func lost(list []string, kept func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(list), kept)
}

// budgetLines are the limits of a handoff. What was used is known while it is open.
func budgetLines(h *handoff.Handoff) (lines []budgetLine) {
	add := func(what string, limit, used float64, text func(float64) string) {
		if limit <= 0 {
			return
		}
		line := budgetLine{What: what, Limit: text(limit)}
		if h.Over == "" {
			line.Used, line.Percent = text(used), int(min(100, 100*used/limit))
		}
		lines = append(lines, line)
	}
	whole := func(n float64) string { return num(int64(n)) }
	add("calls", float64(h.Budget.Calls), float64(h.Spent.Calls), whole)
	add("tokens", float64(h.Budget.Tokens), float64(h.Spent.Tokens), whole)
	add("dollars", h.Budget.CostUSD, h.Spent.CostUSD, func(n float64) string { return fmt.Sprintf("%.4g", n) })
	return lines
}

// endHandoff ends a handoff, and all below it.
func (w *Web) endHandoff(r *Request) (Result, error) {
	at := Result{To: address.Handoff.At(r.PathValue("id"))}
	if _, err := w.Handoffs.End(r.Context(), r.Who, r.PathValue("id"), r.Field("reason")); err != nil {
		return at, err
	}
	at.Flash = "It is over, and all below it."
	return at, nil
}

// handoffsFor are the newest handoffs for a piece of work.
func (w *Web) handoffsFor(ctx context.Context, workspace, work string) ([]handoff.Handoff, error) {
	all, _, err := w.Handoffs.List(ctx, handoff.Filter{Workspace: workspace, Work: work, All: true},
		wire.Paging{Limit: handoffLinked})
	return all, err
}

// handoffsOf are the newest handoffs that an agent has given or got; in a session, if one is named.
func (w *Web) handoffsOf(ctx context.Context, workspace, agentID, session string) ([]handoff.Handoff, error) {
	all, _, err := w.Handoffs.List(ctx, handoff.Filter{Workspace: workspace, Agent: agentID, All: true},
		wire.Paging{Limit: handoffLinked})
	if session != "" {
		all = slices.DeleteFunc(all, func(h handoff.Handoff) bool { return !h.InSession(session) })
	}
	return all, err
}

// handedOn is under which handoff something was decided, as a line and the id of the handoff to link to.
type handedOn struct{ Text, ID string }

// handedOnIn reads it from an entry, nil if its decision was made under none and claims none.
func handedOnIn(e *ledger.Entry) *handedOn {
	var b struct {
		Decision wire.Raw `json:"decision"`
	}
	var d struct {
		Delegation policy.Delegation `json:"delegation"`
	}
	if wire.UnmarshalPart(e.Body, &b) != nil || b.Decision.Kind() != '{' || wire.UnmarshalPart(b.Decision, &d) != nil {
		return nil
	}
	text := gate.Chain(&d.Delegation)
	if text == "" {
		return nil
	}
	return &handedOn{text, d.Delegation.ID}
}

// handoffID is the form of the id of a handoff in a text.
var handoffID = regexp.MustCompile(`handoff_[0-9a-z]{26}`)

// handedOnAt is the handoff that a fact of a gate names, "" if it is another fact or names none.
func handedOnAt(f gate.Fact) string {
	if f.Name != gate.HandedOn {
		return ""
	}
	return handoffID.FindString(f.Value)
}
