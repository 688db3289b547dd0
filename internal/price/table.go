package price

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
)

// Price is what a model of a provider costs from a day on, in dollars for a million tokens. A model may have several
// rows: for different days, and for requests of more than Above tokens. What a provider does not price by itself is
// absent, and costs what Cost says of it.
type Price struct {
	Provider     string   `json:"provider,omitempty" example:"anthropic"`
	Model        string   `json:"model" example:"claude-sonnet-4-6"`
	From         string   `json:"from,omitempty"`  // a day (UTC) such as 2026-03-01; always if absent
	Above        int64    `json:"above,omitempty"` // it holds for requests of more tokens than that
	Input        float64  `json:"input" example:"3"`
	Output       float64  `json:"output" example:"15"`
	CacheRead    *float64 `json:"cache_read,omitempty"`
	CacheWrite   *float64 `json:"cache_write,omitempty"`
	CacheWrite1h *float64 `json:"cache_write_1h,omitempty"`
	AudioInput   *float64 `json:"audio_input,omitempty"`
	AudioOutput  *float64 `json:"audio_output,omitempty"`
	ImageInput   *float64 `json:"image_input,omitempty"`
	ImageOutput  *float64 `json:"image_output,omitempty"`
	// Batch, Flex and Priority are factors on all of these for the tiers of service, such as 0.5.
	Batch    *float64 `json:"batch,omitempty"`
	Flex     *float64 `json:"flex,omitempty"`
	Priority *float64 `json:"priority,omitempty"`
	// Read is the day on which the price was read from the provider's list, or on which an operator set it.
	Read string `json:"read,omitempty"`
}

// Any is the model of the row that says what models without a price count as.
const Any = "*"

const (
	maxPrices = 10_000
	maxModel  = 128 // characters of a model's name
	// maxPrice, in dollars for a million tokens, is far above any real price.
	maxPrice = 1e6
	// maxFactor is the largest factor of a tier.
	maxFactor = 100
)

// amounts are the prices and the factors of a row, those that are absent left out.
func (p *Price) amounts() (prices, factors []float64) {
	prices = []float64{p.Input, p.Output}
	for _, one := range []*float64{
		p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.AudioInput, p.AudioOutput, p.ImageInput,
		p.ImageOutput,
	} {
		if one != nil {
			prices = append(prices, *one)
		}
	}
	for _, one := range []*float64{p.Batch, p.Flex, p.Priority} {
		if one != nil {
			factors = append(factors, *one)
		}
	}
	return prices, factors
}

// check says what is wrong with a row.
func (p *Price) check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.InvalidPayload, "The price of %.80q %s", p.Model, fmt.Sprintf(format, args...)).About("models")
	}
	if p.Model == "" || len(p.Model) > maxModel || len(p.Provider) > maxModel {
		return bad("should name a model with 1 to %d characters, such as claude-sonnet-4-6.", maxModel)
	}
	prices, factors := p.amounts()
	for _, one := range prices {
		if !(one >= 0 && one <= maxPrice) { // NaN is neither
			return bad("should be in dollars for a million tokens, from 0 to %d, and has %g.", int64(maxPrice), one)
		}
	}
	for _, one := range factors {
		if !(one >= 0 && one <= maxFactor) {
			return bad("has a factor of %g for a tier; it should be from 0 to %d, such as 0.5 for half of the price.", one, maxFactor)
		}
	}
	if p.Above < 0 {
		return bad("should have above as a number of tokens such as 200000, and it is %d.", p.Above)
	}
	for _, day := range []string{p.From, p.Read} {
		if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
			return bad("should begin on a day such as 2026-03-01, and has %.40q.", day)
		}
	}
	return nil
}

// Table is one version of the prices. It may be read by any goroutine.
type Table struct {
	Version int64
	// Rows are all prices, by provider, model, day and size.
	Rows []Price

	byModel map[string][]Price // by the name in lower case; the newest first, and of those the one for the most tokens
}

