package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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
				// What is not under a checkpoint yet is found when it is signed, and nothing is written from then on.
				if err := n.Ledger.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
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

func TestAnApprovalIsForOneUseUnlessItsRuleSaysMore(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ask := fmt.Sprintf(messageAsk, false)
		for _, c := range []struct {
			gate string
			uses int // how often the reply is given
		}{{"{}", 1}, {"{uses: 3}", 3}, {"{window: 1h}", 5}, {"{uses: 3, good_for: 1s}", 1}} {
			n.apply(`  - {name: r, on: [tool_call], when: 'event.tool == "bash"', then: gate, gate: ` + c.gate + "}\n")
			n.provider.json(formCases[0].reply)
			ask += " " // another call for each
			waiting := n.begin("POST", messagesPath, ask)
			g := n.gate()
			n.decide(g.ID, true, "")
			<-waiting
			if shown, err := n.Gates.Show(t.Context(), g.ID); err != nil || shown.Unused != nil {
				t.Errorf("%s: one use was taken, and the gate says that nobody waits: %+v %v", c.gate, shown.Unused, err)
			}
			if strings.Contains(c.gate, "good_for") {
				n.Move(time.Minute)
			}
			given, before := 1, n.provider.calls()
			for range 4 {
				if n.call("POST", messagesPath, ask, "Prefer", "respond-async").status == 200 {
					given++
				}
			}
			asked := n.provider.calls() - before
			if given != c.uses || (asked > 0) != (given < 5) || asked > 1 {
				t.Errorf("%s: given %d times, with %d more calls of the provider", c.gate, given, asked)
			}
			if given < 5 {
				n.decide(n.gate().ID, false, "No.") // the new gate
			}
		}
		n.WantClean()
	})
}

// What an agent may try to have a reply, or a request, twice for one approval.
func TestASecondUseNeedsASecondApproval(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash + `  - {name: ask, on: [prompt], when: 'event.text.contains("Wipe")', then: gate}` + "\n")
		n.provider.json(formCases[0].reply)
		ask := fmt.Sprintf(messageAsk, false)
		waiting := n.begin("POST", messagesPath, ask, "X-Stainless-Retry-Count", "1")
		n.decide(n.gate().ID, true, "")
		<-waiting
		for _, count := range []string{"0", "1", "-1", "x", ""} {
			if got := n.call("POST", messagesPath, ask, "X-Stainless-Retry-Count", count, "Prefer",
				"respond-async"); got.status != 202 {
				t.Errorf("retry %s: %+v", count, got)
			}
		}
		n.decide(n.gate().ID, false, "No.")

		// Retries that go on and on are none.
		ask += " "
		waiting = n.begin("POST", messagesPath, ask)
		n.decide(n.gate().ID, true, "")
		<-waiting
		for i, want := range []int{200, 200, 202} {
			if got := n.call("POST", messagesPath, ask, "X-Stainless-Retry-Count", fmt.Sprint(i+1), "Prefer",
				"respond-async"); got.status != want {
				t.Errorf("retry %d: %+v", i+1, got)
			}
			n.Move(40 * time.Second)
		}
		n.decide(n.gate().ID, false, "No.")

		// A request that was approved is sent once, whatever its sender says of retries.
		n.provider.json(`{"id":"x","content":[]}`)
		wipe := strings.Replace(ask, "Clean", "Wipe", 1)
		waiting = n.begin("POST", messagesPath, wipe)
		n.decide(n.gate().ID, true, "")
		if got := <-waiting; got.status != 200 {
			t.Errorf("%+v", got)
		}
		before := n.provider.calls()
		for _, count := range []string{"", "1", "2"} {
			if got := n.call("POST", messagesPath, wipe, "X-Stainless-Retry-Count", count, "Prefer",
				"respond-async"); got.status != 202 || n.provider.calls() != before {
				t.Errorf("retry %s: %+v, %d calls", count, got, n.provider.calls()-before)
			}
		}
		n.WantClean()
	})
}

// A request that the provider was too busy for is sent again by its SDK, and nobody is asked again;
// but not for ever.
func TestARetriedRequestIsTheSameUse(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(`  - {name: ask, on: [prompt], then: gate}` + "\n")
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529) })
		ask := fmt.Sprintf(messageAsk, false)
		waiting := n.begin("POST", messagesPath, ask)
		n.decide(n.gate().ID, true, "")
		if got := <-waiting; got.status != 529 {
			t.Fatalf("%+v", got)
		}
		for i := range 5 {
			if got := n.call("POST", messagesPath, ask, "Prefer", "respond-async"); got.status != 529 {
				t.Fatalf("retry %d: %+v", i, got)
			}
		}
		if got := n.call("POST", messagesPath, ask, "Prefer", "respond-async"); got.status != 202 || n.provider.calls() != 6 {
			t.Errorf("%+v, %d calls", got, n.provider.calls())
		}
		n.WantClean()
	})
}

// A reply that cannot be kept is an error that says so, and is not given.
func TestAReplyThatIsTooLargeToBeKeptIsRefused(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	for _, size := range []int{20 << 20, 25 << 20} {
		note := strings.Repeat("x", size)
		n.provider.json(strings.Replace(formCases[0].reply, `"rm -r build"`, `"ls","note":"`+note+`"`, 1))
		got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false), "Prefer", "respond-async")
		if size > 24<<20 {
			if got.status != http.StatusBadGateway || !strings.Contains(got.body, "too large to be kept") {
				t.Errorf("%d %.300s", got.status, got.body)
			}
			continue
		}
		if got.status != http.StatusAccepted {
			t.Fatalf("%d %.300s", got.status, got.body)
		}
		n.decide(n.gate().ID, false, "No.")
		n.Move(2 * time.Hour)
	}
}
