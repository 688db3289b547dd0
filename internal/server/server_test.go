package server_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// box is a server that runs inside of the test.
type box struct {
	*servertest.Box
	t      testing.TB
	url    string
	config *server.Config
	client *http.Client
	stop   func()
}

// start runs a server on the database at the address, "" for SQLite in its folder, with
// more protocols than it has.
func start(t testing.TB, address string, flags map[string]string, more ...protocol.Protocol) *box {
	t.Helper()
	// That plans wait for a person is tested where it is set.
	all := map[string]string{"db": address, "tasks.plan_approval": "false"}
	maps.Copy(all, flags)
	b := servertest.Start(t, all, more...)
	return &box{b, t, b.URL, b.Config, b.Client, b.Stop}
}

// eachBox runs fn with a server on every database.
func eachBox(t *testing.T, fn func(t *testing.T, b *box)) {
	t.Helper()
	eachBoxWith(t, nil, fn)
}

// eachBoxWith is eachBox with some of the configuration.
func eachBoxWith(t *testing.T, flags map[string]string, fn func(t *testing.T, b *box)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, start(t, address, flags)) })
}

func (b *box) token() string { b.t.Helper(); return b.Token() }

// request is one call: "METHOD /path", with a body, a token, a content type and more headers.
type request struct {
	call, body, token, media string
	header                   map[string]string
}

func (b *box) do(r request) (status int, answer string, header http.Header) {
	b.t.Helper()
	return b.Do(servertest.Request{Call: r.call, Token: r.token, Body: r.body, Media: r.media, Header: r.header})
}

// ops makes a call as the first operator and decodes the answer.
func (b *box) ops(want int, call, body string, into any) {
	b.t.Helper()
	b.Ops(want, call, body, into)
}

