// Package protocoltest starts the core, up to deliveries, with one protocol on it, for
// the tests of that protocol: a database, a ledger, a roster, a policy, gates, timers
// and an outbox, and a clock that tests can move. There is no HTTP server; tests call
// the service itself. It knows no protocol but the one that its caller names.
package protocoltest

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/passkey"
	"signalbox/internal/policy"
	"signalbox/internal/price"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/secret"
)

// Node is one process with the core and one protocol. Two nodes on the same address are
// two processes on one database.
type Node struct {
	protocol.Core
	T    testing.TB
	Stop func() // ends what runs; it is called at the end of the test too

	base *ledgertest.Node
	on   On
}

// On is the protocol, and changes to the core below it. Each function is called before the part
// that it changes is made.
type On struct {
	protocol.Protocol

	// Roster and Outbox change how those are set up, and Core the rest.
	Roster func(*roster.Options)
	Outbox func(*deliver.Options)
	Core   func(*protocol.Core)
}

// New makes a core on the database. Nothing runs before Start.
func New(t testing.TB, address string, on On) *Node {
	t.Helper()
	c := &Node{T: t, on: on, Core: protocol.Core{Log: slog.New(slog.DiscardHandler), Key: []byte(strings.Repeat("k", 32))}}
	c.Secrets = secret.New(c.Derive("secrets"))
	if on.Core != nil {
		on.Core(&c.Core)
	}
	c.base = ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: alarm.Migrations, Projection: alarm.Projection()},
		{Migrations: price.Migrations, Projection: price.Projection()},
		{Migrations: handoff.Migrations, Projection: handoff.Projection()},
		{Migrations: behalf.Migrations},
		{Migrations: rulebook.Migrations, Projection: rulebook.Projection()},
		{Migrations: passkey.Migrations, Projection: passkey.Projection()},
		{Migrations: gate.Migrations, Projection: gate.Projection()},
		{Migrations: counter.Migrations, Projection: counter.Projection()},
		{Migrations: deliver.Migrations, Projection: deliver.Projection()},
		{Migrations: on.Migrations, Projection: on.Projection},
	}, func(o *ledger.Options) { o.Clean = protocol.List{on.Protocol}.Clean(c.Secrets) })
	c.DB, c.Ledger, c.Now = c.base.DB, c.base.Ledger, c.base.Now
	people := roster.Options{DB: c.DB, Ledger: c.Ledger, Now: c.Now, Log: c.Log, Provider: "signalbox.local"}
	if on.Roster != nil {
		on.Roster(&people)
	}
	c.Roster = roster.New(people)
	c.Alarms = alarm.New(c.DB, c.Ledger)
	var err error
	c.Prices, err = price.New(c.DB, c.Ledger, c.Now, c.Log)
	c.must(err)
	readers := gate.Readers()
	maps.Copy(readers, on.Readers)
	c.Handoffs = handoff.New(handoff.Options{
		DB: c.DB, Ledger: c.Ledger, Roster: c.Roster, Now: c.Now, Key: c.Derive("handoff"),
	})
	c.Book = rulebook.New(c.DB, c.Ledger, c.Roster, c.Handoffs, c.Now, c.Log, readers)
	c.Behalf = behalf.New(c.DB, c.Ledger, c.Roster)
	c.Gates = gate.New(c.DB, c.Ledger, c.Roster, c.Log)
	// Short times, so that a test of retries takes moments, but a timeout that a busy
	// machine does not reach.
	out := deliver.Options{
		DB: c.DB, Ledger: c.Ledger, Key: c.Key, Allow: []string{"127.0.0.0/8"}, Now: c.Now,
		Timeout: 20 * time.Second, Poll: 10 * time.Millisecond, Grace: 50 * time.Millisecond,
	}
	if on.Outbox != nil {
		on.Outbox(&out)
	}
	c.Outbox, err = deliver.New(out)
	c.must(err)
	return c
}

