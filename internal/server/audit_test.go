package server_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	self "signalbox/internal/audit"
	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// fastAudit is an audit that does not keep anybody waiting.
var fastAudit = map[string]string{"audit.percent": "100", "audit.fast": "1s", "audit.whole": "1s"}

// withFastAudit is these settings and those of fastAudit.
func withFastAudit(more map[string]string) map[string]string {
	all := maps.Clone(fastAudit)
	maps.Copy(all, more)
	return all
}

// audited is what the server says of its audit.
func (b *box) audited() self.Status {
	b.t.Helper()
	var s server.Status
	b.ops(200, "GET /ops/status", "", &s)
	return s.Audit
}

// awaitAudit waits until both rounds have begun and ended from now on.
func (b *box) awaitAudit() (s self.Status) {
	b.t.Helper()
	for range 2 {
		before := b.audited()
		testbed.Until(b.t, "both rounds have ended", func() bool {
			s = b.audited()
			ended := func(before, now *self.Pass) bool { return now != nil && (before == nil || now.At.After(before.At)) }
			return s.Problem != "" || ended(before.Last, s.Last) && ended(before.Fast, s.Fast)
		})
	}
	return s
}

// A key that somebody puts into the database is found without anybody asking, and stops everything: pages, programs
// and channels say so.
func TestTheServerFindsWhatIsPutIntoItsDatabase(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		hook, took := delivertest.Listen(t, "{}")
		b := start(t, address, withFastAudit(map[string]string{"notify.webhook": hook}))
		_, key := b.addAgent("worker")
		b.want(200, request{
			call: "PUT /ops/policy", media: "application/yaml", token: b.token(),
			body: "version: 1\nrules:\n  - {name: one, on: [signal], then: gate, gate: {expires: 9h}}\n",
		})
		b.ask(key, "worker", "r-1", "send it")
		if s := b.awaitAudit(); len(s.Findings) > 0 || s.Problem != "" || s.Last.Tables < 60 || s.Last.Rows == 0 {
			t.Fatalf("nothing was changed: %+v", s)
		}
		vera := b.operator("vera", "viewer")
		f := b.forger()
		f.key("operator_x", "operator")
		testbed.Until(t, "/readyz says so", func() bool {
			status, answer, _ := b.do(request{call: "GET /readyz"})
			return status == http.StatusServiceUnavailable && strings.Contains(answer, `"power: `)
		})
		found := b.audited().Findings
		if !slices.ContainsFunc(found, func(f self.Finding) bool {
			return f.Kind == self.Power && f.Where == "access_key" && f.Stops && strings.Contains(f.Details[0], "added by hand")
		}) {
			t.Errorf("%+v", found)
		}
		testbed.Until(t, "the channel is told", func() bool {
			return strings.Contains(testbed.Receive(t, "a call", took).Body, "audit_power")
		})
		_, metrics, _ := b.do(request{call: "GET /metrics", token: vera})
		if !strings.Contains(metrics, `signalbox_audit_findings_total{kind="power"} 1`) {
			t.Error("the metrics do not say so")
		}
		status, answer, _ := b.do(request{call: "POST /ops/workspaces", token: b.token(), body: `{"name":"w"}`})
		if status != http.StatusServiceUnavailable {
			t.Errorf("writes go on: %d %s", status, answer)
		}
	})
}

// A timer that is gone is an alarm, and the server goes on.
func TestTheServerReportsWhatTakesNoPower(t *testing.T) {
	address := storetest.Postgres(t) // on SQLite any program that writes to the database is met by kin
	b := start(t, address, fastAudit)
	b.awaitAudit()
	b.forger().forge("INSERT INTO timer (kind, subject, workspace, due_at) VALUES " +
		"('gate.expiry', 'gate_x', '', 9999999999999999)")
	testbed.Until(t, "/readyz lists it", func() bool {
		status, answer, _ := b.do(request{call: "GET /readyz"})
		return status == http.StatusOK && strings.Contains(answer, `"state: 1"`)
	})
	b.ops(201, "POST /ops/workspaces", `{"name":"w"}`, nil)
	var s server.Status
	testbed.Until(t, "there is an alarm", func() bool {
		b.ops(200, "GET /ops/status", "", &s)
		return len(s.Alarms) > 0 && strings.Contains(s.Alarms[0].Title, "timer")
	})
}

// What version 0.1 has left behind is as it should be, after it was brought up to date.
func TestWhatVersion01LeftIsNotFoundToBeWrong(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		old := openVersion01(t, address)
		b := start(t, old.address, withFastAudit(map[string]string{"data": old.data()}))
		if s := b.awaitAudit(); len(s.Findings) > 0 || s.Problem != "" || s.FoundTotal > 0 || s.Last.Rows < 50 {
			t.Errorf("%+v", s)
		}
	})
}
