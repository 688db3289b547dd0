package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/testbed"
)

// give hands work on as the agent with the key.
func (b *box) give(key, body string, into any) {
	b.t.Helper()
	answer, _ := b.call(201, "POST /v1/handoffs", key, body)
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		b.t.Fatal(err)
	}
}

// given is a handoff as the one who hands on gets it.
type given struct {
	Handoff handoff.Handoff
	Token   string
}

// handed is a server with three agents of alice, of which the first has handed work on to the second, and that one to
// the third.
type handed struct {
	*box
	keys, depth   map[string]string
	first, second given
}

func newHanded(t *testing.T, b *box) *handed {
	t.Helper()
	h := &handed{box: b, keys: map[string]string{}, depth: map[string]string{"lead": "0", "helper": "1", "deep": "2"}}
	b.applyPolicy("version: 1\nrules: [{name: ask, on: [action], when: 'event.tool == \"pay\"', then: gate}]\n")
	b.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com"}`, nil)
	for _, name := range []string{"lead", "helper", "deep"} {
		var added struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"`+name+`","owner":"alice"}`, &added)
		h.keys[name] = added.Keys["signal"]
	}
	b.give(h.keys["lead"], `{"to":"helper","scopes":["mail.*"],"budget":{"calls":5},"work":"T-1"}`, &h.first)
	b.give(h.keys["helper"], `{"to":"deep","scopes":["mail.read"],"budget":{"calls":2},"delegation":"`+h.first.Token+`"}`,
		&h.second)
	return h
}

// step asks about a tool under a handoff, in metadata of AHP.
func (h *handed) step(agent, tool, token string) string {
	_, answer := h.ahp(h.keys[agent], `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action",`+
		`"session_id":"s","agent_id":"a","timestamp":"t","depth":`+h.depth[agent]+`,"payload":{"tool_name":"`+tool+`"},`+
		`"metadata":{"delegation":"`+token+`"}}}`)
	return answer
}

func TestPeopleSeeAndEndWhatWasHandedOn(t *testing.T) {
	eachBoxWith(t, map[string]string{"harness.timeout": "1s"}, func(t *testing.T, b *box) {
		h := newHanded(t, b)
		if answer := h.step("deep", "look", h.second.Token); !strings.Contains(answer, `"allow"`) {
			t.Fatal(answer)
		}
		for query, want := range map[string]int{
			"": 2, "?agent=lead": 1, "?agent=helper": 2, "?user=alice": 2, "?user=Alice@example.com": 2, "?work=T-1": 1,
			"?work=T-2": 0, "?workspace=default": 2,
		} {
			var page handoff.Page
			b.ops(200, "GET /ops/handoffs"+query, "", &page)
			if len(page.Handoffs) != want {
				t.Errorf("%s: %d handoffs, want %d", query, len(page.Handoffs), want)
			}
		}
		b.ops(404, "GET /ops/handoffs?agent=nobody", "", nil)
		b.ops(404, "GET /ops/handoffs?user=nobody", "", nil)
		var shown handoff.Chain
		b.ops(200, "GET /ops/handoffs/"+h.second.Handoff.ID, "", &shown)
		if c := shown.Chain; len(c) != 2 || c[0].Spent.Calls != 2 || c[1].Spent.Calls != 1 || c[1].Depth != 2 || c[1].Over != "" {
			t.Errorf("%+v", c) // handing on is a call, too
		}

		// Whoever decides sees the chain, and so does the page.
		h.step("deep", "pay", h.second.Token)
		var gates struct {
			Gates []struct {
				ID    string
				Facts []struct{ Name, Value string }
			}
		}
		b.ops(200, "GET /ops/gates?status=pending", "", &gates)
		facts := map[string]string{}
		for _, f := range gates.Gates[0].Facts {
			facts[f.Name] = f.Value
		}
		if want := "by lead → helper → deep (depth 2, " + h.second.Handoff.ID + ")"; facts["handed on"] != want {
			t.Errorf("%v, want %s", facts, want)
		}
		v, at := b.signedIn(b.token()), "/ui/handoffs/"+h.second.Handoff.ID
		v.sees("/ui/inbox/"+gates.Gates[0].ID, at)
		v.sees("/ui/handoffs", "lead → helper", "helper → deep", "alice")
		testbed.Until(t, "the decisions on the page", func() bool {
			_, page, _ := v.get(at)
			return strings.Contains(page, "step.allowed") && strings.Contains(page, "step.held")
		})
		v.sees(at, "<s class=\"muted\">mail.*</s>", "<code>mail.read</code>", "of 2 calls")
		v.sees("/ui/agents/default/deep", at)
		var entries struct{ Entries []struct{ Seq int64 } }
		b.ops(200, "GET /ops/ledger?kind=step.allowed&handoff="+h.first.Handoff.ID, "", &entries)
		if len(entries.Entries) != 1 {
			t.Fatalf("%+v", entries)
		}
		b.ops(400, "GET /ops/ledger?user=alice&handoff="+h.first.Handoff.ID, "", nil)
		v.sees(fmt.Sprint("/ui/ledger/", entries.Entries[0].Seq), at, "lead → helper → deep")
		v.sees("/ui/ledger?q=handoff:"+h.second.Handoff.ID, "step.allowed")

		// What is above ends, and with it everything below.
		v.post("/ui/handoffs/"+h.first.Handoff.ID+"/end", url.Values{"reason": {"Enough for today"}})
		if answer := h.step("deep", "look", h.second.Token); !strings.Contains(answer, "Enough for today") {
			t.Error(answer)
		}
		var open, all handoff.Page
		b.ops(200, "GET /ops/handoffs", "", &open)
		b.ops(200, "GET /ops/handoffs?all=true", "", &all)
		if len(open.Handoffs) != 0 || len(all.Handoffs) != 2 || !strings.Contains(all.Handoffs[0].Over, "Enough for today") ||
			all.Handoffs[1].EndedBy != "operator:admin" {
			t.Errorf("%+v\n%+v", open, all)
		}
		v.sees("/ui/handoffs/"+h.first.Handoff.ID, "Enough for today", "operator:admin")
		h.wantProved(t)
	})
}

