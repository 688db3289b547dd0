package delegate_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/delegate"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// node is a process that decides, with four agents of alice.
type node struct {
	*ledgertest.Node
	roster   *roster.Roster
	handoffs *handoff.Handoffs
	book     *rulebook.Book
	who      map[string]roster.Identity
}

var admin = roster.Identity{Role: roster.Admin}

// open opens a node over a database.
func open(t testing.TB, address string, change ...func(*ledger.Options)) *node {
	t.Helper()
	n := &node{who: map[string]roster.Identity{}}
	n.Node = ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: handoff.Migrations, Projection: handoff.Projection()},
		{Migrations: rulebook.Migrations, Projection: rulebook.Projection()},
	}, change...)
	n.roster = roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler)})
	n.handoffs = handoff.New(handoff.Options{DB: n.DB, Ledger: n.Ledger, Roster: n.roster, Now: n.Now, Key: []byte("key")})
	n.book = rulebook.New(n.DB, n.Ledger, n.roster, n.handoffs, n.Now, slog.New(slog.DiscardHandler), nil)
	n.Run(n.roster.Run, n.handoffs.Run, n.book.Run)
	n.Must(n.roster.Bootstrap(t.Context()))
	return n
}

// rules are a policy in which tools need scopes.
const rules = `version: 1
tools: {send: [mail.send], read: [mail.read], pay: [money.pay]}
rules:
  - {name: unverified, on: [action], when: delegation.unverified, then: block, reason: "Nobody knows who handed this on."}
  - {name: deep, on: [action], when: 'event.depth > 1 && event.tool == "deploy"', then: block, reason: "Too deep."}
`

func start(t testing.TB, address string, change ...func(*ledger.Options)) *node {
	t.Helper()
	n := open(t, address, change...)
	_, _, err := n.roster.AddUser(t.Context(), admin, roster.NewUser{Name: "alice", Scopes: &[]string{"mail.*", "money.pay"}})
	n.Must(err)
	_, _, err = n.roster.AddUser(t.Context(), admin, roster.NewUser{Name: "bob"})
	n.Must(err)
	for name, owner := range map[string]string{"lead": "alice", "helper": "bob", "deep": "bob", "other": "bob"} {
		_, keys, err := n.roster.AddAgent(t.Context(), admin, roster.NewAgent{Name: name, Workspace: "default", Owner: owner})
		n.Must(err)
		n.who[name], err = n.roster.Authenticate(t.Context(), keys[0].Secret)
		n.Must(err)
	}
	_, _, err = n.book.Apply(t.Context(), roster.Identity{}, []byte(rules), 0)
	n.Must(err)
	return n
}

// each runs a test on both databases.
func each(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { test(t, start(t, address)) })
}

// call is one call of an agent.
type call struct {
	tool, session, user string
	claim               policy.Claim
}

// decide decides a call and records the decision, as a protocol does.
func (n *node) decide(agent string, c call) (v policy.Verdict, record rulebook.Record) {
	n.T.Helper()
	who, err := n.roster.ByID(n.T.Context(), "default", agent)
	if err != nil {
		n.T.Error(err)
	}
	d := n.book.Decide(n.T.Context(), who, policy.Event{
		Point: policy.OnAction, Tool: c.tool, Session: c.session, User: c.user, Claim: c.claim,
	})
	if err := rulebook.Settle(d, func(d rulebook.Decision) error {
		v, record = d.Verdict, d.Record
		return d.Write(n.T.Context(), n.Ledger, who, "s", "")
	}); err != nil {
		n.T.Error(err) // it may be called beside others
	}
	return v, record
}

// want checks what becomes of a call: the rule that decides, "default" if none does.
func (n *node) want(rule, agent string, c call) policy.Delegation {
	n.T.Helper()
	v, record := n.decide(agent, c)
	if v.Rule != rule {
		n.T.Errorf("%s of %s: %s by %s (%s), and should be by %s", c.tool, agent, v.Action, v.Rule, v.Reason, rule)
	}
	return record.Delegation
}

// by is an agent that hands on what it may do itself, or under a handoff.
func (n *node) by(agent, token, session string) handoff.By {
	n.T.Helper()
	who := n.who[agent]
	under, err := n.handoffs.Under(n.T.Context(), who, policy.Claim{Token: token}, session, "")
	n.Must(err)
	by := handoff.By{Who: who, Under: under, User: under.User, Session: session}
	if by.User == nil {
		behalf, err := n.roster.For(n.T.Context(), who, "")
		n.Must(err)
		by.User, by.Proof = behalf.User, behalf.Proof
	}
	return by
}

