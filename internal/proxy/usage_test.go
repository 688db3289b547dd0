package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
			n.called(i + 1) // until then what it may cost is reserved
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

// The usage of a stream is asked for, and a client that has not asked does not get it, however its stream is treated.
func TestUsageThatOnlyWeAskedForIsTakenOut(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		whole := strings.Join(chatStream("read", `{"path":"a"}`), "")
		ask := fmt.Sprintf(chatAsk, true)
		calls := 0
		check := func(name, ask, want string, header ...string) {
			t.Helper()
			n.provider.events(chatStream("read", `{"path":"a"}`)...)
			if got := n.call("POST", chatPath, ask, header...); got.status != 200 || got.body != want {
				t.Errorf("%s: %d\n%s", name, got.status, got.body)
			}
			if _, body := n.provider.last(); !strings.Contains(string(body), `"include_usage":true`) {
				t.Errorf("%s: %s", name, body)
			}
			calls++
			for _, r := range n.called(calls) {
				for _, one := range r.Calls {
					if one.InputTokens() != 100 || one.Output != 40 || one.Estimated {
						t.Errorf("%s: %+v", name, one)
					}
				}
			}
		}
		for _, rules := range []string{"", gateBash} {
			n.apply(rules)
			check("plain", ask, whole)
			check("async", ask, whole, "Prefer", "respond-async")
			asked := strings.Join(asOpenAI(chatStream("read", `{"path":"a"}`), []byte(`{"stream_options":{"include_usage":true}}`)), "")
			check("asked", strings.Replace(ask, "{", `{"stream_options":{"include_usage":true},`, 1), asked)
			for name, option := range map[string]string{
				"false": `{"include_usage":false}`, "null": `null`, "another": `{"include_obfuscation":true}`,
				"twice":   `{"include_usage":false,"include_usage":false}`,
				"letters": `{"INCLUDE_USAGE":false}`,
			} {
				check(name, strings.Replace(ask, "{", `{"stream_options":`+option+`,`, 1), whole)
			}
		}
		n.feedback()
		check("feedback", ask, whole)
		n.WantClean()
	})
}

// What a person approves, and what is stored for that, is what the client would have got.
func TestAHeldStreamIsStoredWithoutUsage(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		pieces := chatStream("bash", removeAll)
		n.provider.events(pieces...)
		waiting := n.begin("POST", chatPath, fmt.Sprintf(chatAsk, true))
		g := n.gate()
		if g.ActionDigest != sum(strings.Join(pieces, "")[withheldFrom(pieces):]) {
			t.Error("the digest is not that of what the client gets")
		}
		n.decide(g.ID, true, "")
		if got := <-waiting; withoutBeats(got.body) != strings.Join(pieces, "") {
			t.Errorf("%+v", got)
		}
		if u := n.called(1)[0].Calls[0]; u.InputTokens() != 100 || u.Output != 40 {
			t.Errorf("%+v", u)
		}
	})
}

// A provider that does not know the question gets the request as it was, and is left alone for an hour.
func TestAProviderThatRefusesTheQuestionIsNotAskedAgain(t *testing.T) {
	for _, status := range []int{400, 422} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			n := one(t)
			whole := strings.Join(chatStream("read", `{"path":"a"}`), "")
			var questions atomic.Int32
			n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), "stream_options") {
					questions.Add(1)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":{"message":"Unknown parameter: stream_options"}}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, whole)
			})
			for i := range 3 {
				if got := n.call("POST", chatPath, fmt.Sprintf(chatAsk, true)); got.status != 200 || got.body != whole {
					t.Errorf("%+v", got)
				}
				if one := n.called(i + 1); !one[0].Calls[0].Estimated || one[0].Calls[0].Nanos == 0 {
					t.Errorf("%+v", one)
				}
			}
			if questions.Load() != 1 || n.provider.calls() != 4 {
				t.Errorf("%d questions in %d calls", questions.Load(), n.provider.calls())
			}
			n.Move(61 * time.Minute)
			n.call("POST", chatPath, fmt.Sprintf(chatAsk, true))
			if questions.Load() != 2 {
				t.Errorf("%d questions", questions.Load())
			}
		})
	}
}

