package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
)

func TestACallThatNoRuleMatchesIsPassedByteForByte(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		odd := `{ "id" : "msg_1","type":"message","unknown":{"b":1, "a":2.50e3},"content":[{"type":"tool_use",` +
			`"id":"t","name":"read_file","input":{"path":"a"}},{"type":"from_the_future"}],"model":"claude-sonnet-4-6",` +
			`"usage":{"input_tokens":3,"output_tokens":4} }` + "\n"
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Request-Id", "req_9")
			w.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "7")
			w.Header().Add("X-Twice", "1")
			w.Header().Add("X-Twice", "2")
			w.Header().Set("X-Request-Id", "theirs")
			_, _ = io.WriteString(w, odd)
		})
		ask := `{"model":"claude-sonnet-4-6",  "max_tokens":1.0e1,"messages":[{"role":"user","content":"hi \u00e9"}],` +
			`"new_field":null}`
		got := n.call("POST", messagesPath+"?beta=true&x=%2F", ask, "Anthropic-Version", "2023-06-01", "Anthropic-Beta",
			"a,b", "X-Unknown", "kept", "X-Amp-Project", "deck-1", "X-Stainless-Retry-Count", "0")
		if got.status != 200 || got.body != odd || got.err != nil {
			t.Fatalf("%d %q %v", got.status, got.body, got.err)
		}
		for name, want := range map[string][]string{
			"Request-Id": {"req_9"}, "Anthropic-Ratelimit-Requests-Remaining": {"7"},
			"X-Twice": {"1", "2"}, "X-Request-Id": {"theirs"},
		} {
			if diff := cmp.Diff(want, got.header[name]); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		r, body := n.provider.last()
		if string(body) != ask || r.URL.RequestURI() != "/v1/messages?beta=true&x=%2F" {
			t.Errorf("%s %s", r.URL.RequestURI(), body)
		}
		for name, want := range map[string]string{
			"X-Api-Key": theirKey, "Authorization": "",
			"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "a,b", "X-Unknown": "kept", "X-Amp-Project": "",
			"X-Stainless-Retry-Count": "0",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("the provider got %s: %q", name, got)
			}
		}
	})
}

func TestAStreamIsPassedAsItComes(t *testing.T) {
	n := silent(t)
	for _, rules := range []string{"", gateBash} {
		n.apply(rules)
		for _, c := range formCases {
			next := make(chan struct{})
			pieces := c.stream("read_file", `{"path":"a"}`)
			n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, pieces[0])
				_ = http.NewResponseController(w).Flush()
				<-next
				for _, piece := range pieces[1:] {
					_, _ = io.WriteString(w, piece)
				}
			})
			res, err := http.DefaultTransport.RoundTrip(n.request("POST", c.path, fmt.Sprintf(c.ask, true)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = res.Body.Close() })
			first := make([]byte, len(pieces[0]))
			if _, err := io.ReadFull(res.Body, first); err != nil { // before the rest was sent
				t.Fatal(err)
			}
			close(next)
			rest, err := io.ReadAll(res.Body)
			if all := string(first) + string(rest); err != nil || all != strings.Join(pieces, "") {
				t.Errorf("%s: %v\n%s", c.name, err, all)
			}
		}
	}
}

