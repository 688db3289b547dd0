package counter

import (
	"fmt"
	"testing"
)

// TestTheSpendersAreFoundAmongAll has more agents than a report lists.
func TestTheSpendersAreFoundAmongAll(t *testing.T) {
	var all []AgentSum
	for i := range 3000 {
		all = append(all, AgentSum{Name: fmt.Sprintf("agent-%04d", i), Counts: Sum{CostUSD: float64(i % 2 * i)}})
	}
	got := spenders(all)
	if len(got) != maxSpenders || got[0].Name != "agent-2999" || got[5].Name != "agent-2989" ||
		all[0].Name != "agent-0000" {
		t.Errorf("%+v", got)
	}
	if got := spenders(all[:1]); len(got) != 0 {
		t.Errorf("who spends nothing is a spender: %+v", got)
	}
}
