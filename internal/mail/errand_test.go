package mail_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/policy"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// asking is a node with agents that hand work on by mail.
type asking struct {
	*mailtest.Node
	alice, bob, carol *mailtest.Agent
}

func eachAsking(t *testing.T, test func(t *testing.T, n *asking)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		n := &asking{Node: mailtest.Start(t, address)}
		n.alice, n.bob, n.carol = n.Register("alice", "acme"), n.Register("bob", "acme"), n.Register("carol", "acme")
		n.Apply("tools: {send: [mail.send], pay: [money.pay]}")
		test(t, n)
	})
}

// ask sends an unsigned message of a type, with options and more members.
func (n *asking) ask(from *mailtest.Agent, to, kind, options, more string) (mail.Answer, error) {
	n.T.Helper()
	return n.Mail.Route(n.T.Context(), from.Who(), fmt.Appendf(nil,
		`{"to":%q,"subject":"Work","payload":{"type":%q,"message":"Please do it."},"options":%s%s}`, to, kind, options, more))
}

// handed is what a message in the queue of an agent hands on.
func (n *asking) handed(to *mailtest.Agent, id string) (h handoff.Handed) {
	n.T.Helper()
	page, err := n.Mail.Poll(n.T.Context(), to.Who(), 0, 100, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	text, err := page.JSON()
	if err != nil {
		n.T.Fatal(err)
	}
	var box struct {
		Messages []struct {
			ID      string
			Payload wire.Raw
			Local   struct{ Handoff handoff.Handed }
		}
	}
	if err := json.Unmarshal(text, &box); err != nil {
		n.T.Fatal(err)
	}
	for _, m := range box.Messages {
		if m.ID == id {
			h = m.Local.Handoff
		}
		if behalf.HasToken(m.Payload) {
			n.T.Errorf("the payload of %s holds a token", m.ID)
		}
	}
	return h
}

// want checks which rule decides about a tool of an agent that shows a token.
func (n *asking) want(rule string, who *mailtest.Agent, tool, token string) policy.Delegation {
	n.T.Helper()
	d := n.Book.Decide(n.T.Context(), who.Who(), policy.Event{
		Point: policy.OnAction, Tool: tool, Session: "s", Claim: policy.Claim{Token: token},
	})
	if d.Rule != rule {
		n.T.Errorf("%s of %s: %s by %s (%s), want %s", tool, who.Address, d.Action, d.Rule, d.Reason, rule)
	}
	return d.Record.Delegation
}

func TestAMessageThatAsksForWorkHandsItOn(t *testing.T) {
	t.Parallel()
	eachAsking(t, func(t *testing.T, n *asking) {
		const narrow = `{"handoff":{"scopes":["mail.send"],"seconds":3600}}`
		sent, err := n.ask(n.alice, n.bob.Address, "request", narrow, "")
		if err != nil {
			t.Fatal(err)
		}
		given := n.handed(n.bob, sent.ID)
		if got := n.want("default", n.bob, "send", given.Token); got.Work != sent.ID || got.From != "alice" || got.Depth != 1 {
			t.Errorf("%+v", got)
		}
		n.want(policy.ScopesRule, n.bob, "pay", given.Token)
		n.want(policy.HandoffRule, n.carol, "send", given.Token)

		// What bob hands on is a part of it.
		under := fmt.Sprintf(`{"delegation":%q,"handoff":{"scopes":["money.pay"]}}`, given.Token)
		if _, err := n.ask(n.bob, n.carol.Address, "task", under, ""); !fault.Is(err, fault.Forbidden) ||
			fault.From(err).Field != "options.handoff.scopes" {
			t.Errorf("wider scopes: %v", err)
		}
		on, err := n.ask(n.bob, n.carol.Address, "task", fmt.Sprintf(`{"delegation":%q}`, given.Token), "")
		if err != nil {
			t.Fatal(err)
		}
		below := n.handed(n.carol, on.ID)
		if got := n.want("default", n.carol, "send", below.Token); got.Depth != 2 || got.Root != "alice" {
			t.Errorf("%+v", got)
		}
		n.want(policy.ScopesRule, n.carol, "pay", below.Token)

		// An answer of somebody else ends nothing; that of bob does, with all below.
		reply := `,"in_reply_to":"` + sent.ID + `"`
		for _, from := range []*mailtest.Agent{n.carol, n.bob} {
			n.want("default", n.bob, "send", given.Token)
			if _, err := n.ask(from, n.alice.Address, "response", "{}", reply); err != nil {
				t.Fatal(err)
			}
		}
		n.want(policy.HandoffRule, n.bob, "send", given.Token)
		n.want(policy.HandoffRule, n.carol, "send", below.Token)
		if got := n.handed(n.bob, sent.ID); got.ID != "" {
			t.Errorf("a message hands on what is over: %+v", got)
		}
		for _, e := range n.Entries() {
			if behalf.HasToken(e.Body) {
				t.Errorf("entry %d (%s) holds a token", e.Seq, e.Kind)
			}
		}
		n.WantClean()
	})
}

func TestMessagesThatHandOnNothing(t *testing.T) {
	t.Parallel()
	eachAsking(t, func(t *testing.T, n *asking) {
		dave := n.Register("dave", "other")
		n.Open("other", "acme")
		for _, c := range []struct {
			name, to, kind, options, field string
		}{
			{"a request", n.bob.Address, "request", "{}", ""},
			{"a task for another workspace", dave.Address, "task", "{}", ""},
			{"terms for another workspace", dave.Address, "task", `{"handoff":{}}`, "options.handoff"},
			{"terms of another form", n.bob.Address, "task", `{"handoff":"all"}`, "options.handoff"},
			{"terms that name an agent", n.bob.Address, "task", `{"handoff":{"to":"carol"}}`, "options.handoff"},
			{"a scope that is none", n.bob.Address, "task", `{"handoff":{"scopes":["a b"]}}`, "options.handoff.scopes"},
			{"too long", n.bob.Address, "task", `{"handoff":{"seconds":99999999}}`, "options.handoff.seconds"},
			{"a forged token", n.bob.Address, "task", `{"delegation":"hof_00000000000000000000000000_forged"}`, "-"},
		} {
			before := len(n.Entries("message.routed"))
			_, err := n.ask(n.alice, c.to, c.kind, c.options, "")
			switch {
			case c.field == "" && err != nil,
				c.field != "" && (err == nil || len(n.Entries("message.routed")) != before),
				c.field == "-" && (!fault.Is(err, fault.Forbidden) || len(n.Entries("message.blocked")) != 1),
				strings.HasPrefix(c.field, "options") && fault.From(err).Field != c.field:
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if opened := n.Entries(handoff.Opened); len(opened) != 0 {
			t.Errorf("handed on: %s", opened[0].Body)
		}
	})
}

func TestAHeldMessageHandsOnWhenItIsReleased(t *testing.T) {
	t.Parallel()
	eachAsking(t, func(t *testing.T, n *asking) {
		_, op := n.Operator("ann")
		n.Apply("tools: {pay: [money.pay]}\nrules: [{name: tasks, on: [message], when: 'event.kind == \"task\"', then: gate}]")
		sent, err := n.ask(n.alice, n.bob.Address, "task", `{"handoff":{"scopes":[]}}`, "")
		if err != nil || sent.Status != mail.Held || len(n.Entries(handoff.Opened)) != 0 {
			t.Fatalf("%+v %v", sent, err)
		}
		if _, err := n.Gates.Vote(t.Context(), op, sent.GateID, gate.Ballot{Approve: true}); err != nil {
			t.Fatal(err)
		}
		given := n.handed(n.bob, sent.ID)
		n.want(policy.ScopesRule, n.bob, "pay", given.Token)
		n.WantClean()
	})
}

func TestAWebhookGetsTheTokenBesideTheMessage(t *testing.T) {
	t.Parallel()
	eachAsking(t, func(t *testing.T, n *asking) {
		tokens := make(chan string, 1)
		hook := testbed.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			tokens <- r.Header.Get(behalf.DelegationHeader)
		}))
		n.Want(200, n.bob.APIKey, "PATCH /v1/agents/me", fmt.Sprintf(`{"delivery":{"webhook_url":%q,"prefer_websocket":false}}`,
			hook), nil)
		if _, err := n.ask(n.alice, n.bob.Address, "handoff", "{}", ""); err != nil {
			t.Fatal(err)
		}
		if got := n.want("default", n.bob, "send", <-tokens); !got.Verified {
			t.Errorf("%+v", got)
		}
		testbed.Until(t, "the end of the call", func() bool { return len(n.Entries("message.acknowledged")) == 1 })
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if behalf.HasToken(e.Body) {
				t.Errorf("entry %d (%s) holds a token", e.Seq, e.Kind)
			}
		}
	})
}
