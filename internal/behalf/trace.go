package behalf

import (
	"context"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// AmongTraces is the condition that an expression is a trace in which something was done on behalf of a user, for lists
// of what is known by its trace, such as sessions. It is none without a user. What it finds has to be checked with
// InTrace: a row of the index can be forged.
func (x *Index) AmongTraces(ctx context.Context, where *store.Where, trace, workspace, user string) error {
	if user == "" {
		return nil
	}
	keys, err := x.Keys(ctx, workspace, user, false)
	if err == nil {
		where.And(trace + " IN (SELECT e.trace FROM behalf_entry b JOIN " + ledger.EntryTable +
			" ON e.seq = b.seq WHERE e.trace <> '' AND b.who IN (" + where.List(keys) + "))")
	}
	return err
}

// InTrace reports whether something in a trace was done on behalf of a user, which is true without a user.
func (x *Index) InTrace(ctx context.Context, workspace, trace, user string) (bool, error) {
	if user == "" {
		return true, nil
	}
	found, err := x.Entries(ctx, Query{Query: ledger.Query{Workspace: workspace, Trace: trace, Limit: 1}, User: user})
	return len(found) > 0, err
}

// ForTrace are the users on whose behalf something was done in a trace, each once: as ids, and as what was only
// claimed.
func (x *Index) ForTrace(ctx context.Context, workspace, trace string) (all []Of, err error) {
	who, err := store.All(x.db.Reading(ctx), store.Text, "SELECT DISTINCT b.who FROM "+ledger.EntryTable+
		" JOIN behalf_entry b ON b.seq = e.seq WHERE e.trace <> '' AND e.trace = $1 AND e.workspace = $2 "+
		"ORDER BY b.who LIMIT 100", trace, workspace)
	for _, one := range who {
		of, ok := ofKey(one)
		if !ok {
			continue // a handoff
		}
		q := Query{Query: ledger.Query{Workspace: workspace, Trace: trace, Limit: 1}, User: one}
		if of.Claimed != "" {
			q.User, q.Claimed = of.Claimed, true
		}
		found, err := x.Entries(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			all = append(all, of)
		}
	}
	return all, err
}
