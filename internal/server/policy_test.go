package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/server"
)

func TestThePolicyIsAppliedAsAWholeOrNotAtAll(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		token := b.token()
		status, text, header := b.do(request{call: "GET /ops/policy", token: token})
		if status != 200 || text != string(policy.Default()) || header.Get(rulebook.VersionHeader) != "1" ||
			header.Get("Content-Type") != "application/yaml" {
			t.Errorf("%d %v %s", status, header, text)
		}
		before := b.head()
		var bad struct {
			Error   string
			Details struct{ Problems []policy.Problem }
		}
		b.ops(400, "PUT /ops/policy",
			"version: 1\nrules:\n  - {name: a, on: [action], when: event.tol == 'x', then: block}\n"+
				"  - {name: a, on: [action], when: 'event.depth == true', then: blok}\n", &bad)
		if bad.Error != "invalid_policy" || len(bad.Details.Problems) != 4 || bad.Details.Problems[0].Line != 3 ||
			bad.Details.Problems[0].Column != 41 || bad.Details.Problems[0].Hint == "" {
			t.Errorf("%+v", bad)
		}
		b.ops(400, "POST /ops/policy/check", "version: one\n", nil)
		b.ops(413, "PUT /ops/policy", "version: 1 #"+strings.Repeat("x", 5<<20), nil)
		if b.head() != before {
			t.Error("a bad policy was written")
		}

		var checked rulebook.Checked
		b.ops(200, "POST /ops/policy/check",
			"version: 1\nrules: [{name: a, on: [signal], when: 'true', then: gate, gate: {approvers: [zoe]}}]\n", &checked)
		if len(checked.Rules) != 1 || len(checked.Warnings) != 1 || b.head() != before {
			t.Errorf("%+v", checked)
		}
		var done rulebook.Applied
		b.ops(200, "PUT /ops/policy", "version: 1\ndefaults: {action: block}\n", &done)
		if !done.Changed || done.Version.Number != 2 || done.Version.AppliedBy != "operator:admin" {
			t.Errorf("%+v", done)
		}
		var page rulebook.VersionPage
		b.ops(200, "GET /ops/policy/versions?limit=1", "", &page)
		if len(page.Versions) != 1 || page.Versions[0].Number != 2 || page.Next == "" {
			t.Fatalf("%+v", page)
		}
		b.ops(200, "GET /ops/policy/versions?cursor="+page.Next, "", &page)
		if len(page.Versions) != 1 || page.Versions[0].Number != 1 || page.Next != "" {
			t.Errorf("%+v", page)
		}
		b.ops(400, "GET /ops/policy/versions?cursor=Z2FyYmFnZQ", "", nil)
		var full rulebook.FullVersion
		b.ops(200, "GET /ops/policy/versions/2", "", &full)
		if full.Defaults[policy.OnAction] != policy.Block || !strings.Contains(full.Source, "defaults") {
			t.Errorf("%+v", full)
		}
		b.ops(404, "GET /ops/policy/versions/3", "", nil)

		// The policy is an admin's to change, and an operator's to replay.
		var ann struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"ann","role":"viewer"}`, &ann)
		for call, want := range map[string]int{
			"GET /ops/policy": 200, "PUT /ops/policy": 403, "POST /ops/policy/check": 200,
			"POST /ops/policy/replay": 403,
		} {
			if status, text, _ := b.do(request{call: call, body: "version: 1\n", token: ann.Token}); status != want {
				t.Errorf("%s as a viewer: %d %s", call, status, text)
			}
		}
	})
}

func TestADecisionCanBeExplained(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.decide(t, 1)
		var why rulebook.Explained
		b.ops(200, fmt.Sprint("GET /ops/policy/explain/", b.head()), "", &why)
		if why.Rule != policy.DefaultRule || why.Then != policy.Allow || why.Policy != 1 || why.Facts == nil ||
			why.Facts.Does != "shell" || len(why.Facts.Commands) != 1 || why.Facts.Commands[0].Name != "make" ||
			len(why.Rules) < 5 || why.Rules[0].Result != policy.TriedNo {
			t.Errorf("%+v", why)
		}
		b.ops(404, "GET /ops/policy/explain/1", "", nil) // the server's start
		b.ops(404, "GET /ops/policy/explain/9999", "", nil)
	})
}

func TestAReplayAnswersInLines(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.decide(t, 5000)
		status, text, header := b.do(request{
			call: "POST /ops/policy/replay?since=1h",
			body: "version: 1\ndefaults: {action: block}\n", token: b.token(),
		})
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var last rulebook.ReplayLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || status != 200 ||
			header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("%d %v %v %s", status, header, err, text)
		}
		if r := last.Report; r == nil || r.Decisions != 5000 || r.Changed != 5000 || len(r.Changes) != 1 ||
			r.Changes[0].Examples[0].What != "bash: make" {
			t.Errorf("%s", text)
		}
		b.ops(400, "POST /ops/policy/replay?since=-1h", "version: 1\n", nil)
	})
}

// decide puts decisions into the ledger, as a protocol on another node would.
func (b *box) decide(t *testing.T, n int) {
	t.Helper()
	db, err := server.OpenStore(t.Context(), b.config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l, err := ledger.Open(t.Context(),
		ledger.Options{
			DB: db, Dir: t.TempDir(), Origin: "test.example/other", Projections: server.Projections(),
			Log: slog.New(slog.DiscardHandler),
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	defer running.Wait()
	defer cancel()
	event := policy.Event{Point: policy.OnAction, Tool: "bash", Command: "make"}
	d := rulebook.Decision{Record: rulebook.Record{
		Policy: 1, Then: policy.Allow, Rule: "default", AgentID: "agent_x",
		Now: time.Now().UnixMicro(), Event: &event,
	}}
	err = l.Write(t.Context(), func(tx *ledger.Tx) error {
		for range n {
			tx.Append(d.Entry(roster.Identity{ID: "agent_x", Name: "x", Workspace: "default"}, "session-1", ""))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnAdminOfAWorkspaceEditsItsLayer tries the rights of every role over HTTP and on the page, and what a workspace's
// admin cannot loosen.
func TestAnAdminOfAWorkspaceEditsItsLayer(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"acme"}`, nil)
		b.ops(201, "POST /ops/users", `{"name":"alice","workspace":"acme"}`, nil)
		tokens := map[string]string{}
		for _, role := range []string{"viewer", "operator", "admin"} {
			var made struct{ Token string }
			b.ops(201, "POST /ops/operators", `{"name":"`+role+`-of-acme","role":"`+role+`","workspace":"acme"}`, &made)
			tokens[role] = made.Token
		}
		var agent struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"bot","workspace":"acme","owner":"alice"}`, &agent)
		b.ops(200, "PUT /ops/policy", "version: 1\nrules:\n  - {name: never, on: [signal], "+
			"when: 'event.summary.contains(\"never\")', then: block, reason: the server says no}\n", nil)

		call := func(want int, token, call, body string) string {
			t.Helper()
			status, answer, _ := b.do(request{call: call, body: body, token: token})
			if status != want {
				t.Errorf("%s: %d, want %d: %s", call, status, want, answer)
			}
			return answer
		}
		// It would allow everything, by a rule and by a default, and does not loosen the server.
		const loose = "version: 1\ndefaults: {signal: allow}\nrules:\n  - {name: no-mail, on: [signal], " +
			"when: 'event.summary.contains(\"mail\")', then: block, reason: acme sends no mail}\n" +
			"  - {name: all, on: [signal], then: allow}\n"
		for _, role := range []string{"viewer", "operator"} {
			for _, of := range []string{"", "?workspace=acme", "?user=alice", "?workspace=default"} {
				call(403, tokens[role], "PUT /ops/policy"+of, loose)
			}
			call(404, tokens[role], "GET /ops/policy", "")
		}
		call(404, tokens["admin"], "PUT /ops/policy?workspace=default", loose)
		call(200, tokens["admin"], "PUT /ops/policy", loose)
		call(200, tokens["admin"], "PUT /ops/policy?user=alice", "version: 1\nrules:\n  - {name: alice-mails, on: [signal], "+
			"when: 'event.summary.contains(\"mail to bob\")', then: allow}\n")
		if text := call(200, tokens["viewer"], "GET /ops/policy?workspace=acme", ""); text != loose {
			t.Errorf("the viewer sees %q", text)
		}
		signal := func(summary string) string {
			t.Helper()
			_, answer, _ := b.do(request{
				call: "POST /amp/signal", token: agent.Keys["signal"],
				body: strings.Replace(ampSignal("bot", "run-"+summary), "Rewrote it", summary, 1),
			})
			return answer
		}
		for summary, want := range map[string]string{
			"never do this": "the server says no", "never mail to bob": "the server says no",
			"mail to eve": "acme sends no mail",
		} {
			if answer := signal(summary); !strings.Contains(answer, want) {
				t.Errorf("%s: %s", summary, answer)
			}
		}
		if answer := signal("mail to bob"); strings.Contains(answer, "no mail") {
			t.Errorf("the user's layer comes before the workspace's: %s", answer)
		}
		published := call(200, agent.Keys["signal"], "GET /amp/policy", "")
		for _, rule := range []string{"never", "no-mail", "alice-mails"} {
			if !strings.Contains(published, `"`+rule+`"`) {
				t.Errorf("%s is not published: %s", rule, published)
			}
		}
		var all rulebook.LayerList
		b.ops(200, "GET /ops/policy/layers", "", &all)
		if len(all.Layers) != 3 || all.Layers[2].Name != "alice" {
			t.Errorf("%+v", all)
		}
		var page struct{ Entries []struct{ Seq int64 } }
		b.ops(200, "GET /ops/ledger?kind=signal.received&workspace=acme&limit=1000", "", &page)
		for _, e := range page.Entries {
			answer := call(200, tokens["viewer"], "GET /ops/policy/explain/"+fmt.Sprint(e.Seq), "")
			if strings.Contains(answer, `"name":"never"`) {
				t.Errorf("the rules of the server show: %s", answer)
			}
		}
		if len(page.Entries) == 0 {
			t.Error("no decision was found")
		}
		b.wantRebuilt(1)
	})
}
