package rulebook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/scope"
)

// basis is what a decision that looked at counters was made of, so that it can be made again in the transaction
// that records it.
type basis struct {
	book   *Book
	rules  inForceFor
	recent *countReader // what it saw
	record Record       // as it was decided, with its event
	under  *handoff.Standing
}

// StaleError is the error of a decision that would have come out otherwise: others were recorded since it was made, and
// the counters that its rule looked at have moved on. Decision is how it comes out now. Settle deals with it.
type StaleError struct{ Decision Decision }

func (s *StaleError) Error() string {
	return fmt.Sprintf("the rule %q decides now, since others were decided meanwhile", s.Decision.Rule)
}

// Counted reports whether a rule has looked at a counter for any of the decisions, or a call is under a handoff, so that
// Recheck may come to another end.
func Counted(all []Decision) bool {
	for i := range all {
		if all[i].Counted() {
			return true
		}
	}
	return false
}

// Counted is that of one decision.
func (d *Decision) Counted() bool { return d.basis != nil }

// Recheck makes a decision exact. Call it in the transaction that records the decision, before anything is appended
// for it, and append the record of the decision that it returns. The counters that rules read are counted again with
// every entry before that one, those that were appended in the same transaction and are not committed yet included; the
// record then has these counts. If the policy comes to another end with them, the error is *StaleError, nothing may be
// written, and Settle begins anew. So of any number of calls at once a limit lets through exactly as many as it says,
// on any number of nodes: the ledger has one head.
//
// A decision whose rules read no counter is returned as it is. What the caller has made of the verdict since stays.
func (d Decision) Recheck(tx *ledger.Tx) (Decision, error) {
	if d.basis == nil {
		return d, nil
	}
	was := d.basis
	b := was.book
	b.pending.mu.Lock()
	defer b.pending.mu.Unlock()
	pending, err := b.countUpTo(tx, was.recent.at)
	if err != nil {
		return d, err
	}
	under, same, err := was.stillUnder(tx)
	if err != nil || same && was.holds(pending) {
		return d, err
	}
	record := was.record
	if !same {
		record.Delegation, record.Scopes = under.Delegation, scope.Common(record.Scopes, under.Scopes)
	}
	// The rules are bounded by their cost, and a caller that has gone does not change what they say.
	now := record.decide(context.Background(), b, was.rules, &countReader{at: was.recent.at, pending: pending}, kept(under))
	now.behalf = d.behalf
	if now.Action != was.record.Then || now.Rule != was.record.Rule || now.Layer != was.record.Layer ||
		now.Failed != was.record.Failed {
		return d, &StaleError{now}
	}
	d.Shadow, d.Record.Shadow, d.Record.Recent = now.Shadow, now.Record.Shadow, now.Record.Recent
	d.Record.Delegation, d.Record.Reserved = now.Record.Delegation, now.Record.Reserved
	return d, nil
}

// StillUnder fails with *StaleError if the handoff that the call is under has ended since it was decided. It is for a
// decision that waited for a person: the counters that its rule looked at have been decided about, and are not read again.
func (d Decision) StillUnder(tx *ledger.Tx) error {
	if d.basis == nil || d.basis.under == nil {
		return nil
	}
	was := d.basis
	under, same, err := was.stillUnder(tx)
	if err != nil || same {
		return err
	}
	record := was.record
	record.Delegation, record.Scopes = under.Delegation, scope.Common(record.Scopes, under.Scopes)
	now := record.decide(context.Background(), was.book, was.rules, &countReader{at: was.recent.at}, kept(under))
	now.behalf = d.behalf
	return &StaleError{now}
}

// stillUnder is how the call stands under its handoff in the transaction, and whether that is the same as before.
func (b *basis) stillUnder(tx *ledger.Tx) (handoff.Standing, bool, error) {
	if b.under == nil {
		return handoff.Standing{}, true, nil
	}
	return b.book.handoff.Recheck(tx, *b.under)
}

// holds reports whether the counters that were read are what they were. Then the policy says the same.
func (b *basis) holds(pending *tally) bool {
	exact := *b.recent
	exact.pending = pending
	for i := range exact.at.counters {
		c := &exact.at.counters[i]
		if c.workspace != "" && c.workspace != exact.of.Workspace {
			continue
		}
		was, read := exact.seen.Find(c.What, c.Window)
		if !read {
			continue
		}
		if n, reserved := exact.count(c.Count); n != was || reserved != exact.reserved.Count(c.What, c.Window) {
			return false
		}
	}
	return slices.Equal(exact.spend(b.record.Delegation.Hops), b.record.Delegation.Hops)
}

// maxRounds is how often a decision is made anew before it is given up. A limit settles in two rounds: each round is
// decided with what those before it wrote.
const maxRounds = 50

// Settle calls act with a decision, and again with another one while act fails with *StaleError. act writes, with Recheck,
// and has done nothing when it fails so. A decision that does not settle is an error, and nothing was done.
func Settle(d Decision, act func(Decision) error) error {
	for range maxRounds {
		err := act(d)
		stale, ok := errors.AsType[*StaleError](err)
		if !ok {
			return err
		}
		d = stale.Decision
	}
	return fault.New(fault.Overloaded,
		"Too many calls at once changed what the rule %q counts. Nothing was done; try again in a moment.", d.Rule)
}

