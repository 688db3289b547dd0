package gate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// shown is a gate as the operators' API shows it.
func (n *node) shown(as roster.Identity, id string) (g gate.Gate) {
	n.T.Helper()
	_, answer := n.call(as, "GET /ops/gates/"+id, "")
	n.Must(wire.UnmarshalPart([]byte(answer), &g))
	return g
}

func TestAVoteNamesWhatWasSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, bob, eve := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("eve", "viewer")
		first, other := n.open(gate.Rules{Quorum: 2}), n.open(gate.Rules{Quorum: 2})
		g := n.shown(eve, first)
		if len(g.Digest) != 64 || g.Digest == g.ActionDigest || g.Digest == n.shown(eve, other).Digest {
			t.Fatalf("the digests %s and %s", g.Digest, n.shown(eve, other).Digest)
		}
		if again := g.ShownDigest(); again != g.Digest {
			t.Errorf("who has the gate computes %s, and the server %s", again, g.Digest)
		}
		at := "POST /ops/gates/" + first
		for _, c := range []struct {
			name, body string
			as         roster.Identity
			status     int
			says       string
		}{
			{"that of another gate", vote(n.shown(eve, other).Digest), ada, 409, `"member":"title","now":"Send it"`},
			{"the action's", vote(g.ActionDigest), ada, 409, "This is the action_digest"},
			{"too little of it", vote(g.Digest[:15]), ada, 409, "not_what_was_shown"},
			{"more than it", vote(g.Digest + "0"), ada, 409, "not_what_was_shown"},
			{"a viewer's", vote(g.Digest), eve, 403, "may not decide"},
			{"the beginning", vote(g.Digest[:16]), ada, 200, `"digest":"` + g.Digest[:16]},
			{"votes so far are not a part of it", vote(g.Digest), bob, 200, `"status":"approved"`},
		} {
			if status, answer := n.call(c.as, at+"/approve", c.body); status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"gate.voted"}})
		if err != nil || len(entries) != 2 || !strings.Contains(string(entries[1].Body), `"digest":"`+g.Digest+`"`) {
			t.Errorf("the ledger has %v %v", entries, err)
		}
		if votes := n.get(first).Votes; votes[1].Digest != g.Digest {
			t.Errorf("%+v", votes)
		}
		if status, answer := n.call(ada, "POST /ops/gates/"+other+"/approve", ""); status != 200 {
			t.Errorf("without a digest: %d %s", status, answer)
		}
		n.WantClean()
	})
}

func vote(digest string) string { return fmt.Sprintf(`{"note":"n","digest":%q}`, digest) }

// Whoever changes one of these after a page was loaded has changed what somebody is about to approve.
func TestEverythingThatIsReadBeforeADecisionIsInTheDigest(t *testing.T) {
	t.Parallel()
	due := time.Unix(1_700_000_000, 0)
	base := func() gate.Gate {
		return gate.Gate{
			ID: "gate_1", Workspace: "w", Project: "p", Agent: "a", Origin: gate.Origin{Protocol: "amp", Reference: "r"},
			Title: "t", Summary: "s", ProposedAction: "x", Facts: []gate.Fact{{Name: "cost", Value: "1"}},
			Artifacts: []wire.Raw{wire.Raw(`{"type":"text","content":"c"}`)}, Rule: "rule", Reason: "why", Risk: "low",
			ActionDigest: "d", Quorum: 2, Approvers: []string{"operator"}, ExpiresAt: &due, OnExpiry: gate.Rejected,
		}
	}
	later, seen := due.Add(time.Second), map[string]string{}
	first := base()
	seen[first.ShownDigest()] = "the gate itself"
	for name, change := range map[string]func(g *gate.Gate){
		"id":        func(g *gate.Gate) { g.ID = "gate_2" },
		"workspace": func(g *gate.Gate) { g.Workspace = "v" },
		"project":   func(g *gate.Gate) { g.Project = "q" },
		"agent":     func(g *gate.Gate) { g.Agent = "b" },
		"origin":    func(g *gate.Gate) { g.Origin.Reference = "q" },
		"run":       func(g *gate.Gate) { g.Origin.Run = "run_1" },
		"context":   func(g *gate.Gate) { g.Context = []gate.Fact{{Name: "last prompt", Value: "go on"}} },
		"title":     func(g *gate.Gate) { g.Title = "s" },
		"summary":   func(g *gate.Gate) { g.Summary = "t" },
		"action":    func(g *gate.Gate) { g.ProposedAction = "y" },
		"facts":     func(g *gate.Gate) { g.Facts[0].Value = "2" },
		"artifacts": func(g *gate.Gate) { g.Artifacts[0] = wire.Raw(`{"type":"text","content":"e"}`) },
		"rule":      func(g *gate.Gate) { g.Rule = "another" },
		"reason":    func(g *gate.Gate) { g.Reason = "because" },
		"risk":      func(g *gate.Gate) { g.Risk = "high" },
		"digest":    func(g *gate.Gate) { g.ActionDigest = "e" },
		"quorum":    func(g *gate.Gate) { g.Quorum = 1 },
		"approvers": func(g *gate.Gate) { g.Approvers = []string{"admin"} },
		"expiry":    func(g *gate.Gate) { g.ExpiresAt = &later },
		"on expiry": func(g *gate.Gate) { g.OnExpiry = gate.Approved },
		"a change that an approval carries": func(g *gate.Gate) {
			g.Votes = []gate.Vote{{Operator: "ada", Approve: true, Modified: wire.Raw(`{"to":"eve"}`)}}
		},
		"a change that a rejection carries": func(g *gate.Gate) {
			g.Votes = []gate.Vote{{Operator: "ada", Modified: wire.Raw(`{"to":"eve"}`)}}
		},
	} {
		g := base()
		change(&g)
		digest := g.ShownDigest()
		if before, known := seen[digest]; known {
			t.Errorf("%s does not tell it from %s", name, before)
		}
		seen[digest] = name
	}
	same := base()
	same.Votes, same.Artifacts[0] = []gate.Vote{{Operator: "ada", Approve: true, Note: "n"}},
		wire.Raw(`{ "content": "c", "type": "text" }`)
	if same.ShownDigest() != first.ShownDigest() {
		t.Error("a vote, or white space, changes what is shown")
	}
}

