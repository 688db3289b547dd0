package signal

import (
	"cmp"

	"signalbox/internal/price"
)

// CostCheck is the cost that an agent reported beside what the price table gives. It is recorded
// with the signal, shown on the gate and counted, and never a reason to reject (SIG-36).
type CostCheck struct {
	Verdict      string `json:"verdict"` // verified, under, over, unknown_model or zero
	ExpectedNano int64  `json:"expected_nano,omitzero"`
	Prices       int64  `json:"prices"` // the version of the table
	// Beside says that the model proxy has counted what the run took, so that what the signal says of it is shown beside
	// that and not added.
	Beside bool `json:"beside,omitzero"`
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

// checkCost compares the reported cost of a signal with the prices of the moment when the run ended. A price that is only
// that of a model with a similar name verifies nothing.
func checkCost(t *price.Table, s *Signal) CostCheck {
	c := CostCheck{Prices: t.Version}
	cost := t.Cost("", s.Model, cmp.Or(s.CompletedAt, s.StartedAt), price.Usage{Input: s.InputTokens, Output: s.OutputTokens})
	if cost.Match != price.Exact && cost.Match != price.Alias {
		c.Verdict = CostUnknownModel
		return c
	}
	c.ExpectedNano = cost.Nanos
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
	said := price.Dollars(s.CostNano)
	if c.Beside {
		said += ", as the agent says; the model proxy has counted this run"
	}
	switch c.Verdict {
	case CostUnknownModel:
		return said + " (no price known for " + s.Model + ")"
	case CostVerified:
		return said
	}
	return said + " (" + c.Verdict + "; " + price.Dollars(c.ExpectedNano) + " by the price table)"
}
