package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/harness"
	"signalbox/internal/harness/knowledge"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// get calls one of the harness's routes as the operator, and reads the answer.
func (n *node) get(pattern, path string, into any) error {
	n.T.Helper()
	for _, route := range n.harness.Routes() {
		if route.Method+" "+route.Path != pattern {
			continue
		}
		req := httptest.NewRequestWithContext(roster.With(context.Background(), n.operator), route.Method, path, nil)
		if _, last, ok := strings.Cut(route.Path, "{id}"); ok && last == "" {
			address, _, _ := strings.Cut(path, "?")
			req.SetPathValue("id", address[strings.LastIndex(address, "/")+1:])
		}
		w := httptest.NewRecorder()
		if err := route.Handle(w, req); err != nil {
			return err
		}
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			n.T.Fatalf("%s: %v", w.Body, err)
		}
		return nil
	}
	n.T.Fatal("no route ", pattern)
	return nil
}

func (n *node) session(id string) (s harness.Session) {
	n.T.Helper()
	// A session is opened by what is written after the answer.
	testbed.Until(n.T, "the session "+id, func() bool {
		s = harness.Session{}
		return n.get("GET /ops/sessions/{id}", "/ops/sessions/"+id, &s) == nil
	})
	return s
}

// tell sends a notification that should be taken.
func (n *node) tell(c *harness.Conn, typ, session string, payload any) {
	n.T.Helper()
	if r := n.harness.Handle(context.Background(), c, event("", typ, session, payload)); r.JSON != nil {
		n.T.Fatalf("%s", r.JSON)
	}
}

func run(status, updated string) map[string]any {
	return map[string]any{"run_id": "run-1", "session_id": "s1", "status": status, "updated_at": updated}
}

func TestWhatPeopleSeeOfASession(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply("rules: [{name: no-rm, on: [action], when: event.tool == \"rm\", then: block, reason: no}]\n")
		c := n.conn(harness.TransportSocket)
		n.tell(c, "session_start", "s1", map[string]any{"model_name": "m"})
		n.ask(c, "pre_action", "s1", map[string]any{"tool_name": "ls"})
		n.ask(c, "pre_action", "s1", map[string]any{"tool_name": "rm"})
		n.tell(c, "post_action", "s1", map[string]any{"tool": "ls", "result": "ok"})
		n.tell(c, "error", "s1", map[string]any{"error_type": "x"})
		n.tell(c, "heartbeat", "s1", map[string]any{"current_state": "active"})
		n.tell(c, "run_lifecycle", "s1", run("completed", "2026-05-01T00:00:09Z"))
		n.tell(c, "run_lifecycle", "s1", run("executing", "2026-05-01T00:00:10+00:00")) // has overtaken
		n.tell(c, "task_list", "s1",
			map[string]any{
				"run_id": "run-1", "session_id": "s1", "updated_at": "2026-05-01T00:00:02Z",
				"tasks": []any{map[string]any{"id": "t", "title": "new", "status": "pending"}},
			})
		// is late
		n.tell(c, "task_list", "s1",
			map[string]any{"run_id": "run-1", "session_id": "s1", "updated_at": "2026-05-01T00:00:01Z", "tasks": []any{}})
		n.tell(c, "verification", "s1",
			map[string]any{"run_id": "run-1", "session_id": "s1", "status": "passed", "updated_at": "x"})
		testbed.Until(t, "everything to be written", func() bool {
			s := n.session("s1")
			return s.Verification != nil && s.Heartbeat != nil
		})
		s := n.session("s1")
		if want := (harness.Statistics{Steps: 2, Allowed: 1, Blocked: 1, Errors: 1}); *s.Statistics != want {
			t.Errorf("%+v", s.Statistics)
		}
		if len(s.Runs) != 1 || !strings.Contains(string(s.Runs[0].Payload), "completed") ||
			!strings.Contains(string(s.Tasks.Payload), "new") {
			t.Errorf("%s %s", s.Runs[0].Payload, s.Tasks.Payload)
		}
		if s.Agent != "coder" || s.Heartbeat.Missed || s.EndedAt != nil || !strings.Contains(string(s.Info), "framework") ||
			!strings.Contains(string(s.Start.Payload), "model_name") {
			t.Errorf("%+v", s)
		}
		types := map[harness.Type]int{}
		for _, m := range s.Timeline {
			types[m.Type]++
		}
		for _, typ := range []harness.Type{
			"pre_action", "post_action", "error", "heartbeat", "run_lifecycle", "task_list",
			"verification", "session_start",
		} {
			if types[typ] == 0 {
				t.Errorf("the timeline has no %s", typ)
			}
		}
		n.Move(3 * time.Minute)
		if !n.session("s1").Heartbeat.Missed {
			t.Error("a missed heartbeat does not show")
		}
		n.tell(c, "session_end", "s1", map[string]any{})
		testbed.Until(t, "the end", func() bool { return n.session("s1").EndedAt != nil })
		if n.session("s1").Heartbeat.Missed {
			t.Error("a session that has ended owes no heartbeat")
		}
		n.WantClean()
	})
}

