package deliver

import (
	"log/slog"
	"maps"
	"net"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Options are what an outbox is made of. Zero values of the last group stand for the values in the
// comments, which are right for a server; tests shorten them.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger
	Key    []byte   // at least 32 bytes; the secrets of receivers are derived from it
	Allow  []string // hosts, addresses and networks that may be dialled even if they are not public
	// Own are further ones, which a request may not name that came from another machine against what the
	// configuration says.
	Own []string
	// Alone means that no other process uses the database: runners that are known to it are dead.
	Alone bool
	// Senders are the senders beside the built-in one for webhooks, by kind.
	Senders map[string]Sender
	Now     func() time.Time
	Log     *slog.Logger

	Resolver Resolver
	Timeout  time.Duration   // of one try; 15 s
	Lease    time.Duration   // how long a dead runner keeps its lanes; Timeout + 15 s
	Poll     time.Duration   // between two rounds without a commit; 200 ms
	Grace    time.Duration   // for tries under way after a stop; 5 s
	Slots    int             // lanes that are served at a time; 256
	Pauses   []time.Duration // DefaultPauses
}

// minKey is the shortest key, in bytes, from which secrets are derived.
const minKey = 32

// Outbox sends what was queued. Make one with New, add senders, then call Run, once in a process; the
// other methods may be called from any goroutine at any time. Several processes over one database
// share the work.
type Outbox struct {
	db      *store.DB
	ledger  *ledger.Ledger
	key     []byte
	guard   *guard
	alone   bool
	webhook *webhook
	senders map[string]Sender
	now     func() time.Time
	log     *slog.Logger

	timeout, lease, poll, grace time.Duration
	slots                       int
	pauses                      []time.Duration
	wake                        chan struct{}
	// reading is a semaphore for lanes that read: other users of the database's connections must not
	// wait for hundreds of them.
	reading chan struct{}
}

// readers is how many lanes read at a time.
const readers = 4

// New makes an outbox over a ledger that has Projection.
func New(o Options) (*Outbox, error) {
	if len(o.Key) < minKey {
		return nil, fault.New(fault.InvalidConfig,
			"The key from which the secrets of webhook receivers are derived has %d bytes; "+
				"it should have at least %d random ones.", len(o.Key), minKey).About("webhook.key")
	}
	setDefaults(&o)
	g := &guard{resolver: o.Resolver}
	if err := g.use(o.Allow, o.Own); err != nil {
		return nil, err
	}
	b := &Outbox{
		db: o.DB, ledger: o.Ledger, key: o.Key, guard: g, alone: o.Alone, webhook: newWebhook(g, o.Key, o.Slots, o.Now),
		senders: map[string]Sender{}, now: o.Now, log: o.Log,
		timeout: o.Timeout, lease: o.Lease, poll: o.Poll, grace: o.Grace, slots: o.Slots, pauses: o.Pauses,
		wake: make(chan struct{}, 1), reading: make(chan struct{}, readers),
	}
	b.senders[WebhookSender] = b.webhook
	maps.Copy(b.senders, o.Senders)
	return b, nil
}

// Allow replaces the lists of Options.Allow and Options.Own, for calls from now on. After an error they stay.
func (o *Outbox) Allow(allow, own []string) error { return o.guard.use(allow, own) }

// setDefaults fills in the values of the comments in Options.
func setDefaults(o *Options) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if len(o.Pauses) == 0 {
		o.Pauses = DefaultPauses
	}
	orElse(&o.Timeout, 15*time.Second)
	orElse(&o.Lease, o.Timeout+15*time.Second)
	// With a shorter one mayTry would never let a try begin.
	o.Lease = max(o.Lease, 2*o.Timeout)
	orElse(&o.Poll, 200*time.Millisecond)
	orElse(&o.Grace, 5*time.Second)
	if o.Slots <= 0 {
		o.Slots = 256
	}
}

// orElse sets a duration that was left at 0.
func orElse(d *time.Duration, absent time.Duration) {
	if *d <= 0 {
		*d = absent
	}
}

// AddSender adds the sender of a kind. Call it before Run.
func (o *Outbox) AddSender(kind string, s Sender) { o.senders[kind] = s }

// Wake makes the runner of this process look for work now. It never waits.
func (o *Outbox) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
