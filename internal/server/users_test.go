package server_test

import (
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// A step, a signal and what the ledger says of both carry the user on whose behalf they are. Who is only claimed gets
// nothing from it.
func TestAStepIsOnBehalfOfAUser(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.applyPolicy("version: 1\ntools: {send_email: [email.send]}\nrules:\n" +
			"  - {name: not-for-others, on: [action, signal], when: 'event.user != \"\" && !user.verified', then: block}\n")
		b.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com","scopes":["email.*"]}`, nil)
		b.ops(201, "POST /ops/users", `{"name":"carol","scopes":["tools.read"]}`, nil)
		add := func(body string) string {
			var added struct{ Keys map[string]string }
			b.ops(201, "POST /ops/agents", body, &added)
			return added.Keys["signal"]
		}
		desk := add(`{"name":"desk","acts_for":["anybody"]}`)
		reader := add(`{"name":"reader","acts_for":["anybody"],"scopes":["email.read"]}`)
		carols := add(`{"name":"carols","owner":"carol"}`)
		free := add(`{"name":"free"}`)
		step := func(key, tool, metadata string) string {
			_, answer := b.ahp(key, `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action",`+
				`"session_id":"s","agent_id":"a","timestamp":"t","depth":0,"payload":{"tool_name":"`+tool+`"}`+metadata+`}}`)
			return answer
		}
		for _, c := range []struct{ name, key, tool, metadata, decision, says string }{
			{"a user with the scope", desk, "send_email", `,"metadata":{"user":"alice"}`, "allow", ""},
			{"by e-mail", desk, "send_email", `,"metadata":{"user":"Alice@Example.com"}`, "allow", ""},
			{"a user without it", desk, "send_email", `,"metadata":{"user":"carol"}`, "block", "desk acting for carol"},
			{"an agent without it", reader, "send_email", `,"metadata":{"user":"alice"}`, "block", "reader acting for alice"},
			{"the owner's scopes", carols, "send_email", ``, "block", "carols acting for carol"},
			{"a claim does not widen", carols, "send_email", `,"metadata":{"user":"alice"}`, "block", "carols acting for carol"},
			{"nor is it left alone", carols, "read", `,"metadata":{"user":"alice"}`, "block", ""},
			{"what needs no scope", carols, "read", ``, "allow", ""},
			{"nobody, with nothing said of scopes", free, "send_email", ``, "allow", ""},
			{"nobody who claims somebody", free, "send_email", `,"metadata":{"user":"alice"}`, "block", ""},
			{"what is no text is no user", carols, "read", `,"metadata":{"user":7}`, "allow", ""},
		} {
			if answer := step(c.key, c.tool, c.metadata); !strings.Contains(answer, `"decision":"`+c.decision+`"`) ||
				!strings.Contains(answer, c.says) {
				t.Errorf("%s: %s", c.name, answer)
			}
		}
		// What is recorded says who, and whether that is proved.
		var page struct {
			Entries []struct {
				Body struct {
					Decision struct {
						Rule string
						User struct {
							Name, Email string
							Verified    bool
						}
						Agent struct{ Name string }
					}
				}
			}
		}
		b.ops(200, "GET /ops/ledger?kind=step.allowed&limit=1", "", &page)
		if d := page.Entries[0].Body.Decision; d.User.Name != "alice" || !d.User.Verified || d.User.Email != "alice@example.com" {
			t.Errorf("%+v", d)
		}
		// A suspended user stops everything that is done for them, and nothing else.
		b.ops(200, "PATCH /ops/users/alice", `{"suspended":true}`, nil)
		if answer := step(desk, "send_email", `,"metadata":{"user":"alice"}`); !strings.Contains(answer, "alice, on whose behalf") {
			t.Error(answer)
		}
		if answer := step(desk, "read", ``); !strings.Contains(answer, `"allow"`) {
			t.Error(answer)
		}
		signal := func(key, name, run, user string) string {
			_, answer, _ := b.do(request{call: "POST /amp/signal", token: key, body: `{"amp_version":"1.0","agent_id":"` + name +
				`","run_id":"` + run + `","status":"completed","summary":"s","proposed_action":"Pay","model":"m","input_tokens":1,` +
				`"output_tokens":1,"cost_usd":0,"gate_required":true,"started_at":"2026-03-06T22:10:38Z",` +
				`"completed_at":"2026-03-06T22:10:46Z","metadata":{"user":"` + user + `"}}`})
			return answer
		}
		if answer := signal(carols, "carols", "r1", "carol"); !strings.Contains(answer, `"pending"`) &&
			!strings.Contains(answer, "gate_id") {
			t.Error(answer)
		}
		if answer := signal(carols, "carols", "r2", "bob"); !strings.Contains(answer, `"rejected"`) {
			t.Error(answer)
		}
		b.wantRebuilt(1)
	})
}

// Whoever approves sees for whom, and what is approved for one user is not done for another.
func TestAnApprovalIsForOneUser(t *testing.T) {
	eachBoxWith(t, map[string]string{"harness.timeout": "1s"}, func(t *testing.T, b *box) {
		b.applyPolicy("version: 1\nrules: [{name: ask, on: [action], then: gate}]\n")
		b.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com"}`, nil)
		b.ops(201, "POST /ops/users", `{"name":"bob"}`, nil)
		var added struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"desk","acts_for":["alice","bob"]}`, &added)
		step := func(user string) string {
			_, answer := b.ahp(added.Keys["signal"], `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":`+
				`"pre_action","session_id":"s","agent_id":"a","timestamp":"t","depth":0,"payload":{"tool_name":"pay"},`+
				`"metadata":{"user":"`+user+`"}}}`)
			return answer
		}
		waits := func(user string) (id string, about []string) {
			t.Helper()
			var page struct {
				Gates []struct {
					ID    string
					Facts []struct{ Name, Value string }
				}
			}
			testbed.Until(t, "the gate for "+user, func() bool {
				step(user)
				b.ops(200, "GET /ops/gates?status=pending", "", &page)
				return len(page.Gates) == 1
			})
			for _, f := range page.Gates[0].Facts {
				if f.Name == "on behalf of" {
					about = append(about, f.Value)
				}
			}
			return page.Gates[0].ID, about
		}
		for _, c := range []struct{ user, says string }{
			{"alice", "alice <alice@example.com>"},
			{"bob", "bob"},
			{"carol", "nobody who is known; the agent claims, without proof, to act for carol"},
		} {
			id, about := waits(c.user)
			if len(about) != 1 || about[0] != c.says {
				t.Errorf("%s: the gate says %q", c.user, about)
			}
			b.ops(200, "POST /ops/gates/"+id+"/approve", "", nil)
			testbed.Until(t, "the step for "+c.user, func() bool { return strings.Contains(step(c.user), `"allow"`) })
		}
	})
}
