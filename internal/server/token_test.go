package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/oidc/oidctest"
	"signalbox/internal/server"
	"signalbox/internal/testbed"
)

type claims = oidctest.Claims

// signedFor is a token of an issuer for our servers.
func signedFor(i *oidctest.Issuer, subject string, more claims) string {
	return i.Token("box", subject, more)
}

// eachTokenBox is a server on each database that takes tokens of an issuer.
func eachTokenBox(t *testing.T, more string, fn func(t *testing.T, b *box, i *oidctest.Issuer)) {
	t.Helper()
	i := oidctest.Start(t)
	eachBoxWith(t, map[string]string{
		"users.oidc": "issuer=" + i.URL + " audience=box" + more, "secrets.keep": "true",
		"harness.timeout": "1s",
	},
		func(t *testing.T, b *box) { fn(t, b, i) })
}

// tokenAgent adds an agent and returns its key.
func (b *box) tokenAgent(body string) string {
	b.t.Helper()
	var added struct{ Keys map[string]string }
	b.ops(201, "POST /ops/agents", body, &added)
	return added.Keys["signal"]
}

// stepWith is the answer to a step with metadata.
func (b *box) stepWith(key, metadata string) string {
	_, answer := b.ahp(key, `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action",`+
		`"session_id":"s","agent_id":"a","timestamp":"t","depth":0,"payload":{"tool_name":"send_email"},"metadata":`+
		metadata+`}}`)
	return answer
}

// newestDecision is the newest entry of a kind, as text, and the decision in it.
func (b *box) newestDecision(kind string) (text string, d struct {
	Rule string
	User struct {
		ID, Name, Proof string
		Verified        bool
	}
},
) {
	b.t.Helper()
	var page struct {
		Entries []struct{ Body json.RawMessage }
	}
	b.ops(200, "GET /ops/ledger?kind="+kind+"&limit=200", "", &page)
	if len(page.Entries) == 0 {
		return "", d
	}
	last := page.Entries[len(page.Entries)-1].Body
	var body struct{ Decision json.RawMessage }
	_ = json.Unmarshal(last, &body)
	_ = json.Unmarshal(body.Decision, &d)
	return string(last), d
}

// reasons are those of the calls that were refused.
func (b *box) reasons() (all string) {
	var page struct {
		Entries []struct {
			Body struct{ Reason, Agent, Call string }
		}
	}
	b.ops(200, "GET /ops/ledger?kind=call.refused", "", &page)
	for _, e := range page.Entries {
		all += e.Body.Reason + " " + e.Body.Call + "\n"
	}
	return all
}

