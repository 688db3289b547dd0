package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// parts are what gates stand on.
func parts() []ledgertest.Part {
	return append(gatetest.Parts(), ledgertest.Part{Projection: askingProjection()})
}

// node is a process with gates.
type node struct {
	*ledgertest.Node
	roster *roster.Roster
	gates  *gate.Gates
}

func start(t testing.TB, address, dir string) *node {
	t.Helper()
	n := &node{Node: ledgertest.Open(t, address, nil, parts(), ledgertest.Dir(dir))}
	log := slog.New(slog.DiscardHandler)
	n.roster = roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: log, Provider: "signalbox.local"})
	n.gates = gate.New(n.DB, n.Ledger, n.roster, log)
	n.gates.ProveApprovals("test", readAsking)
	n.Run(clock.New(n.DB, n.Ledger, n.Now, log, n.gates.Handlers()).Run)
	n.Must(n.roster.Bootstrap(t.Context()))
	return n
}

// operator adds an operator and returns who they are.
func (n *node) operator(name, role string) roster.Identity {
	n.T.Helper()
	_, token, err := n.roster.AddOperator(n.T.Context(), roster.Identity{Role: roster.Admin}, name, role, "")
	if err != nil {
		n.T.Fatal(err)
	}
	who, err := n.roster.Authenticate(n.T.Context(), token.Secret)
	if err != nil {
		n.T.Fatal(err)
	}
	return who
}

// open opens a gate that asks for what the rules say.
func (n *node) open(rules gate.Rules) string {
	n.T.Helper()
	return n.openAs("default", gate.Opening{
		Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x",
		Origin: gate.Origin{Protocol: "test", Reference: "run-1"},
		Shown:  gate.Shown{Title: "Send it", ProposedAction: "send"}, Rules: rules,
	})
}

func (n *node) openAs(workspace string, o gate.Opening) string {
	n.T.Helper()
	return gatetest.Open(n.Node, workspace, o)
}

func (n *node) get(id string) gate.Gate { n.T.Helper(); return gatetest.Get(n.Node, n.gates, id) }

func approve(note string) gate.Ballot { return gate.Ballot{Approve: true, Note: note} }

