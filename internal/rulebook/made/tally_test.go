package made_test

import (
	"fmt"
	"testing"

	"signalbox/internal/rulebook/made"
	"signalbox/internal/testbed"
)

func TestEveryDecisionCountsOnceHoweverManyNamesThereAre(t *testing.T) {
	var all made.Tally
	const names, each = 5000, 3
	testbed.AtOnce(each, func(int) {
		for i := range names {
			all.Count(made.Kind{Workspace: "w", Protocol: "amp", Verdict: "block", Rule: fmt.Sprint("rule-", i)})
		}
	})
	kinds, sum, other := 0, int64(0), int64(0)
	all.Each(func(k made.Kind, n int64) {
		kinds++
		sum += n
		if k.Rule == made.Other {
			other += n
		}
	})
	if sum != names*each || kinds > 1001 || other < (names-1000)*each {
		t.Errorf("%d decisions of %d kinds, %d of others", sum, kinds, other)
	}
}
