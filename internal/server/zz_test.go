package server_test

import (
	"os"
	"syscall"
	"testing"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
}

func BenchmarkZZ(b *testing.B) {
	s := startBench(b, benchDatabases["sqlite"](b))
	m := newMailers(b, s, 40, "acme")
	least, route := testbed.ServeHTTP(b, m.leastMail(b, storetest.SQLite(b))), s.url+"/v1/route"
	for b.Loop() {
		var o, l, co, cl float64
		const turns, each = 6, 2500
		for range turns {
			letters := m.letters(b, each)
			if os.Getenv("ONLY") != "least" {
				c := cpu()
				o += perSecond(b, route, letters) / turns
				co += (cpu() - c) / turns / each
			}
			if os.Getenv("ONLY") != "ours" {
				c := cpu()
				l += perSecond(b, least, letters) / turns
				cl += (cpu() - c) / turns / each
			}
		}
		b.ReportMetric(o, "ours/s")
		b.ReportMetric(l, "least/s")
		b.ReportMetric(co, "ours-cpu-us")
		b.ReportMetric(cl, "least-cpu-us")
		if l > 0 {
			b.ReportMetric(o/l, "of-least")
			b.ReportMetric(cl/co, "cpu-of-least")
		}
	}
}
