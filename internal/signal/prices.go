package signal

import (
	"cmp"
	_ "embed" // for pricing.json
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// builtinTable are the values of the protocol's own document, the price table's version 0.
//
//go:embed pricing.json
var builtinTable []byte

// Price is what a model costs from a day on, in dollars for a million tokens. A model may have
// several, for different days.
type Price struct {
	Model  string  `json:"model"`
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	From   string  `json:"from,omitempty"` // a day (UTC) such as 2026-03-01; always if absent
}

// PriceTable is one version of the prices. Version 0 is built in; an admin replaces the whole
// table, which makes the next version (SIG-39). A table is never changed once it is made, so
// it may be read without a lock.
type PriceTable struct {
	Version int64   `json:"version"` // 0 is the protocol's own
	Unit    string  `json:"unit"`
	Models  []Price `json:"models"`

	byModel map[string][]rates // by From, the latest first
}

// rates are the price of a model as whole nano-dollars for one token, so that sums are exact.
type rates struct {
	from          time.Time
	input, output int64
}

const priceUnit = "usd_per_million_tokens"

const (
	maxPrices = 10_000
	// maxPrice, in dollars for a million tokens, is far above any real price and keeps products
	// with realistic token counts within an int64.
	maxPrice = 1e6
)

// newPriceTable checks prices and indexes them by model. The error names the first wrong one.
func newPriceTable(version int64, models []Price) (*PriceTable, error) {
	t := &PriceTable{Version: version, Unit: priceUnit, Models: models, byModel: map[string][]rates{}}
	if len(models) > maxPrices {
		return nil, fault.New(fault.InvalidPayload, "There are %d prices; the most is %d.", len(models),
			maxPrices).About("models")
	}
	for i, p := range models {
		bad := func(format string, args ...any) error {
			return fault.New(fault.InvalidPayload, "Price %d (%.80q) %s", i+1, p.Model,
				fmt.Sprintf(format, args...)).About("models")
		}
		if p.Model == "" || len(p.Model) > maxModel {
			return nil, bad("should name a model with 1 to %d characters.", maxModel)
		}
		if p.Input < 0 || p.Output < 0 || p.Input > maxPrice || p.Output > maxPrice {
			return nil, bad("should be in dollars for a million tokens, from 0 to %d.", int64(maxPrice))
		}
		r := rates{input: nanoPerToken(p.Input), output: nanoPerToken(p.Output)}
		if p.From != "" {
			var err error
			if r.from, err = time.Parse(time.DateOnly, p.From); err != nil {
				return nil, bad("should begin on a day such as 2026-03-01, and from is %.40q.", p.From)
			}
		}
		for _, other := range t.byModel[p.Model] {
			if other.from.Equal(r.from) {
				return nil, bad("is there twice for the same day.")
			}
		}
		t.byModel[p.Model] = append(t.byModel[p.Model], r)
	}
	for _, all := range t.byModel {
		slices.SortFunc(all, func(a, b rates) int { return b.from.Compare(a.from) })
	}
	return t, nil
}

// nanoPerToken turns dollars for a million tokens into nano-dollars for one.
func nanoPerToken(dollars float64) int64 { return int64(math.Round(dollars * 1000)) }

// builtinPrices is version 0, from the file that is built in.
func builtinPrices() (*PriceTable, error) {
	var models []Price
	if err := wire.Unmarshal(builtinTable, &models); err != nil {
		return nil, err
	}
	return newPriceTable(0, models)
}

// ratesAt is the price of a model at a moment, false if the table has none for it.
func (t *PriceTable) ratesAt(model string, when time.Time) (rates, bool) {
	for _, r := range t.byModel[model] {
		if !when.Before(r.from) {
			return r, true
		}
	}
	return rates{}, false
}

// CostCheck is the cost that an agent reported beside what the price table gives. It is recorded
// with the signal, shown on the gate and counted, and never a reason to reject (SIG-36).
type CostCheck struct {
	Verdict      string `json:"verdict"` // verified, under, over, unknown_model or zero
	ExpectedNano int64  `json:"expected_nano,omitzero"`
	Prices       int64  `json:"prices"` // the version of the table
}

// The verdicts on a cost. Under is normal: caches and batches cost less.
const (
	CostVerified     = "verified"
	CostUnder        = "under"
	CostOver         = "over"
	CostUnknownModel = "unknown_model"
	CostZero         = "zero"
)

// tolerance, in nano-dollars, is how far a cost may be off and still be verified, or two per cent
// if that is more (SIG-37).
const tolerance = 100_000

// checkCost compares the reported cost of a signal with the prices of the moment when the run ended.
func (t *PriceTable) checkCost(s *Signal) CostCheck {
	c := CostCheck{Prices: t.Version}
	r, known := t.ratesAt(s.Model, cmp.Or(s.CompletedAt, s.StartedAt))
	if !known {
		c.Verdict = CostUnknownModel
		return c
	}
	input, output := saturatingMultiply(s.InputTokens, r.input), saturatingMultiply(s.OutputTokens, r.output)
	c.ExpectedNano = saturatingAdd(input, output)
	off := s.CostNano - c.ExpectedNano
	switch room := max(tolerance, c.ExpectedNano/50); {
	case s.CostNano == 0 && c.ExpectedNano > 0:
		c.Verdict = CostZero
	case off > room:
		c.Verdict = CostOver
	case off < -room:
		c.Verdict = CostUnder
	default:
		c.Verdict = CostVerified
	}
	return c
}

// describe is the cost as the operator reads it on the gate.
func (c CostCheck) describe(s *Signal) string {
	said := dollars(s.CostNano)
	switch c.Verdict {
	case CostUnknownModel:
		return said + " (no price known for " + s.Model + ")"
	case CostVerified:
		return said
	}
	return said + " (" + c.Verdict + "; " + dollars(c.ExpectedNano) + " by the price table)"
}

// dollars formats nano-dollars exactly, without trailing zeros.
func dollars(nano int64) string {
	return "$" + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9), "0"), ".")
}

// saturatingMultiply and saturatingAdd stop at the largest number instead of overflowing: token
// counts are the agent's own claim and may be absurd.
func saturatingMultiply(tokens, rate int64) int64 {
	if rate > 0 && tokens > math.MaxInt64/rate {
		return math.MaxInt64
	}
	return tokens * rate
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Cost is what tokens of a model cost now, in nano-dollars; known is false if the table does not
// have the model. The table has no prices for caches: tokens read from one count a tenth of
// the input price, tokens written to one a quarter more than it.
func (s *Signals) Cost(model string, input, output, cacheRead, cacheWrite int64) (nanos int64, known bool) {
	r, known := s.Prices().ratesAt(model, s.core.Now())
	return r.input*input + r.output*output + r.input*cacheRead/10 + r.input*cacheWrite*5/4, known
}
