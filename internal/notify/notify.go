package notify

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/alarm"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Options are what a notifier needs.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger
	Roster *roster.Roster
	Gates  *gate.Gates
	Alarms *alarm.Alarms
	Outbox *deliver.Outbox
	Key    []byte // from which the codes of buttons follow
	Base   string // the address by which people reach this server
	// Channels are the channels there are. Those with the same target are one.
	Channels []Channel
	Log      *slog.Logger
}

// Notifier announces gates in channels, and turns presses of buttons into votes. It is safe for
// concurrent use.
type Notifier struct {
	Channels []Channel // each target once

	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	gates    *gate.Gates
	alarms   *alarm.Alarms
	outbox   *deliver.Outbox
	key      []byte
	base     string
	log      *slog.Logger
	byTarget map[string]Channel
}

// New makes a notifier. The ledger must have Projection. New registers a sender with the outbox
// for each kind of channel, so it must be called before the outbox runs.
func New(o Options) *Notifier {
	n := &Notifier{
		db: o.DB, ledger: o.Ledger, roster: o.Roster, gates: o.Gates, alarms: o.Alarms, outbox: o.Outbox, key: o.Key,
		base: o.Base, log: o.Log, byTarget: map[string]Channel{},
	}
	for _, c := range o.Channels {
		if n.byTarget[c.Target()] != nil {
			continue // an address that was given twice is told once
		}
		n.Channels, n.byTarget[c.Target()] = append(n.Channels, c), c
		o.Outbox.AddSender(senderKind(c), sender{n})
	}
	return n
}

// senderKind names the outbox's sender for a channel. The prefix keeps our webhook apart from the
// outbox's own kind of that name.
func senderKind(c Channel) string { return "notify-" + c.Name() }

// enrolPause is how long to wait for a ledger that accepts no writes.
const enrolPause = 2 * time.Second

// Run announces what happens and listens for presses, until ctx ends. It enrols the channels if
// nobody has, and waits for as long as the ledger accepts no writes.
func (n *Notifier) Run(ctx context.Context) error {
	for said := false; ; {
		err := n.Enrol(ctx)
		if err == nil {
			break
		}
		if !said && ctx.Err() == nil {
			n.log.Warn("cannot record the configured channels; will retry", "error", err.Error())
			said = true
		}
		if ledger.Pause(ctx, nil, enrolPause) {
			return nil
		}
	}
	if len(n.Channels) == 0 {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return n.ledger.Consume(ctx, "notify", isNotified, n.queueNotices) })
	for _, c := range n.Channels {
		if l, ok := c.(Listener); ok {
			g.Go(func() error { return l.Listen(ctx, n) })
		}
	}
	return g.Wait()
}
