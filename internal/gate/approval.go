package gate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Approval is a person's approval of exactly one thing, or the question that still waits for
// it. A protocol makes one when a rule wants a person: Open opens a gate and remembers for
// what, so that the same agent asking for the same thing in the same place (a retry, a poll,
// a second process) finds that gate and opens no other. When the gate is approved, each
// release of what was held takes one of its uses (Use). It ends when its uses are taken, when
// its window after the decision is over, or when it is forgotten. A later request for the
// same thing then opens a new gate, whose approval takes its place.
//
// What always holds: there is at most one for an agent, a key and a digest. It is valid only if
// its gate was approved, only within its window, and only for what has its digest. It is used
// at most as often as it has uses, however many callers try at once, on however many nodes.
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

// Asked is what an approval is for. It is compared byte by byte, so a request that differs in
// anything that the digest covers needs an approval of its own.
type Asked struct {
	Agent string // the id of the agent that asks
	// Key is where it asks: the name of the protocol and, where the protocol has one, the id
	// of what the approval is bound to, such as a session.
	Key    string
	Digest string // the SHA-256, in hex, of exactly what is asked
}

// Unlimited are the uses of an approval that only its window ends.
const Unlimited = -1

// UsesOf are the uses of a stored entry. Those of before uses could be counted say whether there is
// one, and else there are any number.
func UsesOf(uses int64, once bool) int64 {
	switch {
	case uses != 0:
		return uses
	case once:
		return 1
	}
	return Unlimited
}

// ErrSpent says that an approval was valid a moment ago and no longer is: another caller used
// it, its window is over, or another approval has taken its place. Find or open one again.
var ErrSpent = errors.New("the approval was used meanwhile, or is too old")

// Spent reports whether an approval that was decided at that time can no longer be used: its
// uses are taken, or its window is over.
func (a *Approval) Spent(decided, now time.Time) bool {
	return a.Uses == 0 || a.Window > 0 && !now.Before(decided.Add(a.Window))
}

// forgotten reports whether the time is over in which a client may come back for it.
func (a *Approval) forgotten(now time.Time) bool { return !a.Until.IsZero() && a.Until.Before(now) }

// Used is the approval with one use less.
func (a *Approval) Used() *Approval {
	left := *a
	if left.Uses > 0 {
		left.Uses--
	}
	return &left
}

// Returned is the approval with one use more, because what it was used for has not happened.
func (a *Approval) Returned() *Approval {
	more := *a
	if more.Uses >= 0 {
		more.Uses++
	}
	return &more
}

const selectApproval = "SELECT agent, key, digest, gate, good_for, uses, until_at FROM gate_approval WHERE "

// scanApproval reads a row of gate_approval, whose times are in microseconds and 0 for never.
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

// Find is Asked.Find outside of a transaction, for callers that want to wait for the gate.
// Only Asked.Use tells whether the approval can be used, because only a transaction does.
func (g *Gates) Find(ctx context.Context, a Asked) (*Approval, error) {
	return a.find(func(text string, args []any, dest ...any) error { return g.db.QueryRow(ctx, text, args, dest...) })
}

// Remembered lists the approvals of a key that have a time to be forgotten, later than at. It
// is for a protocol that keeps its own in memory.
func (g *Gates) Remembered(ctx context.Context, key string, at time.Time) ([]Approval, error) {
	return store.All(g.db.Reading(ctx), scanApproval, selectApproval+"until_at > 0 AND until_at > $1 AND key = $2",
		at.UnixMicro(), key)
}

// Open opens an approval in the caller's transaction: record appends the protocol's entry, whose
// apply function calls SetApproval, and opens the gate. It returns the approval that is then
// current. If another caller was faster, that is the other one, and nothing is recorded: one
// that has uses left, is not forgotten, and whose gate is not past. past is the gate that the
// caller has found to be spent, "" for none.
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
// is recorded, if the approval is no longer valid. What was held may be released only after
// the transaction has committed.
func (g *Gates) Use(tx *ledger.Tx, a Asked, by *Gate, record func()) error {
	found, err := a.Find(tx)
	switch {
	case err != nil:
		return err
	case found == nil || found.Gate != by.ID || by.Status != Approved || found.Spent(*by.ResolvedAt, tx.Now()):
		return ErrSpent
	}
	if err := g.proveApproval(tx.Prover(), found, by); err != nil {
		return err
	}
	record()
	return nil
}

// ReadApproval reads the approval that a gate has given for what is asked from a protocol's entries, with the uses
// that are left; nil if they have none.
type ReadApproval func(p ledger.Prover, a Asked, by *Gate) (*Approval, error)

// ProveApprovals registers how the approvals of a protocol are proved. Call it before Run; the map is not locked.
func (g *Gates) ProveApprovals(protocol string, read ReadApproval) {
	if g.readApproval[protocol] != nil {
		return
	}
	if g.readApproval == nil {
		g.readApproval = map[string]ReadApproval{}
	}
	g.readApproval[protocol] = read
}

