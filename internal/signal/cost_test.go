package signal_test

import (
	"testing"

	"signalbox/internal/roster"
	"signalbox/internal/signal"
	"signalbox/internal/store/storetest"
)

func TestTokensOfACacheHaveTheirOwnPrice(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	if _, err := n.signals.SetPrices(t.Context(), roster.Identity{Role: roster.Admin},
		[]signal.Price{{Model: "m", Input: 10, Output: 50}}); err != nil {
		t.Fatal(err)
	}
	// A million of each: 10 + 50 + 1 + 12.50 dollars.
	if got, known := n.signals.Cost("m", 1e6, 1e6, 1e6, 1e6); !known || got != 73_500_000_000 {
		t.Errorf("%d, %v", got, known)
	}
	if got, known := n.signals.Cost("unknown", 1e6, 0, 0, 0); known || got != 0 {
		t.Errorf("%d, %v", got, known)
	}
}
