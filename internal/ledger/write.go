package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/store"
)

const (
	// maxBatch is how many functions share a transaction at the most.
	maxBatch = 512
	// maxBatchBytes is when a transaction takes no further function.
	maxBatchBytes = 16 << 20
	// gatherFor is how long a transaction waits for as many callers as the last one had,
	// fewCallers at the most.
	gatherFor  = 300 * time.Microsecond
	fewCallers = 16
	// maxQueue is how many functions wait at the most; more are refused, so that
	// callers hear at once that the database cannot follow.
	maxQueue = 4096
	// commitTimeout bounds a transaction, so that a database that stopped
	// answering does not hold callers for ever.
	commitTimeout = 20 * time.Second
	// settleTimeout is how long an unknown outcome is looked into.
	settleTimeout = 15 * time.Second
)

// request is one caller's function and its answer. The caller and the committer race for
// state: whoever changes it from waiting first decides whether the function runs. done has
// room for one answer, so the committer never blocks on a caller that has gone.
type request struct {
	fn    func(*Tx) error
	state atomic.Int32 // waiting, taken or abandoned
	done  chan error
}

const (
	waiting int32 = iota
	taken
	abandoned
)

// Write runs fn in a transaction with others and returns when what it appended is
// on disk, or with the error why nothing of it is. LED-3: success means durable.
//
// fn may run more than once, and in another goroutine than the caller's. What it sets
// outside of tx holds only when Write returns nil, and is then that of its last run.
// Do slow work before: every other caller of the batch waits for fn.
//
// When ctx ends before fn was begun, nothing happens and the error says so. After
// that Write waits for the outcome whatever becomes of ctx, so that a caller never
// hears "failed" of something that was committed. The one exception is a database
// that breaks off during the commit and stays away: fault.OutcomeUnknown, with the
// sequence number to look for (LED-4).
func (l *Ledger) Write(ctx context.Context, fn func(*Tx) error) error {
	if err := l.refusal(); err != nil {
		return err
	}
	r := &request{fn: fn, done: make(chan error, 1)}
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	select {
	case l.queue <- r:
	case <-l.stopped:
		return errStopping()
	default:
		return fault.New(fault.Overloaded,
			"Too many writes are waiting for the database. Nothing was changed; try again in a moment.")
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, abandoned) {
			return cancelled(ctx)
		}
		return <-r.done
	case <-l.stopped:
		// The committer has answered everything it took.
		select {
		case err := <-r.done:
			return err
		default:
			return errStopping()
		}
	}
}

func cancelled(ctx context.Context) error {
	return fault.Wrap(context.Cause(ctx), fault.Cancelled, "The call ended before its turn came. Nothing was changed.")
}

func errStopping() error {
	return fault.New(fault.Stopping, "The server is stopping. Nothing was changed; try again in a moment.")
}

// Tx is what a write function sees: it reads the state as the functions before it
// have left it, and appends. LED-2: it has no way to change a table. It is not for use
// after the function has returned, nor in another goroutine.
type Tx struct {
	l        *Ledger
	st       *store.Tx
	now      int64 // microseconds
	head     head
	appended []*Entry
	err      error // the first thing that went wrong, whether or not fn noticed
}

// head is the last entry of the ledger: its number, and its time in microseconds.
type head struct{ seq, at int64 }

// Now is the moment of the transaction.
func (tx *Tx) Now() time.Time { return time.UnixMicro(tx.now).UTC() }

// Query reads. State is changed by appending an entry and by nothing else, so
// anything but a SELECT is refused.
func (tx *Tx) Query(query string, args ...any) (store.Rows, error) {
	if !readOnly(query) {
		tx.fail(fault.New(fault.UnrecordedWrite,
			"A write function tried to change a table directly. Append an entry and let its projection do it."))
	}
	if tx.err != nil {
		return nil, tx.err
	}
	return tx.st.Query(query, args...)
}

// QueryRow reads one row into dest; no row is sql.ErrNoRows.
func (tx *Tx) QueryRow(query string, args []any, dest ...any) error {
	if !readOnly(query) {
		_, err := tx.Query(query)
		return err
	}
	return tx.st.QueryRow(query, args, dest...)
}