func TestErrorsOfTheProviderArePassed(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	for status, body := range map[int]string{
		400: `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, 429: `{"type":"error"}`,
		529: `not json`,
	} {
		n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
		if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false)); got.status != status || got.body != body ||
			got.header.Get("Retry-After") != "7" {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

func TestTheAgentIsKnownInThreeWays(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.provider.json(`{"id":"msg_1","content":[]}`)
		a, err := n.Roster.Agent(t.Context(), "default", "coder")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.proxy.Configure(t.Context(), roster.Identity{}, a,
			proxy.NewSettings{ProviderKeys: []string{roster.KeySum("sk-registered")}}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, path     string
			header         []string
			apiKey, bearer string // that the provider gets
			status         int
		}{
			{"our key, first style", messagesPath, []string{"X-Api-Key", n.key}, theirKey, "", 200},
			{
				"our key, second style", messagesPath,
				[]string{"X-Api-Key", "", "Authorization", "Bearer " + n.key},
				"",
				"Bearer " + theirKey, 200,
			},
			{
				"our key, OpenAI", chatPath,
				[]string{"X-Api-Key", "", "Authorization", "Bearer " + n.key},
				"",
				"Bearer " + theirKey, 200,
			},
			{"in the path", "/v1/proxy/a/" + n.key + "/v1/messages", []string{"X-Api-Key", "sk-own"}, "sk-own", "", 200},
			{
				"in the path, OpenAI", "/v1/proxy/a/" + n.key + "/openai/v1/chat/completions",
				[]string{"X-Api-Key", "", "Authorization", "Bearer sk-own"},
				"", "Bearer sk-own", 200,
			},
			{
				"one of each", messagesPath,
				[]string{"X-Api-Key", "sk-own", "Authorization", "Bearer " + n.key},
				"sk-own", "",
				200,
			},
			{"registered", messagesPath, []string{"X-Api-Key", "sk-registered"}, "sk-registered", "", 200},
			{
				"registered, second style", messagesPath,
				[]string{"X-Api-Key", "", "Authorization", "Bearer sk-registered"},
				"",
				"Bearer sk-registered", 200,
			},
			{"nobody's", messagesPath, []string{"X-Api-Key", "sk-nobody"}, "", "", 401},
			{"none", messagesPath, []string{"X-Api-Key", ""}, "", "", 401},
			{"wrong", messagesPath, []string{"X-Api-Key", "rs-amp-" + strings.Repeat("0", 32)}, "", "", 401},
			{
				"wrong in the path", "/v1/proxy/a/rs-amp-" + strings.Repeat("0", 32) + "/v1/messages",
				[]string{"X-Api-Key", theirKey},
				"", "", 401,
			},
		} {
			before := n.provider.calls()
			got := n.call("POST", c.path, fmt.Sprintf(messageAsk, false), c.header...)
			if got.status != c.status {
				t.Errorf("%s: %+v", c.name, got)
			}
			if c.status != 200 {
				if n.provider.calls() != before {
					t.Errorf("%s: it reached the provider", c.name)
				}
				var e struct {
					Type  string
					Error struct{ Type, Message string }
				}
				if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error.Type != "authentication_error" {
					t.Errorf("%s: %s", c.name, got.body)
				}
				continue
			}
			r, _ := n.provider.last()
			if r.Header.Get("X-Api-Key") != c.apiKey || r.Header.Get("Authorization") != c.bearer {
				t.Errorf("%s: the provider got %q and %q", c.name, r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"))
			}
			if text := fmt.Sprint(r.Header, r.URL); strings.Contains(text, n.key) {
				t.Errorf("%s: the provider got the agent's key", c.name)
			}
		}
		n.WantClean()
	})
}

func TestAProvidersKeyIsInNoTableAndNoEntry(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for _, e := range n.Entries() {
			if bytes.Contains(e.Body, []byte(theirKey)) || bytes.Contains(e.Record, []byte(theirKey)) {
				t.Errorf("entry %d (%s) holds it", e.Seq, e.Kind)
			}
		}
		rows, err := n.DB.Read.QueryContext(t.Context(), "SELECT sealed FROM proxy_vault")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		count := 0
		for rows.Next() {
			var sealed []byte
			if err := rows.Scan(&sealed); err != nil || bytes.Contains(sealed, []byte("sk-ant")) {
				t.Errorf("%q %v", sealed, err)
			}
			count++
		}
		if rows.Err() != nil || count != 2 {
			t.Error(count, rows.Err())
		}
	})
}

func TestWhatIsNotKnownIsNotCarried(t *testing.T) {
	n := one(t)
	for _, call := range []string{
		"POST /v1/proxy/v1/complete", "GET /v1/proxy/v1/messages", "POST /v1/proxy/openai/v1/threads/t/runs",
		"GET /v1/proxy/openai/v1/conversations/c/items",
		"POST /v1/proxy/v2/messages", "POST /v1/proxy/v1/messages%2Fbatches", "POST /v1/proxy/openai/v1/realtime/sessions",
		"GET /v1/proxy/openai/v1/responses/r/input_items",
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := n.call(method, path, `{}`); got.status != 404 || !strings.Contains(got.body, "not_found_error") {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if n.provider.calls() != 0 {
		t.Error("something reached the provider")
	}
}

func TestABatchsResultsAreFetchedThroughUs(t *testing.T) {
	n := one(t)
	n.provider.json(
		`{"id":"msgbatch_1","results_url" : "https://api.anthropic.com/v1/messages/batches/msgbatch_1/results","x":1}`,
	)
	want := `{"id":"msgbatch_1","results_url" : "` + n.web.URL + `/v1/proxy/v1/messages/batches/msgbatch_1/results","x":1}`
	ask := `{"requests":[{"custom_id":"a","params":{"model":"claude-sonnet-4-6","max_tokens":5,"messages":[]}}]}`
	for _, got := range []answer{
		n.call("POST", messagesPath+"/batches", ask),
		n.call("GET", messagesPath+"/batches/msgbatch_1", ""),
	} {
		if got.status != 200 || got.body != want {
			t.Errorf("%+v", got)
		}
	}
	// With the provider's own key nothing is changed.
	if got := n.call("GET", "/v1/proxy/a/"+n.key+"/v1/messages/batches/msgbatch_1", "", "X-Api-Key",
		"sk-own"); !strings.Contains(got.body, "https://api.anthropic.com") {
		t.Errorf("%+v", got)
	}
	// A rule sees every call of a batch.
	n.apply("  - {name: no-opus, on: [prompt], when: 'event.kind == \"batch\" && event.model == \"claude-opus-4-6\"', " +
		"then: block, reason: Too dear.}\n")
	before := n.provider.calls()
	two := `{"requests":[{"params":{"model":"claude-sonnet-4-6"}},{"params":{"model":"claude-opus-4-6"}},` +
		`{"params":{"model":"claude-sonnet-4-6"}}]}`
	if got := n.call("POST", messagesPath+"/batches", two); got.status != 403 || !strings.Contains(got.body, "Too dear") ||
		n.provider.calls() != before {
		t.Errorf("%+v", got)
	}
}

func TestACodedReplyIsReadAndGivenAsItCame(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	var coded bytes.Buffer
	z := gzip.NewWriter(&coded)
	_, _ = io.WriteString(z, formCases[0].reply)
	_ = z.Close()
	n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(coded.Bytes())
	})
	ask := fmt.Sprintf(messageAsk, false)
	waiting := n.begin("POST", messagesPath, ask, "Accept-Encoding", "gzip, br")
	n.decide(n.gate().ID, true, "")
	if got := <-waiting; got.body != coded.String() || got.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%+v", got)
	}
	if r, _ := n.provider.last(); r.Header.Get("Accept-Encoding") != "gzip" {
		t.Errorf("%q", r.Header.Get("Accept-Encoding"))
	}
	// A coding that we cannot read is not passed on unread.
	n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "xxx")
	})
	if got := n.call("POST", messagesPath, `{"model":"m"}`, "Accept-Encoding", "br"); got.status != 502 {
		t.Errorf("%+v", got)
	}
}

func TestARequestThatCannotBeReadIsRefusedWhereRulesLook(t *testing.T) {
	n := one(t)
	n.provider.json(`{"error":"theirs"}`)
	twice := `{"model":"a","model":"b","messages":[]}`
	if got := n.call("POST", messagesPath, twice); got.body != `{"error":"theirs"}` {
		t.Errorf("without rules it is the provider's to say: %+v", got)
	}
	n.apply("  - {name: only-a, on: [prompt], when: 'event.model != \"a\"', then: block}\n")
	before := n.provider.calls()
	for _, body := range []string{
		twice, `{"model":"a","messages":[],"mod\u0065l":"b"}`,
		`{"messages":[],"messages":[],"model":"a"}`, `{"model":"a"}{"model":"b"}`, `{"model":`, `[]`, "", `{"model":1}`,
	} {
		if got := n.call("POST", messagesPath, body); got.status != 400 ||
			!strings.Contains(got.body, "invalid_request_error") {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := n.call("POST", messagesPath, `{"model":"a"}`, "Content-Encoding", "gzip"); got.status != 415 {
		t.Errorf("%+v", got)
	}
	if n.provider.calls() != before {
		t.Error("something reached the provider")
	}
}

func TestALargeRequestIsTakenAndATooLargeOneIsNot(t *testing.T) {
	n := one(t)
	n.provider.json(`{"id":"msg_1","content":[]}`)
	large := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 31<<20) + `"}]}`
	if got := n.call("POST", messagesPath, large); got.status != 200 {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	if _, body := n.provider.last(); string(body) != large {
		t.Error("it was changed")
	}
	if got := n.call("POST", messagesPath, large+strings.Repeat(" ", 2<<20)); got.err == nil &&
		(got.status != 413 || !strings.Contains(got.body, "request_too_large")) {
		t.Errorf("%d %.200s %v", got.status, got.body, got.err)
	}
}

// What a client writes outside of the folder that it works in waits for a person, as it does at a hook.
func TestRulesKnowWhereAClientWorks(t *testing.T) {
	n := one(t)
	n.Apply(strings.Replace(string(policy.Default()), "version: 1\n", "", 1))
	const ask = `{"model":"claude-sonnet-4-6","max_tokens":100,"system":"%s","messages":[{"role":"user","content":"%s"}]}`
	for path, gated := range map[string]bool{"/srv/app/notes": false, "/srv/other/notes": true} {
		n.provider.json(strings.NewReplacer(`"bash"`, `"Write"`, `{"command":"rm -r build"}`,
			`{"file_path":"`+path+`","content":"x"}`).Replace(formCases[0].reply))
		waiting := n.begin("POST", messagesPath, fmt.Sprintf(ask, `- Primary working directory: /srv/app\n`, path))
		if gated {
			g := n.gate()
			if !strings.Contains(g.Rule, "outside-needs-a-person") {
				t.Errorf("%+v", g)
			}
			n.decide(g.ID, true, "")
		}
		if got := <-waiting; got.status != 200 || !strings.Contains(got.body, path) {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
