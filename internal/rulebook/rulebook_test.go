package rulebook_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// parts are what a rulebook stands on.
func parts() []ledgertest.Part {
	return []ledgertest.Part{
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: handoff.Migrations, Projection: handoff.Projection()},
		{Migrations: rulebook.Migrations, Projection: rulebook.Projection()},
	}
}

// node is a process with a rulebook.
type node struct {
	*ledgertest.Node
	roster   *roster.Roster
	handoffs *handoff.Handoffs
	book     *rulebook.Book
}

func start(t testing.TB, address, dir string) *node {
	return startAt(t, address, dir, &ledgertest.Clock{})
}

// startAt starts a node with a clock.
func startAt(t testing.TB, address, dir string, at *ledgertest.Clock) *node {
	t.Helper()
	n := openAt(t, address, dir, at)
	n.run()
	return n
}

// openAt opens a node that does not run yet.
func openAt(t testing.TB, address, dir string, at *ledgertest.Clock) *node {
	t.Helper()
	n := &node{Node: ledgertest.Open(t, address, at, parts(), ledgertest.Dir(dir))}
	n.roster = roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now})
	n.handoffs = handoff.New(handoff.Options{DB: n.DB, Ledger: n.Ledger, Roster: n.roster, Now: n.Now, Key: []byte("k")})
	n.book = rulebook.New(n.DB, n.Ledger, n.roster, n.handoffs, n.Now, slog.New(slog.DiscardHandler),
		map[string]rulebook.Reader{"thing.done": readThing, "call.over": readOver})
	return n
}

// run starts the node.
func (n *node) run() {
	n.Run(n.handoffs.Run, n.book.Run)
	n.Must(n.roster.Bootstrap(n.T.Context()))
}

// readThing reads an entry that a protocol wrote in its own form: what was decided is
// beside an event in other words, and a rejection is told as well.
func readThing(e *ledger.Entry) (rulebook.Reading, error) {
	reading, err := rulebook.ReadDecision(e)
	if err != nil {
		return reading, err
	}
	var b thing
	if err := e.Decode(&b); err != nil {
		return reading, err
	}
	reading.Decision.Event = &policy.Event{Point: policy.OnTask, Summary: b.Words}
	reading.Facts = []rulebook.Fact{{
		Belongs: rulebook.Belongs{Agent: reading.Decision.AgentID}, What: "rejections", N: 1,
	}}
	return reading, nil
}

type thing struct {
	Words    string          `json:"words"`
	Decision rulebook.Record `json:"decision"`
}

func (n *node) apply(rules string) rulebook.Version {
	n.T.Helper()
	v, _, err := n.book.Apply(n.T.Context(), roster.Identity{}, []byte("version: 1\nrules:\n"+rules), 0)
	if err != nil {
		n.T.Fatal(err)
	}
	return v
}

func agent(name string) roster.Identity {
	return roster.Identity{ID: "agent_" + name, Name: name, Workspace: "default", Trust: "standard"}
}

// act decides and records an action.
func (n *node) act(who roster.Identity, e policy.Event) rulebook.Decision {
	n.T.Helper()
	d, err := n.try(who, e)
	if err != nil {
		n.T.Fatal(err)
	}
	return d
}

// try is act for goroutines.
func (n *node) try(who roster.Identity, e policy.Event) (rulebook.Decision, error) {
	if e.Point == "" {
		e.Point = policy.OnAction
	}
	d := n.book.Decide(n.T.Context(), who, e)
	return d, n.Ledger.Write(n.T.Context(), func(tx *ledger.Tx) error {
		tx.Append(d.Entry(who, "session-1", ""))
		return nil
	})
}

const noBash = "  - {name: no-bash, on: [action], when: event.tool == \"bash\", then: block, reason: Not here.}\n"

