package price_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/price"
)

var day = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

func dollars(n float64) *float64 { return &n }

func table(t *testing.T, rows ...price.Price) *price.Table {
	t.Helper()
	made, err := price.NewTable(1, rows)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestEveryKindOfTokensHasItsPrice(t *testing.T) {
	t.Parallel()
	full := table(t, price.Price{
		Model: "m", Input: 4, Output: 20, CacheRead: dollars(0.4), CacheWrite: dollars(5), CacheWrite1h: dollars(8),
		AudioInput: dollars(32), AudioOutput: dollars(64), ImageInput: dollars(10), ImageOutput: dollars(40),
		Batch: dollars(0.5), Flex: dollars(0.6), Priority: dollars(2.5),
	})
	bare := table(t, price.Price{Model: "m", Input: 4, Output: 20})
	const million = 1_000_000
	for _, c := range []struct {
		name       string
		usage      price.Usage
		full, bare float64 // dollars
	}{
		{"input", price.Usage{Input: million}, 4, 4},
		{"output", price.Usage{Output: million}, 20, 20},
		{"read from a cache", price.Usage{CacheRead: million}, 0.4, 4},
		{"written to a cache", price.Usage{CacheWrite: million}, 5, 5},
		{"written to a cache for an hour", price.Usage{CacheWrite1h: million}, 8, 8},
		{"audio", price.Usage{AudioInput: million, AudioOutput: million}, 96, 24},
		{"pictures", price.Usage{ImageInput: million, ImageOutput: million}, 50, 24},
		{"a batch", price.Usage{Input: million, CacheRead: million, Tier: price.TierBatch}, 2.2, 8},
		{"flex", price.Usage{Output: million, Tier: price.TierFlex}, 12, 20},
		{"priority", price.Usage{Output: million, Tier: price.TierPriority}, 50, 40},
		{"a tier that nobody knows", price.Usage{Output: million, Tier: "ultra"}, 50, 40},
		{"nothing", price.Usage{}, 0, 0},
		{"less than nothing", price.Usage{Input: -million, Output: 1}, 0.00002, 0.00002},
	} {
		for of, want := range map[*price.Table]float64{full: c.full, bare: c.bare} {
			if got := of.Cost("", "m", day, c.usage).Nanos; got != int64(math.Round(want*1e9)) {
				t.Errorf("%s: %s instead of $%v", c.name, price.Dollars(got), want)
			}
		}
	}
	// Nothing that is reported makes a cost overflow.
	huge := price.Usage{Input: math.MaxInt64, Output: math.MaxInt64, CacheRead: math.MaxInt64}
	dear := table(t, price.Price{Model: "m", Input: 1e6, Output: 1e6})
	if got := dear.Cost("", "m", day, huge).Nanos; got <= 0 || huge.Tokens() != math.MaxInt64 {
		t.Errorf("%d %d", got, huge.Tokens())
	}
}

func TestAModelIsFoundByItsNameOrItsFamily(t *testing.T) {
	t.Parallel()
	all := table(
		t,
		price.Price{Provider: "anthropic", Model: "claude-sonnet-4-5", Input: 3, Output: 15},
		price.Price{Provider: "openai", Model: "gpt-5", Input: 1.25, Output: 10},
		price.Price{Provider: "openai", Model: "gpt-5-mini", Input: 0.25, Output: 2},
		price.Price{Provider: "openai", Model: "gpt-5-pro", Input: 15, Output: 120},
		price.Price{Provider: "openai", Model: "gpt-5.4", Input: 2.5, Output: 15},
		price.Price{Provider: "google", Model: "gemini-3.6-flash", Input: 0.75, Output: 3.75},
		price.Price{Model: price.Any, Input: 30, Output: 180},
	)
	for asked, want := range map[string]struct {
		match price.Match
		as    string
	}{
		"claude-sonnet-4-5":                            {price.Exact, ""},
		"Claude-Sonnet-4-5":                            {price.Exact, ""},
		"claude-sonnet-4-5-20250929":                   {price.Alias, "claude-sonnet-4-5"},
		"claude-sonnet-4-5[1m]":                        {price.Alias, "claude-sonnet-4-5"},
		"claude-sonnet-4-5@20250929":                   {price.Alias, "claude-sonnet-4-5"},
		"claude-sonnet-4-5-latest":                     {price.Alias, "claude-sonnet-4-5"},
		"anthropic/claude-sonnet-4-5":                  {price.Alias, "claude-sonnet-4-5"},
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0": {price.Alias, "claude-sonnet-4-5"},
		"gpt-5-2025-08-07":                             {price.Alias, "gpt-5"},
		"models/gemini-3.6-flash":                      {price.Alias, "gemini-3.6-flash"},
		// One of a family that is not known counts as the dearest of it.
		"gpt-5-search-api":    {price.Family, "gpt-5-pro"},
		"gpt-5-mini-of-ours":  {price.Family, "gpt-5-mini"},
		"gpt-5.4-codex":       {price.Family, "gpt-5.4"},
		"claude-sonnet-4-5-x": {price.Family, "claude-sonnet-4-5"},
		// Another version is another model.
		"gpt-5.9":           {price.Unpriced, "*"},
		"gpt-50":            {price.Unpriced, "*"},
		"claude-sonnet-4-6": {price.Unpriced, "*"},
		"llama-4":           {price.Unpriced, "*"},
		"*":                 {price.Unpriced, ""},
		"":                  {price.Unpriced, "*"},
		"-":                 {price.Unpriced, "*"},
	} {
		got := all.Cost("", asked, day, price.Usage{Input: 1})
		if got.Match != want.match || got.As != want.as {
			t.Errorf("%q: %+v instead of %+v", asked, got, want)
		}
		if got.Nanos == 0 {
			t.Errorf("%q is free", asked)
		}
	}
	// A table that has no row for unknown models does not make them free either.
	if got := table(t).Cost("", "x", day, price.Usage{Input: 1}); !got.Unpriced() || got.Nanos == 0 {
		t.Errorf("%+v", got)
	}
}

func TestAPriceHoldsFromADayAndForLongRequests(t *testing.T) {
	t.Parallel()
	all := table(
		t,
		price.Price{Model: "m", Input: 1, Output: 1},
		price.Price{Model: "m", Input: 2, Output: 2, From: "2026-11-18"},
		price.Price{Model: "m", Input: 4, Output: 4, From: "2026-11-18", Above: 200_000},
		price.Price{Model: "m", Input: 8, Output: 8, From: "2027-01-01"},
		price.Price{Provider: "ours", Model: "m", Input: 16, Output: 16},
	)
	for _, c := range []struct {
		provider string
		at       time.Time
		input    int64
		want     float64
	}{
		{"", day.AddDate(0, 0, -1), 10, 1},
		{"", day, 10, 2},
		{"", day, 200_000, 2},
		{"", day, 200_001, 4},
		{"", day.AddDate(0, 3, 0), 10, 8},
		{"ours", day, 10, 16},
		{"others", day, 10, 2},
		{"", time.Date(2026, 11, 18, 1, 0, 0, 0, time.FixedZone("", 3*3600)), 10, 1}, // it is the 17th there, in UTC
	} {
		if got, _ := all.Find(c.provider, "m", c.at, c.input); got.Input != c.want {
			t.Errorf("%+v: %v", c, got.Input)
		}
	}
}

func TestABadPriceIsRefusedWithWhatAGoodOneIs(t *testing.T) {
	t.Parallel()
	for want, rows := range map[string][]price.Price{
		"name a model":        {{Input: 1, Output: 1}},
		"from 0 to 1000000":   {{Model: "m", Input: -1}},
		"and has 2e+06":       {{Model: "m", Output: 2e6}},
		"and has NaN":         {{Model: "m", CacheRead: dollars(math.NaN())}},
		"half of the price":   {{Model: "m", Batch: dollars(-0.5)}},
		"such as 2026-03-01":  {{Model: "m", From: "tomorrow"}},
		"such as 200000":      {{Model: "m", Above: -1}},
		"twice for the same":  {{Model: "m"}, {Model: "M"}},
		"with 1 to 128 chara": {{Model: strings.Repeat("m", 129)}},
		"the most is 10000":   make([]price.Price, 10_001),
	} {
		_, err := price.NewTable(1, rows)
		if f := fault.From(err); f.Code != fault.InvalidPayload || !strings.Contains(f.Message, want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestUsageAddsUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	some := func() price.Usage {
		return price.Usage{
			Input: r.Int64N(1000), Output: r.Int64N(1000), CacheRead: r.Int64N(1000), CacheWrite: r.Int64N(1000),
			CacheWrite1h: r.Int64N(1000), AudioInput: r.Int64N(1000), AudioOutput: r.Int64N(1000), ImageInput: r.Int64N(1000),
			ImageOutput: r.Int64N(1000),
		}
	}
	all := table(t, price.Price{Model: "m", Input: 3, Output: 15, CacheRead: dollars(0.3)})
	for range 200 {
		a, b := some(), some()
		both := a
		both.Add(b)
		if both.Tokens() != a.Tokens()+b.Tokens() || both.InputTokens()+both.OutputTokens() != both.Tokens() {
			t.Fatalf("%+v %+v %+v", a, b, both)
		}
		apart := all.Cost("", "m", day, a).Nanos + all.Cost("", "m", day, b).Nanos
		if off := all.Cost("", "m", day, both).Nanos - apart; off < -1 || off > 1 { // each is rounded once
			t.Fatalf("%+v %+v: off by %d", a, b, off)
		}
	}
	if got := price.Estimate(10, 0); !got.Estimated || got.Input != 4 || got.Output != 0 {
		t.Errorf("%+v", got)
	}
}