// give hands work on, and returns the token.
func (n *node) give(agent, token string, o handoff.Opening) (handoff.Handoff, string) {
	n.T.Helper()
	h, err := n.handoffs.Open(n.T.Context(), n.by(agent, token, "s"), o)
	n.Must(err)
	return h, n.handoffs.Token(h.ID)
}

func TestWhatIsAllowedIsWhatUserAgentAndEveryHopAllow(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		_, first := n.give("lead", "", handoff.Opening{To: "helper", Scopes: []string{"mail.*"}})
		_, second := n.give("helper", first, handoff.Opening{To: "deep", Scopes: []string{"mail.read"}})
		under := func(token string) policy.Claim { return policy.Claim{Token: token} }
		n.want("default", "helper", call{tool: "send", claim: under(first)})
		n.want("scopes", "helper", call{tool: "pay", claim: under(first)})
		d := n.want("default", "deep", call{tool: "read", claim: under(second)})
		if !d.Verified || d.Depth != 2 || d.From != "helper" || d.Root != "lead" || len(d.Hops) != 2 {
			t.Errorf("%+v", d)
		}
		n.want("scopes", "deep", call{tool: "send", claim: under(second)})
		n.want("deep", "deep", call{tool: "deploy", claim: under(second)})
		// The user is the one of the first hop, as long as everybody in between may act.
		_, record := n.decide("deep", call{tool: "read", claim: under(second)})
		if record.User.Name != "alice" || !record.User.Verified {
			t.Errorf("%+v", record.User)
		}
		// What the agent that handed it on may no longer do is gone below it.
		nothing := []string{}
		_, err := n.roster.ChangeAgent(t.Context(), admin, "default", "lead", roster.AgentChange{Scopes: &nothing})
		n.Must(err)
		n.want("scopes", "deep", call{tool: "read", claim: under(second)})
		n.WantClean()
	})
}

func TestAHandoffNeverHasMoreThanTheOneAboveIt(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		_, first := n.give("lead", "", handoff.Opening{
			To: "helper", Scopes: []string{"mail.read"}, Tools: []string{"read", "mcp__mail__*"}, Seconds: 3600,
			Budget: policy.Budget{Calls: 10},
		})
		for what, o := range map[string]handoff.Opening{
			"a scope":           {Scopes: []string{"mail.send"}},
			"every scope":       {Scopes: []string{"*"}},
			"a wider scope":     {Scopes: []string{"mail.*"}},
			"a tool":            {Tools: []string{"send"}},
			"every tool":        {Tools: []string{"*"}},
			"a pattern":         {Tools: []string{"mcp__*"}},
			"a hidden pattern":  {Tools: []string{"mcp__mai[lx]__*"}},
			"more calls":        {Budget: policy.Budget{Calls: 11}},
			"a later end":       {Seconds: 7200},
			"no such agent":     {To: "nobody"},
			"a negative budget": {Budget: policy.Budget{Calls: -1}},
		} {
			if o.To == "" {
				o.To = "deep"
			}
			if _, err := n.handoffs.Open(t.Context(), n.by("helper", first, "s"), o); err == nil {
				t.Errorf("%s was handed on that the agent does not have", what)
			}
		}
		// What is left out is taken over, and no more.
		h, token := n.give("helper", first, handoff.Opening{To: "deep"})
		if strings.Join(h.Scopes, " ") != "mail.read" || strings.Join(h.Tools, " ") != "read mcp__mail__*" ||
			h.EndsAt.Sub(h.OpenedAt) > time.Hour || h.User != "alice" || h.Depth != 2 {
			t.Errorf("%+v", h)
		}
		n.want("handoff", "deep", call{tool: "send", claim: policy.Claim{Token: token}})
		n.want("default", "deep", call{tool: "MCP__Mail__list", claim: policy.Claim{Token: token}})
		// An agent hands on no more than it may do for its user, also without a handoff above it.
		if _, err := n.handoffs.Open(t.Context(), n.by("lead", "", "s"),
			handoff.Opening{To: "deep", Scopes: []string{"admin.all"}}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("an agent handed on what its user does not have: %v", err)
		}
	})
}

