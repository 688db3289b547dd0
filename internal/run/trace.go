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

// Trace is what belongs to a run, in order: its own entries, and everything that was decided and done under what it has
// handed on, in whatever protocol: steps of its sessions, gates and votes, calls of models, mail and tasks. What a call
// only claims does not belong to it. The latest may be missing for a moment, as in every list by handoff.
func (s *Runs) Trace(ctx context.Context, id string, after int64, limit int) (ledger.EntryPage, error) {
	page := ledger.EntryPage{Entries: []ledger.EntryView{}, Next: after}
	r, err := s.Get(ctx, id)
	if err != nil {
		return page, err
	}
	q := ledger.Query{Workspace: r.Workspace, After: after, Limit: limit}
	own := q
	own.Trace = id
	all, err := s.core.Ledger.Entries(ctx, own)
	if err != nil {
		return page, err
	}
	handed, _, err := s.core.Handoffs.List(ctx, handoff.Filter{Workspace: r.Workspace, Work: id, All: true}, wire.Paging{Limit: wire.MaxPage})
	for i := 0; i < len(handed) && err == nil; i++ {
		if handed[i].Protocol != Name { // which an agent has opened by itself, and says that it is for this run
			continue
		}
		var under []ledger.Entry
		under, err = s.core.Behalf.Entries(ctx, behalf.Query{Query: q, Handoff: handed[i].ID, Work: true})
		all = append(all, under...)
	}
	if err != nil {
		return page, err
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
