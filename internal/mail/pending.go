package mail

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/query"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// A page ends after maxFetch messages, or with the first one that takes it past maxFetchBytes:
// one call must not need more memory than that, whatever waits.
const (
	maxFetch      = query.MaxPage
	maxFetchBytes = 8 << 20
)

// fetch reads the messages of a queue after a place, oldest first, without removing them. The
// queue is that of an agent or of another server. Expired messages are skipped even before the
// sweep has removed them.
func (m *Mail) fetch(ctx context.Context, agentID string, after int64, limit int) ([]Pending, error) {
	rows, err := m.core.DB.Read.QueryContext(ctx,
		"SELECT q.place, q.seq, q.expires_at, "+ledger.EntryColumns+" FROM mail_queue q JOIN "+ledger.EntryTable+
			` ON e.seq = q.seq
WHERE q.agent = $1 AND q.place > $2 AND q.expires_at > $3 ORDER BY q.place LIMIT $4`, agentID, after,
		m.core.Now().UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	// An empty list and not nil: clients iterate over it.
	page, size, entries := []Pending{}, 0, []ledger.Entry{}
	for size < maxFetchBytes && rows.Next() {
		var place, seq, expires int64
		var row ledger.Row
		if err := rows.Scan(row.After(&place, &seq, &expires)...); err != nil {
			return nil, err
		}
		e, err := row.Entry()
		if err != nil {
			return nil, err
		}
		p, err := readPending(&e)
		if err != nil {
			return nil, err
		}
		p.place, p.seq, p.ExpiresAt = place, seq, time.UnixMicro(expires)
		p.Security.Attachments = m.Attachments.Shown(p.Security.Attachments, p.ours)
		page, size, entries = append(page, p), size+row.Size(), append(entries, e)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	prover := m.core.Ledger.Prover(ctx)
	for i := range page { // not while the rows are open: a proof reads, too; see store.Each
		p, e := &page[i], &entries[i]
		if err = p.prove(prover, agentID, e); err == nil && p.hands {
			p.Handoff, err = errand.Handed(&m.core, prover, e.Workspace, p.ID, agentID)
		}
		if err != nil {
			return nil, err
		}
	}
	return page, nil
}

// prove checks that the ledger has put the message into the queue of the agent: when it was routed, or, if it was held,
// when its gate was approved.
func (p *Pending) prove(prover ledger.Prover, agentID string, e *ledger.Entry) error {
	err := prover.Check(ledger.Query{Kinds: []string{kindRouted}}, e)
	queued := p.recipient == agentID && !p.held && p.place == e.Seq
	if err == nil && p.held {
		var b transition
		var released ledger.Entry
		if released, err = prover.At(p.place); err == nil && released.Kind == kindReleased {
			err = released.Decode(&b)
			queued = b.Agent == agentID && p.recipient == agentID && b.Seq == e.Seq && released.Subject == e.Subject
		}
	}
	if err == nil && !queued {
		err = prover.Contradicts("mail_queue", p.ID, "the message %s was not put into that queue", p.ID)
	}
	return err
}

// readPending makes a Pending of message.routed. place, seq and the true expiry are the queue's.
func readPending(e *ledger.Entry) (Pending, error) {
	var b routed
	if err := e.Decode(&b); err != nil {
		return Pending{}, err
	}
	s := Security{
		Trust: b.Meta.Trust, InjectionFlags: b.Meta.Flags, InjectionPlaces: b.Meta.Marks, Attachments: b.Meta.Files,
	}
	if s.InjectionFlags == nil {
		s.InjectionFlags = []string{}
	}
	// Verified when it was accepted; the server does not verify again.
	if s.Trust != Untrusted {
		s.VerifiedAt = amp.Stamp(e.At)
	}
	return Pending{
		Message: amp.Message{Envelope: b.Meta.Envelope, Payload: b.Payload, SenderKey: amp.KeyText(b.Meta.SenderKey)},
		ID:      e.Subject, QueuedAt: e.At,
		ExpiresAt: time.UnixMicro(b.Meta.ExpiresAt), Security: s, sender: b.Meta.Sender, receipt: b.Meta.Receipt,
		recipient: b.Meta.Recipient, held: b.Meta.Quarantine != "", hands: b.Meta.Hands != nil,
		ours: b.Meta.Attachments,
	}, nil
}

// waiting counts the messages of a queue after a place, and returns the entry of the first and
// the place of the last; both are 0 for none.
func (m *Mail) waiting(ctx context.Context, agentID string, after int64) (n, first, last int64, err error) {
	err = m.core.DB.QueryRow(ctx,
		"SELECT count(*), COALESCE(MIN(seq), 0), COALESCE(MAX(place), 0) FROM mail_queue WHERE agent = $1 AND place > $2 "+
			"AND expires_at > $3",
		[]any{agentID, after, m.core.Now().UnixMicro()}, &n, &first, &last)
	return n, first, last, err
}

// Count is the answer to GET /v1/messages/pending/count.
type Count struct {
	Count          int64   `json:"count"`
	OldestQueuedAt *string `json:"oldest_queued_at"`
	Cursor         string  `json:"cursor"`
}

// Count counts the messages that wait for an agent.
func (m *Mail) Count(ctx context.Context, who roster.Identity) (Count, error) {
	if err := m.active(ctx, who); err != nil {
		return Count{}, err
	}
	n, first, last, err := m.waiting(ctx, who.ID, 0)
	if err != nil {
		return Count{}, err
	}
	out := Count{Count: n, Cursor: strconv.FormatInt(last, 10)}
	if n > 0 {
		e, err := m.core.Ledger.Entry(ctx, first)
		if err != nil {
			return out, err
		}
		text := amp.Stamp(e.At)
		out.OldestQueuedAt = &text
	}
	return out, nil
}

// Poll reads the messages that wait for an agent after a place in its queue. If there are none,
// it waits for one, at most as long as most. Several polls at once get the same messages.
func (m *Mail) Poll(
	ctx context.Context, who roster.Identity, after int64, limit int, most time.Duration,
) (Page, error) {
	if err := m.active(ctx, who); err != nil {
		return Page{}, err
	}
	if most > 0 {
		// Only the wait ends with a stop of the server; the page is read in any case.
		waiting, cancel := wire.Waiting(ctx, most)
		err := m.arrivals.Await(waiting, who.ID, func(ctx context.Context) (bool, error) {
			n, _, _, err := m.waiting(ctx, who.ID, after)
			return n > 0, err
		})
		cancel()
		if err != nil {
			return Page{}, err
		}
	}
	page := Page{Next: after}
	var err error
	if page.Messages, err = m.fetch(ctx, who.ID, after, limit); err != nil {
		return page, err
	}
	if n := len(page.Messages); n > 0 {
		page.Next = page.Messages[n-1].place
	}
	// Counted after the page was read, so that a message which arrives in between is counted.
	page.Remaining, _, _, err = m.waiting(ctx, who.ID, page.Next)
	return page, err
}

// tombstone is how long a repeated acknowledgement is a success (MSG-59).
const tombstone = 24 * time.Hour

// Acked counts messages by the effect of an acknowledgement. Ids that are in neither count are
// unknown, or of another agent's messages.
type Acked struct {
	Now     int // removed from the queue
	Already int // acknowledged within the last day
}

// Ack removes messages from the caller's queue, for good. Ids of other agents' messages count
// as unknown, so that an id proves nothing.
func (m *Mail) Ack(ctx context.Context, who roster.Identity, via string, ids ...string) (Acked, error) {
	if err := m.active(ctx, who); err != nil {
		return Acked{}, err
	}
	for _, id := range ids {
		if !amp.IDForm.MatchString(id) {
			return Acked{}, fault.New(fault.InvalidField,
				"An id should be that of a message, such as \"msg_1706648400_abc123\", and is %.80q.", id).About("id")
		}
	}
	var out Acked
	err := m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		out = Acked{}
		found, err := m.queued(tx, who.ID, ids)
		if err != nil {
			return err
		}
		for _, q := range found {
			// It has left the queue: by an acknowledgement, whose repetition is fine, or by its time.
			if q.body.Place == 0 {
				if q.ended > tx.Now().Add(-tombstone).UnixMicro() {
					out.Already++
				}
				continue
			}
			out.Now++
			q.body.Agent, q.body.Via = who.ID, via
			tx.Append(ledger.Event{
				Workspace: who.Workspace, Kind: kindAcked, Actor: who.Actor(), Subject: q.id,
				Trace: trace(q.thread), Body: q.body,
			})
		}
		return nil
	})
	return out, err
}

