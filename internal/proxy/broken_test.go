package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// blockBash refuses every call of bash, and so withholds as a gate does.
const blockBash = `  - {name: no-bash, on: [tool_call], when: 'event.tool == "bash"', then: block, reason: Not here.}
`

// Wherever the bytes of a stream are split, what is allowed arrives as it was sent, and of
// what is not allowed nothing arrives.
func TestStreamsDoNotDependOnHowTheirBytesAreSplit(t *testing.T) {
	n := silent(t)
	for _, c := range formCases {
		allowed, refused := strings.Join(c.stream("read", removeAll), ""), c.stream("bash", removeAll)
		n.apply(blockBash)
		for at := 1; at < len(allowed); at++ {
			n.provider.events(allowed[:at], allowed[at:])
			if got := n.call("POST", c.path, fmt.Sprintf(c.ask, true)); got.body != allowed || got.err != nil {
				t.Fatalf("%s split at %d: %v\n%s", c.name, at, got.err, got.body)
			}
		}
		whole := strings.Join(refused, "")
		prefix := whole[:withheldFrom(refused)]
		for at := 1; at < len(whole); at += 17 {
			n.provider.events(whole[:at], whole[at:])
			got := n.call("POST", c.path, fmt.Sprintf(c.ask, true))
			if got.err != nil || !strings.HasPrefix(withoutBeats(got.body), withoutBeats(prefix)) ||
				strings.Contains(got.body, `"bash"`) || strings.Contains(got.body, "rm -r") || endsWell(c.name, got.body) {
				t.Fatalf("%s split at %d: %v\n%s", c.name, at, got.err, got.body)
			}
		}
	}
}

// A stream that breaks off is never given as one that is whole, and no call in it is given.
func TestAStreamThatBreaksOffIsNeverGivenAsWhole(t *testing.T) {
	for name, rules := range map[string]string{"judged": gateBash, "passed": ""} {
		t.Run(name, func(t *testing.T) {
			n := one(t)
			n.apply(rules)
			for _, c := range formCases {
				pieces := c.stream("bash", removeAll)
				whole := strings.Join(pieces, "")
				// Where the form has come to its end there is nothing to break off.
				last := len(whole) - len(pieces[len(pieces)-1])
				if c.name == "chat" {
					last -= len(pieces[len(pieces)-2]) + len(pieces[len(pieces)-3])
				}
				for at := 0; at < last; at += 13 {
					for _, reset := range []bool{false, true} {
						n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
							w.Header().Set("Content-Type", "text/event-stream")
							_, _ = io.WriteString(w, whole[:at])
							_ = http.NewResponseController(w).Flush()
							if reset {
								panic(http.ErrAbortHandler)
							}
						})
						got := n.call("POST", c.path, fmt.Sprintf(c.ask, true))
						if endsWell(c.name, got.body) || got.err == nil && !strings.Contains(got.body, "api_error") {
							t.Fatalf("%s broken off at %d: %v\n%s", c.name, at, got.err, got.body)
						}
						if name == "judged" && (strings.Contains(got.body, "rm -r") || strings.Contains(got.body, `"bash"`)) {
							t.Fatalf("%s broken off at %d gives the call\n%s", c.name, at, got.body)
						}
					}
				}
			}
			if got := n.Entries("gate.opened"); len(got) != 0 {
				t.Errorf("%d gates were opened for calls that are not whole", len(got))
			}
		})
	}
}

func TestAReplyThatIsNotWhatItSaysIsNotGiven(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	for name, answer := range map[string]http.HandlerFunc{
		"shorter than it says": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, formCases[0].reply)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, formCases[0].reply[:100])
		},
		"another type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, formCases[0].reply)
		},
		"a name twice": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"content":[],`+formCases[0].reply[1:])
		},
		"reset": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a stream that says it is JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Join(messageStream("bash", removeAll), ""))
		},
		"a stream of nonsense": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: content_block_start\ndata: {{{bash\n\n")
		},
		"a call that never ends": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			list := messageStream("bash", removeAll)
			_, _ = io.WriteString(w,
				strings.Join(list[:len(list)-4], "")+
					frameOf("error", `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`))
		},
	} {
		n.provider.answers(answer)
		got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false))
		if strings.Contains(got.body, `"bash"`) || strings.Contains(got.body, "rm -r") ||
			!strings.Contains(got.body, "error") && got.err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := n.Entries("gate.opened"); len(got) != 0 {
		t.Errorf("%d gates were opened for calls that are not whole", len(got))
	}
}

// Calls in forms that few clients use, or none yet, meet the rules too.
func TestEveryFormOfACallIsJudged(t *testing.T) {
	n := one(t)
	n.apply(`  - {name: all, on: [tool_call], then: block, reason: Nothing.}
