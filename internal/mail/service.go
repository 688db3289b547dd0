package mail

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/blob"
	"signalbox/internal/clock"
	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/discovery"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/homes"
	"signalbox/internal/mail/hub"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/mail/links"
	"signalbox/internal/mail/quota"
	"signalbox/internal/protocol"
)

// Name is the name of the protocol in rules, and the value of gate.Origin.Protocol.
const Name = "mail"

// Protocol is AMP v0.1.2 messaging for the server's list of protocols: what has to be known of it
// before a Mail exists, such as its tables.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Mail", Migrations: Migrations, Projection: Projection(),
		Readers: Readers(),
	}
}

// sender is the kind of the deliveries to webhooks of agents, as the outbox knows it.
const sender = "mail"

// DefaultWait is how long a sender waits for a receiver that says nothing, unless mail.webhook_wait says otherwise.
const DefaultWait = 3 * time.Second

// Options are the settings of mail. Durations and counts that are 0 stand for the values that
// the protocol names; only tests set them.
type Options struct {
	Blobs blob.Store // the bytes of attachments

	// Domains are the domain of our addresses, which must not change once agents have registered,
	// and its aliases.
	Domains      amp.Domains
	Registration string // one of directory.Modes
	// SignaturesRequired refuses messages without a signature (MSG-45).
	SignaturesRequired bool
	// Keep is how long a payload is kept after its message ended; negative is for ever.
	Keep        time.Duration
	Peering     federation.Peering
	Mesh        federation.Mesh
	Clam        inspect.Clam  // the address of a virus scanner, "" for none
	QueueCap    int64         // messages in one agent's queue; 1000 when 0
	AuthTime    time.Duration // from opening a socket to its auth frame; 10 s when 0
	IdleTime    time.Duration // between two frames of a socket's client; 5 min when 0
	WebhookWait time.Duration // how long a sender waits for a socket, webhook or server that says nothing; 3 s when 0
}

// Mail is the provider: it accepts messages, keeps them in queues and delivers them. Make one
// with New, over the core of a server, and keep Run running; the methods may be called from any
// goroutine, before Run too. Several nodes over one database each have a Mail of their own.
type Mail struct {
	Options
	// Directory holds the registered agents, their profiles and their keys.
	Directory *directory.Directory
	// Attachments holds the files of messages.
	Attachments *attachment.Attachments
	// Federation holds the other providers and hosts that mail is exchanged with.
	Federation *federation.Federation
	// Homes knows which host of the mesh an agent lives on.
	Homes *homes.Homes
	// Links are the other servers and the queues to them.
	Links links.Lister

	core       protocol.Core
	arrivals   *ledger.Waiters // long polls and sockets, by the agent's id
	hub        hub.Hub
	queueSizes quota.Sizes
	discovery  *discovery.Discovery
	// pushed holds messages whose push is to be recorded. Sockets block when it is full, so
	// that a slow database slows pushes down instead of growing memory.
	pushed chan pushed
}

