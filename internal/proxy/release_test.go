package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// tamper changes the reply that waits, as somebody can who has the database. With its hash
// the entry is right by itself.
func (n *node) tamper(withHash bool) {
	n.T.Helper()
	ledgertest.Tamper(n.T, n.DB, n.Newest("proxy.kept").Seq, func(record, salt, body []byte) ([]byte, []byte) {
		var kept struct {
			Status   int                 `json:"status"`
			Header   map[string][]string `json:"header"`
			Body     []byte              `json:"body"`
			Withheld int                 `json:"withheld"`
		}
		if err := json.Unmarshal(body, &kept); err != nil || !strings.Contains(string(kept.Body), `"bash"`) {
			n.T.Fatalf("there is no call in %s: %v", kept.Body, err)
		}
		kept.Body = []byte(strings.Replace(string(kept.Body), `"bash"`, `"dash"`, 1))
		changed, err := json.Marshal(kept)
		if err != nil {
			n.T.Fatal(err)
		}
		if withHash {
			old, now := sum(string(salt)+string(body)), sum(string(salt)+string(changed))
			if !strings.Contains(string(record), old) {
				n.T.Fatalf("%s does not have the hash %s", record, old)
			}
			record = []byte(strings.Replace(string(record), old, now, 1))
		}
		return record, changed
	})
}

// What is released are the bytes that were shown to whoever approved. If they are not what
// they were, nothing is released, and nothing says that it was.
func TestBytesThatWereChangedAfterTheGateWasOpenedAreNeverReleased(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.apply(gateBash)
		for _, withHash := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				name := fmt.Sprintf("hash %t, stream %t", withHash, stream)
				n.provider.json(formCases[0].reply)
				if stream {
					n.provider.events(messageStream("bash", `{"command":"rm -r"}`)...)
				}
				ask := strings.Replace(fmt.Sprintf(messageAsk, stream), "Clean up", name, 1)
				waiting := n.begin("POST", messagesPath, ask)
				g := n.gate()
				n.tamper(withHash)
				n.decide(g.ID, true, "")
				again := n.call("POST", messagesPath, ask)
				for _, got := range []answer{<-waiting, again} {
					if strings.Contains(got.body, `"bash"`) || strings.Contains(got.body, `"dash"`) ||
						strings.Contains(got.body, "partial_json") || got.err == nil && !strings.Contains(got.body, "error") {
						t.Errorf("%s: %+v", name, got)
					}
				}
			}
		}
		if released := n.Entries("proxy.released"); len(released) != 0 {
			t.Errorf("%d releases are on record", len(released))
		}
	})
}

// The agent of a call that was answered with 202 hears of the decision from us, and can tell.
func TestAReceiverHearsOfTheDecisionAndCanTellWhoSpeaks(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		receiver, heard := delivertest.Listen(t, "")
		n.hook.Store(&receiver)
		n.apply(gateBash)
		n.provider.json(formCases[0].reply)
		secret := n.Outbox.SecretFor("default", n.agent.ID, 0).Reveal()
		for _, approve := range []bool{true, false} {
			ask := strings.Replace(fmt.Sprintf(messageAsk, false), "Clean up", fmt.Sprint(approve), 1)
			if got := n.call("POST", messagesPath, ask, "Prefer", "respond-async", "X-Amp-Run", "run-7"); got.status != 202 {
				t.Fatalf("%+v", got)
			}
			g := n.gate()
			n.decide(g.ID, approve, "I looked.")
			got := testbed.Receive(t, "a call of the receiver", heard)
			delivertest.Verify(t, secret, got.Body, got.Header.Get)
			var body map[string]any
			if err := json.Unmarshal([]byte(got.Body), &body); err != nil || len(body) != 6 {
				t.Fatalf("%s %v", got.Body, err)
			}
			status := map[bool]string{true: "approved", false: "rejected"}[approve]
			if body["gate_id"] != g.ID || body["status"] != status || body["run_id"] != "run-7" || body["agent_id"] != "coder" ||
				body["resolved_by"] != "operator" || body["resolved_at"] == "" {
				t.Errorf("%s", got.Body)
			}
			if got := n.call("POST", messagesPath, ask, "Prefer", "respond-async", "X-Amp-Run",
				"run-7"); approve != (got.body == formCases[0].reply) || !approve && got.status != 403 || n.provider.calls() > 2 {
				t.Errorf("%+v", got)
			}
		}
	})
}

// Calls that have a gate are known for as long as a decision can stand, and no longer.
func TestCallsAreForgottenWhenTheirDecisionStandsNoMore(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		held := func(i int) {
			n.provider.json(formCases[0].reply)
			waiting := n.begin("POST", messagesPath,
				strings.Replace(fmt.Sprintf(messageAsk, false), "Clean up", fmt.Sprint("Clean up ", i), 1))
			n.decide(n.gate().ID, true, "")
			if got := <-waiting; got.status != 200 {
				t.Fatalf("%+v", got)
			}
		}
		for i := range 4 {
			held(i)
		}
		n.Move(24 * time.Hour)
		held(4)
		if n.proxy.Known() != 5 {
			t.Errorf("%d calls are known while their decision may stand", n.proxy.Known())
		}
		n.Move(2 * time.Hour)
		held(5)
		if n.proxy.Known() != 2 {
			t.Errorf("%d calls are known", n.proxy.Known())
		}
		var rows int
		if err := n.DB.Read.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM gate_approval").Scan(&rows); err != nil ||
			rows != 2 {
			t.Errorf("%d rows, %v", rows, err)
		}
		held(0) // anew
		n.WantClean()
	})
}