func TestAGateIsDecidedByPeople(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, bob, eve := n.operator("ada", "operator"), n.operator("bob", "admin"), n.operator("eve", "viewer")
		ctx := t.Context()

		t.Run("one approval is enough when nothing else is asked", func(t *testing.T) {
			id := n.open(gate.Rules{})
			g, err := n.gates.Vote(ctx, ada, id, approve("fine"))
			if err != nil || g.Status != gate.Approved || g.ResolvedBy != "ada" || g.Cause != gate.ByVote || g.Note != "fine" ||
				len(g.Votes) != 1 {
				t.Errorf("%+v %v", g, err)
			}
			if g.Title != "Send it" || g.ProposedAction != "send" || g.Trace != "trace-1" || len(g.ActionDigest) != 64 ||
				g.Risk != "medium" {
				t.Errorf("what was opened is not shown: %+v", g)
			}
		})
		t.Run("one rejection is enough, and the reason is kept", func(t *testing.T) {
			id := n.open(gate.Rules{Quorum: 3})
			g, err := n.gates.Vote(ctx, ada, id, gate.Ballot{Note: "not today"})
			if err != nil || g.Status != gate.Rejected || g.Note != "not today" {
				t.Errorf("%+v %v", g, err)
			}
		})
		t.Run("a second vote after the decision sees who decided", func(t *testing.T) {
			id := n.open(gate.Rules{})
			if _, err := n.gates.Vote(ctx, ada, id, approve("")); err != nil {
				t.Fatal(err)
			}
			_, err := n.gates.Vote(ctx, bob, id, gate.Ballot{})
			if !fault.Is(err, fault.AlreadyResolved) || fault.From(err).Details["resolved_by"] != "ada" {
				t.Errorf("%v", err)
			}
		})
		t.Run("a quorum takes different operators", func(t *testing.T) {
			id := n.open(gate.Rules{Quorum: 2})
			if g, err := n.gates.Vote(ctx, ada, id, approve("")); err != nil || g.Status != gate.Pending {
				t.Fatalf("%+v %v", g, err)
			}
			if _, err := n.gates.Vote(ctx, ada, id, approve("")); !fault.Is(err, fault.Conflict) {
				t.Errorf("the same operator again: %v", err)
			}
			if g, err := n.gates.Vote(ctx, bob, id, approve("")); err != nil || g.Status != gate.Approved {
				t.Errorf("%+v %v", g, err)
			}
		})
		t.Run("a viewer does not decide, unless named", func(t *testing.T) {
			if _, err := n.gates.Vote(ctx, eve, n.open(gate.Rules{}), approve("")); !fault.Is(err, fault.Forbidden) {
				t.Errorf("%v", err)
			}
			if g, err := n.gates.Vote(ctx, eve, n.open(gate.Rules{Approvers: []string{"eve"}}), approve("")); err != nil ||
				g.Status != gate.Approved {
				t.Errorf("%v", err)
			}
			if _, err := n.gates.Vote(ctx, ada, n.open(gate.Rules{Approvers: []string{"admin"}}), approve("")); !fault.Is(err,
				fault.Forbidden) {
				t.Errorf("an operator where an admin is asked for: %v", err)
			}
		})
		t.Run("who asked may reject and not approve", func(t *testing.T) {
			id := n.openAs("default", gate.Opening{Requester: "operator:ada", Shown: gate.Shown{Title: "mine"}})
			if _, err := n.gates.Vote(ctx, ada, id, approve("")); !fault.Is(err, fault.Forbidden) {
				t.Errorf("%v", err)
			}
			if g, err := n.gates.Vote(ctx, ada, id, gate.Ballot{Note: "no"}); err != nil || g.Status != gate.Rejected {
				t.Errorf("%+v %v", g, err)
			}
		})
		t.Run("a delegate casts another's vote until the date, and both are recorded", func(t *testing.T) {
			id := n.open(gate.Rules{Approvers: []string{"ada"}})
			ballot := gate.Ballot{Approve: true, For: "ada"}
			if _, err := n.gates.Vote(ctx, eve, id, ballot); !fault.Is(err, fault.Forbidden) {
				t.Errorf("without a delegation: %v", err)
			}
			if err := n.gates.Delegate(ctx, ada, "eve", n.Now().Add(-time.Hour)); !fault.Is(err, fault.InvalidPayload) {
				t.Errorf("until yesterday: %v", err)
			}
			if err := n.gates.Delegate(ctx, ada, "eve", n.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			g, err := n.gates.Vote(ctx, eve, id, ballot)
			if err != nil || g.Status != gate.Approved || g.Votes[0].Operator != "ada" || g.Votes[0].CastBy != "eve" {
				t.Errorf("%+v %v", g, err)
			}
			second := n.open(gate.Rules{Approvers: []string{"ada"}})
			if err := n.gates.Undelegate(ctx, ada, "eve"); err != nil {
				t.Fatal(err)
			}
			if _, err := n.gates.Vote(ctx, eve, second, ballot); !fault.Is(err, fault.Forbidden) {
				t.Errorf("after it was ended: %v", err)
			}
		})
		t.Run("a gate that is not there", func(t *testing.T) {
			if _, err := n.gates.Vote(ctx, ada, "gate_nowhere", approve("")); !fault.Is(err, fault.NotFound) {
				t.Errorf("%v", err)
			}
		})
		n.WantClean()
	})
}

func TestAHundredDecideAtOnceAndOneIsFirst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada := n.operator("ada", "operator")
		id := n.open(gate.Rules{})
		var first, late atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				by := ada
				by.Name = fmt.Sprintf("ada-%d", i) // a hundred operators; only the name counts
				switch _, err := n.gates.Vote(context.Background(), by, id, gate.Ballot{Approve: i%2 == 0, Note: "n"}); {
				case err == nil:
					first.Add(1)
				case fault.Is(err, fault.AlreadyResolved) && fault.From(err).Details["resolved_by"] != "":
					late.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"gate.resolved"}})
		if first.Load() != 1 || late.Load() != 99 || err != nil || len(entries) != 1 {
			t.Errorf("%d were first, %d late, %d resolutions, %v", first.Load(), late.Load(), len(entries), err)
		}
		n.WantClean()
	})
}

