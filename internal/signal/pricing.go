package signal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// NewPrices is the body of PUT /ops/pricing: the whole new price table.
type NewPrices struct {
	Models []Price `json:"models"`
}

// Prices is the price table in force. It may be kept and read without a lock: a new version is a
// new table.
func (s *Signals) Prices() *PriceTable {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.prices
}

// SetPrices puts a price table in force for all workspaces, as the next version. An operator who
// is confined to one workspace may not. The version is taken inside the transaction, so two
// admins at once get two versions.
func (s *Signals) SetPrices(ctx context.Context, by roster.Identity, models []Price) (*PriceTable, error) {
	if err := wire.Unconfined(ctx, "Prices are those of"); err != nil {
		return nil, err
	}
	var t *PriceTable
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var last int64
		if err := tx.QueryRow("SELECT version FROM price_table ORDER BY version DESC LIMIT 1", nil, &last); err != nil &&
			!errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var err error
		if t, err = newPriceTable(last+1, models); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Kind: kindPriced, Actor: by.Actor(), Subject: fmt.Sprintf("prices-%d", t.Version),
			Body: pricesApplied{t.Version, models},
		})
		return nil
	})
	if err == nil {
		s.putInForce(t)
	}
	return t, err
}

// putInForce puts a table in force on this node, unless a newer one is: SetPrices and Run may bring the
// same versions in either order.
func (s *Signals) putInForce(t *PriceTable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Version >= s.prices.Version {
		s.prices = t
	}
}

// loadPrices puts the newest stored table in force, if there is one.
func (s *Signals) loadPrices(ctx context.Context) error {
	var seq int64
	err := s.core.DB.Read.QueryRowContext(ctx, "SELECT seq FROM price_table ORDER BY version DESC LIMIT 1").Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	e, err := s.core.Ledger.Entry(ctx, seq)
	if err != nil {
		return err
	}
	return s.applyPrices(&e)
}

// applyPrices puts the table of a prices.applied entry in force on this node.
func (s *Signals) applyPrices(e *ledger.Entry) error {
	var b pricesApplied
	if err := e.Decode(&b); err != nil {
		return err
	}
	t, err := newPriceTable(b.Version, b.Models)
	if err == nil {
		s.putInForce(t)
	}
	return err
}

// Run keeps prices, webhooks and recent runs up to date by following the ledger, until ctx ends.
// An entry that cannot be read is logged and skipped: the value before it stays, which is
// better than a server without prices or webhooks.
func (s *Signals) Run(ctx context.Context) error {
	load := func(ctx context.Context) error {
		return errors.Join(s.loadPrices(ctx), s.hooks.Load(ctx, s.core.Ledger, "JOIN agent_webhook h ON h.seq = e.seq"))
	}
	for e := range s.core.Ledger.FollowNow(ctx, load) {
		var err error
		switch e.Kind {
		case kindReceived:
			s.recent.add(e.Trace)
		case kindPriced:
			err = s.applyPrices(&e)
		case kindHooked:
			err = s.hooks.Follow(&e)
		}
		if err != nil {
			s.core.Log.Error("cannot read ledger entry; the previous value stays", "kind", e.Kind, "error", err.Error())
		}
	}
	return nil
}

func (s *Signals) getPricing(*http.Request) (*PriceTable, error) { return s.Prices(), nil }

func (s *Signals) putPricing(r *http.Request, in NewPrices) (*PriceTable, error) {
	return s.SetPrices(r.Context(), roster.From(r.Context()), in.Models)
}
