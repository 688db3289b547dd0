package audit

import (
	"context"
	"slices"

	"signalbox/internal/ledger"
)

// kindErased is the entry by which the ledger records that it has erased bodies.
const kindErased = "body.erased"

// erasures are what the ledger says was erased. They are read once, and what is new when a body is met that is gone:
// body and entry change in one transaction, so whoever has seen the one finds the other.
type erasures struct {
	at    int64   // the last entry that was read
	one   []int64 // erased by their numbers, sorted
	spans []*span
}

// span is a step of retention, which has erased so many bodies of the entries in it.
type span struct {
	after, to, count int64
	// gone are the bodies that this round has found to be gone, and state those of which tables are made. Retention keeps
	// these, unless an earlier version of the program had no use for them; then they are among those that it counted.
	gone  int64
	state []int64
}

// erasedBody is the body of body.erased, in either of its two forms.
type erasedBody struct {
	After   int64   `json:"after,omitzero"`
	To      int64   `json:"to,omitzero"`
	Count   int64   `json:"count,omitzero"`
	Entries []int64 `json:"entries,omitzero"`
}

// load reads what was recorded since the last time. Each entry is proved: one that was written by hand excuses nothing.
func (s *erasures) load(ctx context.Context, r *round) error {
	for {
		p := r.a.Ledger.Prover(context.WithoutCancel(ctx))
		found, err := p.Entries(ledger.Query{Kinds: []string{kindErased}, After: s.at, Limit: tileWidth})
		if err != nil {
			return err
		}
		for i := range found {
			var b erasedBody
			if err := found[i].Decode(&b); err != nil {
				return err
			}
			if b.To > 0 {
				s.spans = append(s.spans, &span{after: b.After, to: b.To, count: b.Count})
			}
			s.one = append(s.one, b.Entries...)
			s.at = found[i].Seq
		}
		slices.Sort(s.one)
		if err := r.w.rest(ctx); err != nil || len(found) < tileWidth {
			return err
		}
	}
}

// covers reports whether the ledger says that the body of an entry was erased. state says that tables are made of it.
func (s *erasures) covers(seq int64, state bool) bool {
	if _, ok := slices.BinarySearch(s.one, seq); ok {
		return true
	}
	i := slices.IndexFunc(s.spans, func(p *span) bool { return seq > p.after && seq <= p.to })
	if i < 0 {
		return false
	}
	p := s.spans[i]
	p.gone++
	if state {
		p.state = append(p.state, seq)
	}
	return true
}

// lookErased looks at an entry without a body.
func (r *round) lookErased(ctx context.Context, e *ledger.Entry) error {
	state := r.a.keeps(e.Kind)
	if r.erased.covers(e.Seq, state) {
		return nil
	}
	if err := r.erased.load(ctx, r); err != nil {
		return err
	}
	if !r.erased.covers(e.Seq, state) {
		r.report(ctx, Erasures, "", "The body of entry %d (%s) is gone, and no entry says that it was erased.", e.Seq,
			e.Kind)
	}
	return nil
}

// counted compares how many bodies are gone with what the steps of retention say, when every entry was looked at.
func (r *round) counted(ctx context.Context) {
	for _, p := range r.erased.spans {
		if p.gone > p.count && len(p.state) > 0 {
			r.report(ctx, Erasures, "", "%d bodies of the entries %d to %d are gone, and %d were erased; that of entry %d is "+
				"among those that are kept.", p.gone, p.after+1, p.to, p.count, p.state[0])
		}
		p.gone, p.state = 0, nil
	}
}

// keeps reports whether retention keeps the bodies of a kind, as the ledger decides it.
func (a *Audit) keeps(kind string) bool {
	return kind == kindErased || slices.ContainsFunc(a.Projections, func(p ledger.Projection) bool {
		return p.Apply[kind] != nil && !slices.Contains(p.Erasable, kind)
	})
}
