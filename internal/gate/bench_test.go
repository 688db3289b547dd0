package gate_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// The budgets are ratios or bounds; each benchmark reports its figure. Run them
// with: scripts/with-postgres go test -run '^$' -bench . -benchtime 1x ./internal/gate

// The two that are compared take turns that are short, since a machine with other
// work on it changes its speed within a second.
const (
	turns = 100
	turn  = 50 * time.Millisecond
)

func opening() gate.Opening {
	return gate.Opening{
		Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x", Risk: "medium",
		Origin: gate.Origin{Protocol: "signal", Reference: "run_1"},
		Shown: gate.Shown{
			Title: "Send the newsletter", Summary: strings.Repeat("s", 200),
			ProposedAction: strings.Repeat("p", 100),
		},
	}
}

// BenchmarkOpen compares opening a gate with writing the same bytes to the ledger.
func BenchmarkOpen(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			sample := opening()
			open := func() error {
				p, err := gate.Prepare(sample)
				if err != nil {
					return err
				}
				return n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
					p.Open(tx, gate.NewID(), "default", "")
					return nil
				})
			}
			if err := open(); err != nil {
				b.Fatal(err)
			}
			entries, err := n.Ledger.Entries(b.Context(), ledger.Query{Kinds: []string{"gate.opened"}})
			if err != nil {
				b.Fatal(err)
			}
			bare := func() error {
				return n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
					tx.Append(ledger.Event{
						Workspace: "default", Kind: "bench.bare", Actor: "agent:x", Subject: gate.NewID(),
						Body: entries[0].Body,
					})
					return nil
				})
			}
			for _, callers := range []int{1, 64} {
				b.Run(strconv.Itoa(callers), func(b *testing.B) {
					for b.Loop() {
						var ours, theirs float64
						for range turns {
							ours += testbed.PerSecond(b, callers, turn, open) / turns
							theirs += testbed.PerSecond(b, callers, turn, bare) / turns
						}
						b.ReportMetric(ours, "ours/s")
						b.ReportMetric(theirs, "bare/s")
						b.ReportMetric(theirs/ours, "times")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// BenchmarkWait measures how long a decision takes to reach its waiter among many.
func BenchmarkWait(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			const waiters, decided = 10_000, 500
			n := start(b, address(b), b.TempDir())
			ada := n.operator("ada", "operator")
			ids := make([]string, waiters)
			for i := range ids {
				ids[i] = n.openAs("default", opening())
			}
			ctx, cancel := context.WithCancel(context.Background())
			arrived := make([]chan time.Time, waiters)
			var wg sync.WaitGroup
			for i, id := range ids {
				arrived[i] = make(chan time.Time, 1)
				wg.Go(func() {
					if g, err := n.gates.Wait(ctx, id); err == nil && g.Status != gate.Pending {
						arrived[i] <- time.Now()
					}
				})
			}
			testbed.Until(b, "all of them to wait", func() bool { return n.gates.Waiters() == waiters })
			for b.Loop() {
				var took []time.Duration
				for i := range decided {
					if _, err := n.gates.Vote(b.Context(), ada, ids[i], approve("")); err != nil {
						b.Fatal(err)
					}
					began := time.Now()
					took = append(took, max(0, testbed.Receive(b, "the waiter", arrived[i]).Sub(began)))
				}
				testbed.ReportLatency(b, took)
			}
			b.ReportMetric(0, "ns/op")
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkInbox measures the first page of the inbox among a million gates, and of
// what a filter leaves of it: the gates that it selects come last of all.
func BenchmarkInbox(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			const each, all = 500, 1_000_000
			rare := opening()
			rare.Project, rare.Agent, rare.Risk = "rare", "agent_rare", "low"
			openMany(b, n, "rare", each, func(int) gate.Opening { return rare })
			for range all / each {
				openMany(b, n, "default", each, func(i int) gate.Opening {
					o := opening()
					o.Risk = gate.Risks[i%3]
					return o
				})
			}
			for _, c := range []struct {
				name   string
				filter gate.Filter
			}{
				{"all", gate.Filter{}},
				{"workspace", gate.Filter{Workspace: "rare"}},
				{"workspace-project", gate.Filter{Workspace: "rare", Project: "rare"}},
				{"workspace-agent", gate.Filter{Workspace: "rare", Agents: []string{"agent_rare"}}},
				{"project", gate.Filter{Project: "rare"}},
				{"agent", gate.Filter{Agents: []string{"agent_rare"}}},
			} {
				c.filter.Status = gate.Pending
				b.Run(c.name, func(b *testing.B) { firstPage(b, n, c.filter) })
			}
		})
	}
}

func openMany(b *testing.B, n *node, workspace string, count int, opening func(i int) gate.Opening) {
	b.Helper()
	err := n.Ledger.Write(b.Context(), func(tx *ledger.Tx) error {
		for i := range count {
			p, err := gate.Prepare(opening(i))
			if err != nil {
				return err
			}
			p.Open(tx, gate.NewID(), workspace, "")
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func firstPage(b *testing.B, n *node, f gate.Filter) {
	b.Helper()
	var slowest time.Duration
	for b.Loop() {
		began := time.Now()
		page, _, err := n.gates.List(b.Context(), f, nil, 100)
		if err != nil || len(page) != 100 {
			b.Fatal(len(page), err)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}
