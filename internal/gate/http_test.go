package gate_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// call makes a call as the operator, without the server around it.
func (n *node) call(as roster.Identity, call, body string) (status int, answer string) {
	n.T.Helper()
	mux := http.NewServeMux()
	for _, route := range n.gates.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			if err := route.Handle(w, r.WithContext(roster.With(r.Context(), as))); err != nil {
				wire.Fail(w, err)
			}
		})
	}
	method, path, _ := strings.Cut(call, " ")
	req := httptest.NewRequestWithContext(n.T.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

func TestTheOperatorsAPIOfGates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, eve := n.operator("ada", "operator"), n.operator("eve", "viewer")
		first, second, third := n.open(gate.Rules{}), n.open(gate.Rules{Quorum: 2}), n.open(gate.Rules{})
		tomorrow := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
		for _, c := range []struct {
			name   string
			as     roster.Identity
			call   string
			body   string
			status int
			says   string
		}{
			{"the inbox", eve, "GET /ops/gates?status=pending", "", 200, `"status":"pending"`},
			{"a wrong status", eve, "GET /ops/gates?status=waiting", "", 400, "pending, approved or rejected"},
			{"a wrong cursor", eve, "GET /ops/gates?cursor=eA", "", 400, "cursor"},
			{"one gate", eve, "GET /ops/gates/" + first, "", 200, `"proposed_action":"send"`},
			{"a gate that is not there", eve, "GET /ops/gates/gate_x", "", 404, "gates ls"},
			{"a viewer may not decide", eve, "POST /ops/gates/" + first + "/approve", "", 403, "may not decide"},
			{"an approval without a body", ada, "POST /ops/gates/" + first + "/approve", "", 200, `"status":"approved"`},
			{"somebody was first", ada, "POST /ops/gates/" + first + "/reject", `{"note":"late"}`, 409, "already_resolved"},
			{
				"one of two", ada, "POST /ops/gates/" + second + "/approve", `{"note":"one","modified":{"amount":10}}`, 200,
				`"status":"pending"`,
			},
			{"an unknown field", ada, "POST /ops/gates/" + third + "/reject", `{"nte":"x"}`, 400, `Did you mean \"note\"?`},
			{"a rejection with a reason", ada, "POST /ops/gates/" + third + "/reject", `{"note":"no"}`, 200, `"note":"no"`},
			{"a delegation", ada, "POST /ops/delegations", `{"delegate":"eve","until":"` + tomorrow + `"}`, 201, "eve"},
			{
				"a delegation to nobody", ada, "POST /ops/delegations", `{"delegate":"zoe","until":"` + tomorrow + `"}`, 404,
				"zoe",
			},
			{"the end of a delegation", ada, "DELETE /ops/delegations/eve", "", 204, ""},
		} {
			if status, answer := n.call(c.as, c.call, c.body); status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		var page gate.GatePage
		_, answer := n.call(eve, "GET /ops/gates?limit=2", "")
		if err := json.Unmarshal([]byte(answer), &page); err != nil || len(page.Gates) != 2 || page.Next == "" {
			t.Fatalf("%v %s", err, answer)
		}
		_, answer = n.call(eve, "GET /ops/gates?limit=2&cursor="+page.Next, "")
		if !strings.Contains(answer, first) || strings.Contains(answer, third) {
			t.Errorf("the second page: %s", answer)
		}
	})
}
