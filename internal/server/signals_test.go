package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// ampAnswer is what an agent hears.
type ampAnswer struct {
	Status  string  `json:"status"`
	GateID  *string `json:"gate_id"`
	Message string  `json:"message"`
}

// agentKey adds an agent and returns its key.
func (b *box) agentKey(name, workspace string) string {
	b.t.Helper()
	var added struct{ Keys map[string]string }
	b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":%q,"workspace":%q}`, name, workspace), &added)
	return added.Keys["signal"]
}

func ampSignal(agent, run string) string {
	return fmt.Sprintf(`{"amp_version":"1.0","agent_id":%q,"run_id":%q,"project_id":"job-search","status":"completed",`+
		`"summary":"Rewrote it","proposed_action":"Send it",
"model":"claude-sonnet-4-6","input_tokens":10,"output_tokens":5,"cost_usd":0.25,"gate_required":true,`+
		`"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z"}`, agent, run)
}

// signal sends a signal that opens a gate, and returns the gate's id.
func (b *box) signal(key, agent, run string) string {
	b.t.Helper()
	status, text, _ := b.do(request{call: "POST /amp/signal", token: key, body: ampSignal(agent, run)})
	var a ampAnswer
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 202 || a.Status != "pending" || a.GateID == nil {
		b.t.Fatalf("%d %s", status, text)
	}
	return *a.GateID
}

// waiting is a call that somebody makes and waits for.
type waiting struct {
	status int
	text   string
	header http.Header
	took   time.Duration
}

// arrives makes a call of an agent in the background, and returns when the server has it.
func (b *box) arrives(agent string, call func() <-chan waiting) <-chan waiting {
	b.t.Helper()
	before := time.Now().Truncate(time.Microsecond)
	answer := call()
	b.hears(agent, before)
	return answer
}

// hears waits until the server has had a call of an agent since a moment.
func (b *box) hears(agent string, since time.Time) {
	b.t.Helper()
	testbed.Until(b.t, "the call to arrive", func() bool {
		var shown struct {
			LastSeenAt time.Time `json:"last_seen_at"`
		}
		b.ops(200, "GET /ops/agents/"+agent, "", &shown)
		return !shown.LastSeenAt.Before(since)
	})
}

// later makes a call with a header in the background, and says when its answer begins.
func (b *box) later(call, token, body, header, value string, begins ...func()) <-chan waiting {
	b.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(header, value)
	done := make(chan waiting, 1)
	go func() {
		began := time.Now()
		res, err := b.client.Do(req)
		if err != nil {
			done <- waiting{text: err.Error()}
			return
		}
		defer func() { _ = res.Body.Close() }()
		for _, begin := range begins {
			begin()
		}
		text, _ := io.ReadAll(res.Body)
		done <- waiting{res.StatusCode, string(text), res.Header, time.Since(began)}
	}()
	return done
}