// readOnly: neither database can change a table in a statement that begins with
// SELECT; what could begins with WITH, and we do without it.
func readOnly(query string) bool {
	query = strings.TrimSpace(query)
	end := strings.IndexFunc(query, unicode.IsSpace)
	return end > 0 && strings.EqualFold(query[:end], "SELECT")
}

// Append adds an entry, applies it to the state, and returns its sequence number,
// which holds if Write returns nil. After the first error it does nothing, so that a
// write function need not check each call; Write then returns that error.
func (tx *Tx) Append(ev Event) int64 {
	if tx.err != nil {
		return 0
	}
	seq, at := tx.head.seq+1, max(tx.now, tx.head.at)
	e, err := seal(ev, seq, at, tx.l.clean)
	if err != nil {
		tx.fail(err)
		return 0
	}
	tx.st.Exec("INSERT INTO ledger_entry (seq, workspace, kind, subject, trace, record, salt, "+
		"body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		seq, e.Workspace, e.Kind, e.Subject, e.Trace, e.Record, e.Salt, e.Body)
	tx.head = head{seq, at}
	tx.appended = append(tx.appended, e)
	if err := tx.l.projections.run(tx.st, e); err != nil {
		tx.fail(err)
	}
	return seq
}

// Healed is the kind of the entry at which time steps back (LED-36).
const Healed = "clock.healed"

// HealedBody is its body: the time of the entry before it, in microseconds.
type HealedBody struct {
	Was int64 `json:"was"`
}

// Heal steps time back to the clock, for the rest of the batch too, if the last entry is at least so much ahead of it.
func (tx *Tx) Heal(least time.Duration) (ahead time.Duration) {
	now, was := tx.l.now().UnixMicro(), tx.head.at
	if ahead = time.Duration(was-now) * time.Microsecond; ahead < least {
		return 0
	}
	tx.now, tx.head.at = now, now
	tx.Append(Event{Kind: Healed, Actor: "system", Body: HealedBody{was}})
	return ahead
}

// fail keeps the first error: what follows it is usually its consequence.
func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// commitLoop is the one goroutine that writes. It ends when ctx does, after
// everything that was accepted has been answered.
func (l *Ledger) commitLoop(ctx context.Context) {
	defer close(l.stopped)
	var batch []*request
	last := 0
	for {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		case <-ctx.Done():
			if len(l.queue) == 0 {
				return
			}
			continue
		}
		batch = l.gather(batch, last)
		last = len(batch)
		_ = l.commitAll(take(batch)) // everybody has been answered
		clear(batch)
		batch = batch[:0]
	}
}

// gather takes what is waiting. Goroutines that are about to write get the processor first,
// and 0.3 ms if there are few of them: callers that were answered in the last batch are about
// to come again, and a transaction for several costs hardly more than one for one. A caller
// that is alone never waits, since the last batch had one caller too.
func (l *Ledger) gather(batch []*request, last int) []*request {
	runtime.Gosched()
	for len(batch) < maxBatch && len(l.queue) > 0 {
		batch = append(batch, <-l.queue)
	}
	want := min(last, fewCallers)
	if len(batch) >= want {
		return batch
	}
	moment := time.NewTimer(gatherFor)
	defer moment.Stop()
	for len(batch) < want {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		case <-moment.C:
			return batch
		}
	}
	return batch
}

// take drops requests whose callers have gone.
func take(batch []*request) []*request {
	kept := batch[:0:0]
	for _, r := range batch {
		if r.state.CompareAndSwap(waiting, taken) {
			kept = append(kept, r)
		}
	}
	return kept
}

