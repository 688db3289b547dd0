// Package gatetest opens and reads gates in the tests of gates and of what stands on them, where no protocol asks for
// any. It knows nothing of votes and timers, and only tests import it.
package gatetest

import (
	"signalbox/internal/alarm"
	"signalbox/internal/clock"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
)

// Parts are what gates stand on, and the gates.
func Parts() []ledgertest.Part {
	return []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: alarm.Migrations, Projection: alarm.Projection()},
		{Migrations: passkey.Migrations, Projection: passkey.Projection()},
		{Migrations: gate.Migrations, Projection: gate.Projection()},
	}
}

// Open opens a gate and returns its id.
func Open(n *ledgertest.Node, workspace string, o gate.Opening) string {
	n.T.Helper()
	id := gate.NewID()
	p, err := gate.Prepare(o)
	n.Must(err)
	n.Must(n.Ledger.Write(n.T.Context(), func(tx *ledger.Tx) error {
		p.Open(tx, id, workspace, "trace-1")
		return nil
	}))
	return id
}

// Get reads a gate that exists.
func Get(n *ledgertest.Node, gates *gate.Gates, id string) gate.Gate {
	n.T.Helper()
	g, err := gates.Get(n.T.Context(), id)
	n.Must(err)
	return g
}
