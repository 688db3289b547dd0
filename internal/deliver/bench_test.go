package deliver_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const (
	benchTargets = 100
	benchHanging = 10
	benchRounds  = 3
)

// benchDeliveries is 20,000, or what BENCH_DELIVERIES says.
func benchDeliveries() int {
	if n, err := strconv.Atoi(os.Getenv("BENCH_DELIVERIES")); err == nil {
		return n
	}
	return 20_000
}

// BenchmarkDeliver compares how fast 90 targets are served while 10 others hang with
// how fast they are served alone. It reports the round with the middle ratio: the two
// runs of a round follow one another, and see the same machine.
func BenchmarkDeliver(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			type round struct{ with, without float64 }
			var rounds []round
			for b.Loop() {
				for range max(1, benchRounds*20_000/benchDeliveries()) {
					rounds = append(rounds, round{serveTargets(b, address(b), benchHanging), serveTargets(b, address(b), 0)})
				}
			}
			slices.SortFunc(rounds, func(x, y round) int { return cmp.Compare(x.with/x.without, y.with/y.without) })
			middle := rounds[len(rounds)/2]
			b.ReportMetric(middle.with, "ours/s")
			b.ReportMetric(middle.without, "bare/s")
			b.ReportMetric(middle.with/middle.without, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// serveTargets queues for 90 targets that answer and some that hang, and returns how
// many deliveries a second the 90 get.
func serveTargets(b *testing.B, address string, hanging int) float64 {
	b.Helper()
	var served atomic.Int64
	server := testbed.ServeHTTP(b, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if strings.HasPrefix(req.URL.Path, "/hang") {
			<-req.Context().Done()
			return
		}
		served.Add(1)
	}))
	n := open(b, address, &ledgertest.Clock{}, func(o *deliver.Options) {
		*o = deliver.Options{DB: o.DB, Ledger: o.Ledger, Key: o.Key, Now: o.Now, Allow: o.Allow, Grace: time.Millisecond}
	})
	defer func() { n.stop() }()
	each := benchDeliveries() / benchTargets
	for range each {
		var all []deliver.Delivery
		for i := range benchTargets - benchHanging {
			all = append(all, hook(fmt.Sprintf("%s/good/%d", server, i)))
		}
		for i := range hanging {
			all = append(all, hook(fmt.Sprintf("%s/hang/%d", server, i)))
		}
		n.queue(b, all...)
	}
	total := int64(each * (benchTargets - benchHanging))
	begun := time.Now()
	n.core.Run(n.Run)
	for next := int64(1); next < total; next = min(next+1000, total) {
		testbed.Until(b, "the next deliveries", func() bool { return served.Load() >= next })
	}
	testbed.Until(b, "the last outcomes", func() bool {
		var left int
		err := n.db.Read.QueryRow("SELECT count(*) FROM delivery WHERE status = 'pending' AND target < $1",
			server+"/h").Scan(&left)
		return err == nil && left == 0
	})
	rate := float64(total) / time.Since(begun).Seconds()
	b.Logf("%d targets hang: %.0f/s", hanging, rate)
	return rate
}
