package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
)

// compareWithFile compares the tree in the database with the checkpoint file, which
// is kept outside of it (LED-23, LED-24). A database that was changed, or that is an old
// backup, does not have the root that was signed. A mismatch is not returned as an error:
// the ledger is then opened for reading, and refuses writes (LED-25).
func (l *Ledger) compareWithFile(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(l.dir, CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		// A new node, or a lost file: the newest checkpoint in the database is less
		// than one outside of it, and better than none.
		var kept string
		if kept, err = l.newest(ctx); err == nil && kept == "" {
			return nil
		}
		text = []byte(kept)
	}
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	c, err := l.key.Load().chain.Open(text)
	if err != nil {
		l.refuse(fault.Wrap(err, fault.LedgerMismatch,
			"The newest checkpoint, in %s or in the database, does not verify with the ledger's key. Restore it from a backup.",
			l.dir))
		return nil
	}
	l.signed = c
	if err = l.compare(ctx, c); fault.Is(err, fault.LedgerMismatch) {
		l.refuse(err)
		return nil
	}
	return err
}

// compare returns a mismatch if the tree does not have the root that c says.
func (l *Ledger) compare(ctx context.Context, c notes.Checkpoint) error {
	var size, head, last int64
	const query = "SELECT t.size, h.seq, (SELECT coalesce(max(seq), 0) FROM ledger_entry) " +
		"FROM ledger_tree t, ledger_head h"
	if err := l.db.Read.QueryRowContext(ctx, query).Scan(&size, &head, &last); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = fault.New(fault.LedgerMismatch,
				"The rows of ledger_head or ledger_tree are gone from the database. Restore the database from a backup.")
		}
		return err
	}
	if head != last {
		return fault.New(fault.LedgerMismatch,
			"The ledger's head says that the last entry is %d, and it is %d. The database was "+
				"changed by hand; restore it from a backup.", head, last)
	}
	if size < c.Size || head < c.Size {
		return fault.New(fault.LedgerMismatch,
			"The checkpoint file was signed over %d entries and the database holds %d: the end of the ledger is gone. Put the "+
				"newest database back, or bring a backup back with `signalbox restore`, which keeps %s as evidence.",
			c.Size, min(size, head), filepath.Join(l.dir, CheckpointFile))
	}
	root, err := tlog.TreeHash(c.Size, newTiles(ctx, l.db.Read))
	if err != nil {
		return err
	}
	if root != c.Root {
		return fault.New(fault.LedgerMismatch,
			"The first %d entries in the database do not have the root that was signed: entries were changed, or the database "+
				"is not the one that goes with %s.", c.Size, l.dir)
	}
	return l.compareTail(ctx, c.Size)
}

