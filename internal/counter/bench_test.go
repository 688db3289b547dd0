package counter_test

import (
	"fmt"
	"testing"
	"time"

	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const (
	benchAgents = 1000
	benchModels = 10
	benchDays   = 30
)

// toyCalls are calls of every agent with every model at a moment, with a deck for every hundred agents.
func toyCalls(at time.Time, agents, models int) (all []ledger.Entry) {
	for a := range agents {
		for m := range models {
			all = append(all, ledger.Entry{
				At: at, Workspace: "default", Kind: "toy.called", Body: fmt.Appendf(nil,
					`{"Agent":"agent_%026d","Project":"deck-%d","Model":"model-%d","Cost":%d,"Tokens":%d,"Gates":1}`, a, a/100, m,
					1000*a+m, 100+a),
			})
		}
	}
	return all
}

// BenchmarkReport asks for 30 days of 1,000 agents that use 10 models each, every day. cpu-ms/op is what that takes on
// a machine that has nothing else to do. 15 of the 21 numbers are counted.
func BenchmarkReport(b *testing.B) {
	for name, open := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			n := start(b, open(b), 0)
			today := time.Now().UTC()
			for day := range benchDays {
				if err := n.Count(b.Context(), toyCalls(today.AddDate(0, 0, -day), benchAgents, benchModels)); err != nil {
					b.Fatal(err)
				}
			}
			from := today.AddDate(0, 0, 1-benchDays).Format(time.DateOnly)
			for _, q := range []struct {
				name string
				counter.Question
			}{
				{"all", counter.Question{From: from}},
				{"by-model", counter.Question{From: from, By: counter.ByModel}},
				{"deck", counter.Question{From: from, Project: "deck-3"}},
				{"by-day", counter.Question{From: from, By: counter.ByDay}},
				{"one-day", counter.Question{From: today.Format(time.DateOnly)}},
			} {
				b.Run(q.name, func(b *testing.B) {
					began := testbed.ProcessorTime()
					for b.Loop() {
						r, err := n.Ask(b.Context(), q.Question)
						if err != nil || r.Total.Calls == 0 {
							b.Fatalf("%+v %v", r.Total, err)
						}
					}
					b.ReportMetric(float64((testbed.ProcessorTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				})
			}
		})
	}
}

// BenchmarkCount counts pages of entries: of 20 agents and 25 models, as many as a page has.
func BenchmarkCount(b *testing.B) {
	for name, open := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			n := start(b, open(b), 0)
			page := toyCalls(time.Now(), 20, 25)
			began := testbed.ProcessorTime()
			for b.Loop() {
				if err := n.Count(b.Context(), page); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((testbed.ProcessorTime()-began).Microseconds())/float64(b.N*len(page)), "cpu-µs/entry")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(page)), "µs/entry")
		})
	}
}
