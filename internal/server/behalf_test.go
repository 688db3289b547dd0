package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// userBox is a server with users, and agents that may act for alice and carol.
type userBox struct {
	*box
	t            *testing.T
	alice, carol string // their ids
	keys         map[string]string
}

func newUserBox(t *testing.T, b *box) *userBox {
	w := &userBox{b, t, "", "", map[string]string{}}
	var added struct{ User struct{ ID string } }
	b.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com"}`, &added)
	w.alice = added.User.ID
	b.ops(201, "POST /ops/users", `{"name":"carol"}`, &added)
	w.carol = added.User.ID
	for name, rest := range map[string]string{
		"desk": `,"acts_for":["alice","carol"]`, "free": ``,
		"coordinator": `,"acts_for":["alice"],"labels":{"role":"coordinator"}`,
		"executor":    `,"labels":{"role":"executor"}`,
	} {
		var added struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"`+name+`"`+rest+`}`, &added)
		w.keys[name] = added.Keys["signal"]
	}
	return w
}

// found are the kinds of entries that a query finds, each once.
func (w *userBox) found(query string) map[string]int {
	w.t.Helper()
	var page struct {
		Entries []struct{ Kind string }
	}
	w.ops(200, "GET /ops/ledger?limit=1000&"+query, "", &page)
	kinds := map[string]int{}
	for _, e := range page.Entries {
		kinds[e.Kind]++
	}
	return kinds
}

// wantFound waits until a query finds entries of these kinds.
func (w *userBox) wantFound(query string, kinds ...string) {
	w.t.Helper()
	testbed.Until(w.t, query+" finds "+strings.Join(kinds, ", "), func() bool {
		found := w.found(query)
		for _, kind := range kinds {
			if found[kind] == 0 {
				return false
			}
		}
		return true
	})
}

func (w *userBox) step(key, metadata string) string { return w.stepAt(0, key, metadata) }

// stepAt asks for a step, as deep as it says.
func (w *userBox) stepAt(depth int, key, metadata string) string {
	_, answer := w.ahp(key, `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action",`+
		`"session_id":"s","agent_id":"a","timestamp":"t","depth":`+fmt.Sprint(depth)+`,"payload":{"tool_name":"pay"},"metadata":`+metadata+`}}`)
	return answer
}

// Whatever agents do is found by the user on whose behalf it was, on every wire; what they only claim is found as a
// claim, and nowhere else. A handoff's token is in no entry.
func TestWhatIsDoneIsFoundByItsUser(t *testing.T) {
	eachBoxWith(t, map[string]string{"harness.timeout": "1s"}, func(t *testing.T, b *box) {
		w := newUserBox(t, b)
		var toDesk, toCoordinator given
		b.give(w.keys["desk"], `{"to":"coordinator","user":"alice"}`, &toCoordinator)
		b.give(w.keys["coordinator"], `{"to":"desk","delegation":"`+toCoordinator.Token+`"}`, &toDesk)
		b.applyPolicy("version: 1\nrules:\n  - {name: ask, on: [action], then: gate}\n" +
			"  - {name: tasks, on: [task], then: allow}\n")
		w.stepAt(2, w.keys["desk"], `{"user":"alice","delegation":"`+toDesk.Token+`"}`)
		w.step(w.keys["free"], `{"user":"alice","delegation":[{"from":"root"}]}`)

		// A task is for whom its first document is, and what answers it is, too.
		dispatch := strings.Replace(taskDispatch, `"requires_ack"`,
			`"x_user":"alice","x_scopes":["repo.write"],"x_delegation":"`+toCoordinator.Token+`","requires_ack"`, 1)
		b.want(202, request{call: "POST /amp/messages", token: w.keys["coordinator"], body: dispatch})
		other := strings.Replace(taskResult, `"requires_ack"`, `"x_user":"carol","requires_ack"`, 1)
		if answer, _ := b.call(403, "POST /amp/messages", w.keys["executor"], other); !strings.Contains(answer,
			`"/x_user"`) {
			t.Error(answer)
		}
		bad := strings.Replace(taskResult, `"requires_ack"`, `"x_scopes":"all","requires_ack"`, 1)
		b.want(422, request{call: "POST /amp/messages", token: w.keys["executor"], body: bad})
		b.want(202, request{call: "POST /amp/messages", token: w.keys["executor"], body: taskResult})
		answer, _ := b.call(200, "GET /amp/tasks/T-2026-044?messages=true", w.keys["executor"], "")
		if !strings.Contains(answer, `"x_user":"`+w.alice+`"`) || strings.Contains(answer, toCoordinator.Token) {
			t.Error(answer)
		}

		bob := b.register("bob", "default")
		send := func(want int, rest string) {
			t.Helper()
			b.want(want, request{call: "POST /v1/route", token: w.keys["desk"], body: `{"to":"` + bob.address +
				`","subject":"Pay","payload":{"type":"request","message":"Please."` + rest + `}`})
		}
		send(200, `,"context":{"user":"alice"}},"options":{"delegation":"`+toDesk.Token+`"}`)
		send(400, `,"context":{"delegation":"`+toDesk.Token+`"}}`) // the recipient would have it

		var run struct{ ID, User string }
		b.ops(201, "POST /runs", `{"engine":"amp","prompt":"x","recorded":true,"user":"alice"}`, &run)
		if run.User != w.alice {
			t.Errorf("the run is for %q", run.User)
		}
		b.ops(200, "POST /runs/"+run.ID+"/cancel", `{}`, nil)
		b.ops(400, "POST /runs", `{"engine":"amp","prompt":"x","recorded":true,"user":"nobody"}`, nil)

		for _, name := range []string{"alice", w.alice, "Alice@Example.com"} {
			w.wantFound("user="+name, "step.held", "gate.opened", "task.dispatched", "task.reported", "message.routed",
				"run.opened", "run.stopped")
		}
		w.wantFound("user=alice&claimed=1", "step.held", "gate.opened")
		if n := w.found("user=alice")["step.held"]; n != 1 {
			t.Errorf("a claim counts as a proof: %d steps", n)
		}
		if n := len(w.found("user=carol")); n != 0 {
			t.Errorf("carol has entries of %d kinds", n)
		}
		b.ops(404, "GET /ops/ledger?user=nobody", "", nil)
		lists := map[string]int{
			"/ops/sessions?user=alice": 1, "/ops/sessions?user=carol": 0, "/ops/gates?user=alice": 1, "/ops/gates?user=alice&claimed=1": 1, "/ops/gates?user=carol": 0,
			"/runs?user=alice": 1, "/runs?user=carol": 0, "/amp/tasks?user=alice": 1, "/amp/tasks?user=carol": 0,
		}
		wantLists := func() {
			t.Helper()
			for path, want := range lists {
				var page struct{ Gates, Runs, Tasks, Sessions []struct{ User string } }
				b.ops(200, "GET "+path, "", &page)
				if n := len(page.Gates) + len(page.Runs) + len(page.Tasks) + len(page.Sessions); n != want {
					t.Errorf("%s has %d, want %d", path, n, want)
				}
			}
		}
		wantLists()
		b.ops(404, "GET /ops/sessions?user=nobody", "", nil)
		w.wantPages(bob.key)
		// A row can be forged, and the entry that it names says otherwise.
		b.forger().forge("INSERT INTO behalf_entry (who, seq) SELECT $1, seq FROM behalf_entry WHERE who = $2", w.carol, w.alice)
		wantLists()
		b.want(403, request{call: "GET /amp/tasks?user=alice", token: w.keys["executor"]})
		_, export, _ := b.do(request{call: "GET /ops/ledger/export", token: b.token()})
		for _, token := range []string{toDesk.Token, toCoordinator.Token} {
			if strings.Contains(decoded(export), token) {
				t.Error("the token is in the ledger")
			}
		}
		b.wantRebuilt(1)
	})
}