// proveApproval checks that the entries of the protocol say what the row says. Times to forget it by are not
// compared: they make it good for less.
func (g *Gates) proveApproval(p ledger.Prover, found *Approval, by *Gate) error {
	read := g.readApproval[by.Origin.Protocol]
	if read == nil {
		return fmt.Errorf("nobody proves the approvals of %s", by.Origin.Protocol)
	}
	proven, err := read(p, found.Asked, by)
	if err != nil {
		return err
	}
	if proven == nil || proven.Asked != found.Asked || proven.Gate != found.Gate || proven.Window != found.Window ||
		proven.Uses != found.Uses {
		return p.Contradicts("gate_approval", found.Gate, "the ledger has no such approval by the gate %s", found.Gate)
	}
	return nil
}

// Held is a number before all entries that a protocol has recorded about the gate: it records what is held in the
// transaction that opens the gate, with a few entries at most.
func (g *Gate) Held() int64 { return g.opened - int64(len(g.Unshown)) - 20 }

// SetApproval stores an approval in place of an earlier one for the same request, and drops
// those that are forgotten at that time. It is for apply functions, so at is the time of the
// entry and never that of a clock.
func SetApproval(tx *store.Tx, a *Approval, at time.Time) {
	var until int64
	if !a.Until.IsZero() {
		until = a.Until.UnixMicro()
	}
	tx.Exec(`INSERT INTO gate_approval (agent, key, digest, gate, good_for, uses, until_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (agent, key, digest) DO UPDATE SET gate = excluded.gate, good_for = excluded.good_for,
  uses = excluded.uses, until_at = excluded.until_at`,
		a.Agent, a.Key, a.Digest, a.Gate, a.Window.Microseconds(), a.Uses, until)
	if until > 0 { // protocols whose approvals stay for ever drop nobody's
		tx.Exec("DELETE FROM gate_approval WHERE until_at > 0 AND until_at < $1", at.UnixMicro())
	}
}

// TakeUse takes one use of the approval that a gate has given; unlimited uses stay so. It is
// for apply functions.
func TakeUse(tx *store.Tx, gateID string) {
	tx.Exec("UPDATE gate_approval SET uses = uses - 1 WHERE gate = $1 AND uses > 0", gateID)
}

// ReturnUse gives back one use of the approval that a gate has given, because what it was used for
// has not happened. It is for apply functions.
func (a Asked) ReturnUse(tx *store.Tx, gateID string) {
	tx.Exec("UPDATE gate_approval SET uses = uses + 1 WHERE agent = $1 AND key = $2 AND digest = $3 AND gate = $4 "+
		"AND uses >= 0", a.Agent, a.Key, a.Digest, gateID)
}

// Unused is an approval that nobody has taken yet. Whoever waits takes it within a moment, so the one
// who asked has gone.
type Unused struct {
	Uses  int64      `json:"uses"`            // how often it can be used
	Until *time.Time `json:"until,omitempty"` // when it lapses, or has; nil for never
}

// TakingTime is how long an agent that waits takes at most, or one that asks again every few seconds.
const TakingTime = 3 * time.Second

// unused is the approval that a gate has given, nil if somebody has taken a use of it, or nobody takes
// it by asking.
func (g *Gates) unused(ctx context.Context, found *Gate) (*Unused, error) {
	if found.Status != Approved || found.opening.Uses <= 0 {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	var u Unused
	var window int64
	err := g.db.QueryRow(ctx, "SELECT uses, good_for FROM gate_approval WHERE gate = $1 AND uses > 0 AND uses = $2",
		[]any{found.ID, found.opening.Uses}, &u.Uses, &window)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // as above
	}
	if window > 0 {
		until := found.ResolvedAt.Add(time.Duration(window) * time.Microsecond)
		u.Until = &until
	}
	return &u, err
}

// AwaitUse waits a moment for the agent to take what was just approved, and notes in the gate if it
// does not. It is for telling the person who has approved.
func (g *Gates) AwaitUse(ctx context.Context, found *Gate) (err error) {
	waiting, cancel := context.WithTimeout(ctx, TakingTime)
	defer cancel()
	for {
		if found.Unused, err = g.unused(ctx, found); err != nil || found.Unused == nil {
			return err
		}
		select {
		case <-time.After(TakingTime / 50):
		case <-waiting.Done():
			return nil
		}
	}
}

// UnusedNote says to the person who approved that nobody has taken it; "" if somebody has.
func (g *Gate) UnusedNote() string {
	switch {
	case g.Unused == nil:
		return ""
	case g.Unused.Until == nil:
		return "Nobody waits for it: the agent has gone. The approval is used if the agent asks for the same again."
	}
	return "Nobody waits for it: the agent has gone. The approval is used if the agent asks for the same again until " +
		g.Unused.Until.Format(time.RFC3339) + "."
}
