package conform_test

import (
	"testing"

	"signalbox/internal/conform"
	"signalbox/internal/store/storetest"
)

// TestOurProviderPassesEveryMailCase runs them all on every database.
func TestOurProviderPassesEveryMailCase(t *testing.T) {
	t.Parallel()
	suite, err := conform.MailCases()
	if err != nil {
		t.Fatal(err)
	}
	if len(suite.Cases) < 150 {
		t.Errorf("there are %d cases", len(suite.Cases))
	}
	storetest.Each(t, func(t *testing.T, address string) {
		signals, _ := start(t, map[string]string{"db": address})
		kit := &conform.MailKit{URL: signals.URL, Token: signals.Token, Loopback: true}
		report, err := kit.Run(t.Context(), suite)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Cases {
			if c.Outcome != "passed" {
				t.Errorf("%s: %s: %s", c.Outcome, c.Name, c.Problem)
			}
		}
	})
}
