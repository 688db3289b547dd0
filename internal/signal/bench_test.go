package signal_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"signalbox/internal/store/storetest"
)

// BenchmarkReceive sends signals that open gates, many at a time. Counting them must not
// make it slower.
func BenchmarkReceive(b *testing.B) {
	for _, database := range []string{"sqlite", "postgres"} {
		for _, counting := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/counting=%v", database, counting), func(b *testing.B) {
				address := storetest.SQLite(b)
				if database == "postgres" {
					if os.Getenv("SIGNALBOX_TEST_POSTGRES") == "" {
						b.Skip("there is no PostgreSQL")
					}
					address = storetest.Postgres(b)
				}
				n := start(b, address)
				if counting {
					defer n.count()()
				}
				var runs atomic.Int64
				b.SetParallelism(64)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						body := encode(payload("run_id", fmt.Sprint("run-", runs.Add(1))))
						if _, err := n.signals.Receive(context.Background(), n.agent, "", body); err != nil {
							b.Error(err)
						}
					}
				})
				b.StopTimer()
			})
		}
	}
}
