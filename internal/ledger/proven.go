package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/store"
)

// Prover reads entries that are proved, inside of a transaction (Tx.Prover) or outside of one (Ledger.Prover).
//
// Tables say where to look, and entries say what holds (LED-35). Whatever opens something, such as an approval or a
// key, is read through a Prover and not from a row alone: a row can be written by whoever can write to the database,
// and an entry that was signed cannot.
//
// An entry is proved if its body is the one in its record, and its record is the leaf of the tree that was signed,
// or what this process has committed since. One that is not makes the ledger refuse writes. Where several processes
// write (Options.Alone), an entry that another has committed since the last checkpoint is taken as its record has
// it: nobody can prove more of it until it is signed.
type Prover struct {
	Query store.Query // reads rows, as of the same moment in a transaction
	l     *Ledger
	ctx   context.Context //nolint:containedctx // a Prover lives inside one call
	own   func(seq int64) bool
}

// Prover proves outside of a transaction.
func (l *Ledger) Prover(ctx context.Context) Prover {
	return Prover{l.db.Reading(ctx), l, ctx, func(int64) bool { return false }}
}

// Prover proves inside of the transaction. Nobody else can have written what the transaction has appended itself.
func (tx *Tx) Prover() Prover {
	own := func(seq int64) bool { return len(tx.appended) > 0 && seq >= tx.appended[0].Seq }
	return Prover{tx.Query, tx.l, tx.st.Context(), own}
}

// Entries reads the entries that a query selects, oldest first, and proves each. Without a limit it reads all.
func (p Prover) Entries(q Query) ([]Entry, error) {
	q.Limit = cmp.Or(q.Limit, math.MaxInt32)
	text, args := q.text()
	entries, err := store.All(p.Query, scanEntry, text, args...)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = p.Check(q, &entries[i])
	}
	if q.Newest {
		slices.Reverse(entries)
	}
	return entries, err
}

// At reads the entry with a number and proves it.
func (p Prover) At(seq int64) (Entry, error) {
	found, err := p.Entries(Query{After: seq - 1, UpTo: seq})
	if err == nil && len(found) == 0 {
		err = missing(seq)
	}
	if err != nil {
		return Entry{}, err
	}
	return found[0], nil
}

// Check proves an entry that the caller has read, and that its record says what was asked for: rows are found by the
// columns beside it.
func (p Prover) Check(q Query, e *Entry) error {
	switch {
	case !q.selects(e):
		return p.l.forged(e.Seq)
	case p.own(e.Seq):
		return nil
	}
	return p.l.prove(p.ctx, e)
}

// Mismatch is Ledger.Mismatch: while there is one, entries are for reading, and prove nothing.
func (p Prover) Mismatch() error { return p.l.Mismatch() }

// Contradicts is Ledger.Contradicts.
func (p Prover) Contradicts(table, row, detail string, args ...any) error {
	return p.l.Contradicts(table, row, detail, args...)
}

// Agree calls compare until it finds a row and the entries to agree, three times at the most: outside of a transaction
// they are read one after another, and a change may come between.
func Agree(compare func() (agree bool, err error)) (bool, error) {
	for range 2 {
		if agree, err := compare(); agree || err != nil {
			return agree, err
		}
	}
	return compare()
}

// selects reports whether the record of an entry says what was asked for.
func (q Query) selects(e *Entry) bool {
	has := func(want, is string) bool { return want == "" || want == is }
	return e.Seq > q.After && has(q.Workspace, e.Workspace) && has(q.Subject, e.Subject) && has(q.Trace, e.Trace) &&
		(q.UpTo == 0 || e.Seq <= q.UpTo) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) &&
		(len(q.Subjects) == 0 || slices.Contains(q.Subjects, e.Subject))
}

// prove checks an entry against what this process knows of its leaf, or else against the root of the newest
// checkpoint, which it keeps in memory.
func (l *Ledger) prove(ctx context.Context, e *Entry) error {
	leaf := tlog.RecordHash(e.Record)
	known, ok := l.leaves.get(e.Seq)
	signed := l.covered.Load() // after that: what was dropped from leaves meanwhile is under it
	if ok || e.Seq > signed.Size {
		return l.checkLeaf(e.Seq, leaf, known, ok)
	}
	t := newTiles(ctx, l.db.Read)
	hashes, err := tlog.ProveRecord(signed.Size, e.Seq-1, t)
	if err != nil {
		return fmt.Errorf("prove entry %d: %w", e.Seq, err)
	}
	if tlog.CheckRecord(hashes, signed.Size, signed.Root, e.Seq-1, leaf) != nil {
		return l.forged(e.Seq)
	}
	// The other hashes of a full tile have gone into the proof, so all of them are proved.
	first, proved := e.Seq, leaf[:]
	if n := (e.Seq - 1) >> tileHeight; (n+1)<<tileHeight <= signed.Size {
		first, proved = n<<tileHeight+1, t.tiles[[2]int64{0, n}]
	}
	l.leaves.addTile(first, proved)
	l.leaves.trim(signed.Size)
	return nil
}

