package notify_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/notify"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

var (
	sets        = []store.Migrations{ledger.Migrations, clock.Migrations, roster.Migrations, gate.Migrations, deliver.Migrations, notify.Migrations}
	projections = []ledger.Projection{clock.Projection(), roster.Projection(), gate.Projection(), deliver.Projection(), notify.Projection()}
	key         = bytes.Repeat([]byte("k"), 32)
)

const base = "https://signalbox.example"

// node is a server with gates and channels.
type node struct {
	t        *testing.T
	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	gates    *gate.Gates
	outbox   *deliver.Outbox
	notifier *notify.Notifier
	client   *http.Client
	logged   testbed.Buffer
	offset   atomic.Int64
	stop     func()
}

func (n *node) now() time.Time { return time.Now().Add(time.Duration(n.offset.Load())) }

// notifierLog is the log that channels write to.
func (n *node) notifierLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(&n.logged, nil))
}

// start runs a node with the channels it is given.
func start(t *testing.T, address string, channels func(n *node) []notify.Channel) *node {
	t.Helper()
	n := open(t, address, channels)
	n.run()
	return n
}

// open makes a node that does not run yet, apart from its ledger.
func open(t *testing.T, address string, channels func(n *node) []notify.Channel) *node {
	t.Helper()
	n := &node{t: t, db: storetest.Open(t, address, sets...), client: notify.NewClient()}
	log := slog.New(slog.NewTextHandler(&n.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	n.ledger, err = ledger.Open(context.Background(), ledger.Options{DB: n.db, Dir: t.TempDir(), Origin: "test.example/notify", Now: n.now, Projections: projections, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	n.roster = roster.New(roster.Options{DB: n.db, Ledger: n.ledger, Now: n.now, Log: log, Provider: "signalbox.local"})
	n.gates = gate.New(n.db, n.ledger, n.roster, log)
	n.outbox, err = deliver.New(deliver.Options{
		DB: n.db, Ledger: n.ledger, Key: key, Allow: []string{"127.0.0.0/8"}, Now: n.now, Log: log,
		Poll: 10 * time.Millisecond, Pauses: []time.Duration{50 * time.Millisecond}, Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.notifier = notify.New(notify.Options{
		DB: n.db, Ledger: n.ledger, Roster: n.roster, Gates: n.gates, Outbox: n.outbox, Key: key, Base: base, Channels: channels(n), Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.ledger.Run(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); running.Wait(); n.client.CloseIdleConnections() })
	t.Cleanup(func() { n.stop() })
	if err := n.roster.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// run runs what follows the ledger.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	timers := clock.New(n.db, n.ledger, n.now, slog.New(slog.DiscardHandler), n.gates.Handlers())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{timers.Run, n.outbox.Run, n.notifier.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	}
	stopLedger := n.stop
	n.stop = sync.OnceFunc(func() { cancel(); running.Wait(); stopLedger() })
	n.enrolled()
}

// enrolled waits until the channels are there, so that what happens next is told.
func (n *node) enrolled() {
	n.t.Helper()
	n.until("the channels are enrolled", func() bool {
		return n.count("SELECT count(*) FROM notice_channel") == len(n.notifier.Channels)
	})
}

// until waits for what comes by itself.
func (n *node) until(what string, done func() bool) {
	n.t.Helper()
	testbed.Until(n.t, "it to come to it that "+what, done, &n.logged)
}

func (n *node) count(query string, args ...any) (found int) {
	n.t.Helper()
	if err := n.db.Read.QueryRowContext(context.Background(), query, args...).Scan(&found); err != nil {
		n.t.Fatal(err)
	}
	return found
}

// operator adds an operator with contacts.
func (n *node) operator(name, role string, contacts map[string]string) {
	n.t.Helper()
	n.operatorIn(name, role, "", contacts)
}

// operatorIn adds one who is confined to a workspace.
func (n *node) operatorIn(name, role, workspace string, contacts map[string]string) {
	n.t.Helper()
	admin := roster.Identity{Role: roster.Admin}
	if _, _, err := n.roster.AddOperator(n.t.Context(), admin, name, role, workspace); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.roster.ChangeOperator(n.t.Context(), admin, name, roster.OperatorChange{Contacts: contacts}); err != nil {
		n.t.Fatal(err)
	}
}

// opening is a gate that an agent asks for.
func opening(change ...func(*gate.Opening)) gate.Opening {
	o := gate.Opening{
		Project: "billing", Agent: "agent_x", AgentName: "payer", Requester: "agent:payer",
		Origin: gate.Origin{Protocol: "test", Reference: "run-1"},
		Shown:  gate.Shown{Title: "Pay invoice 42", Summary: "Read the invoice", ProposedAction: "Pay 100 EUR to ACME", Rule: "pay-needs-a-person", Reason: "Money leaves the house."},
	}
	for _, fn := range change {
		fn(&o)
	}
	return o
}

func (n *node) open(change ...func(*gate.Opening)) string {
	n.t.Helper()
	id := gate.NewID()
	p, err := gate.Prepare(opening(change...))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.ledger.Write(context.Background(), func(tx *ledger.Tx) error { p.Open(tx, id, "default", "trace-1"); return nil }); err != nil {
		n.t.Fatal(err)
	}
	return id
}

func (n *node) get(id string) gate.Gate {
	n.t.Helper()
	g, err := n.gates.Get(context.Background(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	return g
}

// decide decides as somebody who used the API.
func (n *node) decide(id, name string, approve bool, note string) {
	n.t.Helper()
	who := roster.Identity{ID: "operator_" + name, Kind: roster.HolderOperator, Name: name, Role: roster.Operator}
	if _, err := n.gates.Vote(context.Background(), who, id, gate.Ballot{Approve: approve, Note: note}); err != nil {
		n.t.Fatal(err)
	}
}

// wantClean checks that every table follows from the ledger.
func (n *node) wantClean() {
	n.t.Helper()
	got, err := ledger.CheckRebuild(context.Background(), n.db, sets, projections, nil)
	if err != nil || len(got.Differences) != 0 {
		n.t.Errorf("%+v %v", got, err)
	}
}

// wantNoSecrets checks that none of the texts is in the ledger or in the log.
func (n *node) wantNoSecrets(secrets ...string) {
	n.t.Helper()
	entries, err := n.ledger.Entries(context.Background(), ledger.Query{Limit: 1000})
	if err != nil {
		n.t.Fatal(err)
	}
	all := n.logged.String()
	for _, e := range entries {
		all += string(e.Record) + string(e.Body)
	}
	for _, secret := range secrets {
		if strings.Contains(all, secret) {
			n.t.Errorf("%q has got into the ledger or the log", secret)
		}
	}
}

// call is what a service was called with.
type call struct {
	method string
	values map[string]string
}

// calls are those that a service has got, in order.
type calls struct {
	t   *testing.T
	got chan call
}

func newCalls(t *testing.T) calls { return calls{t, make(chan call, 100)} }

// next is the next call, which must be of the method.
func (c calls) next(method string) call {
	c.t.Helper()
	got := testbed.Receive(c.t, "a call of "+method, c.got)
	if got.method != method {
		c.t.Fatalf("%s was called, and %s should be: %v", got.method, method, got.values)
	}
	return got
}

// none checks that nothing more was called.
func (c calls) none() {
	c.t.Helper()
	select {
	case got := <-c.got:
		c.t.Errorf("%s was called, and nothing should be: %v", got.method, got.values)
	default:
	}
}
