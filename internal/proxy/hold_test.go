package proxy_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// withoutBeats is a stream without our signs of life.
func withoutBeats(body string) string {
	body = strings.ReplaceAll(body, "event: ping\ndata: {\"type\": \"ping\"}\n\n", "")
	return strings.ReplaceAll(body, ": waiting\n\n", "")
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// withheldFrom is where the first call of a stream begins.
func withheldFrom(pieces []string) int {
	at := 0
	for _, piece := range pieces {
		if strings.Contains(piece, "tool_use") || strings.Contains(piece, "tool_calls") ||
			strings.Contains(piece, "function_call") {
			return at
		}
		at += len(piece)
	}
	panic("there is no call")
}

func TestAGatedCallIsWithheldAndReleasedExactlyAsItCame(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		for _, c := range formCases {
			pieces := c.stream("bash", removeAll)
			whole := strings.Join(pieces, "")
			n.provider.events(pieces...)
			res, err := http.DefaultTransport.RoundTrip(n.request("POST", c.path, fmt.Sprintf(c.ask, true)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = res.Body.Close() })
			text := bufio.NewReader(res.Body)
			prefix := whole[:withheldFrom(pieces)]
			seen := make([]byte, len(prefix))
			if _, err := io.ReadFull(text, seen); err != nil || string(seen) != prefix {
				t.Fatalf("%s: %q %v", c.name, seen, err)
			}
			g := n.gate()
			if want := sum(whole[len(prefix):]); g.ActionDigest != want || !strings.Contains(g.Title, "bash") ||
				!strings.Contains(string(g.Artifacts[0]), "rm -r") {
				t.Errorf("%s: %+v", c.name, g)
			}
			// Signs of life come while nobody decides, and nothing of the call.
			line, err := text.ReadString('\n')
			if err != nil || line != "event: ping\n" && line != ": waiting\n" {
				t.Errorf("%s: %q %v", c.name, line, err)
			}
			n.decide(g.ID, true, "")
			rest, err := io.ReadAll(text)
			if got := withoutBeats(line + string(rest)); err != nil || got != whole[len(prefix):] {
				t.Errorf("%s: %v\n%s", c.name, err, got)
			}
			// An SDK that sends the call again, because it has just given up, gets what is stored.
			before := n.provider.calls()
			if got := n.call("POST", c.path, fmt.Sprintf(c.ask, true), "X-Stainless-Retry-Count",
				"1"); got.status != 200 || got.body != whole ||
				got.header.Get("Request-Id") != "req_1" ||
				n.provider.calls() != before {
				t.Errorf("%s: again: %+v", c.name, got)
			}
			// As a reply that is no stream.
			n.provider.json(c.reply)
			waiting := n.begin("POST", c.path, fmt.Sprintf(c.ask, false), "X-Stainless-Timeout", "600")
			g = n.gate()
			if g.ActionDigest != sum(c.reply) {
				t.Errorf("%s: %s", c.name, g.ActionDigest)
			}
			n.decide(g.ID, true, "")
			if got := <-waiting; got.status != 200 || strings.TrimLeft(got.body, " ") != c.reply {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
		if got := len(n.Entries("proxy.released")); got != 9 {
			t.Errorf("%d releases are on record", got)
		}
		n.WantClean()
	})
}

func TestARejectedCallEndsInTheProvidersForm(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		a, err := n.Roster.Agent(t.Context(), "default", "coder")
		if err != nil {
			t.Fatal(err)
		}
		for _, soft := range []bool{false, true} {
			if _, err := n.proxy.Configure(t.Context(), roster.Identity{}, a, proxy.NewSettings{SoftReject: soft}); err != nil {
				t.Fatal(err)
			}
			for _, c := range formCases {
				name := fmt.Sprintf("%s, soft %t", c.name, soft)
				n.provider.events(c.stream("bash", removeAll)...)
				ask := strings.Replace(c.ask, "Clean up", name, 1)
				waiting := n.begin("POST", c.path, fmt.Sprintf(ask, true))
				n.decide(n.gate().ID, false, "Not today.")
				got := <-waiting
				if got.err != nil || strings.Contains(got.body, `"bash"`) || strings.Contains(got.body, "rm -r") ||
					!strings.Contains(got.body, "Not today.") {
					t.Errorf("%s: %+v", name, got)
				}
				if ended := endsWell(c.name, got.body); ended != soft {
					t.Errorf("%s: ends as a whole message: %t\n%s", name, ended, got.body)
				}
				if !soft && !strings.Contains(got.body, "permission_error") {
					t.Errorf("%s: %s", name, got.body)
				}
				// Again: there is nothing to wait for, and a status.
				before := n.provider.calls()
				got = n.call("POST", c.path, fmt.Sprintf(ask, true))
				if want := map[bool]int{false: 403, true: 200}[soft]; got.status != want ||
					!strings.Contains(got.body, "Not today.") || n.provider.calls() != before {
					t.Errorf("%s: again: %+v", name, got)
				}
				if !soft && (got.header.Get("X-Should-Retry") != "false" || got.header.Get("X-Amp-Gate-Id") == "") {
					t.Errorf("%s: %v", name, got.header)
				}
			}
		}
	})
}