func TestSessionsAreListedPageByPage(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportSocket) // opens s1
	const many = 7
	for i := range many {
		n.ask(c, "pre_action", fmt.Sprint("p", i), map[string]any{})
	}
	long := strings.Repeat("long", 100)
	n.ask(c, "pre_action", long, map[string]any{})
	testbed.Until(t, "the sessions", func() bool { return len(n.Entries("session.opened")) == many+2 })
	seen := map[string]bool{}
	for next, pages := "", 0; ; pages++ {
		var page harness.SessionPage
		if err := n.get("GET /ops/sessions", "/ops/sessions?limit=3&cursor="+next, &page); err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			seen[s.ID] = true
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if len(seen) != many+2 {
		t.Errorf("%d sessions", len(seen))
	}
	if s := n.session(long); s.Statistics.Steps != 1 {
		t.Errorf("%+v", s)
	}
	// A timeline, page by page, shows every step once.
	for range 9 {
		n.ask(c, "pre_action", "p0", map[string]any{})
	}
	steps := map[int64]bool{}
	for next, pages := "", 0; pages < 20; pages++ {
		var s harness.Session
		if err := n.get("GET /ops/sessions/{id}", "/ops/sessions/p0?limit=3&cursor="+next, &s); err != nil {
			t.Fatal(err)
		}
		for _, m := range s.Timeline {
			if m.Kind == "step.allowed" && steps[m.Seq] {
				t.Errorf("entry %d is shown twice", m.Seq)
			}
			steps[m.Seq] = m.Kind == "step.allowed"
		}
		if next = s.Next; next == "" {
			break
		}
	}
	if len(steps) != 11 { // with the opening
		t.Errorf("%d entries in the timeline", len(steps))
	}
	var page harness.SessionPage
	if err := n.get("GET /ops/sessions", "/ops/sessions?agent=nobody", &page); err != nil || len(page.Sessions) != 0 {
		t.Errorf("%+v %v", page, err)
	}
	if err := n.get("GET /ops/sessions/{id}", "/ops/sessions/none", nil); err == nil {
		t.Error("a session that is not there is shown")
	}
}

// However much is told, what matters is all there, in order, and what was dropped is
// counted.
func TestAFloodLosesNothingThatMatters(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	const senders, each = 4, 2500
	var flooding sync.WaitGroup
	for s := range senders {
		c := n.conn(harness.TransportSocket)
		flooding.Go(func() {
			session := fmt.Sprint("f", s)
			for i := range each {
				n.tell(c, "post_action", session, map[string]any{"n": i})
				if i%10 == 0 {
					n.tell(c, "run_lifecycle", session,
						map[string]any{"run_id": fmt.Sprint("r", i), "session_id": session, "status": "created", "updated_at": "x"})
				}
			}
		})
	}
	flooding.Wait()
	n.Stop()
	kept, told, dropped := 0, 0, int64(0)
	for _, e := range n.Entries("session.noted", "session.reported") {
		var b struct {
			Dropped int64
			Notes   []struct{ Type string }
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			t.Fatal(err)
		}
		dropped += b.Dropped
		for _, note := range b.Notes {
			if note.Type == "run_lifecycle" {
				kept++
			} else {
				told++
			}
		}
	}
	if kept != senders*each/10 || int64(told)+dropped != senders*each {
		t.Errorf("%d of %d were kept; %d told, %d dropped", kept, senders*each/10, told, dropped)
	}
}

