package audit_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"signalbox/internal/audit"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// BenchmarkAudit audits ledgers of which every tenth entry opens a gate, without a rest, and says what that takes of a
// processor: for each entry, how many minutes a million of them take at 2 % of one processor, and how many seconds the
// fast round. really is how much the process has taken for each second that the audit counts.
func BenchmarkAudit(b *testing.B) {
	for _, entries := range []int{20_000, 1_000_000} {
		for name, address := range storetest.Databases {
			b.Run(fmt.Sprintf("%s/%d", name, entries), func(b *testing.B) {
				dir := b.TempDir()
				at := address(b)
				// The first site only fills: its audit begins when everything is over.
				s := open(b, at, dir, options{audit: func(o *audit.Options) {
					o.Fast, o.Folder = 1000*time.Hour, filepath.Join(dir, "none")
				}})
				s.fill()
				opening, err := gate.Prepare(gate.Opening{
					Agent: "agent_x", AgentName: "x", Origin: gate.Origin{Protocol: "signal"}, Risk: "low",
					Shown: gate.Shown{Title: "T", Summary: "S"},
				})
				s.Must(err)
				for s.Head() < int64(entries) {
					s.note(450)
					s.Must(s.Ledger.Write(b.Context(), func(tx *ledger.Tx) error {
						for range 50 {
							opening.Open(tx, gate.NewID(), "default", "trace-1")
						}
						return nil
					}))
				}
				s.Stop()
				b.ResetTimer()
				for range b.N {
					began := testbed.ProcessorTime()
					s = open(b, at, dir, options{audit: func(o *audit.Options) { o.Fast = 8 * time.Second }})
					for s.audit.Status().Last == nil {
						ledger.Pause(b.Context(), nil, 100*time.Millisecond)
					}
					status := s.audit.Status()
					s.Stop()
					// What others do for the audit, such as collecting garbage, beside what it counts.
					really := (testbed.ProcessorTime() - began).Seconds() / status.Processor
					each := really * status.Last.Processor / float64(status.Last.Entries)
					b.ReportMetric(each*1e6, "µs/entry")
					b.ReportMetric(each*1e6/0.02/60, "minutes/million")
					b.ReportMetric(really*status.Fast.Processor/0.02, "seconds/fast")
					b.ReportMetric(really, "really")
				}
			})
		}
	}
}
