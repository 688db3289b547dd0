package price_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/price"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

type node struct {
	*ledgertest.Node
	prices *price.Prices
}

func start(t *testing.T, address string) *node {
	t.Helper()
	n := &node{Node: ledgertest.Open(t, address, nil,
		[]ledgertest.Part{{Migrations: price.Migrations, Projection: price.Projection()}})}
	var err error
	n.prices, err = price.New(n.DB, n.Ledger, n.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.Run(n.prices.Run)
	return n
}

var admin = roster.Identity{Role: roster.Admin, Name: "ada"}

func TestAChangeOfOneModelTouchesOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, other := start(t, address), start(t, address)
		before := n.prices.InForce()
		after, err := n.prices.Change(t.Context(), admin, price.Change{Models: []price.Price{{Model: "gpt-4o", Input: 7, Output: 9}}})
		if err != nil || after.Version != 1 {
			t.Fatalf("%+v %v", after, err)
		}
		for _, row := range before.Rows {
			if row.Model != "gpt-4o" && !slices.ContainsFunc(after.Rows, func(p price.Price) bool {
				return p.Model == row.Model && p.From == row.From && p.Above == row.Above && p.Input == row.Input
			}) {
				t.Errorf("%s is gone", row.Model)
			}
		}
		if got := n.prices.Ask("openai", "gpt-4o", 0); got.Price.Input != 7 || got.Match != price.Exact || got.Price.Read == "" {
			t.Errorf("%+v", got)
		}
		testbed.Until(t, "the other node", func() bool { return other.prices.Ask("openai", "gpt-4o", 0).Price.Input == 7 })
		// Another day is another row, and the same day is replaced.
		for i, from := range []string{"2099-01-01", "2099-01-01"} {
			_, err = other.prices.Change(t.Context(), admin,
				price.Change{Models: []price.Price{{Model: "gpt-4o", Input: 8 + float64(i), From: from}}})
			n.Must(err)
		}
		late, _ := other.prices.InForce().Find("openai", "gpt-4o", time.Date(2099, 2, 1, 0, 0, 0, 0, time.UTC), 0)
		if now := other.prices.Ask("openai", "gpt-4o", 0); now.Price.Input != 7 || late.Input != 9 {
			t.Errorf("%+v %+v", now, late)
		}
		// What was set is taken back, and what came with the program holds again.
		if _, err := other.prices.Change(t.Context(), admin, price.Change{Removed: []string{"GPT-4o"}}); err != nil {
			t.Fatal(err)
		}
		if got := other.prices.Ask("openai", "gpt-4o", 0); got.Price.Input != 2.5 {
			t.Errorf("%+v", got)
		}
		n.WantClean()
	})
}

func TestABadChangeChangesNothing(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	for want, change := range map[string]price.Change{
		"nothing to change":  {},
		"from 0 to 1000000":  {Models: []price.Price{{Model: "m", Input: -1}}},
		"twice for the same": {Models: []price.Price{{Model: "m"}, {Model: "m"}}},
		"No operator has":    {Removed: []string{"gpt-4o"}},
	} {
		if _, err := n.prices.Change(t.Context(), admin, change); err == nil || !strings.Contains(fault.From(err).Message, want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if n.Head() != 0 || n.prices.InForce().Version != 0 {
		t.Errorf("%d entries, version %d", n.Head(), n.prices.InForce().Version)
	}
}

func TestATableOfVersion01StillCounts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for _, body := range []string{
			`{"version":1,"models":[{"model":"m","input":1,"output":2},{"model":"gone","input":1,"output":2}]}`,
			`{"version":2,"models":[{"model":"m","input":3,"output":4}]}`,
		} {
			n.Append(ledger.Event{Kind: "prices.applied", Actor: "operator:ada", Subject: "prices", Body: json.RawMessage(body)})
		}
		testbed.Until(t, "the prices", func() bool { return n.prices.InForce().Version == 2 })
		if m := n.prices.Ask("", "m", 0); m.Price.Input != 3 || n.prices.Ask("", "gone", 0).Match != price.Unpriced {
			t.Errorf("%+v", m)
		}
	})
}

// TestThePricesThatAreBuiltIn are checked for what a slip of the pen would break.
func TestThePricesThatAreBuiltIn(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	list := n.prices.List()
	providers := map[string]int{}
	for _, p := range list.Models {
		providers[p.Provider]++
		switch {
		case p.Model == price.Any:
		case p.Read == "" && p.Provider != "" && p.From == "" && p.CacheRead == nil: // the document of AMP v1.0
		case p.Read == "":
			t.Errorf("%s: when was it read?", p.Model)
		}
		if p.CacheRead != nil && *p.CacheRead > p.Input || p.CacheWrite != nil && *p.CacheWrite < p.Input ||
			p.CacheWrite1h != nil && *p.CacheWrite1h < *p.CacheWrite || p.Batch != nil && *p.Batch >= 1 {
			t.Errorf("%+v", p)
		}
		if p.Provider == "anthropic" && p.Read != "" && (p.CacheWrite1h == nil || p.Batch == nil) {
			t.Errorf("%s has no price for an hour, or for batches", p.Model)
		}
	}
	if providers["anthropic"] < 20 || providers["openai"] < 50 || providers["google"] < 20 || list.Read < "2026-11-01" {
		t.Errorf("%v, read on %s", providers, list.Read)
	}
	at := time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC)
	million := price.Usage{Input: 1e6, CacheRead: 1e6, CacheWrite1h: 1e6}
	for model, want := range map[string]float64{
		"claude-sonnet-4-6": 3 + 0.3 + 6, "claude-haiku-4-5-20251001": 1 + 0.1 + 2, "gpt-4o": 2.5 + 1.25 + 5,
		"o3": 2 + 0.5 + 4, "gemini-2.5-flash": 0.3 + 0.03 + 0.6,
	} {
		if got := n.prices.InForce().Cost("", model, at, million); float64(got.Nanos) != want*1e9 {
			t.Errorf("%s: %s instead of %v (%+v)", model, price.Dollars(got.Nanos), want, got)
		}
	}
}