// commitAll answers every request of the batch, exactly once. A batch that fails contains a
// function that is to blame, and is tried in halves until that one is alone: one duplicate
// among 64 costs a dozen commits, not 64. If the database goes away, requests that were not
// begun are refused instead of waiting for it, and the error is returned.
func (l *Ledger) commitAll(batch []*request) error {
	for len(batch) > 0 {
		n, err := l.commit(batch)
		switch {
		case err == nil:
		case n > 1 && !hopeless(err):
			n /= 2
			err = l.commitAll(batch[:n])
		default:
			for _, r := range batch[:n] {
				r.done <- toCaller(err)
			}
		}
		batch = batch[n:]
		if err != nil && hopeless(err) {
			for _, r := range batch {
				r.done <- fault.Wrap(err, fault.StoreUnavailable,
					"The database failed before this was begun. Nothing was changed; try again.")
			}
			return err
		}
	}
	return nil
}

// ownError is an error that a write function returned. It says nothing about the database,
// so it must not be taken for one of its errors, whatever it wraps.
type ownError struct{ error }

// toCaller is the error that a caller hears.
func toCaller(err error) error {
	if own, ok := errors.AsType[ownError](err); ok {
		return own.error
	}
	return store.Explain(err)
}

// hopeless reports whether an error would meet every function of the batch alike, such as a
// full disk: trying them one by one would only take longer.
func hopeless(err error) bool {
	if _, ok := errors.AsType[ownError](err); ok {
		return false
	}
	err = store.Explain(err)
	for _, code := range []fault.Code{
		fault.StoreUnavailable, fault.StoreFull, fault.StoreReadOnly, fault.OutcomeUnknown,
		fault.LedgerMismatch,
	} {
		if fault.Is(err, code) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// guessAgain is how many batches read the head after a guess was wrong. While another node
// writes as well, guesses are wrong most of the time, and a wrong one runs the batch twice.
const guessAgain = 64

// commit runs the first n functions of the batch in one transaction and answers
// them. With an error, nothing was committed and nobody was answered.
//
// The head is usually where our last batch left it, so it is guessed, which spares
// PostgreSQL a round trip. Moving the head on fails if the guess was wrong; then
// the batch is run again from the head as it is. While no batch of ours has left it anywhere there is
// nothing to guess: a batch would begin at entry 1, and attempt would take its entries for those that are there.
func (l *Ledger) commit(batch []*request) (n int, err error) {
	if l.readHead == 0 && l.lastHead.seq > 0 {
		n, err = l.attempt(batch, &l.lastHead)
		if err == nil || hopeless(err) {
			return n, err
		}
		l.readHead = guessAgain
	}
	n, err = l.attempt(batch, nil)
	l.readHead = max(0, l.readHead-1)
	return n, err
}

// attempt is one transaction from begin to commit. Its context is not that of a caller: a
// caller that goes away must not cut off the commit of the others. The order at the end
// matters: entries are in memory and followers are woken before callers are answered, so
// that a caller who asks for what it has just written finds it.
func (l *Ledger) attempt(batch []*request, guess *head) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.commitFor)
	defer cancel()
	begun := time.Now()
	st, err := l.db.Begin(ctx, "ledger_head")
	if err != nil {
		return len(batch), err
	}
	tx := &Tx{l: l, st: st, now: l.now().UnixMicro()}
	if guess != nil {
		tx.head = *guess
	} else if err := st.QueryRow("SELECT seq, at FROM ledger_head WHERE id = 1", nil, &tx.head.seq,
		&tx.head.at); err != nil {
		st.Rollback()
		return len(batch), err
	}
	if err := l.foreignHead(tx.head); err != nil {
		st.Rollback()
		return len(batch), err
	}
	before := tx.head
	answers, n, err := tx.runAll(batch)
	if err != nil {
		st.Rollback()
		return n, err
	}
	if len(tx.appended) == 0 {
		st.Rollback()
	} else {
		moveHead(st, before, tx.head)
		// Others may read the entries from the commit on. Alone, their numbers are ours even if it fails; else
		// another node may have taken them, and its entries are no forgeries.
		if l.alone {
			l.leaves.commit(tx.appended)
		}
		unknown, err := st.Commit(true)
		if unknown {
			l.lastHead = head{} // what is committed all the same is ours
			err = l.settle(tx.appended[len(tx.appended)-1], err)
		}
		if err != nil {
			return n, err
		}
		l.leaves.commit(tx.appended)
		l.lastHead = tx.head
		l.recent.add(tx.appended)
		l.stats.committed(len(tx.appended), time.Since(begun))
		l.wake()
	}
	for i, r := range batch[:n] {
		r.done <- answers[i]
	}
	return n, nil
}

