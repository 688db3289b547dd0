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

// NewPrices replaces the price table.
type NewPrices struct {
	Models []Price `json:"models"`
}

// Prices is the price table in force. Nobody changes it; another takes its place.
func (s *Signals) Prices() *PriceTable {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.prices
}

// SetPrices puts a price table in force on the whole server, as the next version.
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
		s.use(t)
	}
	return t, err
}

func (s *Signals) use(t *PriceTable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Version >= s.prices.Version {
		s.prices = t
	}
}

// loadPrices reads the newest table, if there is one beside the protocol's own.
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
	return s.apply(&e)
}

func (s *Signals) apply(e *ledger.Entry) error {
	var b pricesApplied
	if err := e.Decode(&b); err != nil {
		return err
	}
	t, err := newPriceTable(b.Version, b.Models)
	if err == nil {
		s.use(t)
	}
	return err
}

// Run keeps prices, webhooks and what was seen true by following the ledger, until ctx
// ends.
func (s *Signals) Run(ctx context.Context) error {
	load := func(ctx context.Context) error {
		return errors.Join(s.loadPrices(ctx), s.hooks.Load(ctx, s.core.Ledger, "JOIN agent_webhook h ON h.seq = e.seq"))
	}
	for e := range s.core.Ledger.FollowNow(ctx, load) {
		var err error
		switch e.Kind {
		case kindReceived:
			s.seen.add(e.Trace)
		case kindPriced:
			err = s.apply(&e)
		case kindHooked:
			err = s.hooks.Follow(&e)
		}
		if err != nil {
			s.core.Log.Error("an entry cannot be read; what was before stays", "kind", e.Kind, "error", err.Error())
		}
	}
	return nil
}

func (s *Signals) getPricing(*http.Request) (*PriceTable, error) { return s.Prices(), nil }

func (s *Signals) putPricing(r *http.Request, in NewPrices) (*PriceTable, error) {
	return s.SetPrices(r.Context(), roster.From(r.Context()), in.Models)
}
