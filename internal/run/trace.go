package run

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"signalbox/internal/behalf"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Trace is what belongs to a run, in order: its own entries, and those of runs inside of it; the task for which it was started; and everything that was
// decided and done under what it has handed on, or in its processes as another agent, in whatever protocol: steps of its
// sessions, gates and votes, calls of models, mail and tasks. What a call only claims does not belong to it. The latest
// may be missing for a moment, as in every list by handoff.
func (s *Runs) Trace(ctx context.Context, id string, after int64, limit int) (ledger.EntryPage, error) {
	page := ledger.EntryPage{Entries: []ledger.EntryView{}, Next: after}
	r, err := s.Get(ctx, id)
	if err != nil {
		return page, err
	}
	q := ledger.Query{Workspace: r.Workspace, After: after, Limit: limit}
	handed, err := s.core.Handoffs.Below(ctx, handoff.Work{Workspace: r.Workspace, Protocol: Name, ID: id})
	if err != nil {
		return page, err
	}
	traces := []string{id}
	if r.Task != "" {
		traces = append(traces, "task:"+r.Workspace+":"+r.Task) // as package task has it
	}
	var all []ledger.Entry
	for i := range handed {
		under, err := s.core.Behalf.Entries(ctx, behalf.Query{Query: q, Handoff: handed[i].ID, Work: true})
		if err != nil {
			return page, err
		}
		all = append(all, under...)
		if inner := handed[i]; inner.Protocol == Name && !slices.Contains(traces, inner.Work) {
			traces = append(traces, inner.Work)
		}
	}
	for _, trace := range traces {
		own := q
		own.Trace = trace
		found, err := s.core.Ledger.Entries(ctx, own)
		if err != nil {
			return page, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	all = slices.CompactFunc(all, func(a, b ledger.Entry) bool { return a.Seq == b.Seq })
	for i := range all[:min(len(all), limit)] {
		page.Next = all[i].Seq
		page.Entries = append(page.Entries, all[i].View())
	}
	return page, nil
}

// trace answers GET /runs/{id}/trace.
func (s *Runs) trace(r *http.Request) (page ledger.EntryPage, err error) {
	after, err := wire.Number(r, "after", 0)
	if err != nil {
		return page, err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return page, err
	}
	return s.Trace(r.Context(), r.PathValue("id"), after, limit)
}
