package signal

import "testing"

func TestAnOperatorReadsWhatARunCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check CostCheck
		nano  int64
		want  string
	}{
		{CostCheck{Verdict: CostVerified, ExpectedNano: 14_736_000}, 14_736_000, "$0.014736"},
		{
			CostCheck{Verdict: CostUnder, ExpectedNano: 14_736_000},
			7_532_000,
			"$0.007532 (under; $0.014736 by the price table)",
		},
		{CostCheck{Verdict: CostZero, ExpectedNano: 2_000_000_000}, 0, "$0 (zero; $2 by the price table)"},
		{CostCheck{Verdict: CostUnknownModel}, 1, "$0.000000001 (no price known for m)"},
	} {
		if got := c.check.describe(&Signal{Model: "m", CostNano: c.nano}); got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}
