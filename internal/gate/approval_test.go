package gate_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

// asking is a protocol that does nothing but ask: asked opens an approval, used takes a use.
type asking struct {
	Asked  gate.Asked `json:"asked"`
	Gate   string     `json:"gate"`
	Window int64      `json:"window"` // minutes
	Uses   int64      `json:"uses"`
	Until  int64      `json:"until"` // microseconds
}

func (a *asking) approval() *gate.Approval {
	out := &gate.Approval{Asked: a.Asked, Gate: a.Gate, Window: time.Duration(a.Window) * time.Minute, Uses: a.Uses}
	if a.Until > 0 {
		out.Until = time.UnixMicro(a.Until).UTC()
	}
	return out
}

func askingProjection() ledger.Projection {
	read := func(then func(*store.Tx, *ledger.Entry, *asking)) ledger.Apply {
		return func(tx *store.Tx, e *ledger.Entry) error {
			b, err := ledger.Read[asking](e)
			if err == nil {
				then(tx, e, b)
			}
			return err
		}
	}
	return ledger.Projection{Name: "asking", Apply: map[string]ledger.Apply{
		"test.asked": read(func(tx *store.Tx, e *ledger.Entry, b *asking) { gate.SetApproval(tx, b.approval(), e.At) }),
		"test.used":  read(func(tx *store.Tx, _ *ledger.Entry, b *asking) { gate.TakeUse(tx, b.Gate) }),
	}}
}

// readAsking reads the approval from the entries of the protocol.
func readAsking(p ledger.Prover, a gate.Asked, by *gate.Gate) (found *gate.Approval, err error) {
	asked, err := p.Entries(ledger.Query{After: by.Held(), Subject: a.Key, Kinds: []string{"test.asked"}})
	for i := 0; i < len(asked) && err == nil; i++ {
		var b *asking
		if b, err = ledger.Read[asking](&asked[i]); err == nil && b.Gate == by.ID {
			found = b.approval()
		}
	}
	if err != nil || found == nil {
		return nil, err
	}
	used, err := p.Entries(ledger.Query{Subject: by.ID, Kinds: []string{"test.used"}})
	for range used {
		found = found.Used()
	}
	return found, err
}

// ask opens an approval unless there is one, and answers with the one that stands.
func (n *node) ask(a asking, past string) (*gate.Approval, error) {
	a.Gate = gate.NewID()
	due, err := gate.Prepare(gate.Opening{
		Agent: a.Asked.Agent, Requester: "agent:x", Origin: gate.Origin{Protocol: "test", Reference: a.Asked.Key},
		Digest: a.Asked.Digest,
		Shown:  gate.Shown{Title: "Send it"},
	})
	if err != nil {
		return nil, err
	}
	var stands *gate.Approval
	err = n.Ledger.Write(context.Background(), func(tx *ledger.Tx) (err error) {
		stands, err = a.approval().Open(tx, past, func() {
			tx.Append(ledger.Event{Workspace: "default", Kind: "test.asked", Actor: "agent:x", Subject: a.Asked.Key, Body: &a})
			due.Open(tx, a.Gate, "default", "")
		})
		return err
	})
	return stands, err
}

// use takes a use, and says when.
func (n *node) use(asked gate.Asked, g gate.Gate) (at time.Time, err error) {
	err = n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		at = tx.Now()
		return n.gates.Use(tx, asked, &g, func() {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "test.used", Actor: "agent:x", Subject: g.ID,
				Body: &asking{Asked: asked, Gate: g.ID},
			})
		})
	})
	return at, err
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// pair starts as many nodes as the database can have at once, up to two.
func pair(t *testing.T, address string) []*node {
	nodes := []*node{start(t, address, t.TempDir())}
	if strings.HasPrefix(address, "postgres") {
		nodes = append(nodes, start(t, address, t.TempDir()))
	}
	return nodes
}

// together calls fn a hundred times at once, on all nodes in turn.
func together(nodes []*node, fn func(*node)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range 100 {
		all.Go(func() {
			<-begin
			fn(nodes[i%len(nodes)])
		})
	}
	close(begin)
	all.Wait()
}