func TestContextAndMemoryComeFromWhatIsKnown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply("rules: []\n")
		for _, k := range []knowledge.NewKnowledge{
			{Content: "Deploys run on Fridays only after the freeze is lifted.", Source: "runbook.md"},
			{Content: "The billing service owns the invoices table.", Source: "architecture.md"},
			{Content: "func parseFrame(raw []byte) error { return errTooDeep }", Path: "internal/frame.go"},
		} {
			k.Workspace = "default"
			if _, err := n.harness.Knowledge.Add(t.Context(), n.operator, k); err != nil {
				t.Fatal(err)
			}
		}
		c := n.conn(harness.TransportSocket)
		n.tell(c, "success", "s1", map[string]any{"action_summary": "Rotated the invoices certificate"})
		n.tell(c, "success", "s2", map[string]any{"action_summary": "Another session's invoices"})
		testbed.Until(t, "the notes", func() bool { return len(n.Entries("session.noted")) == 2 })
		recall := func(question, memory string, most int) (contents []string) {
			a := n.ask(c, "memory_recall", "s1",
				map[string]any{
					"session_id": "s1", "query": question, "memory_type": memory, "max_results": most,
					"working_directory": "/",
				})
			for _, f := range a.Result["injected_facts"].([]any) {
				contents = append(contents, f.(map[string]any)["content"].(string))
			}
			return contents
		}
		for _, q := range []struct {
			question, memory string
			most             int
			want             []string
		}{
			{"who owns invoices?", "semantic", 5, []string{"The billing service owns the invoices table."}},
			{"who owns invoices?", "episodic", 5, []string{"Rotated the invoices certificate"}},
			{
				"who owns invoices?", "any", 5,
				[]string{"The billing service owns the invoices table.", "Rotated the invoices certificate"},
			},
			{"who owns invoices?", "any", 1, []string{"The billing service owns the invoices table."}},
			{"parse the frame", "semantic", 5, []string{"func parseFrame(raw []byte) error { return errTooDeep }"}},
			{"nothing like it", "any", 5, nil},
			{"invoices", "any", 0, nil},
		} {
			if diff := cmp.Diff(q.want, recall(q.question, q.memory, q.most)); diff != "" {
				t.Errorf("%+v: %s", q, diff)
			}
		}
		a := n.ask(c, "context_perception", "s1", map[string]any{
			"session_id": "s1", "intent": "locate",
			"target":      map[string]any{"entity": map[string]any{"name": "parseFrame", "entity_type": "function"}},
			"context":     map[string]any{"workspace": "/w", "query": "deploys on friday"},
			"constraints": map[string]any{"include_sources": false},
		})
		injected := a.Result["injected_context"].(map[string]any)
		if len(injected["file_contents"].([]any)) != 1 || len(injected["facts"].([]any)) != 1 ||
			injected["facts"].([]any)[0].(map[string]any)["source"] != "" {
			t.Errorf("%+v", injected)
		}
		query := `{"jsonrpc":"2.0","id":"q","method":"ahp/query","params":{"session_id":"s1","agent_id":"a",` +
			`"query_type":"knowledge","payload":{"question":"billing invoices"}}}`
		if got := n.harness.Handle(t.Context(), c, []byte(query)); !strings.Contains(string(got.JSON), "architecture.md") {
			t.Errorf("%s", got.JSON)
		}
		var page knowledge.KnowledgePage
		if err := n.get("GET /ops/knowledge", "/ops/knowledge?search=freeze", &page); err != nil ||
			len(page.Knowledge) != 1 || page.Knowledge[0].Score <= 0 {
			t.Errorf("%+v %v", page, err)
		}
		n.WantClean()
	})
}

func TestUsageThatAnAgentReportsReachesItsBudget(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply(`
rules:
  - {name: budget, on: [action], then: block, when: 'recent.tokens("1h", "session") >= 1500 && recent.cost("1h") > 0.4'}
`)
		c := n.conn(harness.TransportSocket)
		for _, usage := range []map[string]any{
			{"prompt_tokens": 400, "completion_tokens": 100},
			{"input_tokens": 500, "output_tokens": 200, "cost_usd": 0.5},
			{"total_tokens": 300, "cost_usd": -9},
		} {
			n.tell(c, "post_action", "s1", map[string]any{"response_text": "ok", "usage": usage})
		}
		testbed.Until(t, "the budget is spent", func() bool {
			return n.ask(c, "pre_action", "s1", bash("ls")).Result["decision"] == "block"
		})
		if a := n.ask(c, "pre_action", "s2", bash("ls")); a.Result["decision"] != "allow" {
			t.Errorf("another session: %+v", a.Result)
		}
	})
}