// foreignHead refuses writes from now on if the head of a database that is ours alone is not where our
// last batch has left it: another process has put entries into the ledger.
func (l *Ledger) foreignHead(at head) error {
	if !l.alone || l.lastHead.seq == 0 || l.lastHead.seq == at.seq {
		return nil
	}
	return l.forged(at.seq)
}

// moveHead moves the head on, and breaks the transaction if it is not where it was
// thought to be: seq may not be null. The time is compared too, so that
// holdsOrForbids can stop a batch that is still on its way.
func moveHead(st *store.Tx, from, to head) {
	st.ExecLocked("UPDATE ledger_head SET seq = CASE WHEN seq = $1 AND at = $2 THEN CAST($3 "+
		"AS bigint) END, at = $4 WHERE id = 1", from.seq, from.at, to.seq, to.at)
}

// runAll runs functions until all have run or the transaction is large enough, and returns
// their answers. A function that failed leaves nothing behind: what it queued is undone, and
// the head goes back to where it was, so that its numbers are given to the next one. If part
// of it has been sent to the database, that is not possible, and the whole batch fails.
func (tx *Tx) runAll(batch []*request) (answers []error, n int, err error) {
	size := 0
	for _, r := range batch {
		mark, before, appended := tx.st.Mark(), tx.head, len(tx.appended)
		answer := tx.run(r.fn)
		if tx.st.Err() != nil {
			// The caller may have lost the database's error on the way.
			if answer == nil || !errors.Is(answer, tx.st.Err()) {
				answer = tx.st.Err()
			}
			return nil, len(batch), answer
		}
		if answer != nil {
			if !tx.st.Undo(mark) {
				return nil, len(batch), ownError{answer}
			}
			tx.head, tx.appended = before, tx.appended[:appended]
		}
		for _, e := range tx.appended[appended:] {
			size += len(e.Body) + len(e.Record)
		}
		answers = append(answers, answer)
		if size > maxBatchBytes {
			break
		}
	}
	return answers, len(answers), nil
}

// run calls one function; a panic is that caller's error.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	tx.err = nil
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a write function panicked: %v\n%s", p, debug.Stack())
		}
	}()
	err = fn(tx)
	if err == nil {
		err = tx.err
	}
	return err
}

// settle finds out whether a commit happened whose answer was lost (LED-4). It waits for
// the lock, so the lost transaction has ended one way or the other by then or has
// not begun, and looks for its last record, which has a salt that no other has. It returns
// nil if the batch was committed, and the cause if it was not and never will be.
func (l *Ledger) settle(last *Entry, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.settleFor)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		committed, err := l.holdsOrForbids(ctx, last)
		if err == nil && committed {
			return nil
		}
		if err == nil {
			return cause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			leaf := tlog.RecordHash(last.Record)
			return fault.Wrap(cause, fault.OutcomeUnknown,
				"The database went away while it was saving, and has not come back. Whether it was saved shows once it is back: "+
					"if it was, entry %d of the ledger has the leaf hash in details.", last.Seq).
				With("seq", last.Seq).With("leaf_hash", leaf.String())
		}
	}
}

// holdsOrForbids reports whether the entry is there. If it is not, it never will
// be: a batch goes out in one piece, and may still be on its way after its
// connection broke. Moving the head's time on by a microsecond makes it fail.
func (l *Ledger) holdsOrForbids(ctx context.Context, e *Entry) (bool, error) {
	tx, err := l.db.Begin(ctx, "ledger_head")
	if err != nil {
		return false, err
	}
	var rec []byte
	err = tx.QueryRow("SELECT record FROM ledger_entry WHERE seq = $1", []any{e.Seq}, &rec)
	if errors.Is(err, sql.ErrNoRows) {
		tx.Exec("UPDATE ledger_head SET at = at + 1 WHERE id = 1")
		_, err = tx.Commit(false)
		return false, err
	}
	tx.Rollback()
	return bytes.Equal(rec, e.Record), err
}
