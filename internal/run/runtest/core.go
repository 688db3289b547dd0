package runtest

import (
	"log/slog"
	"testing"

	"signalbox/internal/clock"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run"
)

// Open opens a ledger that records runs, on the database at the address, with the core
// that runs need. Nothing runs yet: tests start what they are about.
func Open(t testing.TB, address string) (*ledgertest.Node, protocol.Core) {
	t.Helper()
	// Only what runs stand on: timers, the roster, and runs themselves.
	n := ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: run.Migrations, Projection: run.Projection()},
	})
	return n, protocol.Core{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler)}
}