func TestTheSignalCallAnswersAsTheContractSays(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		key := b.agentKey("tailor", "default")
		var owner struct{ Key string }
		b.ops(201, "POST /ops/owners", `{"name":"finance"}`, &owner)
		good := ampSignal("tailor", "r-1")
		for _, c := range []struct {
			name   string
			req    request
			status int
			says   []string
			writes int64
		}{
			{"no key", request{call: "POST /amp/signal", body: good}, 401, []string{"rs-amp-"}, 0},
			{
				"an operator's token",
				request{call: "POST /amp/signal", body: good, token: b.token()},
				403,
				[]string{"for agents"},
				0,
			},
			{"an owner's key", request{call: "POST /amp/signal", body: good, token: owner.Key}, 403, nil, 0},
			{
				"not JSON",
				request{call: "POST /amp/signal", body: good, token: key, media: "text/plain"},
				415,
				[]string{"application/json"},
				0,
			},
			{
				"too large",
				request{call: "POST /amp/signal", body: `{"x":"` + strings.Repeat("x", 1<<20) + `"}`, token: key},
				413,
				[]string{"1048576"},
				0,
			},
			{
				"wrong in many ways",
				request{call: "POST /amp/signal", body: `{"amp_version":1.0}`, token: key},
				400,
				[]string{`"error":"invalid_payload"`, `"supported":["1.0"]`, `"details":{"fields":{"agent_id":`, `"summary":`},
				0,
			},
			{
				"another agent",
				request{call: "POST /amp/signal", body: ampSignal("other", "r-1"), token: key},
				403,
				[]string{"agent_scope", `"field":"agent_id"`},
				0,
			},
			{
				"a gate",
				request{call: "POST /amp/signal", body: good, token: key},
				202,
				[]string{`{"status":"pending","gate_id":"gate_0`, `"message":"Awaiting operator approval"}`},
				2,
			},
			{
				"the same again",
				request{call: "POST /amp/signal", body: good, token: key},
				202,
				[]string{`"status":"pending"`},
				1,
			},
			{
				"another with its id",
				request{call: "POST /amp/signal", body: strings.Replace(good, "Rewrote", "Burned", 1), token: key},
				409,
				[]string{"duplicate_run_id", `"field":"run_id"`},
				1,
			},
			{
				"no gate",
				request{
					call: "POST /amp/signal",
					body: strings.Replace(ampSignal("tailor", "r-2"), `"gate_required":true`, `"gate_required":false`, 1), token: key,
				},
				200,
				[]string{`{"status":"approved","gate_id":null,"message":"No gate required"}`},
				1,
			},
			{"a wrong wait", request{call: "GET /amp/gates/gate_x?wait=-3s", token: key}, 404, nil, 0},
			{"a gate that is not there", request{call: "GET /amp/gates/gate_x", token: key}, 404, []string{"gate_id"}, 0},
			{"the prices", request{call: "GET /amp/pricing"}, 200, []string{`"claude-sonnet-4-6"`, "usd_per_million_tokens"}, 0},
		} {
			before := b.head()
			status, answer, _ := b.do(c.req)
			if status != c.status {
				t.Errorf("%s: %d, want %d: %s", c.name, status, c.status, answer)
			}
			for _, s := range c.says {
				if !strings.Contains(answer, s) {
					t.Errorf("%s: the answer does not say %q: %s", c.name, s, answer)
				}
			}
			if wrote := b.head() - before; wrote != c.writes {
				t.Errorf("%s: %d entries were written, want %d", c.name, wrote, c.writes)
			}
		}
		_, _, header := b.do(request{call: "POST /amp/signal", body: good, token: key})
		if header.Get("AMP-Duplicate") != "true" {
			t.Errorf("a duplicate is not marked: %v", header)
		}
		odd := strings.Replace(ampSignal("tailor", "odd"), "{", `{"colour":"red",`, 1)
		many := `{`
		for i := range 5000 {
			many += fmt.Sprintf(`"unknown-%d":1,`, i)
		}
		for _, body := range []string{odd, strings.Replace(ampSignal("tailor", "many"), "{", many, 1)} {
			status, text, header := b.do(request{call: "POST /amp/signal", body: body, token: key})
			if w := header.Get("AMP-Warnings"); status != 202 || !strings.Contains(w, "unknown field") || len(w) > 2000 {
				t.Errorf("%d %s %d", status, text, len(w))
			}
		}
	})
}

func TestAnAgentHearsTheDecisionWhicheverWayItWaits(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) { waitEveryWay(t, b, b) })
}

func TestAnAgentHearsADecisionOfAnotherNode(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	waitEveryWay(t, start(t, address, nil), start(t, address, nil))
}