// wantPages checks that lists of the dashboard are asked for by user, and that pages name the user.
func (w *userBox) wantPages(key string) {
	w.t.Helper()
	v, at := w.signedIn(w.token()), "/ui/users/default/"+w.alice
	for path, has := range map[string]string{
		"/ui/inbox": "pay", "/ui/runs": "/ui/runs/run_", "/ui/tasks": "T-2026-044", "/ui/sessions": "/ui/sessions/default/s",
	} {
		if _, page, _ := v.get(path + "?user=alice"); !strings.Contains(page, has) {
			w.t.Errorf("%s?user=alice lacks %s", path, has)
		}
		for _, user := range []string{"carol", "nobody"} {
			if status, page, _ := v.get(path + "?user=" + user); status != 200 || strings.Contains(page, has) {
				w.t.Errorf("%s?user=%s: %d, has %s: %v", path, user, status, has, strings.Contains(page, has))
			}
		}
	}
	v.sees("/ui/sessions/default/s?agent=desk", at)
	var box struct{ Messages []struct{ ID string } }
	answer, _ := w.call(200, "GET /v1/messages/pending", key, "")
	if err := json.Unmarshal([]byte(answer), &box); err != nil || len(box.Messages) != 1 {
		w.t.Fatalf("%v: %s", err, answer)
	}
	v.sees("/ui/mail/"+box.Messages[0].ID, at)
}

// The page of a user shows what was done for them, and marks what only claims it.
func TestThePageOfAUser(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		w := newUserBox(t, b)
		w.step(w.keys["desk"], `{"user":"alice"}`)
		w.step(w.keys["free"], `{"user":"alice"}`)
		w.wantFound("user=alice", "step.allowed")
		w.wantFound("user=alice&claimed=1", "step.allowed")
		v := b.signedIn(b.token())
		page := func(path string) string {
			t.Helper()
			_, text, _ := v.get(path)
			return text
		}
		text := page("/ui/users/default/alice")
		for _, has := range []string{"alice@example.com", "desk", "Done for them", "Claimed, without proof"} {
			if !strings.Contains(text, has) {
				t.Errorf("the page lacks %q", has)
			}
		}
		for search, want := range map[string]int{"user:alice": 1, "claimed:alice": 1, "user:carol": 0, "user:nobody": 0} {
			if n := strings.Count(page("/ui/ledger?q="+search), "<code>step.allowed</code>"); n != want {
				t.Errorf("%s finds %d entries, want %d", search, n, want)
			}
		}
		if text := page("/ui/users/default/nobody"); !strings.Contains(text, "There is no user") {
			t.Error(text)
		}
	})
}

// decoded is an export with the bodies as they are.
func decoded(export string) string {
	var all strings.Builder
	for line := range strings.Lines(export) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		body, _ := base64.StdEncoding.DecodeString(parts[len(parts)-1])
		fmt.Fprintln(&all, parts[0], string(body))
	}
	return all.String()
}
