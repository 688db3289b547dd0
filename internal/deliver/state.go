package deliver

import (
	"strings"
	"unicode/utf8"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// The states of a delivery. Only Resend leads back from Dead to Pending.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead" // given up; Resend brings it back
)

// Statuses are all states, for the filter of operators.
var Statuses = []string{Pending, Delivered, Dead}

// The kinds of entries. The subject is the id of the delivery. They are stored, and never change.
const (
	kindQueued    = "delivery.queued"
	kindSucceeded = "delivery.succeeded"
	kindFailed    = "delivery.failed"
	kindGivenUp   = "delivery.given_up"
	kindResent    = "delivery.resent"
)

// queued is the body of delivery.queued. The payload is stored here and nowhere else: as Text if it is
// text, so that people can read the ledger, else as Bytes.
type queued struct {
	Sender      string            `json:"sender"`
	Target      string            `json:"target"`
	Method      string            `json:"method"`
	Header      map[string]string `json:"headers"`
	Receiver    string            `json:"receiver"`
	Generation  int               `json:"generation"`
	OrderKey    string            `json:"order_key"`
	NotBefore   int64             `json:"not_before,omitzero"`  // microseconds
	GiveUpAfter int64             `json:"give_up_after_micros"` // from not_before, or from when it was queued
	Text        string            `json:"text,omitzero"`
	Bytes       []byte            `json:"bytes,omitzero"`
}

// setPayload stores a payload as text if both databases can, else as bytes.
func (q *queued) setPayload(p []byte) {
	if utf8.Valid(p) && !strings.ContainsRune(string(p), 0) {
		q.Text = string(p)
	} else {
		q.Bytes = p
	}
}

// payload is the payload byte for byte.
func (q *queued) payload() []byte {
	if q.Bytes != nil {
		return q.Bytes
	}
	return []byte(q.Text)
}

// tried is the body of delivery.succeeded, failed and given_up: one try and its result.
type tried struct {
	Attempt int64  `json:"attempt"`
	At      int64  `json:"at"` // microseconds, when the try began
	TookMS  int64  `json:"took_ms"`
	Status  int    `json:"status,omitzero"` // the receiver's HTTP status, 0 if there was no answer
	Class   string `json:"class,omitzero"`
	Text    string `json:"text,omitzero"`
	NextAt  int64  `json:"next_at,omitzero"` // microseconds, for failed
	// Reference is the receiver's name for what it got, for succeeded.
	Reference string `json:"reference,omitzero"`
}

// empty is the body of delivery.resent.
type empty struct{}

// Projection is how entries change the tables. The tables of the runners are not part of it.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "deliver",
		Tables: ledger.Tables("delivery (id)", "delivery_lane (order_key)"),
		Apply: map[string]ledger.Apply{
			kindQueued:    ledger.ApplyBody(applyQueued),
			kindSucceeded: applyEnded(Delivered),
			kindFailed:    ledger.ApplyBody(applyFailed),
			kindGivenUp:   applyEnded(Dead),
			kindResent:    applyResent,
		},
	}
}

// applyQueued adds a delivery at the end of its lane. due_at is 0 for one that is due at once, and not
// the entry's time: times of entries never go back, so after the wall clock was set back that time
// would be in the future.
func applyQueued(tx *store.Tx, e *ledger.Entry, b *queued) {
	at := e.At.UnixMicro()
	tx.Exec(`INSERT INTO delivery (id, workspace, status, sender, target, order_key, entry, place, attempts, tries,
due_at, since, queued_at, give_up_after, give_up_at, ended_at, last_error)
VALUES ($1, $2, 'pending', $3, $4, $5, $6, $6, 0, 0, $7, 0, $8, $9, $10, 0, '')`,
		e.Subject, e.Workspace, b.Sender, b.Target, b.OrderKey, e.Seq, b.NotBefore, at, b.GiveUpAfter,
		// A delivery that has to wait does not lose its time by it.
		max(at, b.NotBefore)+b.GiveUpAfter)
	tx.Exec("INSERT INTO delivery_lane (order_key, delivery, tries, due_at, since) VALUES ($1, $2, "+
		"0, $3, 0) ON CONFLICT (order_key) DO NOTHING",
		b.OrderKey, e.Subject, b.NotBefore)
}

// applyFailed notes a failed try in the delivery, and in its lane if it is the first there.
func applyFailed(tx *store.Tx, e *ledger.Entry, b *tried) {
	tx.Exec("UPDATE delivery SET attempts = $2, tries = tries + 1, due_at = $3, since = $4, "+
		"last_error = $5 WHERE id = $1 AND status = 'pending'",
		e.Subject, b.Attempt, b.NextAt, b.At, b.Text)
	tx.Exec("UPDATE delivery_lane SET tries = tries + 1, due_at = $2, since = $3 WHERE order_key = (SELECT order_key "+
		"FROM delivery WHERE id = $1) AND delivery = $1",
		e.Subject, b.NextAt, b.At)
}

// applyEnded ends a delivery and makes the next one the first of its lane. Only the first is ever tried,
// so the next one has a greater place.
func applyEnded(status string) ledger.Apply {
	return ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *tried) {
		tx.Exec("UPDATE delivery SET status = $2, attempts = $3, due_at = 0, since = 0, ended_at = $4, last_error = $5, "+
			"reference = $6 WHERE id = $1 AND status = 'pending'",
			e.Subject, status, b.Attempt, e.At.UnixMicro(), b.Text, b.Reference)
		tx.Exec("DELETE FROM delivery_lane WHERE order_key = (SELECT order_key FROM "+
			"delivery WHERE id = $1) AND delivery = $1", e.Subject)
		tx.Exec(`INSERT INTO delivery_lane (order_key, delivery, tries, due_at, since)
SELECT order_key, id, tries, due_at, since FROM delivery
WHERE order_key = (SELECT order_key FROM delivery WHERE id = $1) AND status = 'pending'
AND place > (SELECT place FROM delivery WHERE id = $1)
ORDER BY place LIMIT 1 ON CONFLICT (order_key) DO NOTHING`, e.Subject)
	})
}

// applyResent revives a dead delivery at the end of its lane, with its full time, or makes one that waits
// for its next try due at once.
func applyResent(tx *store.Tx, e *ledger.Entry) error {
	at := e.At.UnixMicro()
	tx.Exec(`UPDATE delivery SET status = 'pending', place = $2, tries = 0, ended_at = 0,
give_up_at = CAST($3 AS bigint) + give_up_after
WHERE id = $1 AND status = 'dead'`, e.Subject, e.Seq, at)
	tx.Exec("UPDATE delivery SET due_at = 0, since = 0 WHERE id = $1 AND status = 'pending'", e.Subject)
	tx.Exec("UPDATE delivery_lane SET due_at = 0, since = 0 WHERE order_key = (SELECT order_key "+
		"FROM delivery WHERE id = $1) AND delivery = $1", e.Subject)
	tx.Exec(`INSERT INTO delivery_lane (order_key, delivery, tries, due_at, since)
SELECT order_key, id, tries, due_at, since FROM delivery WHERE id = $1 AND status = 'pending'
ON CONFLICT (order_key) DO NOTHING`, e.Subject)
	return nil
}
