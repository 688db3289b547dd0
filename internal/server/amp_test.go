package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/price"
	"signalbox/internal/roster"
	"signalbox/internal/signal"
	"signalbox/internal/testbed"
)

// ampAgent is an agent that speaks AMP to the box.
type ampAgent struct {
	*box
	key, name, id string
}

func (b *box) agent(name string) *ampAgent {
	b.t.Helper()
	var added struct {
		Agent struct{ ID string }
		Keys  struct{ Signal string }
	}
	b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":%q}`, name), &added)
	return &ampAgent{b, added.Keys.Signal, name, added.Agent.ID}
}

// amp makes a call as the agent and decodes the answer.
func (a *ampAgent) amp(want int, call, body string, into any) {
	a.t.Helper()
	status, answer, _ := a.do(request{call: call, body: body, token: a.key})
	if status != want {
		a.t.Fatalf("%s %s: %d %s", call, body, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			a.t.Fatalf("%s: %v\n%s", call, err, answer)
		}
	}
}

func TestAnAgentRegistersAndAnOperatorGrantsTrust(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		a := b.agent("newcomer")
		var got signal.Answer
		a.amp(200, "POST /amp/register",
			`{"amp_version":"1.1","type":"registration","agent_id":"newcomer","capabilities":["send_mail"],`+
				`"trust_level":"standard"}`, &got)
		if got.Status != gate.Approved || got.GateID != nil {
			t.Errorf("asked for what it has: %+v", got)
		}
		more := `{"amp_version":"1.1","agent_id":"newcomer","capabilities":["send_mail","pay"],"trust_level":"trusted"}`
		a.amp(202, "POST /amp/register", more, &got)
		first := *got.GateID
		a.amp(202, "POST /amp/register", more, &got)
		if *got.GateID != first {
			t.Errorf("asking again opened another gate")
		}
		var shown gate.Gate
		b.ops(200, "GET /ops/gates/"+first, "", &shown)
		if shown.Risk != "high" || !strings.Contains(shown.Summary, "send_mail, pay") {
			t.Errorf("%+v", shown)
		}
		b.ops(200, "POST /ops/gates/"+first+"/approve", `{}`, nil)
		var now roster.Agent
		b.ops(200, "GET /ops/agents/newcomer", "", &now)
		if now.Trust != "trusted" {
			t.Errorf("trust is %s", now.Trust)
		}
		a.amp(200, "GET /amp/gates/"+first, "", &got)
		if got.Status != gate.Approved {
			t.Errorf("%+v", got)
		}
		a.amp(400, "POST /amp/register",
			`{"amp_version":"1.0","agent_id":"newcomer","trust_level":"root","capabilities":"all"}`, nil)
		a.amp(403, "POST /amp/register", `{"amp_version":"1.1","agent_id":"other"}`, nil)
		// A rejected request changes nothing, and the next one asks anew.
		b.ops(200, "PATCH /ops/agents/newcomer", `{"trust":"standard"}`, nil)
		a.amp(202, "POST /amp/register", more, &got)
		if *got.GateID == first {
			t.Error("a decided gate was asked again")
		}
		b.ops(200, "POST /ops/gates/"+*got.GateID+"/reject", `{"note":"No."}`, nil)
		b.ops(200, "GET /ops/agents/newcomer", "", &now)
		if now.Trust != "standard" {
			t.Errorf("trust is %s after a rejection", now.Trust)
		}
	})
}

func TestAGateRequestAReceiptAndAFailure(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		a, other := b.agent("mailer"), b.agent("other")
		ask := func(id, action string) string {
			return fmt.Sprintf(
				`{"amp_version":"2.0","type":"gate_request","agent_id":"mailer","run_id":"r1","request_id":%q,`+
					`"summary":"Drafted it","proposed_action":%q}`, id, action,
			)
		}
		var one, two, again signal.Answer
		a.amp(202, "POST /amp/gate_request", ask("a", "Send it to Ann"), &one)
		a.amp(202, "POST /amp/signal", ask("b", "Send it to Bob"), &two) // the message says what it is
		a.amp(202, "POST /amp/gate_request", ask("a", "Send it to Ann"), &again)
		if *one.GateID == *two.GateID || *again.GateID != *one.GateID {
			t.Errorf("%v %v %v", *one.GateID, *two.GateID, *again.GateID)
		}
		a.amp(409, "POST /amp/gate_request", ask("a", "Send it to everybody"), nil)

		receipt := fmt.Sprintf(
			`{"amp_version":"3.0","type":"action_receipt","agent_id":"mailer","gate_id":%q,"status":"succeeded",`+
				`"summary":"Sent"}`, *one.GateID,
		)
		a.amp(409, "POST /amp/receipt", receipt, nil) // not decided yet
		b.ops(200, "POST /ops/gates/"+*one.GateID+"/approve", `{"note":"go"}`, nil)
		a.amp(200, "POST /amp/receipt", receipt, nil)
		a.amp(200, "POST /amp/receipt", strings.ReplaceAll(receipt, ":", ": "), nil) // the same
		a.amp(409, "POST /amp/receipt", strings.Replace(receipt, "succeeded", "failed", 1), nil)
		other.amp(404, "POST /amp/receipt", strings.Replace(receipt, `"mailer"`, `"other"`, 1), nil)
		other.amp(404, "GET /amp/gates/"+*one.GateID, "", nil)
		var shown gate.Gate
		b.ops(200, "GET /ops/gates/"+*one.GateID, "", &shown)
		if len(shown.Receipts) != 1 || !shown.Receipts[0].Succeeded || shown.Receipts[0].Actor != "agent:mailer" {
			t.Errorf("%+v", shown.Receipts)
		}

		var failed signal.Answer
		a.amp(200, "POST /amp/failure",
			`{"amp_version":"2.0","agent_id":"mailer","run_id":"r1","summary":"It broke","error_code":"smtp"}`, &failed)
		if failed.Status != gate.Approved || failed.GateID != nil {
			t.Errorf("%+v", failed)
		}
		a.amp(409, "POST /amp/failure", `{"amp_version":"2.0","agent_id":"mailer","run_id":"r1","summary":"It broke again"}`,
			nil)
		var page gate.GatePage
		b.ops(200, "GET /ops/gates?agent=mailer&status=pending", "", &page)
		if len(page.Gates) != 1 || page.Gates[0].ID != *two.GateID {
			t.Errorf("by the agent's name: %+v", page.Gates)
		}
		b.ops(200, "GET /ops/gates?agent="+a.id+"&status=approved", "", &page)
		if len(page.Gates) != 1 || page.Gates[0].ID != *one.GateID {
			t.Errorf("by the agent's id: %+v", page.Gates)
		}
		b.ops(200, "GET /ops/gates?agent=nobody", "", &page)
		if len(page.Gates) != 0 {
			t.Errorf("of nobody: %+v", page.Gates)
		}
	})
}