// A request that is wrong anyway teaches nothing about the provider, and the client gets what it said.
func TestARefusalForAnotherReasonIsPassedOn(t *testing.T) {
	n := one(t)
	n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"There is no such model."}}`)
	})
	for range 2 {
		if got := n.call("POST", chatPath, fmt.Sprintf(chatAsk, true)); got.status != 400 || !strings.Contains(got.body, "no such model") {
			t.Errorf("%+v", got)
		}
	}
	if n.provider.calls() != 4 {
		t.Errorf("%d calls", n.provider.calls())
	}
}

// The first call of a run is on record before it is sent, once.
func TestTheFirstCallOfARunIsWrittenDownBeforeItIsSent(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
			if got := len(n.Entries("proxy.began")); got != 1 {
				t.Errorf("%d on record", got)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, formCases[0].reply)
		})
		for range 3 {
			n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false), "X-Amp-Run", "run-1")
		}
		n.provider.json(formCases[0].reply)
		n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false))
		n.call("POST", countPath, fmt.Sprintf(messageAsk, false), "X-Amp-Run", "run-2")
		_, other := n.AgentWithKey("other")
		n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false), "X-Amp-Run", "run-1", "X-Api-Key", other)
		if got := len(n.Entries("proxy.began")); got != 2 {
			t.Errorf("%d on record", got)
		}
		for run, want := range map[string]bool{"run-1": true, "run-2": false, "": false} {
			if got, err := n.proxy.Carries(t.Context(), n.agent.ID, run); err != nil || got != want {
				t.Errorf("%q: %t %v", run, got, err)
			}
		}
		if got := n.of(n.agent.ID); len(got) > 0 && got[0].Run != "run-1" {
			t.Errorf("%+v", got)
		}
		n.WantClean()
	})
}

// At 99 % of a budget that only looks at what was spent, one of a hundred calls at once passes, and is the last.
func TestOneOfManyCallsAtOncePassesTheEndOfABudget(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") >= 0.01', then: block, reason: Spent.}\n")
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		ask := func(i int) chan answer {
			return n.begin("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean", fmt.Sprint(i), 1))
		}
		for i := range 11 { // of 0.0009 dollars each
			if got := <-ask(i); got.status != http.StatusOK {
				t.Fatalf("%+v", got)
			}
			n.called(i + 1)
		}
		var answers []chan answer
		for i := range 100 {
			answers = append(answers, ask(100+i))
		}
		passed := 0
		for _, one := range answers {
			if got := <-one; got.status == http.StatusOK {
				passed++
			} else if got.status != http.StatusForbidden && got.status != http.StatusTooManyRequests {
				t.Errorf("%+v", got)
			}
		}
		if passed != 1 || n.provider.calls() != 12 {
			t.Errorf("%d of 100 passed, and the provider was called %d times", passed, n.provider.calls())
		}
		n.WantClean()
	})
}

// Many calls at once do not pass a budget together: what each may cost is reserved until it is known.
func TestCallsAtOnceDoNotPassABudget(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		const callCost = 100*3000 + 40*15000 // of a call, and the most that one may cost is max_tokens of output
		n.apply("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") + event.estimate_usd > 0.01', then: block, reason: Spent.}\n")
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		var answers []chan answer
		for i := range 100 {
			answers = append(answers, n.begin("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean", fmt.Sprint(i), 1)))
		}
		passed := 0
		for _, one := range answers {
			if got := <-one; got.status == 200 {
				passed++
			} else if got.status != 403 && got.status != 429 {
				t.Errorf("%+v", got)
			}
		}
		if spent := passed * callCost; spent > 10_000_000 || passed < 2 || n.provider.calls() != passed {
			t.Errorf("%d of 100 passed, %d nanos", passed, spent)
		}
		// Nothing stays reserved: as many more pass as the budget has room for.
		testbed.Until(t, "the rest of the budget", func() bool {
			got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false))
			if got.status == 200 {
				passed++
			}
			return got.status == 403
		})
		if spent := passed * callCost; spent > 10_000_000 || spent < 10_000_000-3*callCost {
			t.Errorf("%d passed, %d nanos", passed, spent)
		}
		n.WantClean()
	})
}

// A call that a person approves reserves when it is sent, and whatever becomes of a call, its reserve ends.
func TestEveryReserveEnds(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") > 1000.0', then: block}\n" +
			"  - {name: ask, on: [prompt], when: 'event.text.contains(\"Ask\")', then: gate}\n" + gateBash)
		ask := fmt.Sprintf(messageAsk, false)
		calls := 0
		send := func(body string) { n.call("POST", messagesPath, body); calls++ }
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		send(ask)
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		send(ask)
		n.provider.answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		send(ask)
		// A reply that is held.
		n.provider.json(formCases[0].reply)
		waiting := n.begin("POST", messagesPath, strings.Replace(ask, "Clean", "Hold", 1))
		n.decide(n.gate().ID, true, "")
		<-waiting
		calls++
		// A request that is.
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		waiting = n.begin("POST", messagesPath, strings.Replace(ask, "Clean", "Ask", 1))
		g := n.gate()
		n.decide(g.ID, true, "")
		<-waiting
		calls++
		n.called(calls)
		reserved := map[string]bool{}
		for _, e := range n.Entries("prompt.decided", "proxy.released") {
			for _, one := range strings.Split(string(e.Body), `"reserve":{"id":"`)[1:] {
				reserved[one[:strings.IndexByte(one, '"')]] = true
			}
		}
		if len(reserved) != calls {
			t.Errorf("%d reserves for %d calls", len(reserved), calls)
		}
		for _, one := range n.of(n.agent.ID) {
			if !reserved[one.Reserve] {
				t.Errorf("%+v", one)
			}
			delete(reserved, one.Reserve)
		}
		if len(reserved) > 0 {
			t.Errorf("these do not end: %v", reserved)
		}
		n.WantClean()
	})
}
