package run

import (
	"context"

	"signalbox/internal/behalf"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Totals are what runs have used together.
type Totals struct {
	Runs    int64   `json:"runs"`
	Tokens  int64   `json:"tokens"`
	CostUSD float64 `json:"cost_usd"`
}

// Sum adds up all runs that a filter selects, of those that the caller may see; a list shows a page of them. A run that
// was stopped keeps what it had used.
func (s *Runs) Sum(ctx context.Context, f Filter) (t Totals, err error) {
	var where store.Where
	where.Equal("run.status", f.Status)
	where.Equal("run.workspace", wire.Scope(ctx))
	if f.User != "" {
		keys, err := s.core.Behalf.Keys(ctx, wire.Scope(ctx), f.User, f.Claimed)
		if err != nil {
			return t, err
		}
		behalf.Among(&where, "run.seq", keys)
	}
	where.And("run.id <> ''")
	// In halves, as a sum that overflows is an error: supervisors report what runs used.
	var high, low, tokensHigh, tokensLow int64
	err = s.core.DB.Read.QueryRowContext(ctx, "SELECT count(*), "+
		"CAST(COALESCE(sum(run.nanos >> 31), 0) AS BIGINT), CAST(COALESCE(sum(run.nanos & 2147483647), 0) AS BIGINT), "+
		"CAST(COALESCE(sum(run.tokens >> 31), 0) AS BIGINT), CAST(COALESCE(sum(run.tokens & 2147483647), 0) AS BIGINT) "+
		"FROM run WHERE "+where.String(), where.Args()...).Scan(&t.Runs, &high, &low, &tokensHigh, &tokensLow)
	t.CostUSD = dollars(high)*(1<<31) + dollars(low)
	t.Tokens = min(tokensHigh, 1<<31)<<31 + tokensLow
	return t, store.Explain(err)
}