// New makes the service over a core whose ledger has Projection. Secrets of agents are sealed
// with a key derived from the core's, and so is the key with which this provider signs: all
// nodes of one server therefore need the same webhook.key.
func New(core protocol.Core, o Options) *Mail {
	if o.QueueCap == 0 {
		o.QueueCap = 1000
	}
	orElse(&o.AuthTime, 10*time.Second)
	orElse(&o.IdleTime, 5*time.Minute)
	orElse(&o.WebhookWait, DefaultWait)
	m := &Mail{Options: o, core: core, pushed: make(chan pushed, 1024)}
	m.queueSizes.Alone = core.DB.Name() == "sqlite"
	isHost := func(tenant string) bool { return o.Mesh.Hosts[tenant].URL != "" }
	m.Federation = federation.New(core, federation.Options{Domains: o.Domains, Peering: o.Peering, Mesh: o.Mesh})
	m.discovery = discovery.New(core, discovery.Options{
		Domain: o.Domains.Own, Registration: o.Registration, Federation: o.Peering.On(), Mesh: o.Mesh, Scans: o.Clam != "",
		PerMinute: messagesPerMinute, Key: m.Federation.Key(),
	})
	m.Homes = homes.New(core, homes.Options{Domains: o.Domains, Mesh: o.Mesh, Federation: m.Federation})
	m.Links = links.Lister{Peers: o.Peering.Peers, Mesh: o.Mesh, Homes: m.Homes, Outbox: core.Outbox}
	m.Directory = directory.New(core, directory.Options{
		Domains: o.Domains, Mode: o.Registration, Host: o.Mesh.Host, IsHost: isHost, Homes: m.Homes,
	})
	m.Attachments = attachment.New(core, attachment.Options{
		Blobs: o.Blobs, Clam: o.Clam, Received: m.wasDelivered, Host: o.Mesh.Host, Federation: m.Federation,
	})
	m.arrivals = core.Ledger.Waiters(m.recipientOf)
	// Everything that runs inside other packages' transactions is registered here, before Run.
	core.Gates.OnResolved(Name, m.applyDecision)
	core.Outbox.AddSender(sender, webhookSender{m})
	// One carrier for both kinds: the target says whether it is a provider or a host.
	for _, kind := range federation.Senders() {
		core.Outbox.AddSender(kind, carrier{m})
	}
	return m
}

// orElse sets a duration that was left at 0.
func orElse(d *time.Duration, absent time.Duration) {
	if *d <= 0 {
		*d = absent
	}
}

// Timers is empty: expired messages are found by sweep, since one timer for each message would
// cost every message a row.
func (m *Mail) Timers() map[string]clock.Handler { return nil }

// Run follows the ledger, records pushes, indexes words and ends expired messages, until ctx
// ends. Following and recording happen on every node; words and sweep on one at a time, which
// holds a lease.
func (m *Mail) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { m.follow(ctx); return nil })
	g.Go(func() error { m.recordPushes(ctx); return nil })
	g.Go(func() error { return m.core.Ledger.ConsumeTogether(ctx, "mail.words", hasWords, m.indexWords) })
	g.Go(func() error { return m.core.Ledger.Hold(ctx, "mail.sweep", m.sweep) })
	g.Go(func() error { return m.Homes.Run(ctx) })
	return g.Wait()
}

// follow keeps the caches of this node up to date with entries of every node. An entry that
// cannot be read is logged and skipped: stale profiles are better than no mail.
func (m *Mail) follow(ctx context.Context) {
	for ctx.Err() == nil {
		for e := range m.core.Ledger.FollowNow(ctx, m.Directory.Load) {
			if err := m.followEntry(ctx, &e); err != nil {
				m.core.Log.Error("cannot read a ledger entry; keeping the previous state",
					"kind", e.Kind, "seq", e.Seq, "error", err.Error())
			}
			if e.Kind == "state.rebuilt" {
				break // the tables are new: load everything again
			}
		}
	}
}

// followEntry updates the caches of this node for one entry, closes sockets whose agent or key lost its
// right to them, and reports deliveries to senders that wait.
func (m *Mail) followEntry(ctx context.Context, e *ledger.Entry) error {
	if err := m.Directory.Follow(e); err != nil {
		return err
	}
	switch e.Kind {
	case "agent.added", "agent.resumed", "public_key.added":
		m.Homes.Changed()
	case "agent.removed", "agent.suspended":
		m.core.Roster.Forget() // before the sockets ask again who they belong to
		m.hub.RecheckAgent(e.Subject)
	case "key.revoked":
		m.core.Roster.Forget()
		m.hub.RecheckKey(e.Subject)
	case kindDelivered, kindRead, kindAcked, kindFailed, kindRejected, kindExpired:
		if m.hub.Empty() {
			return nil // nobody listens on this node, so the body need not be decoded
		}
		return m.reportMessage(ctx, e)
	}
	// MSG-36: a try that failed ends the wait of the sender, whichever node made it.
	if reason, failed := deliver.FailedTry(e); failed {
		m.hub.Report(e.Subject, hub.Outcome{Reason: reason})
	}
	return nil
}

// errGone marks a failed write to a socket, after which its queue is not read any further.
var errGone = errors.New("the connection is gone")