func TestAGateThatNobodyDecidesExpires(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		minute := time.Minute.Microseconds()
		rejects := n.open(gate.Rules{Expires: 60 * minute, Ladder: []gate.Step{
			{After: 20 * minute, Do: "notify", Whom: []string{"admin"}},
			{After: 10 * minute, Do: "remind"},
			{After: 20 * minute, Do: "remind"},
		}})
		approves := n.open(gate.Rules{Expires: 60 * minute, OnExpiry: gate.Approved})
		never := n.open(gate.Rules{})
		steps := func() (all []string) {
			entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"gate.escalated"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				var b struct {
					Step gate.Step `json:"step"`
					Next int64     `json:"next"`
				}
				if err := e.Decode(&b); err != nil {
					t.Fatal(err)
				}
				all = append(all, b.Step.Do)
			}
			return all
		}
		n.Set(11 * time.Minute)
		testbed.Until(t, "a reminder", func() bool { return len(steps()) == 1 })
		n.Set(25 * time.Minute)
		testbed.Until(t, "others to be told", func() bool { return len(steps()) == 3 })
		if n.get(rejects).Status != gate.Pending {
			t.Error("a reminder has decided")
		}
		n.Set(61 * time.Minute)
		testbed.Until(t, "both to expire", func() bool {
			return n.get(rejects).Status != gate.Pending && n.get(approves).Status != gate.Pending
		})
		if g := n.get(rejects); g.Status != gate.Rejected || g.Cause != gate.ByExpiry || g.Note != "Gate expired" {
			t.Errorf("%+v", g)
		}
		if g := n.get(approves); g.Status != gate.Approved || g.Cause != gate.ByExpiry {
			t.Errorf("%+v", g)
		}
		n.Set(1000 * time.Hour)
		if n.get(never).Status != gate.Pending || len(steps()) != 3 {
			t.Errorf("%v %v", n.get(never).Status, steps())
		}
		n.WantClean()
	})
}

