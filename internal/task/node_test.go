package task_test

import (
	"context"
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
	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/store/storetest"
	"github.com/signalbox/signalbox/internal/task"
)

func sets() []store.Migrations {
	return []store.Migrations{
		ledger.Migrations, clock.Migrations, roster.Migrations, rulebook.Migrations, gate.Migrations, counter.Migrations, deliver.Migrations, task.Migrations,
	}
}

func projections() []ledger.Projection {
	return []ledger.Projection{
		clock.Projection(), roster.Projection(), rulebook.Projection(), gate.Projection(), counter.Projection(), deliver.Projection(), task.Projection(),
	}
}

// node is a process that takes tasks, with everything they need.
type node struct {
	t        testing.TB
	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	book     *rulebook.Book
	gates    *gate.Gates
	outbox   *deliver.Outbox
	tasks    *task.Tasks
	offset   atomic.Int64
	operator roster.Identity
	parties  map[task.Role]task.Party // one agent for each role, and the admin
}

func (n *node) now() time.Time       { return time.Now().Add(time.Duration(n.offset.Load())) }
func (n *node) move(d time.Duration) { n.offset.Add(int64(d)) }

func start(t testing.TB, address string, options ...func(*task.Options)) *node {
	t.Helper()
	n := &node{t: t, db: storetest.Open(t, address, sets()...), parties: map[task.Role]task.Party{}}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	n.ledger, err = ledger.Open(t.Context(), ledger.Options{DB: n.db, Dir: t.TempDir(), Origin: "test.example/task", Now: n.now, Projections: projections()})
	must(err)
	n.roster = roster.New(roster.Options{DB: n.db, Ledger: n.ledger, Now: n.now, Log: log, Provider: "signalbox.local"})
	readers := gate.Readers()
	maps.Copy(readers, task.Readers())
	n.book = rulebook.New(n.db, n.ledger, n.roster, n.now, log, readers)
	n.gates = gate.New(n.db, n.ledger, n.roster, log)
	n.outbox, err = deliver.New(deliver.Options{
		DB: n.db, Ledger: n.ledger, Key: []byte(strings.Repeat("k", 32)), Allow: []string{"127.0.0.0/8"}, Now: n.now,
		Timeout: 400 * time.Millisecond, Poll: 10 * time.Millisecond, Grace: 50 * time.Millisecond, Lease: 900 * time.Millisecond,
	})
	must(err)
	o := task.Options{DB: n.db, Ledger: n.ledger, Book: n.book, Gates: n.gates, Outbox: n.outbox, Roster: n.roster, Now: n.now, Log: log, Policy: task.Defaults()}
	for _, option := range options {
		option(&o)
	}
	n.tasks = task.New(o)
	handlers := n.gates.Handlers()
	maps.Copy(handlers, n.tasks.Handlers())
	timers := clock.New(n.db, n.ledger, n.now, log, handlers)

	ctx, cancel := context.WithCancel(context.Background())
	core, stopCore := context.WithCancel(context.Background())
	var wg, users sync.WaitGroup
	wg.Go(func() { _ = n.ledger.Run(core) })
	for _, run := range []func(context.Context) error{n.book.Run, n.gates.Run, timers.Run, n.outbox.Run} {
		users.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(sync.OnceFunc(func() { cancel(); users.Wait(); stopCore(); wg.Wait() }))
	must(n.roster.Bootstrap(t.Context()))
	must(n.book.Bootstrap(t.Context()))
	_, token, err := n.roster.AddOperator(t.Context(), roster.Identity{Role: roster.Admin}, "kim", "operator", "")
	must(err)
	n.operator, err = n.roster.Authenticate(t.Context(), token.Secret)
	must(err)
	for _, role := range task.AgentRoles {
		n.parties[role] = n.addAgent(string(role), role)
	}
	n.parties[task.Admin] = task.Party{Identity: n.operator, Role: task.Admin, Workspace: "default", Transport: "http"}
	return n
}

func (n *node) addAgent(name string, role task.Role) task.Party {
	n.t.Helper()
	_, keys, err := n.roster.AddAgent(n.t.Context(), roster.Identity{Role: roster.Admin}, roster.NewAgent{Name: name, Workspace: "default", Labels: map[string]string{"role": string(role)}})
	if err != nil {
		n.t.Fatal(err)
	}
	who, err := n.roster.Authenticate(n.t.Context(), keys[0].Secret)
	if err != nil {
		n.t.Fatal(err)
	}
	got, err := task.RoleOf(who)
	if err != nil || got != role {
		n.t.Fatalf("%s plays %q: %v", name, got, err)
	}
	return task.Party{Identity: who, Role: role, Workspace: "default", Transport: "http"}
}

func (n *node) apply(rules string) {
	n.t.Helper()
	text := append([]byte("version: 1\n"), rules...)
	if rules == "" {
		text = policy.Default()
	}
	if _, _, err := n.book.Apply(n.t.Context(), roster.Identity{}, text, 0); err != nil {
		n.t.Fatal(err)
	}
}

// take sends a document as a party.
func (n *node) take(p task.Party, kind task.Kind, raw []byte) (task.Answer, *task.ErrorRecord) {
	n.t.Helper()
	a, wrong, err := n.tasks.Take(context.Background(), p, kind, raw)
	if err != nil {
		n.t.Fatal(err)
	}
	return a, wrong
}

// want sends a document that should be taken, as the role that it is from.
func (n *node) want(status string, kind task.Kind, raw []byte) task.Answer {
	n.t.Helper()
	return n.wantFrom(n.parties[fromOf(raw)], status, kind, raw)
}

func (n *node) wantFrom(p task.Party, status string, kind task.Kind, raw []byte) task.Answer {
	n.t.Helper()
	a, wrong := n.take(p, kind, raw)
	if wrong != nil {
		n.t.Fatalf("refused: %+v", wrong.Errors)
	}
	if a.TaskStatus != status {
		n.t.Fatalf("the task is %s, want %s", a.TaskStatus, status)
	}
	return a
}

// refuse sends a document that should be refused.
func (n *node) refuse(code task.Code, kind task.Kind, raw []byte) *task.ErrorRecord {
	n.t.Helper()
	return n.refuseFrom(n.parties[fromOf(raw)], code, kind, raw)
}

func (n *node) refuseFrom(p task.Party, code task.Code, kind task.Kind, raw []byte) *task.ErrorRecord {
	n.t.Helper()
	a, wrong := n.take(p, kind, raw)
	if wrong == nil {
		n.t.Fatalf("taken, and should be refused with %s: %+v", code, a)
	}
	if wrong.Errors[0].Code != code {
		n.t.Fatalf("refused with %+v, want %s", wrong.Errors, code)
	}
	return wrong
}

func (n *node) status(id string) string {
	n.t.Helper()
	t, err := n.tasks.Task(context.Background(), "default", id)
	if err != nil {
		n.t.Fatal(err)
	}
	return t.Status()
}

func (n *node) wantClean() {
	n.t.Helper()
	got, err := ledger.CheckRebuild(context.Background(), n.db, sets(), projections(), nil)
	if err != nil || len(got.Differences) != 0 {
		n.t.Errorf("%+v %v", got, err)
	}
}

// waiting are the gates that nobody has decided.
func (n *node) waiting() []gate.Gate {
	n.t.Helper()
	page, _, err := n.gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, 1000)
	if err != nil {
		n.t.Fatal(err)
	}
	return page
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
