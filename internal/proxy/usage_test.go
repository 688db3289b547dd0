package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/price"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

type recorded struct {
	Agent, Project string
	Calls          []call
}

// call is a call on record.
type call struct {
	Call, Model, ID, Rule, Request, Run, Reserve, Batch string
	Status, Results                                     int
	Stream, Priced                                      bool
	ToolCalls                                           int `json:"tool_calls"`
	price.Usage
	price.Cost
}

// called waits for so many calls on record.
func (n *node) called(count int) (all []recorded) {
	n.T.Helper()
	testbed.Until(n.T, "calls on record", func() bool {
		all = nil
		found := 0
		for _, e := range n.Entries("proxy.called") {
			var r recorded
			if err := json.Unmarshal(e.Body, &r); err != nil {
				n.T.Fatal(err)
			}
			all = append(all, r)
			found += len(r.Calls)
		}
		return found >= count
	})
	return all
}

func TestWhatACallTookIsCountedFromTheReply(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		for _, c := range formCases {
			n.provider.events(c.stream("read", `{"path":"a"}`)...)
			n.call("POST", c.path, fmt.Sprintf(c.ask, true), "X-Amp-Project", "deck-1")
			n.provider.json(strings.ReplaceAll(c.reply, "bash", "read"))
			n.call("POST", c.path, fmt.Sprintf(c.ask, false), "X-Amp-Project", "deck-1")
		}
		var input, output, cached, cost int64
		for _, r := range n.called(6) {
			for _, one := range r.Calls {
				if r.Project != "deck-1" || r.Agent != n.agent.ID || one.Status != 200 || one.ID == "" || one.Rule != "default" ||
					one.ToolCalls != 1 || len(one.Request) != 64 {
					t.Errorf("%+v", one)
				}
				input, output, cached, cost = input+one.Input, output+one.Output, cached+one.CacheRead, cost+one.Nanos
				if !one.Priced || one.Match != price.Exact {
					t.Errorf("%+v", one)
				}
			}
		}
		if input+cached != 600 || output != 240 || cached != 120 || // The replies of gpt-4o that are streamed have 60 cached tokens of 100.
			cost != 2*(100*3000+40*15000)+2*(100*2500+40*10000)+2*(40*2500+60*1250+40*10000) {
			t.Errorf("%d %d %d %d", input, output, cached, cost)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.counters.Run(ctx) }()
		testbed.Until(t, "the counters", func() bool {
			var in, out, nano int64
			err := n.DB.Read.QueryRowContext(t.Context(),
				"SELECT COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0), COALESCE(SUM(cost_nano), 0) FROM "+
					"counter_hour WHERE project = 'deck-1'").Scan(&in, &out, &nano)
			if err != nil {
				t.Fatal(err)
			}
			return in == 600 && out == 240 && nano == cost
		})
		cancel()
		<-done
	})
}

func TestABudgetStopsCalls(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") > 0.001', then: block, " +
			"reason: The budget of the day is used up.}\n")
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read")) // 0.0009 dollars
		ask := fmt.Sprintf(messageAsk, false)
		for i := range 2 {
			if got := n.call("POST", messagesPath, ask); got.status != 200 {
				t.Fatalf("%d: %+v", i, got)
			}
		}
		testbed.Until(t, "the budget", func() bool {
			got := n.call("POST", messagesPath, ask)
			return got.status == 403 && strings.Contains(got.body, "budget")
		})
		before := n.provider.calls()
		if got := n.call("POST", messagesPath, ask); got.status != 403 || n.provider.calls() != before {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheNextRequestBringsTheReceipt(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		for i, c := range []struct {
			formCase
			next   string
			failed bool
		}{
			{
				formCases[0], `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result",` +
					`"tool_use_id":"toolu_1","is_error":true,"content":"no such file \u0000"}]}]}`, true,
			},
			{formCases[1], `{"model":"m","messages":[{"role":"tool","tool_call_id":"call_1","content":"done"}]}`, false},
			{formCases[2], `{"model":"m","input":[{"type":"function_call_output","call_id":"call_1","output":"done"}]}`, false},
		} {
			n.provider.json(c.reply)
			waiting := n.begin("POST", c.path, fmt.Sprintf(c.ask, false))
			g := n.gate()
			n.decide(g.ID, true, "")
			<-waiting
			n.provider.json(`{"id":"x","content":[],"choices":[],"output":[]}`)
			for range 2 { // the next request brings it, and those after it again
				if got := n.call("POST", c.path, c.next); got.status != 200 {
					t.Fatalf("%+v", got)
				}
			}
			testbed.Until(t, "the receipt", func() bool { return len(n.Entries("receipt.recorded")) == i+1 })
			var body struct{ Succeeded bool }
			last := n.Entries("receipt.recorded")[i]
			if err := json.Unmarshal(last.Body, &body); err != nil || body.Succeeded == c.failed || last.Subject != g.ID {
				t.Errorf("%s: %s", c.name, last.Body)
			}
		}
		n.WantClean()
	})
}

func TestAConversationThatTheProviderKeepsIsJudgedWithWhatCameBefore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		rule := "  - {name: shell, on: [prompt], when: 'event.tools.exists(t, t == " +
			"\"bash\")', then: block, reason: No shells.}\n"
		tools := `"tools":[{"name":"bash","input_schema":{}}],`
		create := `{"model":"m",` + tools + `"thread":{"type":"create"},"messages":[]}`
		n.provider.json(`{"id":"msg_a","content":[]}`)
		if got := n.call("POST", messagesPath, create); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		n.provider.json(`{"id":"resp_a","output":[]}`)
		if got := n.call("POST", responsesPath,
			`{"model":"m","input":"x","tools":[{"type":"function","name":"bash"}]}`); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		testbed.Until(t, "the conversations", func() bool { return len(n.Entries("proxy.threaded")) == 2 })
		n.apply(rule)
		for _, c := range []struct{ path, ask string }{
			{messagesPath, `{"model":"m","thread":{"type":"continue","previous_message_id":"msg_a"},"messages":[]}`},
			{responsesPath, `{"model":"m","previous_response_id":"resp_a","input":"go on"}`},
		} {
			if got := n.call("POST", c.path, c.ask); got.status != 403 || !strings.Contains(got.body, "No shells.") {
				t.Errorf("%+v", got)
			}
			// One that is not known, and on which a rule depends, is for a person.
			unknown := strings.NewReplacer("msg_a", "msg_b", "resp_a", "resp_b").Replace(c.ask)
			before := n.provider.calls()
			waiting := n.begin("POST", c.path, unknown)
			g := n.gate()
			if n.provider.calls() != before || !strings.Contains(g.Reason, "shell") {
				t.Errorf("%+v", g)
			}
			n.decide(g.ID, true, "")
			if got := <-waiting; got.status != 200 {
				t.Errorf("%+v", got)
			}
		}
		// Where no rule depends on it, it is passed: a word in a text, or in another name, is not
		// a field.
		for i, when := range []string{
			`event.model == "z"`, `event.model == "tools"`, `event.toolset == "payload"`,
			`agent.labels.text == "text"`,
		} {
			n.apply(fmt.Sprintf("  - {name: model, on: [prompt], when: %q, then: block}\n", when))
			unknown := fmt.Sprintf(`{"model":"m","thread":{"type":"continue","previous_message_id":"msg_c%d"}}`, i)
			if got := n.call("POST", messagesPath, unknown); got.status != 200 {
				t.Errorf("%s: %+v", when, got)
			}
		}
		n.WantClean()
	})
}
