package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/drift"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/rekey"
	"signalbox/internal/server"
	"signalbox/internal/testbed"
)

// plain reads an answer that is text.
func (b *box) plain(path string) string {
	b.t.Helper()
	status, answer, _ := b.do(request{
		call: "GET " + path, token: b.token(), header: map[string]string{"Accept": "text/plain"},
	})
	if status != http.StatusOK {
		b.t.Fatalf("%s: %d %s", path, status, answer)
	}
	return answer
}

func TestAServerWhoseClockWasAheadGoesOnInRealTimeAndSaysSo(t *testing.T) {
	eachBoxWith(t, map[string]string{"clock.movable": "true"}, func(t *testing.T, b *box) {
		later := time.Now().UTC().Add(26 * time.Hour).Format(time.RFC3339)
		b.ops(200, "PUT /ops/clock", fmt.Sprintf(`{"now":%q}`, later), nil)
		b.agentKey("early", "default")
		b.Stop()
		again := &box{Box: b.Again(), t: t} // whose clock nobody has moved
		again.agentKey("late", "default")
		var page ledger.EntryPage
		again.ops(200, "GET /ops/ledger?newest=1&limit=1", "", &page)
		if at := page.Entries[0].At; at.After(time.Now()) {
			t.Errorf("the newest entry is of %s", at)
		}
		var status server.Status
		again.ops(200, "GET /ops/status", "", &status)
		told := false
		for _, a := range status.Alarms {
			told = told || a.Kind == drift.Ahead
		}
		if !told {
			t.Errorf("nobody is told: %+v", status.Alarms)
		}
		var times drift.Audit
		key := string(testbed.Read(t, filepath.Join(b.Config.Data, ledger.PublicKeyFile)))
		if _, err := ledger.VerifyExport(strings.NewReader(again.plain("/ops/ledger/export")), key, nil,
			ledger.Watch{Entry: times.Entry}); err != nil || times.Healed != 1 {
			t.Errorf("time was healed %d times, %v", times.Healed, err)
		}
	})
}

func TestAnOperatorReplacesTheLedgersKey(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		old := b.plain("/ledger/key")
		var s rekey.Succession
		b.ops(200, "POST /ops/ledger/rotate", "", &s)
		if s.Old != strings.TrimSpace(old) || s.New != strings.TrimSpace(b.plain("/ledger/key")) {
			t.Errorf("%+v", s)
		}
		got, err := ledger.VerifyExport(strings.NewReader(b.plain("/ops/ledger/export")), old, nil, ledger.Watch{})
		if err != nil || got.Keys[len(got.Keys)-1].Text != s.New {
			t.Errorf("%+v, %v", got, err)
		}
		proof := []byte(b.plain(fmt.Sprintf("/ops/ledger/%d/proof?body=true", s.From)))
		e, _, err := ledger.VerifyProof(proof, s.New)
		if err != nil || e.Kind != ledger.Rotated || e.Actor != "operator:admin" || e.Body == nil {
			t.Errorf("%+v, %v", e, err)
		}
		if _, _, err := ledger.VerifyProof(proof, old); !fault.Is(err, fault.VerificationFailed) {
			t.Errorf("with the old key: %v", err)
		}
		b.Stop()
		again := &box{Box: b.Again(), t: t}
		if now := strings.TrimSpace(again.plain("/ledger/key")); now != s.New {
			t.Errorf("after a restart the key is %s", now)
		}
	})
}
