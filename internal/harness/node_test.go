package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/clock"
	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/harness"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/rulebook"
	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

func sets() []store.Migrations {
	return []store.Migrations{ledger.Migrations, clock.Migrations, roster.Migrations, rulebook.Migrations, gate.Migrations, harness.Migrations}
}

func projections() []ledger.Projection {
	return []ledger.Projection{clock.Projection(), roster.Projection(), rulebook.Projection(), gate.Projection(), harness.Projection()}
}

// node is a process with a harness, and everything it needs.
type node struct {
	t        testing.TB
	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	book     *rulebook.Book
	gates    *gate.Gates
	harness  *harness.Harness
	offset   atomic.Int64
	stop     func()
	agent    roster.Identity // coder
	key      string
	operator roster.Identity
}

func (n *node) now() time.Time       { return time.Now().Add(time.Duration(n.offset.Load())) }
func (n *node) move(d time.Duration) { n.offset.Add(int64(d)) }

func start(t testing.TB, address string, config harness.Config) *node {
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
	n.ledger, err = ledger.Open(t.Context(), ledger.Options{DB: n.db, Dir: t.TempDir(), Origin: "test.example/harness", Now: n.now, Projections: projections()})
	must(err)
	n.roster = roster.New(roster.Options{DB: n.db, Ledger: n.ledger, Now: n.now, Log: log, Provider: "signalbox.local"})
	readers := gate.Readers()
	maps.Copy(readers, harness.Readers())
	n.book = rulebook.New(n.db, n.ledger, n.roster, n.now, log, readers)
	n.gates = gate.New(n.db, n.ledger, n.roster, log)
	timers := clock.New(n.db, n.ledger, n.now, log, n.gates.Handlers())
	n.harness = harness.New(harness.Options{DB: n.db, Ledger: n.ledger, Book: n.book, Gates: n.gates, Roster: n.roster, Now: n.now, Log: log, Config: config})

	ctx, cancel := context.WithCancel(context.Background())
	core, stopCore := context.WithCancel(context.Background())
	var kept, users sync.WaitGroup
	kept.Go(func() { _ = n.ledger.Run(core) })
	for _, run := range []func(context.Context) error{n.roster.Run, n.book.Run, n.gates.Run, timers.Run, n.harness.Run} {
		users.Go(func() { _ = run(ctx) })
	}
	n.stop = sync.OnceFunc(func() { cancel(); users.Wait(); stopCore(); kept.Wait() })
	t.Cleanup(n.stop)
	must(n.roster.Bootstrap(t.Context()))
	must(n.book.Bootstrap(t.Context()))
	_, keys, err := n.roster.AddAgent(t.Context(), roster.Identity{Role: roster.Admin}, roster.NewAgent{Name: "coder", Workspace: "default"})
	must(err)
	n.key = keys[0].Secret
	n.agent, err = n.roster.Authenticate(t.Context(), n.key)
	must(err)
	_, token, err := n.roster.AddOperator(t.Context(), roster.Identity{Role: roster.Admin}, "ada", "operator", "")
	must(err)
	n.operator, err = n.roster.Authenticate(t.Context(), token.Secret)
	must(err)
	return n
}

// apply puts rules in force.
func (n *node) apply(rules string) {
	n.t.Helper()
	if _, _, err := n.book.Apply(n.t.Context(), roster.Identity{}, []byte("version: 1\n"+rules), 0); err != nil {
		n.t.Fatal(err)
	}
}

// fixture puts the policy of the cases in force.
func (n *node) fixture() {
	n.t.Helper()
	text, err := os.ReadFile("../conform/harness.yaml")
	if err != nil {
		n.t.Fatal(err)
	}
	if _, _, err := n.book.Apply(n.t.Context(), roster.Identity{}, text, 0); err != nil {
		n.t.Fatal(err)
	}
}

// conn is a connection of the node's agent that has shaken hands, if it is a stream.
func (n *node) conn(transport string) *harness.Conn {
	c := n.harness.NewConn(transport, func(ctx context.Context) (roster.Identity, error) { return n.roster.Authenticate(ctx, n.key) })
	if transport != harness.TransportHTTP {
		n.harness.Handle(context.Background(), c, []byte(greetingText))
	}
	return c
}

const greetingText = `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"2.4","agent_info":{"framework":"t","version":"0","capabilities":[]},"session_id":"s1","agent_id":"a1"}}`

// event is the text of an event; without id it is a notification.
func event(id, typ, session string, payload any) []byte {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	if id != "" {
		id = fmt.Sprintf(`"id":%q,`, id)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0",%s"method":"ahp/event","params":{"event_type":%q,"session_id":%q,"agent_id":"a1","timestamp":"2026-05-01T00:00:00Z","depth":0,"payload":%s}}`, id, typ, session, text)
}

// answer is a response, read.
type answer struct {
	Result map[string]any
	Error  *struct {
		Code    int
		Message string
	}
}

// ask sends an event and reads the answer.
func (n *node) ask(c *harness.Conn, typ, session string, payload any) answer {
	n.t.Helper()
	return n.read(n.harness.Handle(context.Background(), c, event("r1", typ, session, payload)).JSON)
}

func (n *node) read(text []byte) (a answer) {
	n.t.Helper()
	if err := json.Unmarshal(text, &a); err != nil {
		n.t.Fatalf("%s: %v", text, err)
	}
	return a
}

func (n *node) entries(kinds ...string) []ledger.Entry {
	n.t.Helper()
	all, err := n.ledger.Entries(context.Background(), ledger.Query{Kinds: kinds, Limit: 100_000})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
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