func TestTheNewestVersionIsInForceOnEveryNode(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		a := start(t, address, dir)
		b := start(t, address, t.TempDir())
		if err := a.book.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := a.book.Decide(t.Context(), agent("x"),
			policy.Event{Point: policy.OnAction, Tool: "bash"}); d.Action != policy.Allow || d.Record.Policy != 1 {
			t.Errorf("by default: %+v", d)
		}
		v := a.apply(noBash)
		if d := a.book.Decide(t.Context(), agent("x"),
			policy.Event{Point: policy.OnAction, Tool: "bash"}); d.Action != policy.Block || d.Rule != "no-bash" ||
			d.Record.Policy != v.Number {
			t.Errorf("after it was applied: %+v", d)
		}
		testbed.Until(t, "the other node", func() bool {
			d := b.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction, Tool: "bash"})
			return d.Action == policy.Block && d.Record.Policy == 2 && !d.Failed
		})
		a.Stop()
		b.Stop()
		c := start(t, address, dir)
		if err := c.book.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := c.book.Decide(t.Context(), agent("x"),
			policy.Event{Point: policy.OnAction, Tool: "bash"}); d.Rule != "no-bash" {
			t.Errorf("after a restart: %+v", d)
		}
		list, err := c.book.Versions(t.Context(), rulebook.Layer{}, 0, 10)
		if err != nil || len(list) != 2 || list[0].Number != 2 || list[1].AppliedBy != "system" {
			t.Errorf("versions: %+v %v", list, err)
		}
		_, source, err := c.book.Version(t.Context(), rulebook.Layer{}, 1)
		if err != nil || !bytes.Equal(source, policy.Default()) {
			t.Errorf("the first version: %q %v", source, err)
		}
		if _, _, err := c.book.Version(t.Context(), rulebook.Layer{}, 9); !fault.Is(err, fault.NotFound) {
			t.Errorf("a version that is not there: %v", err)
		}
		c.WantClean()
	})
}

func TestNodesThatStartTogetherApplyOneDefault(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		var wg sync.WaitGroup
		nodes := []*node{start(t, address, t.TempDir()), start(t, address, t.TempDir())}
		for _, n := range nodes {
			wg.Go(func() {
				if err := n.book.Bootstrap(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if list, err := nodes[0].book.Versions(t.Context(), rulebook.Layer{}, 0, 10); err != nil || len(list) != 1 {
			t.Errorf("%+v %v", list, err)
		}
	})
}

func TestABadPolicyChangesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(noBash)
		before, _ := n.Ledger.Head(t.Context())
		for _, bad := range []string{
			"", "version: 1\nrules: [{name: a, on: [action], when: 'event.tool == 1', then: block}]",
			"version: 2\n",
		} {
			_, _, err := n.book.Apply(t.Context(), roster.Identity{}, []byte(bad), 0)
			if problems := policy.Problems(err); !fault.Is(err, fault.InvalidPolicy) || len(problems) == 0 ||
				problems[0].Line == 0 {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if after, _ := n.Ledger.Head(t.Context()); after != before {
			t.Errorf("%d entries were written", after-before)
		}
		if d := n.act(agent("x"), policy.Event{Tool: "bash"}); d.Rule != "no-bash" {
			t.Errorf("the old one is not in force: %+v", d)
		}
	})
}

func TestTheSamePolicyIsNoNewVersionAndAForeignOneIsNotOverwritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		first := n.apply(noBash)
		if again := n.apply(noBash); again != first {
			t.Errorf("applied twice: %+v", again)
		}
		// Of many who have seen version 1, one replaces it.
		var wg sync.WaitGroup
		var done, refused atomic.Int32
		for i := range 20 {
			wg.Go(func() {
				source := fmt.Appendf(nil, "version: 1\ndefaults: {action: block}\nrules: [] # %d", i)
				switch _, changed, err := n.book.Apply(t.Context(), roster.Identity{}, source, first.Number); {
				case err == nil && changed:
					done.Add(1)
				case fault.Is(err, fault.Conflict):
					refused.Add(1)
				default:
					t.Error(changed, err)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 || refused.Load() != 19 {
			t.Errorf("%d applied, %d refused", done.Load(), refused.Load())
		}
	})
}

func TestWithoutAPolicyThatCanBeReadNothingIsAllowed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		d := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction})
		if d.Action != policy.Block || !d.Failed || !strings.Contains(d.Reason, "policy apply") {
			t.Errorf("without a policy: %+v", d)
		}
		n.apply("  []\n")
		if d := n.act(agent("x"), policy.Event{}); d.Action != policy.Allow {
			t.Errorf("with one: %+v", d)
		}
		// As a newer Signalbox might, in words that this one does not know.
		err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Kind: "policy.applied", Actor: "system", Subject: "policy-2", Body: []byte("version: 99\n")})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		testbed.Until(t, "a version that cannot be read blocks", func() bool {
			d := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction})
			return d.Action == policy.Block && d.Failed && d.Record.Policy == 2
		})
		n.apply(noBash)
		if d := n.act(agent("x"), policy.Event{}); d.Action != policy.Allow || d.Record.Policy != 3 {
			t.Errorf("after another was applied: %+v", d)
		}
	})
}