func TestAnApprovalDoesNotBecomeOneOfAChangeThatItsVoterHasNotSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, bob, cem := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("cem", "operator")
		id := n.open(gate.Rules{Quorum: 3, RejectNeeds: 2})
		before := n.shown(bob, id).Digest
		for _, c := range []struct {
			name, call, body string
			as               roster.Identity
			status           int
			says             string
		}{
			{"a change", "approve", `{"modified":{"amount": 10}}`, ada, 200, `"modified":{"amount":10}`},
			{"who has not seen it", "approve", vote(before), bob, 409, `[{"member":"approved_as","now":{"amount":10}}]`},
			{"another change", "approve", `{"modified":{"amount":99}}`, bob, 409, "ada has voted before you"},
			{"the same change", "approve", `{"modified":{"amount":10}}`, bob, 200, `"status":"pending"`},
			{"who has seen it", "approve", vote(n.changed(before, id)), cem, 200, `"modified":{"amount":10}`},
		} {
			if status, answer := n.call(c.as, "POST /ops/gates/"+id+"/"+c.call, c.body); status != c.status ||
				!strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		if g := n.get(id); g.Status != gate.Approved || string(g.Modified) != `{"amount":10}` {
			t.Errorf("%s with %s", g.Status, g.Modified)
		}
		id = n.open(gate.Rules{Quorum: 2})
		n.vote(ada, id, approve(""))
		if _, err := n.gates.Vote(t.Context(), bob, id,
			gate.Ballot{Approve: true, Modified: wire.Raw(`{"to":"eve"}`)}); !fault.Is(err, fault.Conflict) {
			t.Errorf("ada's approval would become one of a change: %v", err)
		}
		n.WantClean()
	})
}

// changed is the digest that a gate has once an approval with the amount of ten is there.
func (n *node) changed(before, id string) string {
	n.T.Helper()
	g := n.get(id)
	g.Votes = []gate.Vote{{Operator: "ada", Approve: true, Modified: wire.Raw(`{"amount":10}`)}}
	if g.ShownDigest() == before {
		n.T.Error("a change does not change the digest")
	}
	return g.ShownDigest()
}

func (n *node) vote(as roster.Identity, id string, b gate.Ballot) gate.Gate {
	n.T.Helper()
	g, err := n.gates.Vote(n.T.Context(), as, id, b)
	n.Must(err)
	return g
}

func TestAQuorumCountsPeople(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ctx := t.Context()
		ada, bob, cem := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("cem", "operator")
		for _, from := range []roster.Identity{bob, cem} {
			n.Must(n.gates.Delegate(ctx, from, "ada", n.Now().Add(time.Hour)))
		}
		own, forBob, forCem := approve(""), gate.Ballot{Approve: true, For: "bob"}, gate.Ballot{Approve: true, For: "cem"}
		for _, c := range []struct {
			name          string
			first, second gate.Ballot
		}{
			{"her own, then another's", own, forBob},
			{"another's, then her own", forBob, own},
			{"those of two", forBob, forCem},
		} {
			id := n.open(gate.Rules{Quorum: 2})
			if g := n.vote(ada, id, c.first); g.Status != gate.Pending {
				t.Errorf("%s: %s after the first", c.name, g.Status)
			}
			if _, err := n.gates.Vote(ctx, ada, id, c.second); !fault.Is(err, fault.Conflict) ||
				!strings.Contains(err.Error(), "A quorum counts people") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		id := n.open(gate.Rules{Quorum: 2})
		n.vote(ada, id, own)
		if g := n.vote(bob, id, own); g.Status != gate.Approved {
			t.Errorf("two people: %s", g.Status)
		}
		n.WantClean()
	})
	// As an older version has counted them: who votes for others is in the ledger twice.
	votes := []gate.Vote{{Operator: "ada", CastBy: "ada", Approve: true}, {Operator: "bob", CastBy: "ada", Approve: true}}
	if status := (gate.Rules{Quorum: 2}).Tally(votes); status != gate.Pending {
		t.Errorf("one person is a quorum of two: %s", status)
	}
}

func TestARejectionNeedsItsReason(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, id := n.operator("ada", "operator"), n.open(gate.Rules{})
		for _, body := range []string{"", `{}`, `{"note":" \n "}`} {
			status, answer := n.call(ada, "POST /ops/gates/"+id+"/reject", body)
			var refused struct{ Error, Field string }
			if err := json.Unmarshal([]byte(answer), &refused); err != nil || status != 400 ||
				refused.Error != "invalid_payload" || refused.Field != "note" {
				t.Errorf("%q: %d %s", body, status, answer)
			}
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 0 {
			t.Errorf("%+v", g)
		}
	})
}