// endsWell reports whether a stream ends as one that is whole does.
func endsWell(form, body string) bool {
	switch form {
	case "messages":
		return strings.HasSuffix(body, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	case "chat":
		return strings.HasSuffix(body, "data: [DONE]\n\n")
	}
	i := strings.LastIndex(body, "event: ")
	return strings.HasPrefix(body[max(i, 0):], "event: response.completed\n") && strings.HasSuffix(body, "\n\n")
}

// endings are the ways in which a held call ends without its reply, with the error type by which
// clients tell them apart.
var endings = []struct {
	name, kind string
	status     int
	retried    string
	end        func(n *node, gateID string)
}{
	{"rejected", "permission_error", 403, "false", func(n *node, id string) { n.decide(id, false, "Not today.") }},
	{"expired", "timeout_error", 504, "false", func(n *node, _ string) { n.Move(25 * time.Hour) }},
	{"undecided", "overloaded_error", 503, "true", nil},
}

func TestEndingsCanBeToldApartHoweverLateTheyCome(t *testing.T) {
	for _, ending := range endings {
		for _, c := range formCases {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprint(ending.name, " ", c.name, " stream ", stream), func(t *testing.T) {
					n := one(t, func(o *proxy.Options) {
						if ending.end == nil {
							o.Attempt, o.Hold = 100*time.Millisecond, 100*time.Millisecond
						}
					})
					n.apply(gateBash)
					n.provider.json(c.reply)
					if stream {
						n.provider.events(c.stream("bash", removeAll)...)
					}
					waiting := n.begin("POST", c.path, fmt.Sprintf(c.ask, stream))
					g := n.gate()
					if ending.end != nil {
						ending.end(n, g.ID)
					}
					got := <-waiting
					if !strings.Contains(got.body, `"`+ending.kind+`"`) || strings.Contains(got.body, "rm -r") ||
						!strings.Contains(got.body, g.ID) || endsWell(c.name, got.body) {
						t.Errorf("%+v", got)
					}
					if stream {
						return // its status was sent with the first words
					}
					if got.status != ending.status || got.header.Get("X-Should-Retry") != ending.retried ||
						got.header.Get("X-Amp-Gate-Id") != g.ID || (ending.end == nil) != (got.header.Get("Retry-After") != "") {
						t.Errorf("%+v", got)
					}
				})
			}
		}
	}
}