func TestASuspendedAgentIsBlockedWhateverTheRulesSay(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  - {name: all, on: [action, signal], when: 'true', then: allow}\n")
		who := agent("x")
		who.Suspended = true
		for _, p := range policy.Points {
			if d := n.book.Decide(t.Context(), who, policy.Event{Point: p}); d.Action != policy.Block ||
				d.Rule != rulebook.SuspendedRule {
				t.Errorf("%s: %+v", p, d)
			}
		}
	})
}

func TestAGateThatAsksForNobodyIsWarnedOf(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		p, err := policy.Parse([]byte("version: 1\nrules:\n  - {name: g, on: [signal], when: 'true', then: gate, gate: " +
			"{approvers: [admin, operator, adnim], escalation: [{after: 1h, to: [nobody]}]}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := n.book.Warnings(t.Context(), p)
		if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], `Did you mean "admin"?`) ||
			!strings.HasPrefix(warnings[0], "line 3:") {
			t.Errorf("%q %v", warnings, err)
		}
	})
}

// A database that is away for a moment must not leave a node without a policy, and a version that only the table names
// is none.
func TestAVersionThatCannotBeReadYetIsReadAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  []\n")
		change := func(statement string, args ...any) {
			t.Helper()
			tx, err := n.DB.Begin(t.Context(), "ledger_tree")
			if err != nil {
				t.Fatal(err)
			}
			tx.Exec(statement, args...)
			if _, err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
		}
		lookAgain := func() (seq int64) {
			t.Helper()
			err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				seq = tx.Append(ledger.Event{Kind: "note.made", Actor: "system", Body: []byte("version: 1\nrules:\n" + noBash)})
				tx.Append(ledger.Event{Kind: "state.rebuilt", Actor: "system"})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return seq
		}
		wantFirst := func(what string) {
			t.Helper()
			if d := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction, Tool: "bash"}); d.Action !=
				policy.Allow || d.Record.Policy != 1 {
				t.Errorf("%s: the one before does not decide: %+v", what, d)
			}
		}
		change("INSERT INTO policy_version (number, seq, sha256, applied_at, applied_by) VALUES (2, $1, '', 0, '')", lookAgain())
		lookAgain()
		testbed.Until(t, "the forged version to be recorded", func() bool {
			told, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"table.contradicted"}, Subject: "2"})
			return err == nil && len(told) == 1
		})
		wantFirst("a version that only the table names")
		change("DELETE FROM policy_version WHERE number = 2")
		change("ALTER TABLE policy_version RENAME TO away")
		lookAgain()
		wantFirst("a table that is away")
		change("ALTER TABLE away RENAME TO policy_version")
		n.apply(noBash)
		testbed.Until(t, "the version decides", func() bool {
			return n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction, Tool: "bash"}).Rule == "no-bash"
		})
	})
}

// call makes a call of the operators' API, without a server around it.
func call(ctx context.Context, t *testing.T, b *rulebook.Book, call, body string) string {
	t.Helper()
	for _, route := range b.Routes() {
		if route.Method+" "+route.Path == call {
			w := httptest.NewRecorder()
			if err := route.Handle(w,
				httptest.NewRequestWithContext(ctx, route.Method, route.Path, strings.NewReader(body))); err != nil {
				t.Fatal(err)
			}
			return w.Body.String()
		}
	}
	t.Fatalf("there is no call %s", call)
	return ""
}

func TestAVersionThatDoesNotDecideYetIsNotSaidToBeInForce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		idle := rulebook.New(n.DB, n.Ledger, n.roster, n.handoffs, n.Now, slog.New(slog.DiscardHandler), nil) // it does not run
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan string, 1)
		go func() { answer <- call(ctx, t, idle, "PUT /ops/policy", "version: 1\n") }()
		testbed.Until(t, "the policy to be applied", func() bool { return n.book.InForce() != 0 })
		cancel()
		if got := testbed.Receive(t, "the answer", answer); !strings.Contains(got, `"changed":true,"in_force":false`) {
			t.Error(got)
		}
		if got := call(t.Context(), t, n.book, "PUT /ops/policy", "version: 1\n"); !strings.Contains(got,
			`"changed":false,"in_force":true`) {
			t.Error(got)
		}
	})
}

func TestAReplayEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), t.TempDir())
	n.apply("  []\n")
	n.act(agent("x"), policy.Event{})
	stopping, stop := context.WithCancel(context.Background())
	stop()
	got := call(wire.WithStop(t.Context(), stopping), t, n.book, "POST /ops/policy/replay", "version: 1\n")
	if !strings.Contains(got, `{"error":{"error":"stopping"`) {
		t.Error(got)
	}
}