func TestAHundredWhoAskAtOnceHaveOneGateAndUseItOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		nodes := pair(t, address)
		ada := nodes[0].operator("ada", "operator")
		asked := gate.Asked{Agent: "agent_x", Key: "test:session", Digest: digestOf("rm -r build")}
		past := ""
		for _, uses := range []int64{1, 3, 1} {
			var mu sync.Mutex
			gates, used, spent := map[string]bool{}, 0, 0
			together(nodes, func(n *node) {
				a, err := n.ask(asking{Asked: asked, Uses: uses}, past)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				gates[a.Gate] = true
			})
			if len(gates) != 1 {
				t.Fatalf("%d gates for one thing", len(gates))
			}
			past = slices.Collect(maps.Keys(gates))[0]
			g, err := nodes[0].gates.Vote(t.Context(), ada, past, approve(""))
			if err != nil {
				t.Fatal(err)
			}
			together(nodes, func(n *node) {
				_, err := n.use(asked, g)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					used++
				case errors.Is(err, gate.ErrSpent):
					spent++
				default:
					t.Error(err)
				}
			})
			if int64(used) != uses || used+spent != 100 {
				t.Errorf("used %d times, refused %d times, and it had %d uses", used, spent, uses)
			}
		}
		nodes[0].WantClean()
	})
}

// thing is what a property test knows about the newest approval of one thing.
type thing struct {
	asked   gate.Asked
	gate    string
	window  time.Duration
	uses    int64 // at the beginning
	used    int64
	until   time.Time
	status  gate.Status
	decided time.Time
	g       gate.Gate
	before  []gate.Gate // those that it had before
}

// TestNoSequenceOfCallersUsesAnApprovalWrongly lets several callers find, open and use
// approvals of things whose digests differ in one byte, while people decide and time passes, and
// compares with a model.
func TestNoSequenceOfCallersUsesAnApprovalWrongly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		nodes := pair(t, address)
		ada := nodes[0].operator("ada", "operator")
		iteration := 0
		rapid.Check(t, func(rt *rapid.T) {
			iteration++
			things := []*thing{}
			digest := []byte(digestOf(fmt.Sprint("thing ", iteration)))
			for i := range 3 {
				other := append([]byte(nil), digest...)
				other[len(other)-1] = "0123456789abcdef"[i]
				things = append(things,
					&thing{asked: gate.Asked{Agent: fmt.Sprintf("agent_%d", iteration), Key: "test:s", Digest: string(other)}})
			}
			for range rapid.IntRange(5, 30).Draw(rt, "steps") {
				n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(rt, "node")]
				th := things[rapid.IntRange(0, len(things)-1).Draw(rt, "thing")]
				switch rapid.SampledFrom([]string{"find", "open", "open", "decide", "decide", "use", "use", "use", "wait"}).Draw(rt,
					"do") {
				case "find":
					th.find(rt, n)
				case "open":
					th.open(rt, n)
				case "decide":
					if th.gate == "" || th.status != gate.Pending {
						continue
					}
					g, err := n.gates.Vote(context.Background(), ada, th.gate,
						gate.Ballot{Approve: rapid.IntRange(0, 3).Draw(rt, "no") > 0, Note: "n"})
					if err != nil {
						rt.Fatal(err)
					}
					th.g, th.status, th.decided = g, g.Status, *g.ResolvedAt
				case "use":
					th.use(rt, n)
				case "wait":
					d := time.Duration(rapid.IntRange(1, 400).Draw(rt, "minutes")) * time.Minute
					for _, n := range nodes {
						n.Move(d)
					}
				}
			}
		})
		nodes[0].WantClean()
	})
}

// find wants the newest approval, and none of another digest.
func (th *thing) find(rt *rapid.T, n *node) {
	found, err := n.gates.Find(context.Background(), th.asked)
	switch {
	case err != nil:
		rt.Fatal(err)
	case found == nil && th.gate != "" && (th.until.IsZero() || n.Now().Before(th.until)):
		rt.Fatal("an approval is not found")
	case found != nil && (found.Gate != th.gate || found.Asked != th.asked):
		rt.Fatalf("found %+v, and want gate %q of %+v", found, th.gate, th.asked)
	case found != nil && found.Uses != th.left():
		rt.Fatalf("%d uses are left, of %+v", found.Uses, th)
	}
}

