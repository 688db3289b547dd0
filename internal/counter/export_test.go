package counter

import (
	"context"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Count counts entries that stand in no ledger, as one page.
func (c *Counters) Count(ctx context.Context, entries []ledger.Entry) error {
	t, err := c.read(ctx, entries, newNames(0))
	if err != nil {
		return err
	}
	return c.db.Bookkeep(ctx, "counter_cursor", func(tx *store.Tx) error {
		t.save(tx)
		return nil
	})
}