// A user's token proves on whose behalf an agent acts, and a bad one stops the call and is recorded.
func TestAUsersTokenProvesForWhomAnAgentActs(t *testing.T) {
	eachTokenBox(t, " scopes_claim=scope", func(t *testing.T, b *box, i *oidctest.Issuer) {
		stranger := oidctest.Start(t)
		b.applyPolicy("version: 1\ntools: {send_email: [email.send]}\nrules: []\n")
		b.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com"}`, nil)
		b.ops(201, "POST /ops/users", `{"name":"bob","email":"bob@example.com"}`, nil)
		desk := b.tokenAgent(`{"name":"desk","acts_for":["oidc"]}`)
		bobs := b.tokenAgent(`{"name":"bobs","owner":"bob","acts_for":["bob"]}`)
		bound := b.tokenAgent(`{"name":"bound","acts_for":["oidc"],"oidc_client":"bound-client"}`)
		alice := func(more claims) string {
			all := claims{"email": "alice@example.com", "email_verified": true, "scope": "openid email.send"}
			for name, value := range more {
				all[name] = value
			}
			return signedFor(i, "u-alice", all)
		}
		meta := func(token string) string { return `{"user_token":"` + token + `"}` }
		for _, c := range []struct{ name, key, metadata, decision, says string }{
			{"the user's word", desk, meta(alice(nil)), "allow", ""},
			{"and their name", desk, `{"user":"alice","user_token":"` + alice(nil) + `"}`, "allow", ""},
			{"with somebody else's name", desk, `{"user":"bob","user_token":"` + alice(nil) + `"}`, "block", "its token is of alice"},
			{"narrowed to nothing", desk, meta(alice(claims{"scope": "openid"})), "block", "needs the scope email.send"},
			{"an agent that acts for others", bobs, meta(alice(nil)), "block", "for whom bobs may not act"},
			{"a token of another client", bound, meta(alice(claims{"azp": "other"})), "block", "another client"},
			{"of its own client", bound, meta(alice(claims{"azp": "bound-client"})), "allow", ""},
			{"of nobody here", desk, meta(signedFor(i, "u-mallory", claims{"email": "m@example.com"})), "block", "is no user"},
			{"e-mail of another, unverified", desk, meta(signedFor(i, "u-2", claims{"email": "bob@example.com"})), "block", "is no user"},
			{"for another audience", desk, meta(i.Token("shop", "u-alice", nil)), "block", "another audience"},
			{"expired", desk, meta(alice(claims{"exp": time.Now().Unix() - 1})), "block", "expired"},
			{"of another issuer", desk, meta(stranger.Token("box", "u-alice", nil)), "block", "not one of users.oidc"},
			{"forged", desk, meta(stranger.Token("box", "u-alice", claims{"iss": i.URL})), "block", "signature"},
			{"no token", desk, meta("alice-said-that-it-is-fine"), "block", "not a token"},
			{"no text", desk, `{"user_token":["` + alice(nil) + `"]}`, "block", "not a token"},
		} {
			if answer := b.stepWith(c.key, c.metadata); !strings.Contains(answer, `"decision":"`+c.decision+`"`) ||
				!strings.Contains(answer, c.says) {
				t.Errorf("%s: %s", c.name, answer)
			}
			kind := map[string]string{"allow": "step.allowed", "block": "step.blocked"}[c.decision]
			body, d := b.newestDecision(kind)
			if c.decision == "allow" && (d.User.Name != "alice" || d.User.Proof != "oidc" || !d.User.Verified) {
				t.Errorf("%s: recorded for %+v", c.name, d.User)
			}
			if c.decision == "block" && d.Rule != "user_token" && d.Rule != "scopes" {
				t.Errorf("%s: blocked by %q", c.name, d.Rule)
			}
			if strings.Contains(body, "eyJh") || strings.Contains(body, "it-is-fine") {
				t.Errorf("%s: the ledger has the token: %s", c.name, body)
			}
		}
		// Who came by e-mail is known by the subject from then on, whatever the address says.
		if answer := b.stepWith(desk, meta(signedFor(i, "u-new", claims{
			"email": "alice@example.com", "email_verified": true,
			"scope": "email.send",
		}))); !strings.Contains(answer, "is no user") {
			t.Error("a new subject with an old address:", answer)
		}
		var shown struct {
			Source string
			Logins []struct{ Issuer, Subject string }
		}
		b.ops(200, "GET /ops/users/alice", "", &shown)
		if shown.Source != "hand" || len(shown.Logins) != 1 || shown.Logins[0].Subject != "u-alice" {
			t.Errorf("%+v", shown)
		}
		b.ops(200, "PATCH /ops/users/alice", `{"suspended":true}`, nil)
		if answer := b.stepWith(desk, meta(alice(nil))); !strings.Contains(answer, "is suspended") {
			t.Error(answer)
		}
		b.wantRebuilt(1)
	})
}

