package task_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// many is how many tasks with a deadline there are.
const many = 100_000

// fill dispatches tasks whose deadlines are far away.
func (n *node) fill(count int) {
	n.T.Helper()
	ids := make(chan string)
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for id := range ids {
				if _, wrong, err := n.tasks.Take(context.Background(), n.parties[amp.Coordinator], amp.InMessage,
					with(dispatch(id, 1), "ack_timeout_sec", 600_000)); err != nil || wrong != nil {
					n.T.Errorf("%+v %v", wrong, err)
				}
			}
		})
	}
	for i := range count {
		ids <- fmt.Sprintf("T-2025-%06d", i)
	}
	close(ids)
	wg.Wait()
}

func each(b *testing.B, fn func(b *testing.B, n *node)) {
	b.Helper()
	b.Run("sqlite", func(b *testing.B) { fn(b, start(b, b.TempDir()+"/db")) })
	b.Run("postgres", func(b *testing.B) { fn(b, start(b, storetest.Postgres(b))) })
}

// BenchmarkBoard and the deadlines stand on the same 100,000 tasks.
func BenchmarkBoard(b *testing.B) {
	each(b, func(b *testing.B, n *node) {
		n.fill(many)
		slowest := time.Duration(0)
		for b.Loop() {
			for _, status := range []string{"", "dispatched", "suspended"} {
				began := time.Now()
				if _, err := n.tasks.Board(b.Context(), "default", task.Filter{Status: status}, math.MaxInt64, "", 50); err != nil {
					b.Fatal(err)
				}
				slowest = max(slowest, time.Since(began))
			}
		}
		b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
		b.StopTimer()
		latest := time.Duration(0)
		for i := range 20 {
			id := fmt.Sprintf("T-2026-%03d", i+100)
			n.want("dispatched", amp.InMessage, with(dispatch(id, 1), "ack_timeout_sec", 1))
		}
		testbed.Until(b, "the deadlines", func() bool {
			late, err := n.Ledger.Entries(context.Background(), ledger.Query{Kinds: []string{"task.noted"}, Limit: 1000})
			return err == nil && len(late) == 20
		})
		late, err := n.Ledger.Entries(context.Background(), ledger.Query{Kinds: []string{"task.noted"}, Limit: 1000})
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range late {
			first, err := n.Ledger.Entries(context.Background(),
				ledger.Query{Kinds: []string{"task.dispatched"}, Subject: e.Subject})
			if err != nil || len(first) != 1 {
				b.Fatal(err)
			}
			latest = max(latest, e.At.Sub(first[0].At)-time.Second)
		}
		b.ReportMetric(float64(latest.Microseconds())/1000, "late-ms")
	})
}