// wantProved checks that an export shows every handoff, and every decision under one.
func (h *handed) wantProved(t *testing.T) {
	t.Helper()
	_, file, _ := h.do(request{call: "GET /ops/ledger/export", token: h.token()})
	key := testbed.Read(t, filepath.Join(h.config.Data, ledger.PublicKeyFile))
	a := handoff.NewAudit()
	if _, err := ledger.VerifyExport(strings.NewReader(file), string(key), nil, ledger.Watch{Entry: a.Entry}); err != nil ||
		a.Handoffs != 2 || a.Decisions < 3 {
		t.Errorf("%+v: %v", a, err)
	}
}

// What _meta claims of a handoff is looked at for every tool of MCP.
func TestMCPRefusesForgedHandoffs(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		keys := map[string]string{}
		for _, name := range []string{"lead", "helper", "other"} {
			_, keys[name] = b.addAgent(name)
		}
		var given struct {
			Token   string
			Handoff struct{ ID string }
		}
		status, answer, _ := b.do(request{
			call: "POST /v1/handoffs", token: keys["lead"], body: `{"to":"helper","scopes":["mail.read"]}`,
		})
		if err := json.Unmarshal([]byte(answer), &given); err != nil || status != 201 {
			t.Fatalf("%d %s", status, answer)
		}
		use := func(agent, meta string) string {
			_, answer, _ := b.do(request{call: "POST /mcp", token: keys[agent], header: map[string]string{
				"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
			}, body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail_inbox","arguments":{},"_meta":` + meta + `}}`})
			return answer
		}
		under := `{"delegation":"` + given.Token + `"}`
		for _, c := range []struct{ what, agent, meta, says string }{
			{"its own", "helper", under, `count`},
			{"none", "other", `{}`, `count`},
			{"another agent's", "other", under, "given to another agent"},
			{"a forged one", "helper", `{"delegation":"` + given.Token[:len(given.Token)-1] + `x"}`, "not the token"},
			{"another user", "helper", `{"user":"bob","delegation":"` + given.Token + `"}`, "is for nobody"},
		} {
			if got := use(c.agent, c.meta); !strings.Contains(got, c.says) {
				t.Errorf("%s: %s", c.what, got)
			}
		}
		b.ops(200, "POST /ops/handoffs/"+given.Handoff.ID+"/end", `{"reason":"enough"}`, nil)
		if got := use("helper", under); !strings.Contains(got, "is over") {
			t.Errorf("one that has ended: %s", got)
		}
		testbed.Until(t, "the refusals", func() bool { return strings.Contains(b.reasons(), "wrong_handoff") })
	})
}