// Write records a decision as an entry of its own (Entry) and waits until it is on disk. With *StaleError nothing was
// written.
func (d Decision) Write(ctx context.Context, l *ledger.Ledger, who roster.Identity, subject, trace string) error {
	return l.Write(ctx, func(tx *ledger.Tx) error {
		d, err := d.Recheck(tx)
		if err == nil {
			tx.Append(d.Entry(who, subject, trace))
		}
		return err
	})
}

// Body is the body of an entry with the decision as it is in the transaction (Recheck). encoded is the body as it was
// made before the transaction, which is right unless rules have counted; encode makes it with another record.
func (d Decision) Body(tx *ledger.Tx, encoded ledger.Body, encode func(Record) (ledger.Body, error)) (ledger.Body,
	error,
) {
	if d.basis == nil {
		return encoded, nil
	}
	exact, err := d.Recheck(tx)
	if err == nil {
		encoded, err = encode(exact.Record)
	}
	return encoded, err
}

// Reserve writes one of several decisions down before anything follows from it, so that it counts for all after it, if
// a rule has looked at counters for any of them. All of them have to hold then. choose says which one it is, and how
// it is recorded; it is called again when a decision has changed. Decision.Recorded says that it was written. With an
// error nothing was, and the decision is the last choice.
//
// What is allowed at prompt then has Record.Reserve, unless the events estimate nothing: what all of them may use counts
// until a Fact with its id as Release says that the call is over.
func Reserve(l *ledger.Ledger, all []Decision, choose func([]Decision) Decision, entry func(Decision) ledger.Event) (
	Decision, error,
) {
	if !Counted(all) {
		return choose(all), nil
	}
	return reserveCounted(l, slices.Clone(all), choose, entry)
}

// reserveCounted is Reserve of decisions that have looked at counters. It is apart, since its decision outlives the call
// in memory, which others need not pay for.
func reserveCounted(l *ledger.Ledger, all []Decision, choose func([]Decision) Decision, entry func(Decision) ledger.Event,
) (d Decision, err error) {
	err = Settle(all[0], func(Decision) error {
		d = choose(all)
		if !Counted(all) { // any more
			return nil
		}
		at, exact := 0, d
		// It is not interrupted when the caller goes away: what it asked for may be under way.
		err := l.Write(context.Background(), func(tx *ledger.Tx) (err error) {
			for at = range all {
				if _, err := all[at].Recheck(tx); err != nil {
					return err
				}
			}
			if exact, err = d.Recheck(tx); err == nil {
				exact.reserve(all)
				tx.Append(entry(exact))
			}
			return err
		})
		if stale, ok := errors.AsType[*StaleError](err); ok {
			all[at] = stale.Decision
		}
		if err == nil {
			d, d.Recorded = exact, true
		}
		return err
	})
	return d, err
}

// countFor bounds reading the entries that a tally lacks inside of a transaction, for which all other writers wait.
const countFor = 10 * time.Second

// countUpTo brings a tally up to where the transaction begins, and counts what the transaction has appended so far
// apart. The tally is shared with the goroutine that follows the ledger; what it gets here is committed, so it stays
// right whatever becomes of the transaction. (A transaction that only guesses where it begins may be behind the
// tally. It cannot be committed then, and runs again.)
func (b *Book) countUpTo(tx *ledger.Tx, t *tally) (*tally, error) {
	if seq := t.upTo(); seq < tx.Begun() {
		ctx, cancel := context.WithTimeout(context.Background(), countFor)
		defer cancel()
		for seq < tx.Begun() {
			entries, err := b.ledger.Next(ctx, seq)
			if err != nil {
				return nil, err
			}
			if len(entries) == 0 {
				return nil, fmt.Errorf("the entries from %d to %d cannot be read to be counted", seq+1, tx.Begun())
			}
			for i := range entries {
				b.count(t, &entries[i])
			}
			seq = entries[len(entries)-1].Seq
		}
	}
	return b.pending.count(b, tx.Appended(), t), nil
}

// pending counts what a transaction has appended and not committed. The functions of a transaction run one after
// another, so each goes on where the one before it has stopped, and entries are read once.
type pending struct {
	mu     sync.Mutex
	beside *tally // whose counters it has
	counts *tally // of the entries, nil for none
	n      int    // how many entries
	salt   []byte // of the last one, by which it is known: no two entries have the same
}

// count counts the entries that a transaction has appended, for the counters of a tally. The caller holds the lock.
func (p *pending) count(b *Book, appended []*ledger.Entry, beside *tally) *tally {
	// Another transaction, or one that has dropped a function with what it appended.
	if p.beside != beside || p.n > len(appended) || p.n > 0 && !bytes.Equal(p.salt, appended[p.n-1].Salt) {
		p.beside, p.counts, p.n = beside, nil, 0
	}
	if p.counts == nil {
		p.counts = beside.aside()
	}
	for ; p.n < len(appended); p.n++ {
		b.count(p.counts, appended[p.n])
		p.salt = appended[p.n].Salt
	}
	return p.counts
}