func TestAHeartbeatHearsThatItShouldHaltAndIsMissed(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		a := b.agent("worker")
		beat := func(run string) (p signal.Pulse) {
			a.amp(200, "POST /amp/heartbeat",
				fmt.Sprintf(`{"amp_version":"2.0","agent_id":"worker","run_id":%q,"ttl_s":1}`, run), &p)
			return p
		}
		if p := beat("r1"); p.Halt || p.NextIn != 1 {
			t.Errorf("%+v", p)
		}
		beat("r2")
		a.amp(400, "POST /amp/heartbeat", `{"amp_version":"2.0","agent_id":"worker","run_id":"r1","ttl_s":0}`, nil)
		a.amp(200, "POST /amp/failure", `{"amp_version":"2.0","agent_id":"worker","run_id":"r2","summary":"Over"}`, nil)
		b.ops(200, "POST /ops/agents/worker/halt", `{"run_id":"r1","reason":"Wrong customer."}`, nil)
		if p := beat("r1"); !p.Halt || p.Message != "Wrong customer." {
			t.Errorf("%+v", p)
		}
		if p := beat("r3"); p.Halt {
			t.Errorf("another run: %+v", p)
		}
		// r1 and r3 fall silent; r2 is over and owes nothing.
		testbed.Until(t, "r1 and r3 to be missed", func() bool {
			var live signal.LiveRuns
			b.ops(200, "GET /ops/heartbeats", "", &live)
			missed := map[string]bool{}
			for _, r := range live.Runs {
				missed[r.RunID] = r.Missed
			}
			if _, there := missed["r2"]; there {
				t.Fatalf("%+v", live)
			}
			return missed["r1"] && missed["r3"]
		})
		b.ops(200, "POST /ops/agents/worker/halt", `{}`, nil)
		if p := beat("r4"); !p.Halt {
			t.Errorf("all of its runs: %+v", p)
		}
	})
}

func TestAgentsSeeWhichRulesTheyMeetAndTheirWebhook(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		a := b.agent("reader")
		var published signal.Published
		a.amp(200, "GET /amp/policy", "", &published)
		if published.Version != 1 || len(published.Rules) != 1 || published.Rules[0].Name != "confirm-declared-gates" {
			t.Errorf("%+v", published)
		}
		var own, ops signal.ShownWebhook
		a.amp(200, "GET /amp/webhook", "", &own)
		b.ops(200, "PUT /ops/agents/reader/webhook", `{"url":"http://127.0.0.1:9/hook","hosts":["Hooks.Example.com"]}`, &ops)
		if own.Secret != ops.Secret || !strings.HasPrefix(own.Secret, "whsec_") || ops.Hosts[0] != "hooks.example.com" {
			t.Errorf("%+v %+v", own, ops)
		}
		b.ops(200, "PUT /ops/agents/reader/webhook", `{"url":"http://127.0.0.1:9/hook","rotate_secret":true}`, &ops)
		if own.Secret == ops.Secret {
			t.Error("the secret was not changed")
		}
		b.ops(400, "PUT /ops/agents/reader/webhook", `{"url":"http://10.0.0.1/hook"}`, nil)
		payload := `{"amp_version":"1.0","agent_id":"reader","run_id":"w","status":"completed","summary":"s","model":"m",` +
			`"input_tokens":1,"output_tokens":1,"cost_usd":0,"gate_required":false,"started_at":"2026-03-06T22:10:38Z",` +
			`"completed_at":"2026-03-06T22:10:38Z","webhook_url":%q}`
		a.amp(400, "POST /amp/signal", fmt.Sprintf(payload, "http://127.0.0.2:9/other"), nil) // not a host that is registered
		a.amp(200, "POST /amp/signal", fmt.Sprintf(payload, "http://127.0.0.1:9/other"), nil)

		var table price.Listed
		b.ops(200, "PUT /ops/pricing",
			`{"models":[{"model":"m","input":2,"output":4},{"model":"m","input":1,"output":2,"from":"2030-01-01"}]}`, &table)
		if table.Version != 1 {
			t.Errorf("%+v", table)
		}
		b.ops(400, "PUT /ops/pricing", `{"models":[{"model":"m","input":-2,"output":4}]}`, nil)
		_, answer, _ := b.do(request{call: "GET /amp/pricing"})
		if !strings.Contains(answer, `"from":"2030-01-01"`) {
			t.Error(answer)
		}
	})
}