// Whoever has a good token becomes a user, if the issuer is set up so, and stays who they are.
func TestAFirstTokenMakesAUser(t *testing.T) {
	eachTokenBox(t, " create=true", func(t *testing.T, b *box, i *oidctest.Issuer) {
		b.applyPolicy("version: 1\nrules: [{name: proved, on: [action], when: 'user.proof != \"oidc\"', then: block}]\n")
		desk := b.tokenAgent(`{"name":"desk","acts_for":["oidc"]}`)
		as := func(subject, email string, verified bool) string {
			return b.stepWith(desk, `{"user_token":"`+signedFor(i, subject, claims{
				"email": email, "email_verified": verified,
				"name": "N",
			})+`"}`)
		}
		for _, c := range []struct {
			subject, email string
			verified       bool
			name           string
		}{
			{"1", "Dana.Q@example.com", true, "dana-q"},
			{"2", "dana.q@other.com", true, "dana-q-2"},
			{"1", "renamed@example.com", true, "dana-q"},    // the same subject
			{"3", "Dana.Q@example.com", true, "dana-q-3"},   // another person gets the address
			{"4", "owner@example.com", false, "user-owner"}, // a word that means something else
			{"5", "", false, "user-5"},
		} {
			subject := c.subject
			if c.name == "user-5" {
				subject = "user 5"
			}
			if answer := as(subject, c.email, c.verified); !strings.Contains(answer, `"allow"`) {
				t.Fatalf("%s: %s", c.name, answer)
			}
			if _, d := b.newestDecision("step.allowed"); d.User.Name != c.name || d.User.Proof != "oidc" {
				t.Errorf("%+v: recorded for %+v", c, d.User)
			}
		}
		body, _ := b.newestDecision("user.added")
		if !strings.Contains(body, `"subject":"user 5"`) || !strings.Contains(body, i.URL) {
			t.Error(body)
		}
		// Who is removed is not made again, and who is suspended stays so.
		b.ops(204, "DELETE /ops/users/dana-q", "", nil)
		if answer := as("1", "Dana.Q@example.com", true); !strings.Contains(answer, "was removed") {
			t.Error(answer)
		}
		b.ops(200, "PATCH /ops/users/dana-q-2", `{"suspended":true}`, nil)
		if answer := as("2", "dana.q@other.com", true); !strings.Contains(answer, "is suspended") {
			t.Error(answer)
		}
		b.wantRebuilt(1)
	})
}

// What is approved for one user is not done for another, whether they are named or have a token, and a new token of the
// same user is as good as the old one.
func TestAnApprovalIsForTheUserOfAToken(t *testing.T) {
	eachTokenBox(t, " create=true", func(t *testing.T, b *box, i *oidctest.Issuer) {
		b.applyPolicy("version: 1\nrules: [{name: ask, on: [action], then: gate}]\n")
		desk := b.tokenAgent(`{"name":"desk","acts_for":["oidc"]}`)
		step := func(subject, jti string) string {
			return b.stepWith(desk, `{"user_token":"`+signedFor(i, subject, claims{"jti": jti})+`"}`)
		}
		for _, subject := range []string{"dana", "erik"} {
			var page struct{ Gates []struct{ ID string } }
			testbed.Until(t, "the gate for "+subject, func() bool {
				step(subject, "1")
				b.ops(200, "GET /ops/gates?status=pending", "", &page)
				return len(page.Gates) == 1
			})
			b.ops(200, "POST /ops/gates/"+page.Gates[0].ID+"/approve", "", nil)
			testbed.Until(t, "the step for "+subject, func() bool { return strings.Contains(step(subject, "2"), `"allow"`) })
		}
	})
}