func TestACallThatIsHeldTooLongIsTakenUpAgain(t *testing.T) {
	n := one(t, func(o *proxy.Options) { o.Attempt = 100 * time.Millisecond })
	n.apply(gateBash)
	for _, c := range formCases {
		n.provider.json(c.reply)
		ask := fmt.Sprintf(c.ask, false)
		for range 3 {
			if got := n.call("POST", c.path, ask); got.status != 503 {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
		before := n.provider.calls()
		n.decide(n.gate().ID, true, "")
		if got := n.call("POST", c.path, ask); got.body != c.reply || n.provider.calls() != before {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := len(n.Entries("gate.opened")); got != len(formCases) || n.provider.calls() != len(formCases) {
		t.Errorf("%d gates, %d calls", got, n.provider.calls())
	}
	// A client that says that it waits for 50 ms is answered before.
	n.provider.json(formCases[0].reply)
	began := time.Now()
	got := n.call("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean", "Wipe", 1),
		"X-Stainless-Timeout", "0.05")
	if got.status != 503 || got.header.Get("Location") == "" {
		t.Errorf("%+v after %v", got, time.Since(began))
	}
}

func TestAsyncAnswersAtOnceAndCallsTheWebhook(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		hook := "https://hooks.example.com/agent"
		n.hook.Store(&hook)
		for _, c := range formCases {
			for _, stream := range []bool{false, true} {
				n.provider.json(c.reply)
				want := c.reply
				if stream {
					n.provider.events(c.stream("bash", removeAll)...)
					want = strings.Join(c.stream("bash", removeAll), "")
				}
				ask := fmt.Sprintf(c.ask, stream)
				got := n.call("POST", c.path, ask, "Prefer", "respond-async")
				g := n.gate()
				if want := fmt.Sprintf(`{"gate_id":%q,"message":"Awaiting operator approval","status":"pending"}`,
					g.ID); got.status != 202 || got.body != want {
					t.Errorf("%s: %+v", c.name, got)
				}
				n.decide(g.ID, true, "")
				before := n.provider.calls()
				if got := n.call("POST", c.path, ask, "Prefer", "respond-async"); got.status != 200 || got.body != want ||
					n.provider.calls() != before {
					t.Errorf("%s: %+v", c.name, got)
				}
			}
		}
		if got := n.Entries("delivery.queued"); len(got) != 6 || !strings.Contains(string(got[0].Body), hook) {
			t.Errorf("%d deliveries", len(got))
		}
		// What needs no decision is answered as ever.
		n.provider.json(`{"id":"x","content":[]}`)
		if got := n.call("POST", messagesPath, `{"model":"m"}`, "Prefer", "respond-async"); got.status != 200 {
			t.Errorf("%+v", got)
		}
	})
}

func TestRetriesMeetTheSameGate(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		n.provider.json(formCases[0].reply)
		ask := fmt.Sprintf(messageAsk, false)
		for range 3 { // clients that give up
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan answer, 1)
			r := n.request("POST", messagesPath, ask).WithContext(ctx)
			go func() { done <- n.do(r) }()
			n.gate()
			testbed.Until(t, "the call to arrive", func() bool { return n.serving.Load() == 1 })
			cancel()
			<-done
			testbed.Until(t, "the proxy to see that the client has gone", func() bool { return n.serving.Load() == 0 })
		}
		waiting := n.begin("POST", messagesPath, ask)
		g := n.gate()
		n.decide(g.ID, true, "")
		if got := <-waiting; got.status != 200 || strings.TrimLeft(got.body, " ") != formCases[0].reply ||
			n.provider.calls() != 1 {
			t.Errorf("%+v, %d calls", got, n.provider.calls())
		}
		if got := len(n.Entries("gate.opened")); got != 1 {
			t.Errorf("%d gates", got)
		}
		// Another key of the same agent, and another body, are other calls.
		n.provider.json(`{"id":"x","content":[]}`)
		if got := n.call("POST", messagesPath, ask+" "); got.body != `{"id":"x","content":[]}` {
			t.Errorf("%+v", got)
		}
		// After its time the call is made anew.
		n.Move(2 * time.Hour)
		if got := n.call("POST", messagesPath, ask); got.body != `{"id":"x","content":[]}` || n.provider.calls() != 3 {
			t.Errorf("%+v, %d calls", got, n.provider.calls())
		}
	})
}

func TestOfTwoCallsAtOnceOneUsesTheApproval(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		n.provider.json(formCases[0].reply)
		ask := fmt.Sprintf(messageAsk, false)
		first, second := n.begin("POST", messagesPath, ask), n.begin("POST", messagesPath, ask)
		g := n.gate()
		testbed.Until(t, "both calls", func() bool { return n.provider.calls() >= 1 })
		n.decide(g.ID, true, "")
		// One of the two has it; the other is told, or asked about anew.
		given := 0
		for first != nil || second != nil {
			var got answer
			select {
			case got = <-first:
				first = nil
			case got = <-second:
				second = nil
			case <-time.After(10 * time.Millisecond):
				for _, g := range n.Pending() {
					n.decide(g.ID, false, "No.")
				}
				continue
			}
			if strings.Contains(got.body, "rm -r build") {
				given++
			}
		}
		if given != 1 {
			t.Errorf("it was given %d times", given)
		}
		if released := len(n.Entries("proxy.released")); released != 1 {
			t.Errorf("%d releases", released)
		}
	})
}

func TestARequestCanBeGatedBeforeItReachesTheProvider(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: web-needs-a-person, on: [prompt], when: 'event.tools.exists(t, " +
			"t.startsWith(\"web_fetch\"))', then: gate}\n")
		ask := func(stream bool) string {
			return fmt.Sprintf(
				`{"model":"claude-sonnet-4-6","stream":%t,"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}],`+
					`"messages":[]}`, stream,
			)
		}
		n.provider.json(formCases[0].reply)
		waiting := n.begin("POST", messagesPath, ask(false))
		g := n.gate()
		if n.provider.calls() != 0 || g.ActionDigest != sum(ask(false)) {
			t.Errorf("%d calls, %s", n.provider.calls(), g.ActionDigest)
		}
		n.decide(g.ID, true, "")
		if got := <-waiting; got.status != 200 || strings.TrimLeft(got.body, " ") != formCases[0].reply {
			t.Errorf("%+v", got)
		}
		n.provider.events(messageStream("read", "{}")...)
		waiting = n.begin("POST", messagesPath, ask(true))
		n.decide(n.gate().ID, true, "")
		if got := <-waiting; withoutBeats(got.body) != withoutBeats(strings.Join(messageStream("read", "{}"), "")) {
			t.Errorf("%+v", got)
		}
		n.apply("  - {name: no-web, on: [prompt], when: 'event.tools.exists(t, t == " +
			"\"mcp:https://evil.example\")', then: block, reason: Not there.}\n")
		before := n.provider.calls()
		got := n.call("POST", messagesPath,
			`{"model":"m","mcp_servers":[{"type":"url","url":"https://evil.example","name":"e"}]}`)
		if got.status != 403 || !strings.Contains(got.body, "Not there.") || n.provider.calls() != before {
			t.Errorf("%+v", got)
		}
		if len(n.Entries("prompt.decided")) != 3 {
			t.Error("not every decision is on record")
		}
		n.WantClean()
	})
}