// AckedOne is the answer to the acknowledgement of one message.
type AckedOne struct {
	Acknowledged bool `json:"acknowledged"`
	Already      bool `json:"already_acked,omitzero"`
}

// AckOne removes one message from the caller's queue. A repetition within a day succeeds: the
// first answer may have been lost.
func (m *Mail) AckOne(ctx context.Context, who roster.Identity, id string) (AckedOne, error) {
	if id == "" {
		return AckedOne{}, fault.New(fault.MissingField,
			"Say which message, as in /v1/messages/pending/msg_1706648400_abc123.").About("id")
	}
	acked, err := m.Ack(ctx, who, ByRelay, id)
	if err == nil && acked.Now+acked.Already == 0 {
		err = fault.New(fault.NotFound, "There is no message %.128q in your queue.", id)
	}
	return AckedOne{true, acked.Now == 0}, err
}

// inQueue is a message of an agent; body.Place is 0 if it has left the queue, and ended says
// when, in microseconds.
type inQueue struct {
	id, thread string
	ended      int64
	body       transition
}

// queued reads messages of an agent by their ids, also those that have left the queue.
func (m *Mail) queued(tx *ledger.Tx, agentID string, ids []string) ([]inQueue, error) {
	args := []any{agentID}
	for _, id := range ids {
		args = append(args, id)
	}
	// A held or rejected message does not exist for its recipient.
	return store.All(tx.Query, func(scan store.Scan) (q inQueue, err error) {
		err = scan(&q.id, &q.thread, &q.body.Seq, &q.ended, &q.body.Place)
		return q, err
	}, `SELECT id, thread, seq, ended_at, place FROM mail_message
WHERE recipient = $1 AND status <> 'quarantined' AND status <> 'rejected' AND id IN (`+store.Marks(2, len(ids))+
		") ORDER BY seq", args...)
}