// Signals and calls through the proxy take the same tokens.
func TestTokensOnSignalsAndTheProxy(t *testing.T) {
	provider := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Amp") {
				t.Errorf("the provider got %s", name)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"data":[]}`))
	}))
	i := oidctest.Start(t)
	eachBoxWith(t, map[string]string{
		"users.oidc": "issuer=" + i.URL + " audience=box create=true", "proxy.anthropic.upstream": provider,
		"proxy.anthropic.key": "sk-ant-x",
	}, func(t *testing.T, b *box) {
		b.applyPolicy("version: 1\nrules: []\n")
		desk := b.tokenAgent(`{"name":"desk","acts_for":["oidc"]}`)
		good := signedFor(i, "1", claims{"email": "dana@example.com", "email_verified": true})
		signal := func(run, metadata string) string {
			_, answer, _ := b.do(request{call: "POST /amp/signal", token: desk, body: `{"amp_version":"1.0","agent_id":"desk",` +
				`"run_id":"` + run + `","status":"completed","summary":"s","model":"m","input_tokens":1,"output_tokens":1,` +
				`"cost_usd":0,"gate_required":false,"started_at":"2026-03-06T22:10:38Z",` +
				`"completed_at":"2026-03-06T22:10:46Z","metadata":` + metadata + `}`})
			return answer
		}
		for n, c := range []struct{ metadata, says string }{
			{`{"user_token":"` + good + `"}`, `"approved"`},
			{`{"user_token":"` + good + `x"}`, "signature"},
			{`{"workspace":"other"}`, "another workspace"},
			{`{"workspace":"default"}`, `"approved"`},
			{`{"workspace":"/srv/project"}`, `"approved"`},
		} {
			if answer := signal("r"+string(rune('a'+n)), c.metadata); !strings.Contains(answer, c.says) {
				t.Errorf("%s: %s", c.metadata, answer)
			}
		}
		if body, d := b.newestDecision("signal.received"); strings.Contains(body, "eyJh") {
			t.Errorf("%s %+v", body, d)
		}
		for _, c := range []struct {
			name   string
			header map[string]string
			status int
		}{
			{"a good one", map[string]string{"X-Amp-User-Token": good}, 200},
			{"with its name", map[string]string{"X-Amp-User-Token": good, "X-Amp-User": "dana"}, 200},
			{"with another name", map[string]string{"X-Amp-User-Token": good, "X-Amp-User": "bob"}, 403},
			{"a bad one", map[string]string{"X-Amp-User-Token": good + "x"}, 401},
			{"another workspace", map[string]string{"X-Amp-Workspace": "other"}, 403},
			{"its own", map[string]string{"X-Amp-Workspace": "default"}, 200},
		} {
			c.header["x-api-key"] = desk
			status, answer, _ := b.do(request{call: "GET /v1/proxy/v1/models", header: c.header})
			if status != c.status {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		coordinator := b.agentWith("coordinator", "default")
		for _, c := range []struct {
			call   string
			header map[string]string
			status int
		}{
			{"GET /amp/tasks?workspace=other", nil, 404},
			{"GET /v1/agents?tenant=other", nil, 403},
			{"GET /amp/tasks", map[string]string{"X-Amp-Workspace": "other"}, 403},
			{"GET /amp/tasks", map[string]string{"X-Amp-Workspace": "default"}, 200},
		} {
			if status, answer, _ := b.do(request{call: c.call, token: coordinator, header: c.header}); status != c.status {
				t.Errorf("%s %v: %d %s", c.call, c.header, status, answer)
			}
		}
		testbed.Until(t, "the refusals", func() bool {
			all := b.reasons()
			return strings.Contains(all, "user_token ") && strings.Contains(all, "workspace GET /v1/proxy") &&
				strings.Contains(all, "workspace GET /amp/tasks") && strings.Contains(all, "workspace GET /v1/agents")
		})
	})
}

// At /mcp a token stands in for a key: its actor is the agent, its subject the user.
func TestMCPTakesTokensInPlaceOfKeys(t *testing.T) {
	eachTokenBox(t, " create=true", func(t *testing.T, b *box, i *oidctest.Issuer) {
		b.applyPolicy("version: 1\nrules: [{name: ask, on: [signal], then: gate}]\n")
		key := b.tokenAgent(`{"name":"desk","acts_for":["oidc"],"oidc_client":"desk-client"}`)
		b.tokenAgent(`{"name":"plain","oidc_client":"plain-client"}`)
		b.ops(409, "POST /ops/agents", `{"name":"twin","oidc_client":"desk-client"}`, nil)
		post := func(token, meta string) (int, string, http.Header) {
			return b.do(request{call: "POST /mcp", token: token, header: map[string]string{
				"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
			}, body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail_inbox","arguments":{},"_meta":` + meta + `}}`})
		}
		dana := func(more claims) string {
			all := claims{"email": "dana@example.com", "email_verified": true}
			for name, value := range more {
				all[name] = value
			}
			return signedFor(i, "u-dana", all)
		}
		for _, c := range []struct {
			name, token string
			status      int
			says        string
		}{
			{"azp", dana(claims{"azp": "desk-client"}), 200, `"count":0`},
			{"client_id", dana(claims{"client_id": "desk-client"}), 200, ""},
			{"the actor", dana(claims{"azp": "web-app", "act": claims{"sub": "desk-client"}}), 200, ""},
			{"the actor is another", dana(claims{"azp": "desk-client", "act": claims{"sub": "web-app"}}), 401, "no agent of workspace"},
			{"nobody acts", dana(nil), 401, "does not say who acts"},
			{"an agent for others", dana(claims{"azp": "plain-client"}), 403, "for whom plain may not act"},
			{"another audience", i.Token("shop", "u-dana", claims{"azp": "desk-client"}), 401, "another audience"},
			{"expired", dana(claims{"azp": "desk-client", "exp": time.Now().Unix() - 5}), 401, "expired"},
			{"forged", dana(claims{"azp": "desk-client"}) + "x", 401, "signature"},
			{"a key that is none", "rs-amp-00000000000000000000000000000000", 401, "not known here"},
		} {
			status, answer, header := post(c.token, `{}`)
			if status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
			wants := status == 401
			if got := header.Get("WWW-Authenticate"); strings.Contains(got, "/.well-known/oauth-protected-resource/mcp") != wants ||
				strings.Contains(got, "invalid_token") != wants {
				t.Errorf("%s: WWW-Authenticate is %q", c.name, got)
			}
		}
		for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
			status, answer, _ := b.do(request{call: "GET " + path})
			if status != 200 || !strings.Contains(answer, `"resource":"`+b.url+`/mcp"`) || !strings.Contains(answer, i.URL) {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
		// A token is for /mcp alone.
		if status, _, _ := b.do(request{call: "GET /amp/webhook", token: dana(claims{"azp": "desk-client"})}); status != 401 {
			t.Errorf("another call takes it: %d", status)
		}
		// What _meta claims is looked at for every tool.
		for meta, says := range map[string]string{
			`{"workspace":"other"}`:              "another workspace",
			`{"user_token":"nothing"}`:           "not a token",
			`{"user_token":7}`:                   "not a token",
			`{"user_token":"` + dana(nil) + `"}`: `"count":0`,
			`{"user":"dana"}`:                    `"count":0`,
		} {
			if _, answer, _ := post(key, meta); !strings.Contains(answer, says) {
				t.Errorf("%s: %s", meta, answer)
			}
		}
		testbed.Until(t, "the refusals", func() bool {
			all := b.reasons()
			return strings.Contains(all, "user_token POST /mcp") && strings.Contains(all, "workspace POST /mcp")
		})
	})
}