func TestForgeriesAreRefusedOrUnverified(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		h, token := n.give("lead", "", handoff.Opening{To: "helper", Scopes: []string{"mail.read"}, Bound: true})
		n.want("default", "helper", call{tool: "read", session: "one", claim: policy.Claim{Token: token}})
		depth := func(d int64) *int64 { return &d }
		for what, c := range map[string]struct {
			rule, agent string
			call        call
		}{
			"a made-up token":          {"handoff", "helper", call{claim: policy.Claim{Token: "hof_x"}}},
			"a token of another id":    {"handoff", "helper", call{claim: policy.Claim{Token: token[:len(token)-1] + "x"}}},
			"an id for a token":        {"handoff", "helper", call{claim: policy.Claim{Token: h.ID}}},
			"a token of another agent": {"handoff", "other", call{claim: policy.Claim{Token: token}}},
			"a replayed token":         {"handoff", "helper", call{session: "two", claim: policy.Claim{Token: token}}},
			"a false depth":            {"handoff", "helper", call{session: "one", claim: policy.Claim{Token: token, Depth: depth(5)}}},
			"another user":             {"handoff", "helper", call{session: "one", user: "bob", claim: policy.Claim{Token: token}}},
			"a list of hops":           {"unverified", "other", call{claim: policy.Claim{Hops: true}}},
			"a depth":                  {"unverified", "other", call{claim: policy.Claim{Depth: depth(3)}}},
			"a subagent":               {"unverified", "other", call{session: "x", claim: policy.Claim{Subagent: "a1"}}},
			"the narrowing left out":   {"unverified", "helper", call{session: "two"}},
			"nothing":                  {"default", "other", call{}},
		} {
			c.call.tool = "look"
			v, record := n.decide(c.agent, c.call)
			if v.Rule != c.rule || record.Delegation.Verified {
				t.Errorf("%s: by %s (%s), %+v", what, v.Rule, v.Reason, record.Delegation)
			}
		}
		// A depth of 0 says nothing, and lowers nothing.
		if d := n.want("default", "helper", call{
			tool: "look", session: "one", claim: policy.Claim{Token: token, Depth: depth(0)},
		}); d.Depth != 1 {
			t.Errorf("%+v", d)
		}
		// In the session that has taken it the token may be left out, and nothing is won by that.
		if d := n.want("scopes", "helper", call{tool: "send", session: "one"}); !d.Verified || d.ID != h.ID {
			t.Errorf("%+v", d)
		}
	})
}

func TestAHandoffEndsAtOnceAndWithAllThatIsBelow(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ends := map[string]func(first handoff.Handoff){
			"an operator ends it": func(first handoff.Handoff) {
				_, err := n.handoffs.End(t.Context(), admin, first.ID, "enough")
				n.Must(err)
			},
			"its time is over": func(handoff.Handoff) { n.Move(25 * time.Hour) },
			"its agent is suspended": func(handoff.Handoff) {
				_, err := n.roster.Suspend(t.Context(), admin, "default", "lead", "", time.Time{})
				n.Must(err)
			},
		}
		for what, end := range ends {
			first, token := n.give("lead", "", handoff.Opening{To: "helper"})
			_, below := n.give("helper", token, handoff.Opening{To: "deep"})
			claim := policy.Claim{Token: below}
			n.want("default", "deep", call{tool: "read", claim: claim})
			// A decision that was made before and is recorded after it does not hold.
			who := n.who["deep"]
			d := n.book.Decide(t.Context(), who, policy.Event{Point: policy.OnAction, Tool: "read", Claim: claim})
			end(first)
			err := d.Write(t.Context(), n.Ledger, who, "s", "")
			if stale, ok := errors.AsType[*rulebook.StaleError](err); !ok || stale.Decision.Rule != policy.HandoffRule {
				t.Errorf("%s, and what was decided before was recorded: %v", what, err)
			}
			n.want("handoff", "deep", call{tool: "read", claim: claim})
			n.want("handoff", "helper", call{tool: "read", claim: policy.Claim{Token: token}})
			if _, err := n.handoffs.Open(t.Context(), n.by("helper", token, "s"), handoff.Opening{To: "deep"}); err == nil {
				t.Errorf("%s, and the work was handed on", what)
			}
			if what == "its agent is suspended" {
				on := false
				_, err := n.roster.ChangeAgent(t.Context(), admin, "default", "lead", roster.AgentChange{Suspended: &on})
				n.Must(err)
			}
		}
		n.WantClean()
	})
}

func TestABudgetIsUsedByAllThatIsBelow(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		_, token := n.give("lead", "", handoff.Opening{To: "helper", Budget: policy.Budget{Calls: 20}})
		_, below := n.give("helper", token, handoff.Opening{To: "deep"})
		var mu sync.Mutex
		count := map[string]int{}
		testbed.AtOnce(60, func(i int) {
			agent, of := "helper", token
			if i%2 == 0 {
				agent, of = "deep", below
			}
			v, _ := n.decide(agent, call{tool: "look", claim: policy.Claim{Token: of}})
			mu.Lock()
			defer mu.Unlock()
			count[v.Rule]++
		})
		if count["default"] != 20 || count["handoff"] != 40 {
			t.Errorf("a budget of 20 calls: %v", count)
		}
		n.WantClean()
	})
}

