package server_test

import (
	"strings"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/testbed"
)

// TestTwoServersWitnessEachOther: each cosigns what the other signs, all of it, and neither writes an entry for that, so
// that they come to rest.
func TestTwoServersWitnessEachOther(t *testing.T) {
	one, two := start(t, "", nil), start(t, "", nil)
	line := func(b *box, path string) string { return strings.TrimSpace(b.plain(path)) }
	ledgers := []string{line(one, "/ledger/key"), line(two, "/ledger/key")}
	witnesses := []string{line(one, "/ledger/witness/key"), line(two, "/ledger/witness/key")}
	both := []*box{one, two}
	for i, b := range both {
		b.Stop()
		other := both[1-i]
		both[i] = &box{t: t, Box: servertest.Start(t, map[string]string{
			"data": b.Config.Data, "listen": strings.Replace(strings.TrimPrefix(b.URL, "http://"), "localhost", "127.0.0.1", 1),
			"witness.ask": witnesses[1-i] + "@" + other.URL + "/ledger/witness", "witness.quorum": "1", "witness.every": "1s",
			"witness.logs": ledgers[1-i],
		})}
	}
	for i, b := range both {
		b.agentKey("tailor", "default")
		var status server.Status
		testbed.Until(t, "all of it to be witnessed", func() bool {
			b.ops(200, "GET /ops/status", "", &status)
			return status.Witnessed > 0 && status.Witnessed == status.Entries
		})
		if len(status.Witnesses) != 1 || status.Witnesses[0].Size != status.Entries || len(status.Alarms) > 0 {
			t.Errorf("%+v, %+v", status.Witnesses, status.Alarms)
		}
		got, err := ledger.VerifyExport(strings.NewReader(b.plain("/ops/ledger/export?witnessed=true")), ledgers[i], nil,
			ledger.Watch{})
		if err != nil || got.Entries != status.Entries {
			t.Fatalf("%+v, %v", got, err)
		}
		w, err := notes.ParseWitness(witnesses[1-i])
		if err != nil {
			t.Fatal(err)
		}
		if cosigned, at := w.Find(got.Note); cosigned == "" || at.IsZero() ||
			!strings.Contains(b.plain("/ledger/checkpoint?witnessed=true"), cosigned) {
			t.Errorf("nobody has cosigned\n%s", got.Note)
		}
	}
}
