package client

import (
	"context"
	_ "embed"       // for prices.json
	"encoding/json" // the client imports the standard library alone
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Money is an amount in nano-dollars: whole numbers add up exactly.
type Money int64

// Dollar is one US dollar.
const Dollar Money = 1e9

// String writes the amount in dollars, with as many digits as it has.
func (m Money) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/uint64(Dollar), n%uint64(Dollar))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalJSON writes a JSON number in dollars.
func (m Money) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a JSON number in dollars.
func (m *Money) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.Abs(f) > 1e9 {
		return fmt.Errorf("an amount in dollars is a number such as 0.007532, and this is %.40s", text)
	}
	*m = Money(math.Round(f * float64(Dollar)))
	return nil
}

// Price is what a token of a model costs.
type Price struct{ Input, Output Money }

// Prices are what models cost.
type Prices map[string]Price

// Cost is the price of tokens of a model, zero for a model that is not in the list. It saturates instead of
// overflowing.
func (p Prices) Cost(model string, inputTokens, outputTokens int64) Money {
	price := p[model]
	return saturatingAdd(saturatingMultiply(price.Input, inputTokens), saturatingMultiply(price.Output, outputTokens))
}

func saturatingMultiply(price Money, tokens int64) Money {
	if tokens <= 0 || price <= 0 {
		return 0
	}
	if price > math.MaxInt64/Money(tokens) {
		return math.MaxInt64
	}
	return price * Money(tokens)
}

func saturatingAdd(a, b Money) Money {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

//go:embed prices.json
var protocolPrices []byte

// priceTable is a price table on the wire: dollars for a million tokens.
type priceTable struct {
	Unit   string `json:"unit"`
	Models []struct {
		Model  string  `json:"model"`
		Input  float64 `json:"input"`
		Output float64 `json:"output"`
		From   string  `json:"from"`
		Above  int64   `json:"above"`
	} `json:"models"`
}

// read picks the prices that are in force at the moment. It is false for a table that it does not
// understand; a price that makes no sense is skipped.
func (t priceTable) read(now time.Time) (Prices, bool) {
	if t.Unit != "usd_per_million_tokens" {
		return nil, false
	}
	prices, since := Prices{}, map[string]time.Time{}
	for _, m := range t.Models {
		if m.Above > 0 { // for long requests; the server knows better what those cost
			continue
		}
		var from time.Time
		if m.From != "" {
			var err error
			if from, err = time.Parse(time.DateOnly, m.From); err != nil {
				return nil, false
			}
		}
		if from.After(now) || from.Before(since[m.Model]) || !plausible(m.Input) || !plausible(m.Output) {
			continue
		}
		// Dollars for a million are thousands of nano-dollars for one.
		prices[m.Model] = Price{Money(math.Round(m.Input * 1000)), Money(math.Round(m.Output * 1000))}
		since[m.Model] = from
	}
	return prices, true
}

func plausible(dollars float64) bool { return dollars >= 0 && dollars <= 1e6 }

// BuiltinPrices are the values of the protocol's own document, for use without a server. They are not
// up to date; see [Client.Prices].
func BuiltinPrices() Prices {
	var t priceTable
	_ = json.Unmarshal(protocolPrices, &t) // a test reads it
	p, _ := t.read(time.Now())
	return p
}

// Prices asks the server what models cost. It makes one attempt.
func (c *Client) Prices(ctx context.Context) (Prices, error) {
	got, err := c.do(ctx, request{method: http.MethodGet, path: "/amp/pricing"})
	if err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	var t priceTable
	if err := json.Unmarshal(got.body, &t); err != nil {
		return nil, fmt.Errorf("prices: the answer is not a price table: %w", err)
	}
	p, ok := t.read(time.Now())
	if !ok {
		return nil, fmt.Errorf("prices: the table is in %.40q, which is not known here", t.Unit)
	}
	return p, nil
}

// priceCache holds the server's prices for ten minutes. mu is held during the call that fetches them, so
// that many runs that end together make one.
type priceCache struct {
	mu     sync.Mutex
	prices Prices
	until  time.Time
}

// currentPrices are the server's prices, or the built-in ones if the server does not answer. A run must be
// reported either way, and the server compares the cost with its own table.
func (c *Client) currentPrices(ctx context.Context) Prices {
	p := &c.prices
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.prices
	}
	got, err := c.Prices(ctx)
	if err != nil {
		return BuiltinPrices()
	}
	p.prices, p.until = got, time.Now().Add(10*time.Minute)
	return got
}