// wantRebuilt fails the test when the tables are not what the ledger says, or have fewer
// rows.
func (b *box) wantRebuilt(rows int64) {
	b.t.Helper()
	db, err := server.OpenExisting(b.t.Context(), b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	wantRebuilt(b.t, db, rows)
}

func wantRebuilt(t testing.TB, db *store.DB, rows int64) {
	t.Helper()
	got, err := ledger.CheckRebuild(t.Context(), db, server.Migrations(), server.Projections(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Differences) != 0 || got.Rows < rows {
		t.Errorf("%+v", got)
	}
}

const publicKey = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"

func TestTheOperatorsAPI(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		admin := b.token()
		var agent struct {
			Keys map[string]string `json:"keys"`
		}
		b.ops(201, "POST /ops/agents", `{"name":"first"}`, &agent)
		var viewer, operator struct {
			Token string `json:"token"`
		}
		b.ops(201, "POST /ops/operators", `{"name":"vera","role":"viewer"}`, &viewer)
		b.ops(201, "POST /ops/operators", `{"name":"otto"}`, &operator)

		var owner struct {
			Key string `json:"key"`
		}
		b.ops(201, "POST /ops/owners", `{"name":"finance"}`, &owner)

		var keys struct {
			Keys []struct{ ID, Operator string }
		}
		b.ops(200, "GET /ops/keys", "", &keys)
		adminKey := keys.Keys[0].ID // the first key there was

		for _, c := range []struct {
			name   string
			req    request
			status int
			says   []string
			writes int64 // entries
		}{
			{"no token", request{call: "GET /ops/agents"}, 401, []string{"unauthenticated", "Authorization: Bearer sbx_op_"}, 0},
			{"an unknown token", request{call: "GET /ops/agents", token: "sbx_op_nonsense"}, 401, []string{"not known here"}, 0},
			{"an agent's key", request{call: "GET /ops/agents", token: agent.Keys["signal"]}, 403, []string{"agent's key"}, 0},
			{
				"an owner's key",
				request{call: "GET /ops/agents", token: owner.Key},
				403,
				[]string{"owner's key", "registers agents"},
				0,
			},
			{"a viewer may look", request{call: "GET /ops/agents", token: viewer.Token}, 200, []string{`"first"`}, 0},
			{
				"a viewer may not add",
				request{call: "POST /ops/agents", token: viewer.Token, body: `{"name":"x"}`},
				403,
				[]string{"role operator", "vera"},
				0,
			},
			{
				"an operator may add agents",
				request{call: "POST /ops/agents", token: operator.Token, body: `{"name":"by-otto"}`},
				201,
				[]string{"rs-amp-", "amp_live_sk_"},
				3,
			},
			{
				"an operator may not add operators",
				request{call: "POST /ops/operators", token: operator.Token, body: `{"name":"x"}`},
				403,
				[]string{"role admin"},
				0,
			},
			{
				"an operator may not say who they are in Slack",
				request{call: "PATCH /ops/operators/otto", token: operator.Token, body: `{"contacts":{"slack":"U0OTTO"}}`},
				403,
				[]string{"role admin"},
				0,
			},
			{
				"an admin may",
				request{call: "PATCH /ops/operators/otto", token: admin, body: `{"contacts":{"slack":"U0OTTO"}}`},
				200,
				[]string{`"contacts":{"slack":"U0OTTO"}`},
				1,
			},
			{
				"the same again",
				request{call: "PATCH /ops/operators/otto", token: admin, body: `{"contacts":{"slack":"U0OTTO"}}`},
				200,
				[]string{`"slack":"U0OTTO"`},
				0,
			},
			{
				"a contact that is none",
				request{call: "PATCH /ops/operators/otto", token: admin, body: `{"contacts":{"slack":"otto"}}`},
				400,
				[]string{"such as U024BE7LH", `"field":"contacts"`},
				0,
			},
			{
				"a viewer sees the channels",
				request{call: "GET /ops/notify", token: viewer.Token},
				200,
				[]string{`"channels":[]`},
				0,
			},
			{
				"an operator may not test channels",
				request{call: "POST /ops/notify/test", token: operator.Token, body: `{"channel":"slack"}`},
				403,
				[]string{"role admin"},
				0,
			},
			{
				"a channel that there is not",
				request{call: "POST /ops/notify/test", token: admin, body: `{"channel":"slack"}`},
				404,
				[]string{"notify."},
				0,
			},
			{"the secret of no webhook", request{call: "GET /ops/notify/secret", token: admin}, 404, []string{"no channel"}, 0},
			{
				"a name that is taken",
				request{call: "POST /ops/agents", token: admin, body: `{"name":"first"}`},
				409,
				[]string{"already_exists"},
				0,
			},
			{
				"a bad name",
				request{call: "POST /ops/agents", token: admin, body: `{"name":"Not Good"}`},
				400,
				[]string{"billing-agent", `"field":"name"`},
				0,
			},
			{"no name", request{call: "POST /ops/agents", token: admin, body: `{}`}, 400, []string{`"field":"name"`}, 0},
			{
				"a bad trust",
				request{call: "POST /ops/agents", token: admin, body: `{"name":"x","trust":"total"}`},
				400,
				[]string{"untrusted, standard, trusted"},
				0,
			},
			{
				"an unknown workspace",
				request{call: "POST /ops/agents", token: admin, body: `{"name":"x","workspace":"mars"}`},
				404,
				[]string{"no workspace"},
				0,
			},
			{
				"an unknown field",
				request{call: "POST /ops/agents", token: admin, body: `{"nmae":"x"}`},
				400,
				[]string{`Did you mean \"name\"?`},
				0,
			},
			{
				"a field twice",
				request{call: "POST /ops/agents", token: admin, body: `{"name":"x","name":"y"}`},
				400,
				[]string{"Duplicate field"},
				0,
			},
			{
				"half a JSON",
				request{call: "POST /ops/agents", token: admin, body: `{"name":`},
				400,
				[]string{"stops in the middle"},
				0,
			},
			{
				"the wrong type",
				request{call: "POST /ops/agents", token: admin, body: `{"name":7}`},
				400,
				[]string{"should be a string"},
				0,
			},
			{"not JSON", request{
				call: "POST /ops/agents", token: admin, body: "name=x",
				media: "application/x-www-form-urlencoded",
			}, 415, []string{"Content-Type: application/json"}, 0},
			{"a huge body", request{
				call: "POST /ops/agents", token: admin,
				body: `{"name":"` + strings.Repeat("x", 2<<20) + `"}`,
			}, 413, []string{"1048576"}, 0},
			{"a huge label", request{
				call: "POST /ops/agents", token: admin,
				body: `{"name":"x","labels":{"a":"` + strings.Repeat("x", 300) + `"}}`,
			}, 400, []string{"labels"}, 0},
			{"an unknown agent", request{call: "GET /ops/agents/nobody", token: admin}, 404, []string{"agents ls"}, 0},
			{
				"suspending",
				request{call: "PATCH /ops/agents/first", token: admin, body: `{"suspended":true}`},
				200,
				[]string{`"suspended":true`},
				1,
			},
			{
				"suspending again changes nothing",
				request{call: "PATCH /ops/agents/first", token: admin, body: `{"suspended":true}`},
				200,
				[]string{`"suspended":true`},
				0,
			},
			{
				"changing trust and labels",
				request{call: "PATCH /ops/agents/first", token: admin, body: `{"trust":"trusted","labels":{"a":"b"}}`},
				200,
				[]string{`"trust":"trusted"`, `"labels":{"a":"b"}`},
				1,
			},
			{
				"an agent with all there is",
				request{
					call: "POST /ops/agents", token: operator.Token,
					body: `{"name":"full","owner":"finance","public_key":"` + publicKey + `"}`,
				},
				201,
				[]string{
					`"address":"full@default.signalbox.local"`, `"owner":"finance"`, `"fingerprint":"SHA256:Vkdap1Rj`,
					`-----BEGIN PUBLIC KEY-----\nMCow`, `"online":false,"last_seen_at":null`, `"rate_limit":null`,
				},
				4,
			},
			{
				"a public key that is in use",
				request{call: "PATCH /ops/agents/first", token: operator.Token, body: `{"public_key":"` + publicKey + `"}`},
				409,
				[]string{"another agent", `"field":"public_key"`},
				0,
			},
			{
				"a public key that is none",
				request{call: "PATCH /ops/agents/first", token: operator.Token, body: `{"public_key":"abc"}`},
				400,
				[]string{"64 hex digits", `"field":"public_key"`},
				0,
			},
			{
				"a rate limit",
				request{call: "PATCH /ops/agents/first", token: operator.Token, body: `{"rate_limit":0}`},
				200,
				[]string{`"rate_limit":0`},
				1,
			},
			{
				"the default rate limit",
				request{call: "PATCH /ops/agents/first", token: operator.Token, body: `{"rate_limit":"default"}`},
				200,
				[]string{`"rate_limit":null`},
				1,
			},
			{
				"a rate limit that is none",
				request{call: "PATCH /ops/agents/first", token: operator.Token, body: `{"rate_limit":-1}`},
				400,
				[]string{"0 for no limit", `"field":"rate_limit"`},
				0,
			},
			{
				"a viewer may see owners",
				request{call: "GET /ops/owners", token: viewer.Token},
				200,
				[]string{`"name":"finance"`, `"id":"usr_`},
				0,
			},
			{
				"a viewer may not add owners",
				request{call: "POST /ops/owners", token: viewer.Token, body: `{"name":"x"}`},
				403,
				[]string{"role operator"},
				0,
			},
			{
				"an owner's name that is taken",
				request{call: "POST /ops/owners", token: operator.Token, body: `{"name":"finance"}`},
				409,
				[]string{"users key finance"},
				0,
			},
			{
				"a further key for an owner",
				request{call: "POST /ops/owners/finance/key", token: operator.Token},
				201,
				[]string{`"secret":"uk_`, `"owner":"finance"`},
				1,
			},
			{
				"an owner who is not there",
				request{call: "POST /ops/owners/nobody/key", token: operator.Token},
				404,
				[]string{"users ls"},
				0,
			},
			{"an owner goes, the agents stay", request{call: "DELETE /ops/owners/finance", token: operator.Token}, 204, nil, 1},
			{
				"and have no owner",
				request{call: "GET /ops/agents/full", token: operator.Token},
				200,
				[]string{`"address":"full@default.signalbox.local","trust"`},
				0,
			},
			{
				"a further key",
				request{call: "POST /ops/keys", token: admin, body: `{"agent":"first","kind":"mail"}`},
				201,
				[]string{"amp_live_sk_"},
				1,
			},
			{
				"an unknown kind of key",
				request{call: "POST /ops/keys", token: admin, body: `{"agent":"first","kind":"male"}`},
				400,
				[]string{`Did you mean \"mail\"?`},
				0,
			},
			{
				"an operator may not rotate an admin's token",
				request{call: "POST /ops/keys/" + adminKey + "/rotate", token: operator.Token},
				403,
				[]string{"Only an admin"},
				0,
			},
			{
				"an operator may not revoke an admin's token",
				request{call: "POST /ops/keys/" + adminKey + "/revoke", token: operator.Token},
				403,
				[]string{"Only an admin"},
				0,
			},
			{"an unknown key", request{call: "POST /ops/keys/key_x/revoke", token: admin}, 404, []string{"keys ls"}, 0},
			{"the last admin stays", request{call: "DELETE /ops/operators/admin", token: admin}, 409, []string{"last admin"}, 0},
			{"an operator is removed", request{call: "DELETE /ops/operators/vera", token: admin}, 204, nil, 1},
			{"and their token with them", request{call: "GET /ops/agents", token: viewer.Token}, 401, nil, 0},
			{"an agent is removed", request{call: "DELETE /ops/agents/by-otto", token: admin}, 204, nil, 1},
			{"and is gone", request{call: "DELETE /ops/agents/by-otto", token: admin}, 404, nil, 0},
			{
				"an unknown parameter",
				request{call: "GET /ops/ledger?afetr=3", token: admin},
				400,
				[]string{`Did you mean \"after\"?`},
				0,
			},
			{
				"a parameter that is no number",
				request{call: "GET /ops/ledger?after=x", token: admin},
				400,
				[]string{"whole number"},
				0,
			},
			{
				"a page that is too large",
				request{call: "GET /ops/ledger?limit=5000", token: admin},
				400,
				[]string{"1 to 1000"},
				0,
			},
			{"a cursor that is none", request{call: "GET /ops/agents?cursor=%21", token: admin}, 400, []string{"cursor"}, 0},
			{
				"an entry that is not there",
				request{call: "GET /ops/ledger/99999", token: admin},
				404,
				[]string{"entries 1 to"},
				0,
			},
			{"a proof with a bad size", request{call: "GET /ops/ledger/2/proof?size=1", token: admin}, 400, []string{"size"}, 0},
			{"an unknown address", request{call: "GET /nowhere"}, 404, []string{"/openapi.json"}, 0},
			{"a wrong method", request{call: "PUT /ops/agents"}, 405, []string{"GET, HEAD, POST"}, 0},
			{"a tile that is none", request{call: "GET /ledger/tile/0/abc"}, 404, []string{"tlog-tiles"}, 0},
			{"entry bundles are not public", request{call: "GET /ledger/tile/entries/000.p/1"}, 401, nil, 0},
			{
				"an export takes an admin",
				request{call: "GET /ops/ledger/export", token: operator.Token},
				403,
				[]string{"admin"},
				0,
			},
			{
				"a filter that is not well formed",
				request{call: "GET /ops/ledger?kind=%zz", token: admin},
				400,
				[]string{"well formed"},
				0,
			},
			{
				"a semicolon between parameters",
				request{call: "GET /ops/ledger?limit=5;kind=x", token: admin},
				400,
				[]string{"well formed"},
				0,
			},
			{"newest is 1 or 0", request{call: "GET /ops/ledger?newest=true", token: admin}, 400, []string{"1 or 0"}, 0},
			{"a NUL in the query", request{call: "GET /ops/ledger?kind=%00", token: admin}, 400, []string{"NUL"}, 0},
			{
				"broken UTF-8 in the query",
				request{call: "GET /ops/agents?workspace=%ff", token: admin},
				400,
				[]string{"UTF-8"},
				0,
			},
			{"a NUL in the address", request{call: "GET /ops/agents/%00", token: admin}, 400, []string{"NUL"}, 0},
			{"broken UTF-8 in the address", request{call: "POST /ops/keys/%ff/rotate", token: admin}, 400, []string{"UTF-8"}, 0},
			{
				"keys of a workspace that is not there",
				request{call: "GET /ops/keys?workspace=mars", token: admin},
				200,
				[]string{`"keys":[]`},
				0,
			},
			{
				"filters",
				request{call: "GET /ops/ledger?kind=operator.removed", token: admin},
				200,
				[]string{"operator.removed"},
				0,
			},
		} {
			t.Run(c.name, func(t *testing.T) {
				before := b.head()
				status, answer, _ := b.do(c.req)
				if status != c.status {
					t.Errorf("status %d, want %d: %s", status, c.status, answer)
				}
				for _, s := range c.says {
					if !strings.Contains(answer, s) {
						t.Errorf("the answer does not say %q: %s", s, answer)
					}
				}
				if wrote := b.head() - before; wrote != c.writes {
					t.Errorf("%d entries were written, want %d", wrote, c.writes)
				}
			})
		}
	})
}

