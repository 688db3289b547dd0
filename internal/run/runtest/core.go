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

// Open opens a ledger that records runs, and the core that runs need. Nothing runs yet.
func Open(t testing.TB, address string) (*ledgertest.Node, protocol.Core) {
	t.Helper()
	n := ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: run.Migrations, Projection: run.Projection()},
	})
	return n, protocol.Core{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler)}
}