`)
	wrap := map[string]string{
		messagesPath:  `{"id":"m","content":[%s]}`,
		chatPath:      `{"id":"c","choices":[{"index":0,"message":%s}]}`,
		responsesPath: `{"id":"r","output":[%s]}`,
	}
	for _, c := range []struct {
		path, item string
		judged     bool
	}{
		{messagesPath, `{"type":"tool_use","id":"a","name":"x","input":{}}`, true},
		{messagesPath, `{"type":"new_tool_use","id":"a","name":"x","input":{}}`, true},
		{messagesPath, `{"type":"tool\u005fuse","id":"a","name":"x","input":{}}`, true},
		{messagesPath, `{"\u0074ype":"tool_use","id":"a","name":"x","input":{}}`, true},
		{chatPath, `{"tool\u005fcalls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]}`, true},
		{responsesPath, `{"type":"function\u005fcall","call_id":"a","name":"x","arguments":"{}"}`, true},
		{messagesPath, `{"type":"server_tool_use","id":"a","name":"web_search","input":{}}`, false},
		{messagesPath, `{"type":"mcp_tool_use","id":"a","name":"x","input":{}}`, false},
		{messagesPath, `{"type":"text","text":"tool_use"}`, false},
		{chatPath, `{"function_call":{"name":"x","arguments":"{}"}}`, true},
		{chatPath, `{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"x","input":"rm"}}]}`, true},
		{chatPath, `{"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{"}}]}`, true},
		{chatPath, `{"content":"x"}`, false},
		{responsesPath, `{"type":"function_call","call_id":"a","name":"x","arguments":"{}"}`, true},
		{responsesPath, `{"type":"custom_tool_call","call_id":"a","name":"x","input":"rm"}`, true},
		{responsesPath, `{"type":"computer_call","call_id":"a","action":{"type":"click"}}`, true},
		{responsesPath, `{"type":"local_shell_call","call_id":"a","action":{"type":"exec","command":["rm","-r"]}}`, true},
		{responsesPath, `{"type":"mcp_approval_request","id":"a","name":"x","arguments":"{}"}`, true},
		{responsesPath, `{"type":"new_thing_call","id":"a"}`, true},
		{responsesPath, `{"type":"web_search_call","id":"a"}`, false},
		{responsesPath, `{"type":"reasoning","id":"a"}`, false},
	} {
		n.provider.json(fmt.Sprintf(wrap[c.path], c.item))
		got := n.call("POST", c.path, `{"model":"m"}`)
		if judged := got.status == 403; judged != c.judged {
			t.Errorf("%s: %+v", c.item, got)
		}
	}
	// In streams, too, however it is written.
	for _, odd := range []string{
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool\u005fuse","id":"a","name":"x","input":{}}}`,
		`{"type":"content_block_delta","type":"content_block_start","index":1,"content_block":{"type":"tool_use",` +
			`"id":"a","name":"x","input":{}}}`,
	} {
		list := messageStream("x", "{}")
		list[5] = frameOf("content_block_start", odd)
		n.provider.events(list...)
		if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, true)); strings.Contains(got.body, `"x"`) ||
			!strings.Contains(got.body, "error") {
			t.Errorf("%s: %+v", odd, got)
		}
	}
	// A response that is fetched later is judged, too.
	n.provider.json(formCases[2].reply)
	if got := n.call("GET", responsesPath+"/resp_1", ""); got.status != 403 {
		t.Errorf("%+v", got)
	}
}

func TestArgumentsThatRulesCannotSeeAreAPersonsToDecide(t *testing.T) {
	n := one(t)
	n.apply(`  - {name: no-rm, on: [tool_call], when: 'event.command.contains("rm")', then: block}
`)
	list := messageStream("bash", `{"command":"r`)
	n.provider.events(list...)
	waiting := n.begin("POST", messagesPath, fmt.Sprintf(messageAsk, true))
	g := n.gate()
	if !strings.Contains(g.Reason, "cannot see") {
		t.Errorf("%+v", g)
	}
	n.decide(g.ID, false, "No.")
	if got := <-waiting; strings.Contains(got.body, `"bash"`) {
		t.Errorf("%+v", got)
	}
}

func TestAProviderThatHangsIsLeftWhenTheClientIsGone(t *testing.T) {
	n := one(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	n.provider.answers(func(_ http.ResponseWriter, r *http.Request) {
		leave()
		<-r.Context().Done()
		close(left)
	})
	r := n.request("POST", messagesPath, fmt.Sprintf(messageAsk, false)).WithContext(ctx)
	if res, err := http.DefaultClient.Do(r); err == nil {
		_ = res.Body.Close()
		t.Error("it was answered")
	}
	testbed.Receive(t, "the provider to be told", left)
}

func TestAGateOpensAlthoughTheClientIsGone(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	list := messageStream("bash", removeAll)
	gone := make(chan struct{})
	n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(list[:len(list)-1], ""))
		_ = http.NewResponseController(w).Flush()
		<-gone
		_, _ = io.WriteString(w, list[len(list)-1])
	})
	res, err := http.DefaultTransport.RoundTrip(n.request("POST", messagesPath, fmt.Sprintf(messageAsk, true)))
	if err != nil {
		t.Fatal(err)
	}
	prefix := make([]byte, withheldFrom(list)+10) // and a sign of life, so that the call was seen
	if _, err := io.ReadFull(res.Body, prefix); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	close(gone)
	n.decide(n.gate().ID, true, "")
	if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, true)); got.body != strings.Join(list, "") ||
		n.provider.calls() != 1 {
		t.Errorf("%+v", got)
	}
}

// The reply does not wait for what is written down about it.
func TestWhatPassedIsGivenBeforeItIsWrittenDown(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	for _, c := range formCases {
		reply := strings.ReplaceAll(c.reply, "bash", "read")
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
			n.DB.Close()
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, reply)
		})
		if got := n.call("POST", c.path, fmt.Sprintf(c.ask, false)); got.status != 200 || got.body != reply {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestWithoutALedgerNothingIsGiven(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
		n.DB.Close() // while the provider answers
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, formCases[0].reply)
	})
	if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false)); got.status < 500 ||
		strings.Contains(got.body, `"bash"`) {
		t.Errorf("%+v", got)
	}
}