// Counters are counters of what the protocol's entries add. They count while they run.
func (c *Node) Counters() *counter.Counters {
	return counter.New(counter.Options{
		DB: c.DB, Ledger: c.Ledger, Roster: c.Roster, Gates: c.Gates, Now: c.Now, Log: c.Log, Readers: c.on.Counters,
		Decisions: c.on.Readers,
	})
}

func (c *Node) must(err error) {
	c.T.Helper()
	c.base.Must(err)
}

// Start runs the core and the protocol's service, and creates what a first start
// creates: the default workspace and policy. At the end of the test everything stops,
// and the ledger is the last.
func (c *Node) Start(service protocol.Service) {
	c.T.Helper()
	all := c.Gates.Handlers()
	maps.Copy(all, service.Timers())
	timers := clock.New(c.DB, c.Ledger, c.Now, c.Log, all)
	c.base.Run(c.Roster.Run, c.Prices.Run, c.Handoffs.Run, c.Book.Run, c.Behalf.Run, timers.Run, c.Outbox.Run, service.Run)
	c.Stop = c.base.Stop
	c.must(c.Roster.Bootstrap(c.T.Context()))
	c.must(c.Book.Bootstrap(c.T.Context()))
}

// Move moves the core's clock.
func (c *Node) Move(d time.Duration) { c.base.Move(d) }

// Agent adds an agent to the default workspace, with labels in pairs.
func (c *Node) Agent(name string, labels ...string) roster.Identity {
	c.T.Helper()
	who, _ := c.AgentWithKey(name, labels...)
	return who
}

// AgentWithKey is Agent, and the key that the agent calls with.
func (c *Node) AgentWithKey(name string, labels ...string) (who roster.Identity, key string) {
	c.T.Helper()
	agent := roster.NewAgent{Name: name, Workspace: "default", Labels: map[string]string{}}
	for i := 0; i+1 < len(labels); i += 2 {
		agent.Labels[labels[i]] = labels[i+1]
	}
	_, keys, err := c.Roster.AddAgent(c.T.Context(), roster.Identity{Role: roster.Admin}, agent)
	c.must(err)
	return c.identity(keys[0].Secret), keys[0].Secret
}

// Operator adds an operator who sees every workspace.
func (c *Node) Operator(name string) roster.Identity {
	c.T.Helper()
	_, token, err := c.Roster.AddOperator(c.T.Context(), roster.Identity{Role: roster.Admin}, name, "operator", "")
	c.must(err)
	return c.identity(token.Secret)
}

func (c *Node) identity(key string) roster.Identity {
	c.T.Helper()
	who, err := c.Roster.Authenticate(c.T.Context(), key)
	c.must(err)
	return who
}

// Apply puts rules in force, or those of a new server for "", and returns when this node
// decides by them.
func (c *Node) Apply(rules string) {
	c.T.Helper()
	text := policy.Default()
	if rules != "" {
		text = []byte("version: 1\n" + rules)
	}
	_, _, err := c.Book.Apply(c.T.Context(), roster.Identity{}, text, 0)
	c.must(err)
}

// Entries are the entries of some kinds, or all.
func (c *Node) Entries(kinds ...string) []ledger.Entry {
	c.T.Helper()
	return c.base.Entries(kinds...)
}

// Pending are the gates that nobody has decided, a thousand at most.
func (c *Node) Pending() []gate.Gate {
	c.T.Helper()
	all, _, err := c.Gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, 1000)
	c.must(err)
	return all
}

// Newest is the newest entry of a kind.
func (c *Node) Newest(kind string) ledger.Entry {
	c.T.Helper()
	return c.base.Newest(kind)
}

// WantClean checks that the tables are exactly what a rebuild makes of the ledger. Call
// it at the end of a test: it finds state that was written without an entry.
func (c *Node) WantClean() {
	c.T.Helper()
	c.base.WantClean()
}