// waitEveryWay waits on one node for what is decided on another.
func waitEveryWay(t *testing.T, here, there *box) {
	t.Helper()
	key := here.agentKey("tailor", "default")
	gates := make([]string, 3)
	for i := range gates {
		gates[i] = here.signal(key, "tailor", fmt.Sprint("r-", i))
	}
	later := func(call, body, header, value string) <-chan waiting {
		return here.arrives("tailor", func() <-chan waiting { return here.later(call, key, body, header, value) })
	}
	begun := make(chan struct{}) // a stream that has begun has said that the gate waits
	events := here.later("GET /amp/gates/"+gates[2], key, "", "Accept", "text/event-stream", func() { close(begun) })
	testbed.Receive(t, "the stream", begun)
	calls := map[string]<-chan waiting{
		"Prefer: wait":        later("POST /amp/signal", ampSignal("tailor", "r-0"), "Prefer", "respond-async, wait=55"),
		"?wait=":              later("GET /amp/gates/"+gates[1]+"?wait=55s", "", "Accept", "application/json"),
		"?wait= in seconds":   later("GET /amp/gates/"+gates[1]+"?wait=10000000000", "", "Accept", "application/json"),
		"server-sent events":  events,
		"Prefer: a huge wait": later("POST /amp/signal", ampSignal("tailor", "r-0"), "Prefer", "wait=10000000000"),
	}
	for i, gate := range gates {
		there.ops(200, "POST /ops/gates/"+gate+"/"+[]string{"approve", "reject"}[i%2], `{"note":"Because."}`, nil)
	}
	for how, call := range calls {
		got := <-call
		if got.status != 200 || !strings.Contains(got.text, "by operator: Because.") || got.took > 50*time.Second {
			t.Errorf("%s: %+v", how, got)
		}
		if how == "Prefer: wait" && got.header.Get("Preference-Applied") != "wait=55" {
			t.Errorf("%v", got.header)
		}
		if how == "server-sent events" &&
			(!strings.HasPrefix(got.text, "event: pending\ndata: {") ||
				!strings.Contains(got.text, "event: approved\ndata: {")) {
			t.Errorf("the events are %s", got.text)
		}
	}
	// What is decided is answered at once, and a wait that ends answers as it stands.
	if got := <-here.later("GET /amp/gates/"+gates[0]+"?wait=55s", key, "", "Accept",
		"text/event-stream"); got.took > 50*time.Second || !strings.HasPrefix(got.text, "event: approved") {
		t.Errorf("%+v", got)
	}
	open := here.signal(key, "tailor", "open")
	if got := <-here.later("GET /amp/gates/"+open+"?wait=1s", key, "", "Accept", "*/*"); got.status != 202 ||
		got.took < time.Second {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"wait=soon", "wait=-1"} {
		if got := <-here.later("GET /amp/gates/"+open+"?"+wrong, key, "", "Accept", "*/*"); got.status != 400 {
			t.Errorf("%s: %+v", wrong, got)
		}
		// A preference that makes no sense is as good as none (RFC 7240).
		if got := <-here.later("POST /amp/signal", key, ampSignal("tailor", "open"), "Prefer", wrong); got.status != 202 ||
			got.took > 50*time.Second {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
}

func TestAStopEndsCallsThatWaitAtOnce(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		key := b.agentKey("tailor", "default")
		gate := b.signal(key, "tailor", "r")
		later := func(call, body, header, value string) <-chan waiting {
			return b.arrives("tailor", func() <-chan waiting { return b.later(call, key, body, header, value) })
		}
		calls := []<-chan waiting{
			later("POST /amp/signal", ampSignal("tailor", "r"), "Prefer", "wait=60"),
			later("GET /amp/gates/"+gate+"?wait=60s", "", "Accept", "*/*"),
			later("GET /amp/gates/"+gate, "", "Accept", "text/event-stream"),
		}
		begun := make(chan struct{})
		calls = append(calls, b.later("GET /ops/counters", b.token(), "", "Accept", "text/event-stream", func() {
			close(begun)
		}))
		testbed.Receive(t, "the counters", begun)
		b.stop() // calls that went on would be cut off in the end, without an answer
		for i, call := range calls {
			if got := <-call; got.status != []int{202, 202, 200, 200}[i] ||
				i < 3 && !strings.Contains(got.text, `"status":"pending"`) {
				t.Errorf("call %d: %+v", i, got)
			}
		}
	})
}