func TestKeysAreRotatedWithGraceAndRevokedAtOnce(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var added struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"ines","role":"viewer"}`, &added)
		works := func(token string) bool {
			status, _, _ := b.do(request{call: "GET /ops/agents", token: token})
			return status == 200
		}
		var keys struct {
			Keys []struct{ ID, Operator, Hint string }
		}
		b.ops(200, "GET /ops/keys", "", &keys)
		var id string
		for _, k := range keys.Keys {
			if k.Operator == "ines" {
				id = k.ID
				if !strings.HasSuffix(k.Hint, added.Token[len(added.Token)-4:]) || strings.Contains(k.Hint, added.Token) {
					t.Errorf("the hint is %s", k.Hint)
				}
			}
		}
		var rotated struct {
			Secret string
			Key    struct{ ID string }
		}
		b.ops(201, "POST /ops/keys/"+id+"/rotate", "", &rotated)
		if !works(added.Token) || !works(rotated.Secret) {
			t.Error("after a rotation both keys work")
		}
		b.ops(409, "POST /ops/keys/"+id+"/rotate", "", nil)
		b.ops(200, "POST /ops/keys/"+rotated.Key.ID+"/revoke", "", nil)
		b.ops(200, "POST /ops/keys/"+rotated.Key.ID+"/revoke", "", nil) // again is the same
		if works(rotated.Secret) {
			t.Error("a revoked key still works")
		}
	})
}

func TestPagesHoldEverythingOnce(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var want, got []string
		for i := range 25 {
			name := fmt.Sprintf("agent-%02d", i)
			want = append(want, name)
			b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":%q}`, name), nil)
		}
		for cursor := ""; ; {
			var page struct {
				Agents []struct{ Name string }
				Next   string
			}
			b.ops(200, "GET /ops/agents?limit=7&cursor="+cursor, "", &page)
			for _, a := range page.Agents {
				got = append(got, a.Name)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