func TestARequestThatWasApprovedMayHaveAReplyThatNeedsAnother(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: ask-first, on: [prompt], then: gate}\n" + gateBash)
		for _, stream := range []bool{false, true} {
			c := formCases[0]
			whole := c.reply
			n.provider.json(whole)
			if stream {
				pieces := c.stream("bash", removeAll)
				n.provider.events(pieces...)
				whole = strings.Join(pieces, "")
			}
			ask, sent := fmt.Sprintf(c.ask, stream), n.provider.calls()
			waiting := n.begin("POST", c.path, ask)
			request := n.gate()
			n.decide(request.ID, true, "")
			reply := n.gate()
			if _, body := n.provider.last(); reply.ID == request.ID || !strings.Contains(reply.Title, "bash") ||
				string(body) != ask {
				t.Errorf("%+v after %q", reply, body)
			}
			n.decide(reply.ID, true, "")
			if got := <-waiting; withoutBeats(got.body) != withoutBeats(whole) || n.provider.calls()-sent != 1 {
				t.Errorf("stream %t: %+v", stream, got)
			}
		}
		n.WantClean()
	})
}

func TestEveryGatedCallIsOnOneGateWithTheStrictestRules(t *testing.T) {
	n := one(t)
	n.apply(`  - {name: bash, on: [tool_call], when: 'event.tool == "bash"', then: gate, gate: {risk: low, expires: 2h}}
  - {name: browser, on: [tool_call], when: 'event.toolset == "browser" && event.tool == "navigate"', then: gate,
     gate: {approvers: [admin], quorum: 2, risk: high, expires: 1h, presence: passkey}}
`)
	n.provider.json(
		`{"id":"msg_1","content":[{"type":"tool_use","id":"a","name":"bash","input":{"command":"ls"}},` +
			`{"type":"tool_use","id":"b","name":"read","input":{}},{"type":"tool_use","id":"c","toolset_name":"browser",` +
			`"name":"navigate","input":{"url":"https://x.example/a"}}]}`,
	)
	waiting := n.begin("POST", messagesPath, fmt.Sprintf(messageAsk, false))
	g := n.gate()
	if g.Quorum != 2 || g.Risk != "high" || g.Presence != gate.Passkey || fmt.Sprint(g.Approvers) != "[admin]" || len(g.Artifacts) != 2 ||
		time.Until(*g.ExpiresAt) > 61*time.Minute {
		t.Errorf("%+v", g)
	}
	if _, err := n.Gates.Vote(t.Context(), n.operator, g.ID, gate.Ballot{Approve: true}); err == nil {
		t.Error("an operator decided what an admin has to")
	}
	n.stop()
	<-waiting
}

func TestAGateOutlivesTheServer(t *testing.T) {
	address := t.TempDir() + "/a.db"
	n := start(t, address)
	n.apply(gateBash)
	n.provider.json(formCases[0].reply)
	waiting := n.begin("POST", messagesPath, fmt.Sprintf(messageAsk, false))
	g := n.gate()
	n.stop()
	<-waiting
	key, operator := n.key, n.operator
	n.DB.Close()
	m := restart(t, address, key, operator)
	m.provider.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	m.decide(g.ID, true, "")
	if got := m.call("POST", messagesPath, fmt.Sprintf(messageAsk, false)); got.status != 200 ||
		got.body != formCases[0].reply || m.provider.calls() != 0 {
		t.Errorf("%+v", got)
	}
}

func TestManyCallsAreHeldAtOnce(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	n.provider.json(formCases[0].reply)
	const many = 200
	var answered atomic.Int64
	for i := range many {
		r := n.request("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean up", fmt.Sprint(i), 1))
		go func() {
			if got := n.do(r); got.status == 200 && strings.TrimLeft(got.body, " ") == formCases[0].reply {
				answered.Add(1)
			}
		}()
	}
	var all []gate.Gate
	testbed.Until(t, "all gates", func() bool {
		all, _, _ = n.Gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, many+1)
		return len(all) == many
	})
	for _, g := range all {
		n.decide(g.ID, true, "")
	}
	testbed.Until(t, "all answers", func() bool { return answered.Load() == many })
}