func TestAHundredDecideOverHTTPAndOneIsFirst(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		gate := b.signal(b.agentKey("tailor", "default"), "tailor", "r")
		tokens := []string{b.token()}
		for i := range 9 {
			var added struct{ Token string }
			b.ops(201, "POST /ops/operators", fmt.Sprintf(`{"name":"op-%d"}`, i), &added)
			tokens = append(tokens, added.Token)
		}
		var first, late atomic.Int32
		var named sync.Map
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				verb := []string{"approve", "reject"}[i%2]
				status, text, _ := b.do(request{
					call: "POST /ops/gates/" + gate + "/" + verb, token: tokens[i%10], body: `{"note":"n"}`,
				})
				var answer struct {
					Error      string
					ResolvedBy string `json:"resolved_by"`
					Details    struct {
						ResolvedBy string `json:"resolved_by"`
					}
				}
				_ = json.Unmarshal([]byte(text), &answer)
				switch {
				case status == 200:
					first.Add(1)
					named.Store(answer.ResolvedBy, true)
				case status == 409 && answer.Error == "already_resolved":
					late.Add(1)
					named.Store(answer.Details.ResolvedBy, true)
				default:
					t.Errorf("%d %s", status, text)
				}
			})
		}
		wg.Wait()
		names := 0
		named.Range(func(name, _ any) bool { names++; return name != "" })
		if first.Load() != 1 || late.Load() != 99 || names != 1 {
			t.Errorf("%d were first, %d late, %d are named as the one who decided", first.Load(), late.Load(), names)
		}
		var page ledger.EntryPage
		b.ops(200, "GET /ops/ledger?kind=gate.resolved", "", &page)
		if len(page.Entries) != 1 {
			t.Errorf("%d resolutions", len(page.Entries))
		}
	})
}

