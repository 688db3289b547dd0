package mail

import (
	"context"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

const (
	// sweepEvery is the pause between two rounds. Polls skip expired messages anyway.
	sweepEvery = 5 * time.Second
	// sweepStep bounds one transaction, so that senders do not wait for a sweep.
	sweepStep = 500
	// sweepBlobsEvery is the number of rounds, about an hour, between two looks for files that
	// nothing refers to.
	sweepBlobsEvery = 720
)

// sweep calls Sweep again and again until ctx ends. It runs on one node at a time, which holds
// the lease mail.sweep.
func (m *Mail) sweep(ctx context.Context) error {
	for round := 0; ctx.Err() == nil; round++ {
		if err := m.Sweep(ctx); err != nil {
			return err
		}
		if round%sweepBlobsEvery == 0 {
			if err := m.Attachments.SweepBlobs(ctx); err != nil {
				return err
			}
		}
		clock.Pause(ctx, sweepEvery)
	}
	return nil
}

// Sweep ends expired messages, erases payloads past mail.keep, and ends expired attachments, in
// steps, until nothing is due. It is safe to run twice: an ended message is not due.
func (m *Mail) Sweep(ctx context.Context) error {
	attachments := func(ctx context.Context) (int, error) { return m.Attachments.Expire(ctx, sweepStep) }
	// Expired messages end before payloads are erased: an ended message starts its time of mail.keep.
	for _, step := range []func(context.Context) (int, error){m.expire, m.erase, attachments} {
		for {
			n, err := step(ctx)
			if err != nil {
				return err
			}
			if n < sweepStep {
				break
			}
		}
	}
	return nil
}

// due is a message that a step of the sweep has to end or to erase.
type due struct {
	id, workspace, thread, status string
	ended                         int64
	body                          transition
}

// expire ends one step of expired messages, and returns how many.
func (m *Mail) expire(ctx context.Context) (n int, err error) {
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		all, err := readDue(tx,
			`SELECT m.id, m.workspace, m.thread, m.status, m.ended_at, q.seq, q.agent, q.place FROM mail_queue q
JOIN mail_message m ON m.seq = q.seq
WHERE q.expires_at <= $1 ORDER BY q.expires_at LIMIT $2`, tx.Now())
		for _, d := range all {
			tx.Append(ledger.Event{
				Workspace: d.workspace, Kind: kindExpired, Actor: "system", Subject: d.id,
				Trace: trace(d.thread), Body: d.body,
			})
		}
		n = len(all)
		return err
	})
	return n, err
}

// erase removes the bodies of one step of messages that ended longer ago than Keep, and returns
// how many. message.erased repeats their Meta in the same transaction, so that a rebuild does
// not need the bodies.
func (m *Mail) erase(ctx context.Context) (n int, err error) {
	if m.Keep < 0 {
		return 0, nil // for ever
	}
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		all, err := readDue(tx,
			`SELECT m.id, m.workspace, m.thread, m.status, m.ended_at, m.seq, m.recipient, 0 FROM mail_message m
WHERE m.ended_at > 0 AND NOT m.erased AND m.ended_at <= $1 ORDER BY m.ended_at LIMIT $2`, tx.Now().Add(-m.Keep))
		if n = len(all); err != nil || n == 0 {
			return err
		}
		var body erased
		var seqs []int64
		for _, d := range all {
			// From the entry and not from the table, which lacks the key and the envelope.
			meta, err := readMeta(tx, d.body.Seq)
			if err != nil {
				return err
			}
			meta.Files = nil // names of files are words of the sender, too
			body.Messages = append(body.Messages, erasedMessage{d.body.Seq, d.status, d.ended, meta})
			seqs = append(seqs, d.body.Seq)
		}
		// The record and its hash stay in the ledger, so its proofs hold.
		tx.Erase(seqs...)
		tx.Append(ledger.Event{Kind: kindErased, Actor: "system", Body: body})
		return nil
	})
	return n, err
}

// readDue reads one step of messages that are due, by a query for up to a time and a limit.
func readDue(tx *ledger.Tx, query string, upTo time.Time) ([]due, error) {
	return store.All(tx.Query, func(scan store.Scan) (d due, err error) {
		err = scan(&d.id, &d.workspace, &d.thread, &d.status, &d.ended, &d.body.Seq, &d.body.Agent, &d.body.Place)
		return d, err
	}, query, upTo.UnixMicro(), sweepStep)
}

// readMeta reads the Meta of a message from its entry, while the body is still there.
func readMeta(tx *ledger.Tx, seq int64) (Meta, error) {
	var row ledger.Row
	if err := tx.QueryRow("SELECT "+ledger.EntryColumns+" FROM "+ledger.EntryTable+" WHERE e.seq = $1", []any{seq},
		row.After()...); err != nil {
		return Meta{}, err
	}
	e, err := row.Entry()
	if err != nil {
		return Meta{}, err
	}
	var b routed
	err = e.Decode(&b)
	if b.Meta.Once.Key != "" {
		b.Meta.Once.At = e.At.UnixMicro()
	}
	return b.Meta, err
}
