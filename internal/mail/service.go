package mail

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/blob"
	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/protocol"
)

// Name is the protocol's name in rules, and in the origin of gates.
const Name = "mail"

// Protocol is AMP v0.1.2 messaging, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Mail", Migrations: Migrations, Projection: Projection(),
		Readers: Readers(),
	}
}

// sender is the kind of our deliveries.
const sender = "mail"

// Options are what an operator sets, and where attachments are kept.
type Options struct {
	Blobs blob.Store // of attachments

	Domains      amp.Domains
	Registration string // one of directory.Modes
	// SignaturesRequired refuses messages without a signature.
	SignaturesRequired bool
	Keep               time.Duration // how long payloads are kept after a message's end
	Peering            federation.Peering
	Mesh               federation.Mesh
	Clam               inspect.Clam  // where a virus scanner is, "" for none
	QueueCap           int64         // 1000 when 0
	AuthTime           time.Duration // how long a socket may take to say who it is; 10 s when 0
	IdleTime           time.Duration // how long a socket may say nothing; 5 min when 0
	WebhookWait        time.Duration // how long a sender waits for the first call of a webhook; 8 s when 0
}

// Mail routes messages.
type Mail struct {
	Options
	// Directory knows who there is.
	Directory *directory.Directory
	// Attachments are the files that messages bring.
	Attachments *attachment.Attachments
	// Federation is the other providers and hosts that mail is exchanged with.
	Federation *federation.Federation

	core     protocol.Core
	arrivals *ledger.Waiters // those who wait for messages, by the agent's id
	hub      hub
	rooms    rooms
	started  time.Time
	pushed   chan pushed
}

// New makes the service over a core whose ledger has Projection. What is kept secret of agents
// is sealed with the core's key, and our own key follows from it.
func New(core protocol.Core, o Options) *Mail {
	if o.QueueCap == 0 {
		o.QueueCap = 1000
	}
	orElse(&o.AuthTime, 10*time.Second)
	orElse(&o.IdleTime, 5*time.Minute)
	orElse(&o.WebhookWait, 8*time.Second)
	m := &Mail{Options: o, core: core, started: core.Now(), pushed: make(chan pushed, 1024)}
	m.Directory = directory.New(core, directory.Options{Domains: o.Domains, Mode: o.Registration, Host: o.Mesh.Host})
	m.Attachments = attachment.New(core, attachment.Options{Blobs: o.Blobs, Clam: o.Clam, Received: m.received})
	m.Federation = federation.New(core, federation.Options{Domains: o.Domains, Peering: o.Peering, Mesh: o.Mesh})
	m.arrivals = core.Ledger.Waiters(m.arrival)
	core.Gates.OnResolved(Name, m.resolved)
	core.Outbox.AddSender(sender, webhookSender{m})
	for _, kind := range federation.Senders() {
		core.Outbox.AddSender(kind, carrier{m})
	}
	return m
}

func orElse(d *time.Duration, absent time.Duration) {
	if *d <= 0 {
		*d = absent
	}
}

// Timers are none: mail sweeps what has expired on its own.
func (m *Mail) Timers() map[string]clock.Handler { return nil }

// Run follows the ledger for those who wait for messages, notes what was pushed, finds
// words, and takes out what has expired, until ctx ends.
func (m *Mail) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { m.follow(ctx); return nil })
	g.Go(func() error { m.notePushed(ctx); return nil })
	g.Go(func() error { return m.core.Ledger.Consume(ctx, "mail.words", hasWords, m.findWords) })
	g.Go(func() error { return m.core.Ledger.Hold(ctx, "mail.sweep", m.sweep) })
	return g.Wait()
}

// follow keeps what this node knows true, and wakes those who wait.
func (m *Mail) follow(ctx context.Context) {
	for ctx.Err() == nil {
		for e := range m.core.Ledger.FollowNow(ctx, m.Directory.Load) {
			if err := m.see(&e); err != nil {
				m.core.Log.Error("cannot read an entry; keeping what was known before",
					"kind", e.Kind, "seq", e.Seq, "error", err.Error())
			}
			if e.Kind == "state.rebuilt" {
				break // everything is read anew
			}
		}
	}
}

// see does what follows from an entry on this node.
func (m *Mail) see(e *ledger.Entry) error {
	if err := m.Directory.Follow(e); err != nil {
		return err
	}
	switch e.Kind {
	case "agent.removed", "agent.suspended":
		m.core.Roster.Forget() // a socket is closed for what is so now
		m.hub.drop(e.Subject)
	case "key.revoked":
		m.core.Roster.Forget()
		m.hub.dropKey(e.Subject)
	case kindDelivered, kindRead, kindAcked, kindFailed:
		if m.hub.empty() {
			return nil
		}
		return m.seeMessage(e)
	}
	return nil
}

var errGone = errors.New("the connection is gone")