func TestAnAgentThatAsksHearsWhoDecided(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		key := b.agentKey("tailor", "default")
		gate := b.signal(key, "tailor", "r")
		var added struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"ines"}`, &added)
		if status, text, _ := b.do(request{call: "POST /ops/gates/" + gate + "/approve", token: added.Token}); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		for prefer, want := range map[string]string{
			"": "", "wait=1": "", "resolved-by": "ines",
			"wait=1, Resolved-By": "ines",
		} {
			for _, c := range []waiting{
				<-b.later("GET /amp/gates/"+gate, key, "", "Prefer", prefer),
				<-b.later("POST /amp/signal", key, ampSignal("tailor", "r"), "Prefer", prefer),
			} {
				if got := c.header.Get("AMP-Resolved-By"); c.status != 200 || got != want || strings.Contains(c.text, "ines") {
					t.Errorf("Prefer: %s: %d %q %s", prefer, c.status, got, c.text)
				}
			}
		}
	})
}

func TestAnAgentSeesNoGateButItsOwn(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		gate := b.signal(b.agentKey("tailor", "default"), "tailor", "r")
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		scout, namesake := b.agentKey("scout", "default"), b.agentKey("tailor", "other")
		for _, key := range []string{scout, namesake} {
			for _, call := range []string{"GET /amp/gates/" + gate, "GET /amp/gates/" + gate + "?wait=5s"} {
				if status, text, _ := b.do(request{call: call, token: key}); status != 404 || strings.Contains(text, "pending") {
					t.Errorf("%d %s", status, text)
				}
			}
		}
		if other := b.signal(namesake, "tailor", "r"); other == gate {
			t.Error("the same run of a namesake in another workspace has the same gate")
		}
	})
}

// counters is what the tests look at of GET /ops/counters.
type counters struct {
	Total struct {
		Runs  struct{ Completed int64 }
		Gates struct{ Opened, Approved, Waiting int64 }
	}
	Decks []struct{ Workspace, Name string }
}

func TestTheCountersArePushedWhenTheyChange(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		key := b.agentKey("tailor", "default")
		lines := bufio.NewScanner(b.openStream("/ops/counters?project=job-search", b.token(), "text/event-stream"))
		next := func() (c counters) {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					if err := json.Unmarshal([]byte(data), &c); err != nil {
						t.Fatal(err)
					}
					return c
				}
			}
			t.Fatalf("the stream ended: %v", lines.Err())
			return c
		}
		until := func(is func(counters) bool) {
			for c := next(); !is(c); {
				c = next()
			}
		}
		if c := next(); c.Total.Runs.Completed != 0 {
			t.Errorf("%+v", c)
		}
		gate := b.signal(key, "tailor", "r-1")
		until(func(c counters) bool { return c.Total.Runs.Completed == 1 && c.Total.Gates.Waiting == 1 })
		b.ops(200, "POST /ops/gates/"+gate+"/approve", "", nil)
		until(func(c counters) bool { return c.Total.Gates.Approved == 1 && c.Total.Gates.Waiting == 0 })
	})
}

func TestCountersAndDecksOverHTTP(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		b.signal(b.agentKey("tailor", "default"), "tailor", "r-1")
		b.signal(b.agentKey("scout", "other"), "scout", "r-1")
		var c counters
		testbed.Until(t, "the counting", func() bool {
			b.ops(200, "GET /ops/counters", "", &c)
			return c.Total.Gates.Opened >= 2
		})
		var otto struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"otto","workspace":"other"}`, &otto)
		today := time.Now().UTC().Format(time.DateOnly)
		for _, q := range []struct {
			query, token string
			status       int
			says         string
			not          string
		}{
			{
				"counters?from=" + today + "&to=" + today, b.token(), 200,
				`"decks":[{"workspace":"default","name":"job-search","counts":{"runs":{"completed":1`, "",
			},
			{"counters?agent=scout", b.token(), 200, `"name":"scout","counts"`, "tailor"},
			{"counters?agent=nobody", b.token(), 200, `"decks":[]`, "tailor"},
			{"counters?workspace=other", b.token(), 200, `"workspace":"other"`, `"default"`},
			{"counters?project=empty", b.token(), 200, `"decks":[]`, "tailor"},
			{"counters", otto.Token, 200, `"name":"scout"`, "tailor"},
			{"counters?workspace=default", otto.Token, 200, `"decks":[],"agents":[],"days":[]`, "tailor"},
			{"counters?from=2020-01-01&to=2020-02-01", b.token(), 200, `"oldest_waiting_since":"20`, `"completed":1`},
			{"counters?from=yesterday", b.token(), 400, "2026-11-01", ""},
			{"counters?from=2026-02-02&to=2026-02-01", b.token(), 400, "1 to 366", ""},
			{"counters?from=2020-02-02&to=2026-02-01", b.token(), 400, "1 to 366", ""},
			{"decks", b.token(), 200, `{"workspace":"default","name":"job-search","title":"","sorted":false,"first_at":"20`, ""},
			{"decks", otto.Token, 200, `"workspace":"other"`, `"default"`},
			{"decks?limit=1", b.token(), 200, `"next":"ZG`, `"other"`},
		} {
			status, text, _ := b.do(request{call: "GET /ops/" + q.query, token: q.token})
			if status != q.status || !strings.Contains(text, q.says) || q.not != "" && strings.Contains(text, q.not) {
				t.Errorf("%s: %d %s", q.query, status, text)
			}
		}
		for _, p := range []struct {
			call, body string
			status     int
			says       string
			writes     int64
		}{
			{"PUT /ops/decks/job-search", `{"title":"Job search"}`, 200, `"title":"Job search","sorted":true,"first_at":"20`, 1},
			{"PUT /ops/decks/job-search", `{"title":"Job search"}`, 200, `"sorted":true`, 0},
			{"PUT /ops/decks/later", `{"title":"Later"}`, 200, `"first_at":null`, 1},
			{"PUT /ops/decks/Later", `{"title":"Later"}`, 400, "lower-case", 0},
			{"PUT /ops/decks/later", `{"title":" "}`, 400, "1 to 120", 0},
			{"PUT /ops/decks/later?workspace=mars", `{"title":"x"}`, 404, "no workspace", 0},
			{"GET /ops/decks", "", 200, `"name":"later","title":"Later"`, 0},
		} {
			before := b.head()
			status, text, _ := b.do(request{call: p.call, body: p.body, token: b.token()})
			if status != p.status || !strings.Contains(text, p.says) || b.head()-before != p.writes {
				t.Errorf("%s %s: %d %s, %d written", p.call, p.body, status, text, b.head()-before)
			}
		}
		b.wantRebuilt(1)
	})
}