func TestAWaiterIsWokenByAnotherNode(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	a, b := start(t, address, t.TempDir()), start(t, address, t.TempDir())
	ada := a.operator("ada", "operator")
	var slowest time.Duration
	for range 10 {
		id := a.open(gate.Rules{})
		waiting, answer := make(chan struct{}), make(chan gate.Gate, 1)
		go func() {
			close(waiting)
			g, err := b.gates.Wait(context.Background(), id)
			if err != nil {
				t.Error(err)
			}
			answer <- g
		}()
		<-waiting
		if _, err := a.gates.Vote(t.Context(), ada, id, approve("go")); err != nil {
			t.Fatal(err)
		}
		decided := time.Now()
		if g := <-answer; g.Status != gate.Approved || g.Note != "go" {
			t.Errorf("%+v", g)
		}
		slowest = max(slowest, time.Since(decided))
	}
	t.Logf("the slowest took %v", slowest)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if g, err := b.gates.Wait(ctx, a.open(gate.Rules{})); err != nil || g.Status != gate.Pending {
		t.Errorf("waiting that ends early: %+v %v", g.Status, err)
	}
	if _, err := b.gates.Wait(t.Context(), "gate_nowhere"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// The inbox of who sees every workspace is one, whichever workspace a gate is in.
func TestTheInboxShowsTheHighestRiskFirst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada := n.operator("ada", "operator")
		byRisk := map[string][]string{}
		for i := range 30 {
			risk := gate.Risks[i%3]
			id := n.openAs([]string{"default", "east", "zoo"}[i%7%3],
				gate.Opening{
					Project: fmt.Sprintf("p%d", i%2), Agent: "agent_y", Requester: "agent:y", Risk: risk,
					Shown: gate.Shown{Title: "t"},
				})
			byRisk[risk] = append([]string{id}, byRisk[risk]...)
		}
		done := byRisk["high"][0]
		if _, err := n.gates.Vote(t.Context(), ada, done, approve("")); err != nil {
			t.Fatal(err)
		}
		want := append(append(byRisk["high"][1:], byRisk["medium"]...), byRisk["low"]...)
		var got []string
		for after := (*gate.Place)(nil); ; {
			page, next, err := n.gates.List(t.Context(), gate.Filter{Status: gate.Pending}, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range page {
				got = append(got, g.ID)
			}
			if after = next; next == nil {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		resolved, _, err := n.gates.List(t.Context(), gate.Filter{Status: gate.Approved}, nil, 10)
		if err != nil || len(resolved) != 1 || resolved[0].ID != done || len(resolved[0].Votes) != 1 {
			t.Errorf("%+v %v", resolved, err)
		}
		for status, want := range map[gate.Status]int{"": 15, gate.Pending: 14, gate.Approved: 1} {
			some, _, err := n.gates.List(t.Context(), gate.Filter{Status: status, Project: "p1", Agents: []string{"agent_y"}},
				nil, 100)
			if err != nil || len(some) != want {
				t.Errorf("%d of project p1 with status %q, want %d, %v", len(some), status, want, err)
			}
		}
	})
}

// A listing that sorts has read everything first. SQLite decides without statistics,
// so its plan for an empty table is its plan for a full one.
func TestAListingComesOutOfAnIndexInOrder(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), t.TempDir())
	place, low := &gate.Place{Risk: 1, Opened: 5}, &gate.Place{Risk: 0, Opened: 1}
	inOrder := func(index, text string, args ...any) {
		t.Helper()
		if plan := storetest.Plan(n.T, n.DB, text, args...); !strings.Contains(plan, "USING "+index+" ") ||
			strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\n%s", text, plan)
		}
	}
	for _, after := range []*gate.Place{nil, place} {
		for _, f := range []gate.Filter{{Workspace: "w"}, {Workspace: "w", Project: "p", Agents: []string{"a"}}} {
			for _, before := range []*gate.Place{nil, low} {
				text, args := gate.Inbox(f, after, before, 100)
				inOrder("PRIMARY KEY", text, args...)
			}
		}
		for index, f := range map[string]gate.Filter{
			"INDEX gate_resolved_workspace": {Status: gate.Approved, Workspace: "w"},
			"INDEX gate_resolved_agent":     {Status: gate.Rejected, Agents: []string{"a"}},
			"INDEX " + ledgertest.KindIndex: {Project: "p"},
		} {
			text, args := gate.Listing(f, after, 100)
			inOrder(index, text, args...)
		}
	}
}

func TestOneGateIsFoundWithoutLookingAtOthers(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), t.TempDir())
	if plan := storetest.Plan(t, n.DB, gate.ByID, gate.NewID()); !strings.Contains(plan, "INDEX "+ledgertest.SubjectIndex+" ") {
		t.Error(plan)
	}
}

func TestNoVotesApproveBelowTheQuorumOrAfterARejection(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := gate.Rules{
			Quorum:      rapid.IntRange(0, 4).Draw(t, "quorum"),
			RejectNeeds: rapid.IntRange(0, 3).Draw(t, "reject needs"),
		}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		var votes []gate.Vote
		approvals, rejections := map[string]bool{}, map[string]bool{}
		status := gate.Pending
		for range rapid.IntRange(0, 12).Draw(t, "votes") {
			v := gate.Vote{Operator: names.Draw(t, "operator"), Approve: rapid.Bool().Draw(t, "approve")}
			votes = append(votes, v)
			if v.Approve {
				approvals[v.Operator] = true
			} else {
				rejections[v.Operator] = true
			}
			before := status
			status = rules.Tally(votes)
			if status == gate.Approved &&
				(len(approvals) < max(rules.Quorum, 1) || len(rejections) >= max(rules.RejectNeeds, 1)) {
				t.Fatalf("approved with %d approvals and %d rejections under %+v", len(approvals), len(rejections), rules)
			}
			if before == gate.Rejected && status != gate.Rejected {
				t.Fatalf("%s after a rejection", status)
			}
		}
	})
}

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
