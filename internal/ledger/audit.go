package ledger

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/store"
)

// audit checks every entry in the database before state is built from it: none is
// missing, each body is the one in its record, the columns for looking up say what
// the record says, and the records have the root of the tree. Entries after the last one in
// the tree have no hash to be compared with yet.
func audit(ctx context.Context, r reader, head int64) error {
	var size int64
	if err := r.QueryRowContext(ctx, "SELECT size FROM ledger_tree WHERE id = 1").Scan(&size); err != nil {
		return err
	}
	root, err := tlog.TreeHash(size, newTiles(ctx, r))
	if err != nil {
		return err
	}
	var tree Frontier
	for after := int64(0); after < head; after = min(after+Page, head) {
		entries, err := auditPage(ctx, r, after)
		if err == nil {
			err = complete(entries, after, head)
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			tree.Add(tlog.RecordHash(e.Record))
			if tree.Size == size && tree.Root() != root {
				return fault.New(fault.LedgerMismatch,
					"The first %d records in the database do not have the root of the tree: records were changed after the fact. "+
						"Restore the database from a backup.", size)
			}
		}
	}
	return nil
}

// auditPage reads a page with the columns that queries use beside the record. Someone who
// changes such a column hides an entry from a search without changing what was signed.
func auditPage(ctx context.Context, r reader, after int64) (entries []Entry, err error) {
	return store.All(store.Reading(ctx, r), func(scan store.Scan) (Entry, error) {
		var column Entry
		if err := scan(&column.Seq, &column.Workspace, &column.Kind, &column.Subject, &column.Trace, &column.Record,
			&column.Salt, &column.Body); err != nil {
			return column, err
		}
		e, err := Unseal(column.Record, column.Salt, column.Body)
		if err != nil {
			return e, err
		}
		if column.Seq != e.Seq || column.Workspace != e.Workspace || column.Kind != e.Kind || column.Subject != e.Subject ||
			column.Trace != e.Trace {
			return e, fault.New(fault.LedgerMismatch,
				"The columns of entry %d for looking things up do not say what its record says. They were changed after the "+
					"fact; restore the database from a backup.", column.Seq)
		}
		return e, nil
	}, "SELECT seq, workspace, kind, subject, trace, record, salt, body FROM "+
		"ledger_entry WHERE seq > $1 ORDER BY seq LIMIT $2", after, Page)
}

// CheckAll compares the whole ledger and every table with what was signed and recorded, and refuses
// writes from now on if they differ. It takes as long as a rebuild.
func (l *Ledger) CheckAll(ctx context.Context, sets []store.Migrations, all []Projection) error {
	found, err := CheckRebuild(ctx, l.db, sets, all, nil)
	if err == nil && len(found.Differences) > 0 {
		err = fault.New(fault.LedgerMismatch,
			"Rows of the table %s are not what the ledger says: another program has written to the database. Stop the "+
				"server, find out what it was, and run `signalbox ledger rebuild`.", found.Differences[0].Table)
	}
	if fault.Is(err, fault.LedgerMismatch) {
		l.refuse(err)
	}
	return err
}

// Compare says why the ledger in the database is not the one that was signed, with
// the key and the checkpoint file in dir, nil when it is. It changes nothing.
func Compare(ctx context.Context, db *store.DB, dir string) error {
	known, err := knownKey(ctx, Options{DB: db})
	if err != nil || known == "" {
		return err
	}
	l := &Ledger{db: db, dir: dir, log: slog.New(slog.DiscardHandler)}
	chain, err := notes.NewChain(known)
	if err == nil {
		chain, err = followed(ctx, db.Read, chain)
	}
	if err != nil {
		return err
	}
	l.key.Store(&key{chain: chain})
	if err := l.compareWithFile(ctx); err != nil {
		return err
	}
	return l.refusal()
}

// Covered is the tree under the newest checkpoint that this process has signed or seen.
func (l *Ledger) Covered() (size int64, root [tlog.HashSize]byte) {
	c := l.covered.Load()
	return c.Size, c.Root
}

// OpenCheckpoint checks the signature of a checkpoint, and reads what it says of the tree.
func (l *Ledger) OpenCheckpoint(signed []byte) (size int64, root [tlog.HashSize]byte, err error) {
	c, err := l.key.Load().chain.Open(signed)
	return c.Size, c.Root, err
}

// Grow builds the tree of a ledger that nobody has open, from its records.
func Grow(ctx context.Context, db *store.DB) (size int64, root tlog.Hash, err error) {
	return (&Ledger{db: db}).build(ctx)
}

// Seal makes the entry that follows seq in a ledger that nobody has open, such as one that is restored.
func Seal(ev Event, seq int64, at time.Time) (*Entry, error) {
	return seal(ev, seq, at.UnixMicro(), nil)
}
