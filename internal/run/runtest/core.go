package runtest

import (
	"log/slog"
	"slices"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/price"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run"
)

// Open opens a ledger that records runs, on the database at the address, with the core
// that runs need, and what else a test is about. Nothing runs yet: tests start what they are about.
func Open(t testing.TB, address string, more ...ledgertest.Part) (*ledgertest.Node, protocol.Core) {
	t.Helper()
	// Only what runs stand on: gates with what is below them, handoffs, and runs themselves.
	n := ledgertest.Open(t, address, nil, slices.Concat(gatetest.Parts(), []ledgertest.Part{
		{Migrations: price.Migrations, Projection: price.Projection()},
		{Migrations: handoff.Migrations, Projection: handoff.Projection()},
		{Migrations: run.Migrations, Projection: run.Projection()},
	}, more))
	log := slog.New(slog.DiscardHandler)
	prices, err := price.New(n.DB, n.Ledger, n.Now, log)
	if err != nil {
		t.Fatal(err)
	}
	agents := roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: log})
	return n, protocol.Core{
		DB: n.DB, Ledger: n.Ledger, Roster: agents, Prices: prices, Gates: gate.New(n.DB, n.Ledger, agents, log),
		Handoffs: handoff.New(handoff.Options{DB: n.DB, Ledger: n.Ledger, Roster: agents, Now: n.Now, Key: []byte("key")}),
		Now:      n.Now, Log: log,
	}
}