// Read records that the recipient has read a message, once; a repetition returns the first time.
// told reports whether the sender has a socket on this node for the receipt. Reading is no
// acknowledgement.
func (m *Mail) Read(ctx context.Context, who roster.Identity, id string) (at time.Time, told bool, err error) {
	notFound := fault.New(fault.NotFound, "There is no message %.128q for you.", id)
	if !amp.IDForm.MatchString(id) {
		return at, false, notFound
	}
	var from string
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var seq, read int64
		var thread, status string
		err := tx.QueryRow("SELECT seq, sender, thread, status, read_at FROM mail_message WHERE id = $1 AND recipient = $2",
			[]any{id, who.ID}, &seq, &from, &thread, &status, &read)
		if errors.Is(err, sql.ErrNoRows) || err == nil && (status == Held || status == Rejected) {
			return notFound
		}
		if err != nil {
			return err
		}
		// The first reading counts.
		if at = tx.Now(); read > 0 {
			at = time.UnixMicro(read).UTC()
			return nil
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindRead, Actor: who.Actor(), Subject: id,
			Trace: trace(thread), Body: transition{Seq: seq, Agent: who.ID, Sender: from},
		})
		return nil
	})
	return at, err == nil && from != "" && m.hub.Connected(from), err
}

// wasDelivered reports whether a message was delivered to the agent's queue at some time. Attachments
// are opened by it.
func (m *Mail) wasDelivered(ctx context.Context, agentID, id string) (bool, error) {
	var n int64
	err := m.core.DB.QueryRow(ctx,
		"SELECT count(*) FROM mail_message WHERE id = $1 AND recipient = $2 AND status <> "+
			"'quarantined' AND status <> 'rejected'", []any{id, agentID}, &n)
	return n > 0, err
}
