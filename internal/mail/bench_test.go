package mail_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// BenchmarkRoute routes signed messages among 40 agents from 16 callers, each verified,
// decided upon and durable.
func BenchmarkRoute(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			n := mailtest.Start(b, address(b), func(o *mail.Options) { o.QueueCap = 1 << 40 })
			var agents []*mailtest.Agent
			var whos []roster.Identity
			var bodies [][]byte
			for i := range 40 {
				agents = append(agents, n.Register(fmt.Sprintf("agent-%d", i), "acme"))
				whos = append(whos, agents[i].Who())
			}
			for i, a := range agents {
				bodies = append(bodies,
					a.Letter(agents[(i+1)%40].Address, "Task request",
						"Please process the following task, and tell me when it is done.", ""))
			}
			var next atomic.Int64
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := next.Add(1) % 40
					if _, err := n.Mail.Route(context.Background(), whos[i], bodies[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
