package meter

import (
	"context"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// began is the body of proxy.began: the first call of an agent that names a run. From then on the proxy counts what
// the run takes, and what others report of it is not counted.
type began struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
}

// maxRuns is how many runs are remembered in memory. The table has all.
const maxRuns = 50_000

// Begin writes down that the proxy counts a run, unless that is written. Call it before the call is sent, so that
// nobody counts what the call takes before it is known that the proxy does.
func (m *Meter) Begin(ctx context.Context, who roster.Identity, run, trace string) error {
	key := who.ID + " " + run
	m.mu.Lock()
	known := m.runs[key]
	m.mu.Unlock()
	if known {
		return nil
	}
	err := m.core.Ledger.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		there, err := Carries(tx.Query, who.ID, run)
		if err == nil && !there {
			tx.Append(ledger.Event{
				Workspace: who.Workspace, Kind: kindBegan, Actor: who.Actor(), Subject: who.ID, Trace: trace,
				Body: began{who.ID, Clean(run)},
			})
		}
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.runs) >= maxRuns {
		clear(m.runs)
	}
	m.runs[key] = true
	return nil
}

// Carries reports whether the proxy counts what an agent's run takes, as the transaction sees it.
func Carries(query store.Query, agentID, run string) (bool, error) {
	found, err := store.All(query, store.Text, "SELECT run FROM proxy_run WHERE agent = $1 AND run = $2", agentID,
		Clean(run))
	return len(found) > 0, err
}
