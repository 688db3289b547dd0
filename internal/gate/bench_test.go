package gate_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

// The budgets are ratios or bounds; each benchmark reports its figure. Run them
// with: scripts/with-postgres go test -run '^$' -bench . -benchtime 1x ./internal/gate

func opening() gate.Opening {
	return gate.Opening{
		Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x", Risk: "medium",
		Origin: gate.Origin{Protocol: "signal", Reference: "run_1"},
		Shown:  gate.Shown{Title: "Send the newsletter", Summary: strings.Repeat("s", 200), ProposedAction: strings.Repeat("p", 100)},
	}
}

func perSecond(b *testing.B, write func(tx *ledger.Tx) error, l *ledger.Ledger) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range 64 {
		wg.Go(func() {
			for time.Since(began) < time.Second {
				if err := l.Write(context.Background(), write); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// BenchmarkOpen compares opening a gate with writing the same bytes to the ledger.
func BenchmarkOpen(b *testing.B) {
	for name, address := range map[string]func(testing.TB) string{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			open := func(tx *ledger.Tx) error { return gate.Open(tx, gate.NewID(), "default", "", opening()) }
			bare := func(tx *ledger.Tx) error {
				o := opening()
				o.Rules = o.Rules.Normal()
				o.Digest = strings.Repeat("0", 64)
				tx.Append(ledger.Event{Workspace: "default", Kind: "bench.bare", Actor: o.Requester, Subject: gate.NewID(), Body: o})
				return nil
			}
			for b.Loop() {
				var ours, theirs float64
				for range 5 {
					ours += perSecond(b, open, n.ledger) / 5
					theirs += perSecond(b, bare, n.ledger) / 5
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(theirs/ours, "times")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkWait measures how long a decision takes to reach its waiter among many.
func BenchmarkWait(b *testing.B) {
	for name, address := range map[string]func(testing.TB) string{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			const waiters, decided = 10_000, 500
			n := start(b, address(b), b.TempDir())
			ada := n.operator("ada", "operator")
			ids := make([]string, waiters)
			err := n.ledger.Write(b.Context(), func(tx *ledger.Tx) error {
				for i := range ids {
					ids[i] = gate.NewID()
					if err := gate.Open(tx, ids[i], "default", "", opening()); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			arrived := make([]atomic.Int64, waiters)
			var wg sync.WaitGroup
			for i, id := range ids {
				wg.Go(func() {
					if g, err := n.gates.Wait(ctx, id); err == nil && g.Status != gate.Pending {
						arrived[i].Store(time.Now().UnixNano())
					}
				})
			}
			time.Sleep(5 * time.Second) // until all of them wait
			for b.Loop() {
				var took []time.Duration
				for i := range decided {
					if _, err := n.gates.Vote(b.Context(), ada, ids[i], approve("")); err != nil {
						b.Fatal(err)
					}
					began := time.Now()
					for arrived[i].Load() == 0 {
						time.Sleep(100 * time.Microsecond)
					}
					took = append(took, max(0, time.Duration(arrived[i].Load()-began.UnixNano())))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[decided*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(took[decided/2].Microseconds())/1000, "p50-ms")
			}
			b.ReportMetric(0, "ns/op")
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkInbox measures the first page of the inbox among a million gates.
func BenchmarkInbox(b *testing.B) {
	for name, address := range map[string]func(testing.TB) string{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			const each, all = 500, 1_000_000
			for range all / each {
				err := n.ledger.Write(b.Context(), func(tx *ledger.Tx) error {
					for i := range each {
						o := opening()
						o.Risk = gate.Risks[i%3]
						if err := gate.Open(tx, gate.NewID(), "default", "", o); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			var slowest time.Duration
			for b.Loop() {
				began := time.Now()
				page, _, err := n.gates.List(b.Context(), gate.Filter{Status: gate.Pending}, nil, 100)
				if err != nil || len(page) != 100 {
					b.Fatal(len(page), err)
				}
				slowest = max(slowest, time.Since(began))
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
		})
	}
}