// NewTable checks prices and makes a table of them. The error names the first wrong one.
func NewTable(version int64, rows []Price) (*Table, error) {
	if len(rows) > maxPrices {
		return nil, fault.New(fault.InvalidPayload, "There are %d prices; the most is %d.", len(rows), maxPrices).About("models")
	}
	t := &Table{Version: version, Rows: slices.Clone(rows), byModel: map[string][]Price{}}
	slices.SortStableFunc(t.Rows, func(a, b Price) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model), cmp.Compare(a.From, b.From),
			cmp.Compare(a.Above, b.Above))
	})
	for i := range t.Rows {
		p := &t.Rows[i]
		if err := p.check(); err != nil {
			return nil, err
		}
		if i > 0 && p.same(&t.Rows[i-1]) {
			return nil, fault.New(fault.InvalidPayload, "The price of %.80q is there twice for the same day.", p.Model).About("models")
		}
		key := strings.ToLower(p.Model)
		t.byModel[key] = append(t.byModel[key], *p)
	}
	for _, all := range t.byModel {
		slices.SortStableFunc(all, func(a, b Price) int {
			return cmp.Or(cmp.Compare(b.From, a.From), cmp.Compare(b.Above, a.Above))
		})
	}
	return t, nil
}

// same reports whether two rows are about the same model, day and size.
func (p *Price) same(other *Price) bool {
	return p.Provider == other.Provider && strings.EqualFold(p.Model, other.Model) && p.From == other.From &&
		p.Above == other.Above
}

// Match is how the price of a model was found.
type Match string

// The values of Match.
const (
	Exact    Match = "exact"    // the table has the name
	Alias    Match = "alias"    // it has the name without its date, its version or the name of a provider
	Family   Match = "family"   // it has a shorter name; the dearest model with that is taken
	Unpriced Match = "unpriced" // it has none; the row for any model is taken
)

// Find finds the price of a model at a moment, for a request of so many tokens. provider may be "" if it is not known.
func (t *Table) Find(provider, model string, at time.Time, input int64) (Price, Match) {
	name, day := strings.ToLower(strings.TrimSpace(model)), at.UTC().Format(time.DateOnly)
	if p, ok := t.row(provider, name, day, input); ok && name != Any {
		return p, Exact
	}
	plain := plainName(name)
	if p, ok := t.row(provider, plain, day, input); ok && plain != Any {
		return p, Alias
	}
	for short := plain; ; {
		cut := strings.LastIndexAny(short, "-.:")
		if cut <= 0 {
			break
		}
		// gpt-5 is no family of gpt-5.4: a version is another model.
		if short = short[:cut]; plain[cut] != '.' {
			if p, ok := t.dearest(provider, short, day, input); ok {
				return p, Family
			}
		}
	}
	p, ok := t.row(provider, Any, day, input)
	if !ok {
		p = Price{Model: Any, Input: unpricedInput, Output: unpricedOutput}
	}
	return p, Unpriced
}

// unpricedInput and unpricedOutput are what an unknown model costs if the table does not say.
const (
	unpricedInput  = 30
	unpricedOutput = 180
)

// row is the row of a name in lower case that holds on a day, for so many tokens. One of the provider comes first,
// then one for any provider, and then that of another one, since the same model costs much the same everywhere.
func (t *Table) row(provider, name, day string, input int64) (found Price, ok bool) {
	var best *Price
	rank := func(p *Price) int {
		switch {
		case provider != "" && p.Provider == provider:
			return 2
		case p.Provider == "":
			return 1
		}
		return 0
	}
	for i := range t.byModel[name] {
		p := &t.byModel[name][i]
		if p.From <= day && (p.Above == 0 || input > p.Above) && (best == nil || rank(p) > rank(best)) {
			best = p
		}
	}
	if best == nil {
		return found, false
	}
	return *best, true
}

// dearest is the row that costs the most of a model and all whose name goes on from its.
func (t *Table) dearest(provider, family, day string, input int64) (most Price, ok bool) {
	if _, known := t.byModel[family]; !known {
		return most, false
	}
	for name := range t.byModel {
		if name != family && !strings.HasPrefix(name, family+"-") {
			continue
		}
		p, found := t.row(provider, name, day, input)
		if found && (!ok || p.Output > most.Output || p.Output == most.Output && p.Input > most.Input ||
			p.Output == most.Output && p.Input == most.Input && p.Model < most.Model) {
			most, ok = p, true
		}
	}
	return most, ok
}

// What clients and gateways put around the name of a model.
var (
	endings = regexp.MustCompile(`(?:\[[^\]]*\]|:[a-z0-9.]+|-v\d+|[@-]\d{4}-?\d{2}-?\d{2}|@default|-latest)$`)
	begins  = regexp.MustCompile(`^(?:.*/|(?:[a-z]+\.)?(?:anthropic|openai|google)\.)`)
)

// plainName is a name without a provider before it, and without a date, a version or a size behind it.
func plainName(name string) string {
	name = begins.ReplaceAllString(name, "")
	for {
		short := endings.ReplaceAllString(name, "")
		if short == name || short == "" {
			return name
		}
		name = short
	}
}
