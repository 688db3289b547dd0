// Package protocol defines what a protocol is to the rest of the program: a value with a name,
// tables, readers, counters, timers, routes and something that runs. The server has one list
// of them. The dashboard, the filters, the counters and the import test read that list and
// know no protocol by name.
//
// It owns the type and what every protocol is built on. It must not know any protocol.
package protocol

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/kin"
	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/secret"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Core is what every protocol is built on. The server makes one and opens every protocol
// over it.
type Core struct {
	DB     *store.DB
	Ledger *ledger.Ledger
	Roster *roster.Roster
	// Handoffs are work that agents hand on.
	Handoffs *handoff.Handoffs
	Alarms   *alarm.Alarms
	Prices   *price.Prices // what models cost
	Kin      *kin.Kin      // nil in tests without processes
	Book     *rulebook.Book
	Behalf   *behalf.Index
	Gates    *gate.Gates
	Outbox   *deliver.Outbox
	// Refusals notes the calls that are refused before anything is decided; nil in tests without calls.
	Refusals *refusal.Log
	Now      func() time.Time
	Log      *slog.Logger
	// Secrets replaces credentials in texts, for rules that say so. In what is stored the ledger
	// does it (List.Clean).
	Secrets *secret.Redactor

	Key     []byte // the server's secret, from which others are derived
	BaseURL string // where clients and people reach the server
}

// Derive makes a key of 32 bytes for one purpose from the server's secret.
func (c Core) Derive(purpose string) []byte {
	h := hmac.New(sha256.New, c.Key)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// AskedBy is the run that a gate of an agent is of: the one in which its call was made, as the server knows it by a
// handoff, else the one that the agent names, if it is one of the agent's. It reads, so call it before a transaction.
func (c Core) AskedBy(ctx context.Context, of behalf.Of, who roster.Identity, named string) string {
	for _, handoffID := range []string{of.Handoff, of.Within} {
		work, err := c.Handoffs.WorkOf(handoffID, "run")
		if err == nil && gate.AskedBy(work) != "" {
			return work
		}
	}
	return c.Gates.AskedBy(ctx, who, named)
}

// Protocol is one of the languages that agents speak. Its package makes it with the function
// Protocol; the server opens it once, over the core. The fields before Open need no server, so
// commands that work on a database alone, such as a rebuild, use them too.
type Protocol struct {
	// Name is the value of event.protocol in rules, and of gate.Origin.Protocol. What stands on a protocol and is
	// none, such as the schedules of runs, has no name: it is opened like one, and people meet no word for it.
	Name  string
	Label string // for people, as a heading or in a filter
	// Origins are further values of gate.Origin.Protocol that belong to this protocol, with
	// their labels.
	Origins map[string]string

	Migrations store.Migrations
	Projection ledger.Projection
	Readers    map[string]rulebook.Reader // the decisions in its entries, by kind
	Counters   map[string]counter.Reader  // what its entries add to the counters, by kind
	// Said are the kinds of entries that hold what agents say, run or answer: credentials in their
	// bodies are replaced. What has to be delivered or released byte for byte is not among them.
	Said []string

	// Open makes the service. The ledger has Projection, and nothing runs yet.
	Open func(context.Context, Core) (Service, error)
}

// Service is an open protocol.
type Service interface {
	// Routes is its HTTP surface.
	Routes() []wire.Route
	// Timers are its handlers of durable timers, by the timer's kind.
	Timers() map[string]clock.Handler
	// Run does what the protocol does on its own, until ctx ends.
	Run(ctx context.Context) error
}

// List is the protocols of a server, in the order in which they are opened.
type List []Protocol

// Migrations are the tables of every protocol.
func (l List) Migrations() (all []store.Migrations) {
	for _, p := range l {
		all = append(all, p.Migrations)
	}
	return all
}

// Projections are the state of every protocol.
func (l List) Projections() (all []ledger.Projection) {
	for _, p := range l {
		all = append(all, p.Projection)
	}
	return all
}

// Clean replaces the credentials in the bodies of entries that hold what agents say. It is for
// ledger.Options.
func (l List) Clean(r *secret.Redactor) func(kind string, body []byte) ([]byte, bool) {
	said := map[string]bool{"gate.opened": true}
	for _, kind := range append(rulebook.Kinds(), kin.Said()...) {
		said[kind] = true
	}
	for _, p := range l {
		for _, kind := range p.Said {
			said[kind] = true
		}
	}
	return func(kind string, body []byte) ([]byte, bool) {
		if !said[kind] {
			return body, false
		}
		return r.Body(body, ledger.RawMember)
	}
}

// Readers find the decisions in the entries of every protocol.
func (l List) Readers() map[string]rulebook.Reader {
	all := map[string]rulebook.Reader{}
	for _, p := range l {
		maps.Copy(all, p.Readers)
	}
	return all
}

// Counters find what the entries of every protocol add to the counters.
func (l List) Counters() map[string]counter.Reader {
	all := map[string]counter.Reader{}
	for _, p := range l {
		maps.Copy(all, p.Counters)
	}
	return all
}

// Origin is where a gate comes from, as people are told.
type Origin struct{ Name, Label string }

// Origins are all that gates of the list may come from, in the order of the list.
func (l List) Origins() (all []Origin) {
	for _, p := range l {
		if p.Name != "" {
			all = append(all, Origin{p.Name, p.Label})
		}
		for _, name := range slices.Sorted(maps.Keys(p.Origins)) {
			all = append(all, Origin{name, p.Origins[name]})
		}
	}
	return all
}

// Label is what people call the origin of a gate; one that no protocol of the list has keeps
// its name.
func (l List) Label(origin string) string {
	for _, o := range l.Origins() {
		if o.Name == origin {
			return o.Label
		}
	}
	return origin
}