// compareTail checks that the last 256 records still hash to the leaves of the tree. The
// tree alone would not show that a record was changed, since tiles hold hashes. Checking
// all of them would make a start take minutes; verifying an export does that (LED-24).
func (l *Ledger) compareTail(ctx context.Context, size int64) error {
	from := max(0, size-1<<tileHeight)
	rows, err := l.db.Read.QueryContext(ctx,
		"SELECT seq, record FROM ledger_entry WHERE seq > $1 AND seq <= $2 ORDER BY seq", from, size)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	t, next := newTiles(ctx, l.db.Read), from+1
	for ; rows.Next(); next++ {
		var seq int64
		var rec []byte
		if err := rows.Scan(&seq, &rec); err != nil {
			return err
		}
		leaf, err := t.ReadHashes([]int64{tlog.StoredHashIndex(0, next-1)})
		if err != nil {
			return err
		}
		if seq != next || tlog.RecordHash(rec) != leaf[0] {
			return fault.New(fault.LedgerMismatch,
				"Entry %d in the database is not the one that was signed. It was changed after the "+
					"fact; restore the database from a backup.", next)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if next != size+1 {
		return missing(next)
	}
	return nil
}

// checkpointLoop signs while entries arrive, and once more at the end. It looks every ten
// seconds without news too, for a wake-up that was missed.
func (l *Ledger) checkpointLoop(ctx context.Context) {
	idle := 10 * time.Second
	if !l.Signs() {
		idle = signEvery // another node's signing is no news
	}
	for {
		news := l.News()
		if err := l.Checkpoint(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("cannot sign a checkpoint; will try again", "error", err.Error())
		}
		Pause(ctx, nil, signEvery)
		Pause(ctx, news, idle)
		if ctx.Err() != nil {
			l.lastCheckpoint(ctx)
			return
		}
	}
}

// lastCheckpoint signs what was committed until the end, so that a server that was stopped in
// order leaves nothing unsigned. The caller's context is over by then; it has ten seconds.
func (l *Ledger) lastCheckpoint(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := l.Checkpoint(ctx); err != nil {
		l.log.Warn("stopped without a last checkpoint; the next start signs it", "error", err.Error())
	}
}

// Checkpoint brings the tree and its signed checkpoint up to the last entry. On a
// node without the key it takes over the newest checkpoint of the others, after it has
// compared it with the tree. The checkpoint is in the database before it is in the file: a
// crash in between leaves a file that is older, which still matches.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	l.building.Lock()
	defer l.building.Unlock()
	if err := l.refusal(); err != nil {
		return nil // said loudly already; nothing more is signed
	}
	c, err := l.nextCheckpoint(ctx)
	if fault.Is(err, fault.LedgerMismatch) {
		l.refuse(err)
		return nil
	}
	if err != nil || c.Size <= l.signed.Size {
		return err
	}
	if err := replaceFile(filepath.Join(l.dir, CheckpointFile), string(c.Note), 0o644); err != nil {
		return err
	}
	l.setSigned(c)
	return nil
}

// setSigned makes c the checkpoint that entries are proved against. The caller holds building.
func (l *Ledger) setSigned(c notes.Checkpoint) {
	l.signed = c
	l.covered.Store(&c)
	l.leaves.trim(c.Size)
}

// nextCheckpoint signs the tree as it is. LED-22: it never signs one that contradicts the
// tree that was signed before. The caller holds building.
func (l *Ledger) nextCheckpoint(ctx context.Context) (notes.Checkpoint, error) {
	if err := l.followKeys(ctx); err != nil {
		return notes.Checkpoint{}, err
	}
	if !l.Signs() {
		return l.adopt(ctx)
	}
	size, root, err := l.build(ctx)
	if err != nil || size == l.signed.Size && root == l.signed.Root && l.signed.Size >= l.Keys().Last().From {
		return l.signed, err
	}
	if size < l.signed.Size {
		return notes.Checkpoint{}, shorter(size, l.signed.Size)
	}
	if err := l.consistent(ctx); err != nil {
		return notes.Checkpoint{}, err
	}
	// An entry under the checkpoint may have put another key in force, or one after it.
	if err := l.followKeys(ctx); err != nil {
		return notes.Checkpoint{}, err
	}
	k := l.key.Load()
	if k.signer == nil || k.chain.Last().From > size {
		return l.signed, nil
	}
	c, err := notes.Checkpoint{Origin: k.signer.Name(), Size: size, Root: root}.Sign(k.signer)
	if err != nil {
		return notes.Checkpoint{}, err
	}
	tx, err := l.db.Begin(ctx, "ledger_tree")
	if err != nil {
		return notes.Checkpoint{}, err
	}
	tx.Exec("INSERT INTO ledger_checkpoint (size, note) VALUES ($1, $2) ON CONFLICT (size) DO NOTHING", c.Size,
		string(c.Note))
	_, err = tx.Commit(false)
	return c, err
}

// adopt is nextCheckpoint on a node without the key: it takes the newest checkpoint from the
// database (LED-26). One that is shorter than what this node has seen means that the
// database was replaced while the node ran.
func (l *Ledger) adopt(ctx context.Context) (notes.Checkpoint, error) {
	text, err := l.newest(ctx)
	if err != nil || text == "" && l.signed.Size == 0 {
		return l.signed, err
	}
	var c notes.Checkpoint
	if text != "" {
		if c, err = l.key.Load().chain.Open([]byte(text)); err != nil {
			return l.signed, err
		}
	}
	if c.Size < l.signed.Size {
		return notes.Checkpoint{}, shorter(c.Size, l.signed.Size)
	}
	return c, l.consistent(ctx)
}

// shorter is the error for a ledger that has lost entries: a ledger only grows, and what was
// signed had been on disk before.
func shorter(size, signed int64) error {
	return fault.New(fault.LedgerMismatch,
		"The tree in the database has %d entries and %d were signed already: an old backup was restored while the server "+
			"ran. Restore the newest backup.", size, signed)
}

// consistent checks that the tree still has the root of the last checkpoint.
func (l *Ledger) consistent(ctx context.Context) error {
	if l.signed.Size == 0 {
		return nil
	}
	root, err := tlog.TreeHash(l.signed.Size, newTiles(ctx, l.db.Read))
	if err == nil && root != l.signed.Root {
		err = fault.New(fault.LedgerMismatch,
			"The first %d entries no longer have the root that was signed: the tree in the "+
				"database was changed while the server ran.", l.signed.Size)
	}
	return err
}

// newest reads the newest checkpoint in the database, "" if nothing was signed yet.
func (l *Ledger) newest(ctx context.Context) (string, error) {
	var text string
	err := l.db.Read.QueryRowContext(ctx, "SELECT note FROM ledger_checkpoint ORDER BY size DESC LIMIT 1").Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

// Signed returns the newest checkpoint as it was signed.
func (l *Ledger) Signed(ctx context.Context) (text []byte, size int64, err error) {
	s, err := l.newest(ctx)
	if err != nil {
		return nil, 0, err
	}
	if s == "" {
		return nil, 0, fault.New(fault.NotFound,
			"No checkpoint has been signed yet. The first follows within a second of the first entry.")
	}
	c, err := l.key.Load().chain.Open([]byte(s))
	if err != nil && l.followKeys(ctx) == nil { // another key may have taken over since
		c, err = l.key.Load().chain.Open([]byte(s))
	}
	return c.Note, c.Size, err
}