func (th *thing) left() int64 {
	if th.uses == gate.Unlimited {
		return gate.Unlimited
	}
	return th.uses - th.used
}

// open wants a new gate if and only if the one there is does not stand.
func (th *thing) open(rt *rapid.T, n *node) {
	a := asking{Asked: th.asked, Uses: rapid.SampledFrom([]int64{1, 2, gate.Unlimited}).Draw(rt, "uses")}
	a.Window = rapid.SampledFrom([]int64{0, 30, 90}).Draw(rt, "window")
	if rapid.Bool().Draw(rt, "is forgotten") {
		a.Until = n.Now().Add(4 * time.Hour).UnixMicro()
	}
	past := rapid.SampledFrom([]string{"", th.gate, "gate_unknown"}).Draw(rt, "past")
	stands, err := n.ask(a, past)
	if err != nil {
		rt.Fatal(err)
	}
	anew := th.gate == "" || th.gate == past || th.left() == 0 || !th.until.IsZero() && th.until.Before(n.Now())
	if (stands.Gate != th.gate) != anew {
		rt.Fatalf("%s stands, %+v was known, and past is %q", stands.Gate, th, past)
	}
	if anew {
		*th = thing{
			asked: th.asked, before: append(slices.Clip(th.before), th.g), gate: stands.Gate, window: stands.Window,
			uses: a.Uses, until: stands.Until, status: gate.Pending, g: gate.Gate{ID: stands.Gate, Status: gate.Pending},
		}
	}
}

// use wants a use to be taken if and only if the approval is good. Whoever has an old gate in
// hand, or one of another thing, uses nothing.
func (th *thing) use(rt *rapid.T, n *node) {
	if th.gate == "" {
		return
	}
	at, err := n.use(th.asked, th.g)
	if err != nil && !errors.Is(err, gate.ErrSpent) {
		rt.Fatal(err)
	}
	found, problem := n.gates.Find(context.Background(), th.asked)
	if problem != nil {
		rt.Fatal(problem)
	}
	good := found != nil && th.status == gate.Approved && th.left() != 0 &&
		(th.window == 0 || at.Before(th.decided.Add(th.window)))
	if (err == nil) != good {
		rt.Fatalf("%v at %s, of %+v", err, at, th)
	}
	if err == nil {
		th.used++
		th.find(rt, n)
	}
	for _, g := range th.before {
		if _, err := n.use(th.asked, g); !errors.Is(err, gate.ErrSpent) {
			rt.Fatalf("a gate of before is used: %v", err)
		}
	}
	another := th.asked
	another.Digest = strings.Repeat("f", len(another.Digest))
	if _, err := n.use(another, th.g); !errors.Is(err, gate.ErrSpent) {
		rt.Fatalf("a digest that nobody asked about is used: %v", err)
	}
}

func TestAnOutcomeIsToldInWords(t *testing.T) {
	for want, g := range map[string]gate.Gate{
		"A person has to decide this (gate gate_1).": {Status: gate.Pending},
		"Approved by an operator (gate_1).":          {Status: gate.Approved, Cause: gate.ByVote},
		"Approved by an operator (gate_1): once":     {Status: gate.Approved, Cause: gate.ByVote, Note: "once"},
		"Rejected by an operator (gate_1).":          {Status: gate.Rejected, Cause: gate.ByVote},
		"Rejected by an operator (gate_1): no":       {Status: gate.Rejected, Cause: gate.ByVote, Note: "no"},
		"Rejected by a rule (gate_1): moot":          {Status: gate.Rejected, Cause: gate.ByRule, Note: "moot"},
		"Nobody decided in time; the gate gate_1 has expired.": {
			Status: gate.Rejected, Cause: gate.ByExpiry,
			Note: "Gate expired",
		},
		"Nobody decided in time, and the rule approves then (gate_1).": {
			Status: gate.Approved, Cause: gate.ByExpiry,
			Note: "Gate expired",
		},
	} {
		g.ID = "gate_1"
		if got := g.Outcome(); got != want {
			t.Errorf("%q, and want %q", got, want)
		}
	}
}
