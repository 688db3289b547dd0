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

// firstPrices are the values of the protocol's own document.
//
//go:embed pricing.json
var firstPrices []byte

// Price is what a model costs from a day on, in dollars for a million tokens.
type Price struct {
	Model  string  `json:"model"`
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	From   string  `json:"from,omitempty"` // a day such as 2026-03-01; since ever when absent
}

// PriceTable is a version of the prices.
type PriceTable struct {
	Version int64   `json:"version"` // 0 is the protocol's own
	Unit    string  `json:"unit"`
	Models  []Price `json:"models"`

	byModel map[string][]rates // the newest first
}

// rates are whole nano-dollars for one token.
type rates struct {
	from          time.Time
	input, output int64
}

const priceUnit = "usd_per_million_tokens"

const (
	maxPrices = 10_000
	// maxPrice is far above what anybody asks, and keeps sums within an int64.
	maxPrice = 1e6
)

// newPriceTable checks prices and makes them fast to look up.
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

func ownPrices() (*PriceTable, error) {
	var models []Price
	if err := wire.Unmarshal(firstPrices, &models); err != nil {
		return nil, err
	}
	return newPriceTable(0, models)
}

// at is the price of a model at a moment.
func (t *PriceTable) at(model string, when time.Time) (rates, bool) {
	for _, r := range t.byModel[model] {
		if !when.Before(r.from) {
			return r, true
		}
	}
	return rates{}, false
}

// CostCheck compares what an agent says that a run cost with the price table.
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

// tolerance is a hundredth of a cent, or two per cent.
const tolerance = 100_000

// check compares a cost. It never refuses anything.
func (t *PriceTable) check(s *Signal) CostCheck {
	c := CostCheck{Prices: t.Version}
	r, known := t.at(s.Model, cmp.Or(s.CompletedAt, s.StartedAt))
	if !known {
		c.Verdict = CostUnknownModel
		return c
	}
	c.ExpectedNano = add(times(s.InputTokens, r.input), times(s.OutputTokens, r.output))
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

// text is a cost as an operator reads it.
func (c CostCheck) text(s *Signal) string {
	said := dollars(s.CostNano)
	switch c.Verdict {
	case CostUnknownModel:
		return said + ", and there is no price for " + s.Model
	case CostVerified:
		return said
	}
	return said + " (" + c.Verdict + "; " + dollars(c.ExpectedNano) + " by the price table)"
}

func dollars(nano int64) string {
	return "$" + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9), "0"), ".")
}

// times and add stop at the largest number instead of going round.
func times(tokens, rate int64) int64 {
	if rate > 0 && tokens > math.MaxInt64/rate {
		return math.MaxInt64
	}
	return tokens * rate
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Cost is what tokens of a model cost now, in nano-dollars; false when the table does not
// have the model. Tokens that came from a cache count a tenth and tokens that went into
// one a quarter more, which the table does not tell apart.
func (s *Signals) Cost(model string, input, output, cacheRead, cacheWrite int64) (nanos int64, known bool) {
	r, known := s.Prices().at(model, s.core.Now())
	return r.input*input + r.output*output + r.input*cacheRead/10 + r.input*cacheWrite*5/4, known
}