// What an agent asks through MCP is asked for the user of the token.
func TestAnApprovalOverMCPIsForTheUserOfTheToken(t *testing.T) {
	eachTokenBox(t, " create=true", func(t *testing.T, b *box, i *oidctest.Issuer) {
		b.applyPolicy("version: 1\nrules: [{name: ask, on: [signal], then: allow}]\n")
		b.tokenAgent(`{"name":"desk","acts_for":["oidc"],"oidc_client":"desk-client"}`)
		tools := &toolbox{b, map[string]string{"desk": signedFor(i, "u-dana", claims{
			"email": "dana@example.com", "email_verified": true, "act": claims{"sub": "desk-client", "act": claims{"sub": "x"}},
		})}}
		session := tools.connect("desk", true)
		out, err := session.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "request_approval",
			Arguments: json.RawMessage(
				`{"run_id":"r","request_id":"q","summary":"s","proposed_action":"pay"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, d := b.newestDecision("signal.received"); d.User.Name != "dana" || d.User.Proof != "oidc" {
			t.Errorf("%+v %+v", d, out.Content)
		}
	})
}

// An issuer in the file is a mapping, as people write it, and the same as in a flag.
func TestIssuersInTheFile(t *testing.T) {
	t.Parallel()
	for file, says := range map[string]string{
		"users:\n  oidc:\n    - {issuer: 'https://a.example', audience: box, claims: {user: sub}, create: true}\n": "",
		"users:\n  oidc: ['issuer=https://a.example audience=box']\n":                                              "",
		"users:\n  oidc:\n    - {issuer: 'https://a.example', audiences: box}\n":                                   `"audiences" is not known`,
		"users:\n  oidc:\n    - {issuer: 'https://a.example', audience: [a, b]}\n":                                 "list of texts",
		"users:\n  oidc:\n    - {issuer: 'https://a.example', audience: 'a, issuer=http://x'}\n":                   "list of texts",
	} {
		_, err := server.CheckFile("signalbox.yaml", []byte(file))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
