package counter_test

import (
	"fmt"
	"testing"

	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
)

// callOf is the body of an entry that is counted as a call.
type callOf struct {
	Agent, Project, Model string
	Cost, Tokens, Gates   int64
}

func readCall(e *ledger.Entry) ([]counter.Count, error) {
	var b callOf
	err := e.Decode(&b)
	return []counter.Count{{
		Agent: b.Agent, Project: b.Project, Protocol: "toy", Model: b.Model, Rule: "free",
		Counts: counter.Counts{
			Calls: 1, CostNano: b.Cost, InputTokens: b.Tokens, OutputTokens: b.Tokens / 10, CacheRead: b.Tokens / 2,
			CacheWrite: b.Tokens / 4, Completed: b.Gates, Failed: b.Gates, CostVerified: b.Gates, CostOver: b.Gates,
			GatesOpened: b.Gates, GatesApproved: b.Gates, GatesRejected: b.Gates, GatesExpired: b.Gates, Blocks: b.Gates,
		},
	}}, err
}

// TestAnAgentThatInventsNamesFillsNoTableAndHidesNobody has one agent name a model and a deck for each of its calls.
func TestAnAgentThatInventsNamesFillsNoTableAndHidesNobody(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		const calls = 3000
		var events []ledger.Event
		call := func(b callOf) {
			events = append(events, ledger.Event{Workspace: "default", Kind: "toy.called", Actor: "system", Body: b})
		}
		for i := range calls {
			call(callOf{"rogue", fmt.Sprint("deck-", i), fmt.Sprint("model-", i), 1_000_001, -5, 0})
		}
		call(callOf{"honest", "work", "claude", 5_000_000_000, 0, 0})
		call(callOf{"honest", "", "", 7, 0, 0})
		for len(events) > 0 {
			some := events[:min(500, len(events))]
			n.core.Append(some...)
			events = events[len(some):]
		}
		r := n.counted()
		if r.Total.Calls != calls+2 || r.Total.CostUSD != 5+calls*0.001000001+7e-9 || r.Total.InputTokens != 0 {
			t.Errorf("%+v", r.Total)
		}
		if len(r.Models) > 60 || len(r.Decks) > 60 {
			t.Errorf("%d models and %d decks are told apart", len(r.Models), len(r.Decks))
		}
		found := map[string]int64{}
		for _, m := range r.Models {
			found[m.Name] = m.Counts.Calls
		}
		for _, d := range r.Decks {
			found["deck "+d.Name] = d.Counts.Calls
		}
		if found["claude"] != 1 || found["deck work"] != 1 || found["deck default"] != 1 || found[""] != 1 ||
			found["model-0"] != 1 || found[counter.Other] != calls-50 || found["deck "+counter.Other] != calls-50 {
			t.Errorf("%v", found)
		}
		for _, table := range []string{"counter_hour", "counter_sum", "counter_name", "counter_deck"} {
			var rows int
			err := n.core.DB.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows)
			if err != nil || rows > 600 {
				t.Errorf("%s has %d rows %v", table, rows, err)
			}
		}
		// Counted again, it is the same.
		if err := counter.Reset(t.Context(), n.core.DB); err != nil {
			t.Fatal(err)
		}
		again := n.counted()
		if again.Total != r.Total || len(again.Models) != len(r.Models) || len(again.Decks) != len(r.Decks) {
			t.Errorf("%+v is counted again as %+v", r.Total, again.Total)
		}
	})
}

func TestManyPartsAreAlwaysTheWhole(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		for part := range 5 {
			var events []ledger.Event
			for i := range 300 {
				events = append(events, ledger.Event{Workspace: "default", Kind: "toy.called", Actor: "system", Body: callOf{
					Agent: fmt.Sprintf("agent-%d-%d", part, i), Model: "m", Cost: int64(i) * 1_000_000_000,
				}})
			}
			n.core.Append(events...)
		}
		r := n.counted()
		sum, calls := 0.0, int64(0)
		for _, a := range r.Agents {
			sum, calls = sum+a.Counts.CostUSD, calls+a.Counts.Calls
		}
		if len(r.Agents) != 1000 || calls != 1500 || sum != r.Total.CostUSD {
			t.Errorf("%d agents with %d calls cost %f of %f", len(r.Agents), calls, sum, r.Total.CostUSD)
		}
		if len(r.Spenders) != 6 || r.Spenders[0].Counts.CostUSD != 299 {
			t.Errorf("%+v", r.Spenders)
		}
	})
}
