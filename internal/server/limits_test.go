package server_test

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

var bursts = flag.Int("bursts", 10, "how often TestALimit… has 100 calls made at once")

// limitRules allow 60 actions, signals and messages an hour.
const limitRules = `version: 1
rules:
  - name: limit
    on: [action, signal, message, prompt, tool_call]
    when: recent.allowed("1h") >= 60
    then: block
`

// applyPolicy puts a policy in force.
func (b *box) applyPolicy(text string) {
	b.t.Helper()
	if status, answer, _ := b.do(request{
		call: "PUT /ops/policy", token: b.token(), media: "application/yaml", body: text,
	}); status != http.StatusOK {
		b.t.Fatalf("%d %s", status, answer)
	}
}

// countAllowed makes calls at once and counts those that report that they were allowed.
func countAllowed(calls int, call func(i int) bool) int {
	var allowed atomic.Int64
	testbed.AtOnce(calls, func(i int) {
		if call(i) {
			allowed.Add(1)
		}
	})
	return int(allowed.Load())
}

const preAction = `{"jsonrpc":"2.0","id":%d,"method":"ahp/event","params":{"event_type":"pre_action",` +
	`"session_id":"s","agent_id":"a","timestamp":"t","depth":0,` +
	`"payload":{"tool_name":"Bash","arguments":{"command":"ls"}}}}`

// actAtOnce has an agent ask for 100 steps at once, over servers that share a ledger, and wants 60 of them allowed. On a
// busy machine a step may be refused since its decision was not on disk in time; that decision counts all the same if
// it was written later.
func actAtOnce(t *testing.T, boxes []*box, key string) {
	t.Helper()
	var unheard atomic.Int64
	allowed := countAllowed(100, func(i int) bool {
		status, answer := boxes[i%len(boxes)].ahp(key, fmt.Sprintf(preAction, i))
		allowed := strings.Contains(answer, `"decision":"allow"`)
		if status != http.StatusOK || !allowed && !strings.Contains(answer, `"decision":"block"`) {
			t.Errorf("%d %s", status, answer)
		}
		if strings.Contains(answer, `"fail_closed":true`) {
			unheard.Add(1)
		}
		return allowed
	})
	if late := int(unheard.Load()); allowed > 60 || allowed+late < 60 {
		t.Errorf("%d of 100 steps were allowed, and %d refused for want of time; want 60", allowed, late)
	}
}

// signalsAtOnce has an agent send 100 signals at once.
func signalsAtOnce(t *testing.T, boxes []*box, key, agent string) int {
	t.Helper()
	return countAllowed(100, func(i int) bool {
		status, answer, _ := boxes[i%len(boxes)].do(request{
			call: "POST /amp/signal", token: key,
			body: strings.Replace(ampSignal(agent, fmt.Sprint("run-", i)), `"gate_required":true`, `"gate_required":false`, 1),
		})
		allowed := status == http.StatusOK && strings.Contains(answer, `"approved"`)
		if !allowed && !strings.Contains(answer, "rejected") {
			t.Errorf("%d %s", status, answer)
		}
		return allowed
	})
}

func TestALimitOfARuleIsExactOverHTTP(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.applyPolicy(limitRules)
		for round := range *bursts {
			_, key := b.addAgent(fmt.Sprint("coder-", round))
			actAtOnce(t, []*box{b}, key)
			name := fmt.Sprint("teller-", round)
			_, key = b.addAgent(name)
			if got := signalsAtOnce(t, []*box{b}, key, name); got != 60 {
				t.Errorf("signals, round %d: %d of 100 were allowed, want 60", round, got)
			}
		}
		b.wantRebuilt(1)
	})
}

func TestALimitOfARuleIsExactOverThreeNodes(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	boxes := []*box{start(t, address, nil), start(t, address, nil), start(t, address, nil)}
	_, probe := boxes[0].addAgent("probe")
	boxes[0].applyPolicy(limitRules + `  - {name: probe, on: [action], when: agent.name == "probe", then: block}
`)
	for _, b := range boxes {
		testbed.Until(t, "the policy to be in force on every node", func() bool {
			_, answer := b.ahp(probe, fmt.Sprintf(preAction, 1))
			return strings.Contains(answer, `"decision":"block"`)
		})
	}
	for round := range *bursts {
		name := fmt.Sprint("coder-", round)
		_, key := boxes[0].addAgent(name)
		actAtOnce(t, boxes, key)
		name = fmt.Sprint("teller-", round)
		_, key = boxes[0].addAgent(name)
		if got := signalsAtOnce(t, boxes, key, name); got != 60 {
			t.Errorf("signals, round %d: %d of 100 were allowed, want 60", round, got)
		}
	}
}
