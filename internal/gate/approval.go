package gate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Approval is a person's yes to exactly one thing, or the question that still waits for it. A
// protocol makes one when a rule wants a person for what an agent asks: Open opens a gate and
// remembers for what, so that the same agent asking for the same thing in the same place (a
// retry, a poll, a second process) finds that gate and opens no other. When the gate is
// approved, what the protocol lets go takes one of its uses (Use). It ends when its uses are
// taken, when its window after the decision is over, or when it is forgotten; who asks for the
// same again then opens a new gate, whose approval takes its place.
//
// What always holds: there is at most one for an agent, a key and a digest. It is good only if
// its gate was approved, only within its window, and only for what has its digest. It is used
// at most as often as it has uses, whoever tries at the same time and on however many nodes.
//
// The table follows from the protocols' own entries, as that of timers does: their apply
// functions call SetApproval and TakeUse.
type Approval struct {
	Asked
	Gate string // the id of the gate that decides
	// Window is how long it is good after the decision; zero for as long as it has uses.
	Window time.Duration
	// Uses is how often it can still be used; Unlimited for any number within the window.
	Uses int64
	// Until is when it is forgotten, whatever was decided; zero for never.
	Until time.Time
}

// Asked is what an approval is for. Two that differ in one byte are two.
type Asked struct {
	Agent string // the id of the agent that asks
	// Key is where it asks: the name of the protocol and, where the protocol has one, the id
	// of what the approval is bound to, such as a session.
	Key    string
	Digest string // the SHA-256, in hex, of exactly what is asked
}

// Unlimited are the uses of an approval that only its window ends.
const Unlimited = -1

// ErrSpent says that an approval was good a moment ago and is not now: somebody else has used
// it, its window is over, or another has taken its place. Ask anew.
var ErrSpent = errors.New("the approval was used meanwhile, or is too old")

// Spent reports whether the decision about an approval stands no more: its uses are taken, or
// its window is over.
func (a *Approval) Spent(decided, now time.Time) bool {
	return a.Uses == 0 || a.Window > 0 && !now.Before(decided.Add(a.Window))
}

// forgotten reports whether nobody comes back for it any more.
func (a *Approval) forgotten(now time.Time) bool { return !a.Until.IsZero() && a.Until.Before(now) }

// Used is the approval with one use less.
func (a *Approval) Used() *Approval {
	left := *a
	if left.Uses > 0 {
		left.Uses--
	}
	return &left
}

const selectApproval = "SELECT agent, key, digest, gate, good_for, uses, until_at FROM gate_approval WHERE "

func scanApproval(scan store.Scan) (a Approval, err error) {
	var window, until int64
	err = scan(&a.Agent, &a.Key, &a.Digest, &a.Gate, &window, &a.Uses, &until)
	a.Window = time.Duration(window) * time.Microsecond
	if until > 0 {
		a.Until = time.UnixMicro(until).UTC()
	}
	return a, err
}

// find reads the approval for what is asked, nil when there is none.
func (a Asked) find(query func(text string, args []any, dest ...any) error) (*Approval, error) {
	found, err := scanApproval(func(dest ...any) error {
		return query(selectApproval+"agent = $1 AND key = $2 AND digest = $3", []any{a.Agent, a.Key, a.Digest}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return &found, err
}

// Find reads the approval for what is asked, nil when there is none.
func (a Asked) Find(tx *ledger.Tx) (*Approval, error) { return a.find(tx.QueryRow) }

// Find is Asked.Find outside of a transaction, for who wants to wait for the gate. Whether the
// approval can be used is known by Asked.Use alone.
func (g *Gates) Find(ctx context.Context, a Asked) (*Approval, error) {
	return a.find(func(text string, args []any, dest ...any) error { return g.db.QueryRow(ctx, text, args, dest...) })
}

// Remembered are the approvals of a key that are forgotten some day and not before the moment,
// for a protocol that keeps its own in memory.
func (g *Gates) Remembered(ctx context.Context, key string, at time.Time) ([]Approval, error) {
	return store.All(g.db.Reading(ctx), scanApproval, selectApproval+"until_at > 0 AND until_at > $1 AND key = $2",
		at.UnixMicro(), key)
}

// Open opens an approval in the caller's transaction: record appends the protocol's entry, whose
// apply function calls SetApproval, and opens the gate. It answers with the approval that then
// stands. That is another one, and nothing is recorded, when somebody else was faster: one that
// still has uses, is not forgotten, and whose gate is not past, which is the one that the
// caller has found to stand no more, "" for none.
func (a *Approval) Open(tx *ledger.Tx, past string, record func()) (*Approval, error) {
	found, err := a.Find(tx)
	if err != nil {
		return nil, err
	}
	if found != nil && found.Gate != past && found.Uses != 0 && !found.forgotten(tx.Now()) {
		return found, nil
	}
	record()
	return a, nil
}

// Use takes one use of the approval that a gate has given, in the caller's transaction: record
// appends the protocol's entry, whose apply function calls TakeUse. It is ErrSpent, and nothing
// is recorded, when the approval is not good any more.
func (a Asked) Use(tx *ledger.Tx, by *Gate, record func()) error {
	found, err := a.Find(tx)
	switch {
	case err != nil:
		return err
	case found == nil || found.Gate != by.ID || by.Status != Approved || found.Spent(*by.ResolvedAt, tx.Now()):
		return ErrSpent
	}
	record()
	return nil
}

// SetApproval puts an approval in the place of the one that there was for the same, and drops
// those that are forgotten at the moment. It is for apply functions.
func SetApproval(tx *store.Tx, a *Approval, at time.Time) {
	var until int64
	if !a.Until.IsZero() {
		until = a.Until.UnixMicro()
	}
	tx.Exec(`INSERT INTO gate_approval (agent, key, digest, gate, good_for, uses, until_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (agent, key, digest) DO UPDATE SET gate = excluded.gate, good_for = excluded.good_for, uses = excluded.uses, until_at = excluded.until_at`,
		a.Agent, a.Key, a.Digest, a.Gate, a.Window.Microseconds(), a.Uses, until)
	if until > 0 { // protocols whose approvals stay for ever drop nobody's
		tx.Exec("DELETE FROM gate_approval WHERE until_at > 0 AND until_at < $1", at.UnixMicro())
	}
}

// TakeUse takes one use of the approval that a gate has given. It is for apply functions.
func TakeUse(tx *store.Tx, gateID string) {
	tx.Exec("UPDATE gate_approval SET uses = uses - 1 WHERE gate = $1 AND uses > 0", gateID)
}
