package signal_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/clock"
	"github.com/signalbox/signalbox/internal/counter"
	"github.com/signalbox/signalbox/internal/deliver"
	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/policy"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/rulebook"
	"github.com/signalbox/signalbox/internal/signal"
	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

func sets() []store.Migrations {
	return []store.Migrations{
		ledger.Migrations, clock.Migrations, roster.Migrations, rulebook.Migrations, gate.Migrations, counter.Migrations, deliver.Migrations, signal.Migrations,
	}
}

func projections() []ledger.Projection {
	return []ledger.Projection{
		clock.Projection(), roster.Projection(), rulebook.Projection(), gate.Projection(), counter.Projection(), deliver.Projection(), signal.Projection(),
	}
}

// node is a process that takes signals, with everything they need.
type node struct {
	t        testing.TB
	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	book     *rulebook.Book
	gates    *gate.Gates
	outbox   *deliver.Outbox
	signals  *signal.Signals
	counters *counter.Counters
	offset   atomic.Int64
	stop     func()
	agent    roster.Identity // resume-tailor
}

func (n *node) now() time.Time       { return time.Now().Add(time.Duration(n.offset.Load())) }
func (n *node) move(d time.Duration) { n.offset.Add(int64(d)) }

// start starts a node. Nothing counts there; see count.
func start(t testing.TB, address string, options ...func(*deliver.Options)) *node {
	t.Helper()
	n := &node{t: t, db: storetest.Open(t, address, sets()...)}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	n.ledger, err = ledger.Open(t.Context(), ledger.Options{DB: n.db, Dir: t.TempDir(), Origin: "test.example/signal", Now: n.now, Projections: projections()})
	must(err)
	n.roster = roster.New(roster.Options{DB: n.db, Ledger: n.ledger, Now: n.now, Log: log, Provider: "signalbox.local"})
	readers := gate.Readers()
	maps.Copy(readers, signal.Readers())
	n.book = rulebook.New(n.db, n.ledger, n.roster, n.now, log, readers)
	n.gates = gate.New(n.db, n.ledger, n.roster, log)
	timers := clock.New(n.db, n.ledger, n.now, log, n.gates.Handlers())
	out := deliver.Options{
		DB: n.db, Ledger: n.ledger, Key: []byte(strings.Repeat("k", 32)), Allow: []string{"127.0.0.0/8"}, Now: n.now,
		Timeout: 400 * time.Millisecond, Poll: 10 * time.Millisecond, Grace: 50 * time.Millisecond, Lease: 900 * time.Millisecond,
	}
	for _, option := range options {
		option(&out)
	}
	n.outbox, err = deliver.New(out)
	must(err)
	n.signals, err = signal.New(signal.Options{DB: n.db, Ledger: n.ledger, Book: n.book, Gates: n.gates, Outbox: n.outbox, Now: n.now, Log: log})
	must(err)
	n.counters = counter.New(counter.Options{DB: n.db, Ledger: n.ledger, Roster: n.roster, Gates: n.gates, Now: n.now, Log: log, Readers: signal.Counters()})

	ctx, cancel := context.WithCancel(context.Background())
	core, stopCore := context.WithCancel(context.Background())
	var wg, users sync.WaitGroup
	wg.Go(func() { _ = n.ledger.Run(core) })
	for _, run := range []func(context.Context) error{n.book.Run, n.gates.Run, timers.Run, n.outbox.Run, n.signals.Run} {
		users.Go(func() { _ = run(ctx) })
	}
	n.stop = sync.OnceFunc(func() { cancel(); users.Wait(); stopCore(); wg.Wait() })
	t.Cleanup(n.stop)
	must(n.roster.Bootstrap(t.Context()))
	must(n.book.Bootstrap(t.Context()))
	n.agent = n.addAgent("resume-tailor")
	return n
}

func (n *node) addAgent(name string) roster.Identity {
	n.t.Helper()
	_, keys, err := n.roster.AddAgent(n.t.Context(), roster.Identity{Role: roster.Admin}, roster.NewAgent{Name: name, Workspace: "default"})
	if err != nil {
		n.t.Fatal(err)
	}
	who, err := n.roster.Authenticate(n.t.Context(), keys[0].Secret)
	if err != nil {
		n.t.Fatal(err)
	}
	return who
}

func (n *node) operator(name string) roster.Identity {
	n.t.Helper()
	_, token, err := n.roster.AddOperator(n.t.Context(), roster.Identity{Role: roster.Admin}, name, "operator", "")
	if err != nil {
		n.t.Fatal(err)
	}
	who, err := n.roster.Authenticate(n.t.Context(), token.Secret)
	if err != nil {
		n.t.Fatal(err)
	}
	return who
}

// apply puts a policy in force, that of a new server for "".
func (n *node) apply(rules string) {
	n.t.Helper()
	text := policy.Default()
	if rules != "" {
		text = []byte("version: 1\n" + rules)
	}
	if _, _, err := n.book.Apply(n.t.Context(), roster.Identity{}, text, 0); err != nil {
		n.t.Fatal(err)
	}
}

// payload is a right signal, changed by the pairs of names and values; a value that is
// absent takes the field away.
func payload(pairs ...any) map[string]any {
	p := map[string]any{
		"amp_version": "1.0", "agent_id": "resume-tailor", "run_id": "run-1", "project_id": "job-search", "status": "completed",
		"summary": "Rewrote the resume", "proposed_action": "Send it to the applicant", "model": "claude-sonnet-4-6",
		"input_tokens": 1842, "output_tokens": 614, "cost_usd": 0.014736, "gate_required": true,
		"started_at": "2026-03-06T22:10:38Z", "completed_at": "2026-03-06T22:10:46Z",
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == absent {
			delete(p, pairs[i].(string))
		} else {
			p[pairs[i].(string)] = pairs[i+1]
		}
	}
	return p
}

type nothing struct{}

// absent is the value of a field that is not there.
var absent = nothing{}

func encode(p map[string]any) []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return text
}

// send sends a payload of the node's agent that should be taken.
func (n *node) send(pairs ...any) signal.Received {
	n.t.Helper()
	got, err := n.signals.Receive(context.Background(), n.agent, "", encode(payload(pairs...)))
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

func (n *node) entries(kinds ...string) []ledger.Entry {
	n.t.Helper()
	all, err := n.ledger.Entries(context.Background(), ledger.Query{Kinds: kinds, Limit: 100_000})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func (n *node) head() int64 {
	n.t.Helper()
	seq, err := n.ledger.Head(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return seq
}

func (n *node) wantClean() {
	n.t.Helper()
	got, err := ledger.CheckRebuild(context.Background(), n.db, sets(), projections(), nil)
	if err != nil || len(got.Differences) != 0 {
		n.t.Errorf("%+v %v", got, err)
	}
}

const patience = 15 * time.Second

// until waits for something that the code under test does on its own.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
