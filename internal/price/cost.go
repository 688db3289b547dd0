package price

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Cost is what a call cost, and how its price was found. Its JSON is stored.
type Cost struct {
	Nanos int64  `json:"cost_nano,omitzero"` // billionths of a dollar, which add up without error
	Match Match  `json:"price_match,omitzero"`
	As    string `json:"priced_as,omitzero"` // the model of the row, if that is another name
}

// Unpriced reports whether the price is not known, so that the cost is that of the row for any model.
func (c Cost) Unpriced() bool { return c.Match == Unpriced }

// Cost is what a call cost that was made at a moment.
func (t *Table) Cost(provider, model string, at time.Time, u Usage) Cost {
	u = u.Bounded()
	p, match := t.Find(provider, model, at, u.InputTokens())
	c := Cost{Nanos: p.nanos(u), Match: match}
	if !strings.EqualFold(p.Model, model) {
		c.As = p.Model
	}
	return c
}

// nanos is what usage costs. Kinds that have no price of their own cost what providers commonly take for them: tokens
// read from a cache what others do, written to one a quarter more, or twice as much for an hour, and audio and pictures
// the same as text. That is too much rather than too little.
func (p *Price) nanos(u Usage) int64 {
	or := func(own *float64, otherwise float64) float64 {
		if own != nil {
			return *own
		}
		return otherwise
	}
	// Dollars for a million tokens are millionths of a dollar for one.
	micros := float64(u.Input)*p.Input + float64(u.Output)*p.Output +
		float64(u.CacheRead)*or(p.CacheRead, p.Input) +
		float64(u.CacheWrite)*or(p.CacheWrite, p.Input*1.25) +
		float64(u.CacheWrite1h)*or(p.CacheWrite1h, p.Input*2) +
		float64(u.AudioInput)*or(p.AudioInput, p.Input) + float64(u.AudioOutput)*or(p.AudioOutput, p.Output) +
		float64(u.ImageInput)*or(p.ImageInput, p.Input) + float64(u.ImageOutput)*or(p.ImageOutput, p.Output)
	nanos := math.Round(micros * p.factor(u.Tier) * 1000)
	if nanos >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(nanos)
}

// dearTier is the factor of a tier that is not in the table. The dear tiers of today cost about twice as much.
const dearTier = 2

// factor is what a tier of service multiplies the price by. A discount that is not in the table is not given.
func (p *Price) factor(tier string) float64 {
	switch {
	case tier == "":
		return 1
	case tier == TierBatch && p.Batch != nil:
		return *p.Batch
	case tier == TierFlex && p.Flex != nil:
		return *p.Flex
	case tier == TierBatch || tier == TierFlex:
		return 1
	case p.Priority != nil:
		return *p.Priority
	}
	return dearTier
}

// Dollars formats billionths of a dollar exactly, without zeros at the end.
func Dollars(nanos int64) string {
	text := strconv.FormatInt(nanos/1e9, 10) + "." + strconv.FormatInt(1e9+nanos%1e9, 10)[1:]
	return "$" + strings.TrimRight(strings.TrimRight(text, "0"), ".")
}