func TestAgentsSeeTheHandoffsThatTheyGaveOrGot(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		h, _ := n.give("lead", "", handoff.Opening{To: "helper"})
		for agent, sees := range map[string]bool{"lead": true, "helper": true, "other": false} {
			if _, err := n.handoffs.Chain(t.Context(), n.who[agent], h.ID); (err == nil) != sees {
				t.Errorf("%s: %v", agent, err)
			}
		}
		if _, err := n.handoffs.End(t.Context(), n.who["other"], h.ID, ""); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		if _, err := n.handoffs.End(t.Context(), n.who["helper"], h.ID, "done"); err != nil {
			t.Error(err)
		}
	})
}

// A token is worth something to whoever has it, so it must not be found in the ledger.
func TestATokenIsStoredNowhere(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		_, token := n.give("lead", "", handoff.Opening{To: "helper"})
		n.want("default", "helper", call{tool: "read", claim: policy.Claim{Token: token}})
		code := token[strings.LastIndexByte(token, '_')+1:]
		for _, e := range n.Entries() {
			if strings.Contains(string(e.Body), code) {
				t.Errorf("entry %d has the token: %s", e.Seq, e.Body)
			}
		}
	})
}

// decided are the decisions about work that was to be handed on: who, what came of it, and by which rule.
func (n *node) decided() (all []string) {
	n.T.Helper()
	entries, err := n.Ledger.Entries(n.T.Context(), ledger.Query{Kinds: []string{"action.decided"}, Limit: 100})
	n.Must(err)
	for i := range entries {
		read, err := rulebook.ReadDecision(&entries[i])
		n.Must(err)
		if d := read.Decision; d.Event.Tool == delegate.Tool {
			all = append(all, fmt.Sprintf("%s %s by %s for %s", d.Agent.Name, d.Then, d.Rule, d.User.Name))
		}
	}
	return all
}

func TestWorkThatIsWiderThanWhatTheAgentHasIsRefusedAndRecorded(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		desk := delegate.New(n.Ledger, n.book, n.handoffs)
		user := ""
		give := func(agent, token string, o handoff.Opening) (delegate.Given, error) {
			r := delegate.Request{Opening: o, Delegation: token, User: user}
			return desk.Give(t.Context(), n.who[agent], "http", policy.Claim{}, r)
		}
		mail := handoff.Opening{To: "helper", Scopes: []string{"mail.read"}, Tools: []string{"read"}, Seconds: 60}
		first, err := give("lead", "", mail)
		n.Must(err)
		for _, c := range []struct {
			name, agent, token string
			o                  handoff.Opening
		}{
			{"a scope that the user does not have", "lead", "", handoff.Opening{To: "helper", Scopes: []string{"admin"}}},
			{"a scope beside those of the parent", "helper", first.Token, handoff.Opening{To: "deep", Scopes: []string{"mail.send"}}},
			{"a tool beside those of the parent", "helper", first.Token, handoff.Opening{To: "deep", Tools: []string{"pay"}}},
			{"a later end", "helper", first.Token, handoff.Opening{To: "deep", Seconds: 3600}},
			{"a token of another agent", "other", first.Token, handoff.Opening{To: "deep"}},
		} {
			got, err := give(c.agent, c.token, c.o)
			if !fault.Is(err, fault.Forbidden) || got.Token != "" || got.Handoff.ID != "" {
				t.Errorf("%s: %+v %v", c.name, got, err)
			}
		}
		if _, err := give("lead", "", handoff.Opening{To: "nobody-there"}); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		user = "alice"
		if _, err := give("other", "", handoff.Opening{To: "deep"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("for a user for whom it does not act: %v", err)
		}
		want := "lead allow by default for alice; lead block by handoff for alice; helper block by handoff for alice; " +
			"helper block by handoff for alice; helper block by handoff for alice; other block by handoff for bob; " +
			"other block by handoff for bob"
		if got := strings.Join(n.decided(), "; "); got != want {
			t.Errorf("recorded: %s\nwant: %s", got, want)
		}
		// Another policy does not make them wider.
		p, err := policy.Parse([]byte(rules))
		n.Must(err)
		replayed, err := n.book.Replay(t.Context(), p, time.Time{}, func(int64, int64) {})
		n.Must(err)
		if replayed.Changed != 0 || replayed.OtherRule != 0 {
			t.Errorf("%+v", replayed)
		}
	})
}
