package rulebook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/store/storetest"
)

// BenchmarkReplay measures how many decisions a second are read from the ledger and
// decided again, with ten rules that all are tried, and with rules that count.
// Run it with: scripts/with-postgres go test -run '^$' -bench . -benchtime 1x ./internal/rulebook
func BenchmarkReplay(b *testing.B) {
	var rules strings.Builder
	for i := range 10 {
		fmt.Fprintf(&rules, "  - {name: r%d, on: [action], when: 'event.tool == \"t%d\" && "+
			"event.arguments.path.startsWith(\"/etc\") || event.cost_usd > 1000', then: block}\n", i, i)
	}
	policies := map[string]string{
		"plain": "version: 1\nrules:\n" + rules.String(),
		"counting": "version: 1\nrules:\n" + rules.String() +
			"  - {name: many, on: [action], when: 'recent.actions(\"1h\") > 1000000 || " +
			"recent.cost(\"24h\") > 1e9', then: block}\n",
	}
	for database, address := range storetest.Databases {
		b.Run(database, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			n.apply("  []\n")
			const decisions = 200_000
			for range decisions / 1000 {
				err := n.Ledger.Write(b.Context(), func(tx *ledger.Tx) error {
					for i := range 1000 {
						who := agent(fmt.Sprint(i % 50))
						d := n.book.Decide(b.Context(), who, policy.Event{
							Point: policy.OnAction, Protocol: "ahp", Tool: "bash",
							Command:   "go test ./internal/policy -run TestSomething -count=1",
							Arguments: map[string]any{"command": "go test ./...", "path": "/srv/app", "amount": 12.5}, Session: "s-1",
							Depth: 1, Tokens: 1200, Project: "website",
						})
						tx.Append(d.Entry(who, "s-1", ""))
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			for name, source := range policies {
				b.Run(name, func(b *testing.B) {
					p, err := policy.Parse([]byte(source))
					if err != nil {
						b.Fatal(err)
					}
					for b.Loop() {
						began := time.Now()
						report, err := n.book.Replay(b.Context(), p, time.Time{}, func(int64, int64) {})
						if err != nil || report.Decisions != decisions || report.Changed != 0 {
							b.Fatalf("%+v %v", report, err)
						}
						b.ReportMetric(decisions/time.Since(began).Seconds(), "decisions/s")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}