// checkLeaf checks the hash of a record against the one that this process knows, if it does. What it knows nothing
// of cannot have come after Open if it is the only writer.
func (l *Ledger) checkLeaf(seq int64, leaf, known tlog.Hash, ok bool) error {
	if ok && known != leaf || !ok && l.alone && seq > l.found {
		return l.forged(seq)
	}
	return nil
}

// forged is the error for an entry that nobody has signed or committed. Nothing is written from then on: the
// next checkpoint would sign it.
func (l *Ledger) forged(seq int64) error {
	err := fault.New(fault.LedgerMismatch,
		"Entry %d in the database is not the one that was recorded. It was written or changed by another program; "+
			"restore the database from a backup.", seq)
	l.refuse(err)
	return err
}

// leaves are the hashes of records that this process knows to be true: it has committed them, or has proved
// them. Those that are signed can be proved again, and are dropped when there are many.
type leaves struct {
	mu    sync.RWMutex
	known map[int64]tlog.Hash
}

// maxLeaves is how many are kept beyond those that are not signed yet.
const maxLeaves = 1 << 16

func (k *leaves) get(seq int64) (tlog.Hash, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	h, ok := k.known[seq]
	return h, ok
}

// addTile adds hashes of entries that follow one another, from the given one on.
func (k *leaves) addTile(seq int64, hashes []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ; len(hashes) >= tlog.HashSize; seq++ {
		k.known[seq] = tlog.Hash(hashes[:tlog.HashSize])
		hashes = hashes[tlog.HashSize:]
	}
}

// commit adds the leaves of a batch.
func (k *leaves) commit(appended []*Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range appended {
		k.known[e.Seq] = tlog.RecordHash(e.Record)
	}
}

// trim drops leaves that the tree of this size covers, if there are many.
func (k *leaves) trim(size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) > maxLeaves {
		maps.DeleteFunc(k.known, func(seq int64, _ tlog.Hash) bool { return seq <= size })
	}
}

// Contradiction is a row of a table that is not what the ledger says. Somebody has written to the database.
type Contradiction struct {
	Table  string `json:"table"`
	Row    string `json:"row"`    // its key
	Detail string `json:"detail"` // what is wrong with it
}

// Contradicts is the error for a row that is not what the ledger says. The row counts for nothing. It is logged,
// and recorded by Run with what OnContradiction does, at most once an hour for each row.
func (l *Ledger) Contradicts(table, row, detail string, args ...any) error {
	detail = fmt.Sprintf(detail, args...)
	c := Contradiction{table, strings.ToValidUTF8(row[:min(len(row), maxName/2)], ""), detail}
	if l.contradictions.first(c, l.now()) {
		l.log.Error("a table is not what the ledger says", "table", table, "row", c.Row, "detail", detail)
		select {
		case l.contradictions.queue <- c:
		default: // somebody has changed hundreds of rows; those before them say so
		}
	}
	return fault.New(fault.StateMismatch,
		"The table %s is not what the ledger says: %s. It was changed by hand, and nothing was done. An operator of the "+
			"machine sees what differs with `signalbox ledger rebuild --check`, and repairs it with `signalbox ledger rebuild`.",
		table, detail).With("table", table)
}

// OnContradiction has fn called in the transaction that records a contradiction. Call it before Run.
func (l *Ledger) OnContradiction(fn func(tx *Tx, c Contradiction) error) { l.contradictions.then = fn }

// contradictions are what Contradicts has found and Run has to record.
type contradictions struct {
	queue chan Contradiction
	then  func(tx *Tx, c Contradiction) error

	mu   sync.Mutex
	told map[[2]string]time.Time
}

// first reports whether a row was not reported within the last hour.
func (k *contradictions) first(c Contradiction, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := [2]string{c.Table, c.Row}
	if last, ok := k.told[at]; ok && now.Sub(last) < time.Hour {
		return false
	}
	if k.told == nil || len(k.told) >= 1000 {
		k.told = map[[2]string]time.Time{}
	}
	k.told[at] = now
	return true
}

// contradictionLoop records contradictions. They are found inside of transactions too, which cannot wait for
// another one.
func (l *Ledger) contradictionLoop(ctx context.Context) {
	for {
		select {
		case c := <-l.contradictions.queue:
			err := l.Write(ctx, func(tx *Tx) error {
				tx.Append(Event{Kind: "table.contradicted", Actor: "system", Subject: c.Row, Body: c})
				return l.contradictions.then(tx, c)
			})
			if err != nil {
				l.log.Error("cannot record that a table was changed", "table", c.Table, "row", c.Row, "error", err.Error())
			}
		case <-ctx.Done():
			return
		}
	}
}
