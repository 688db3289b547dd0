package notify

import (
	"context"
	"maps"
	"slices"

	"signalbox/internal/alarm"
	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Enrol records which channels are configured. A channel is told of what happens after its
// channel.added entry, so that adding one does not announce old gates. A server enrols before it
// answers calls, so that its first gate is announced. All nodes must be configured alike.
func (n *Notifier) Enrol(ctx context.Context) error {
	if len(n.Channels) > 0 {
		head, err := n.ledger.Head(ctx)
		if err != nil {
			return err
		}
		if err := n.ledger.BeginAt(ctx, "notify", head); err != nil {
			return err
		}
	}
	return n.ledger.Write(ctx, func(tx *ledger.Tx) error {
		there, err := enrolled(tx)
		if err != nil {
			return err
		}
		for _, c := range n.Channels {
			if _, known := there[c.Target()]; !known {
				tx.Append(ledger.Event{Kind: kindAdded, Actor: "system", Subject: c.Target(), Body: added{c.Name()}})
			}
		}
		for _, target := range slices.Sorted(maps.Keys(there)) {
			if n.byTarget[target] == nil {
				tx.Append(ledger.Event{Kind: kindRemoved, Actor: "system", Subject: target, Body: empty{}})
			}
		}
		return nil
	})
}

// enrolled reads the entry since which each channel is known, by target.
func enrolled(tx *ledger.Tx) (map[string]int64, error) {
	return store.Map[string, int64](tx.Query, "SELECT target, since FROM notice_channel")
}

// payload is what a delivery keeps of a notice. The rest is read from the gate when it is sent.
type payload struct {
	Event string `json:"event"`
	Gate  string `json:"gate"` // or the alarm
	Entry int64  `json:"entry"`
	// Contact is of the one person who is told, "" for a channel that is configured.
	Contact string `json:"contact,omitzero"`
}

// isNotified reports whether people hear of entries of the kind.
func isNotified(kind string) bool {
	return kind == Opened || kind == Escalated || kind == Resolved || kind == alarm.Raised
}

// queueNotices queues a delivery for every channel and every entry that people should hear of. It
// may be called with the same entries again, after a crash: what is queued already is skipped.
func (n *Notifier) queueNotices(ctx context.Context, entries []ledger.Entry) error {
	for part := range slices.Chunk(entries, chunkSize) {
		asked, err := n.mailboxesAsked(ctx, part)
		if err != nil {
			return err
		}
		if err := n.ledger.Write(ctx, func(tx *ledger.Tx) error { return n.queueAll(tx, part, asked) }); err != nil {
			return err
		}
	}
	return nil
}

// chunkSize is how many entries one transaction handles. The ledger's transactions are serial, so
// a long one delays every other writer.
const chunkSize = 32

// notice identifies one entry in one channel: the unit that is queued exactly once.
type notice struct {
	entry  int64
	target string
}

// queueAll queues what channels, and the people whom a ladder asks, have not been sent yet. Since
// it runs in one transaction with the notice.queued entries that it checks against, no crash and
// no second follower can queue anything twice.
func (n *Notifier) queueAll(tx *ledger.Tx, entries []ledger.Entry, asked map[int64][]mailbox) error {
	since, err := enrolled(tx)
	if err != nil {
		return err
	}
	told, err := noticesQueued(tx, entries[0].Seq, entries[len(entries)-1].Seq)
	if err != nil {
		return err
	}
	know, err := n.peopleNotified(tx, entries)
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		boxes := slices.Clone(asked[e.Seq])
		know[e.Subject] = append(know[e.Subject], boxes...)
		if e.Kind == Resolved {
			boxes = know[e.Subject] // who was told that it waits hears how it ended
		}
		for _, c := range n.Channels {
			boxes = append(boxes, mailbox{c, c, ""})
		}
		for _, b := range boxes {
			this := notice{e.Seq, b.Target()}
			if e.Seq <= since[b.of.Target()] || told[this] {
				continue
			}
			if err := queue(tx, e, b); err != nil {
				return err
			}
			told[this] = true
		}
	}
	return nil
}

// noticesQueued reads which notices of a range of entries are queued.
func noticesQueued(tx *ledger.Tx, first, last int64) (map[notice]bool, error) {
	told := map[notice]bool{}
	err := store.Each(tx.Query, func(scan store.Scan) error {
		var one notice
		err := scan(&one.entry, &one.target)
		told[one] = true
		return err
	}, "SELECT entry, channel FROM notice WHERE entry >= $1 AND entry <= $2", first, last)
	return told, err
}

// queue queues one notice, and records that it is queued.
func queue(tx *ledger.Tx, e *ledger.Entry, b mailbox) error {
	content, err := wire.Marshal(payload{e.Kind, e.Subject, e.Seq, b.contact})
	if err != nil {
		return err
	}
	// One line for each channel, so that an outcome comes after what it is the outcome of.
	name, err := deliver.Queue(tx,
		deliver.Delivery{Workspace: e.Workspace, Sender: senderKind(b), Target: b.Target(), Payload: content, Trace: e.Trace})
	if err != nil {
		return err
	}
	tx.Append(ledger.Event{
		Workspace: e.Workspace, Kind: kindQueued, Actor: "system", Subject: e.Subject, Trace: e.Trace,
		Body: queued{Entry: e.Seq, Event: e.Kind, Channel: b.Target(), Contact: b.contact, Delivery: name},
	})
	return nil
}
