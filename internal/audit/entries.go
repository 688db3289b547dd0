package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// tileWidth is how many hashes a tile has, and how many entries are read at once (C2SP tlog-tiles).
const tileWidth = 256

// lastEntries is how many entries the fast round looks at.
const lastEntries = 10_000

// columns are those of the table of entries that repeat what the record says, then record, salt and body.
const columns = "SELECT e.seq, e.workspace, e.kind, e.subject, e.trace, " + ledger.EntryColumns + " FROM " +
	ledger.EntryTable + " WHERE e.seq > $1 AND e.seq <= $2 ORDER BY e.seq"

// page reads the entries after one number up to another and looks at each by itself: none is missing, the record has
// the ledger's form, the columns beside it say the same, and the body is the one in it or was erased.
func (r *round) page(ctx context.Context, after, upTo int64) (entries []ledger.Entry, err error) {
	var wrong []func()
	note := func(kind Kind, detail string, seq int64) {
		wrong = append(wrong, func() { r.report(ctx, kind, "", detail, seq) })
	}
	next := after + 1
	err = store.Each(r.a.DB.Reading(context.WithoutCancel(ctx)), func(scan store.Scan) error {
		var at ledger.Entry
		var body []byte
		err := scan(&at.Seq, &at.Workspace, &at.Kind, &at.Subject, &at.Trace, &at.Record, &at.Salt, &body)
		if err != nil {
			return err
		}
		for ; next < at.Seq; next++ {
			note(Records, "Entry %d is missing from the database.", next)
		}
		next = at.Seq + 1
		e, err := ledger.Unseal(at.Record, at.Salt, body)
		if err != nil {
			if e, err = ledger.Unseal(at.Record, nil, nil); err != nil {
				note(Records, "The record of entry %d is not in the ledger's form.", at.Seq)
				e = at
			} else {
				note(Bodies, "The body of entry %d is not the one in its record.", at.Seq)
				e.Salt = []byte{} // not erased
			}
		}
		if at.Seq != e.Seq || at.Workspace != e.Workspace || at.Kind != e.Kind || at.Subject != e.Subject ||
			at.Trace != e.Trace {
			note(Records, "The columns beside entry %d do not say what its record says.", at.Seq)
			e.Seq = at.Seq
		}
		entries = append(entries, e)
		return nil
	}, columns, after, upTo)
	if err != nil {
		return nil, err
	}
	for ; next <= upTo; next++ {
		note(Records, "Entry %d is missing from the database.", next)
	}
	for _, report := range wrong {
		report()
	}
	for i := range entries {
		if e := &entries[i]; e.Salt == nil {
			if err := r.lookErased(ctx, e); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

// hash is one of the tree.
type hash = [sha256.Size]byte

// leafHash and nodeHash are those of RFC 6962. They stand here again so that the ledger's own code is not what
// says that its tree is right.
func leafHash(record []byte) hash { return sha256.Sum256(append([]byte{0}, record...)) }

func nodeHash(left, right hash) hash {
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// tile reads a stored tile, nil if there is none.
func (r *round) tile(ctx context.Context, level, n int64) (hashes []byte, err error) {
	err = r.a.DB.QueryRow(ctx, "SELECT hashes FROM ledger_tile WHERE level = $1 AND n = $2", []any{level, n}, &hashes)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return hashes, err
}

// compareTile compares hashes with those of a stored tile. size is what the tree had in entries before the tile was
// read: so many the tile has to have. It returns the places of those that differ.
func (r *round) compareTile(ctx context.Context, level, n, size int64, hashes []hash) (wrong []int, err error) {
	stored, err := r.tile(ctx, level, n)
	if err != nil {
		return nil, err
	}
	want := int(max(0, min(int64(len(hashes)), size>>(8*level)-n*tileWidth)))
	if have := len(stored) / sha256.Size; have < want {
		r.report(ctx, Tiles, "", "Tile %d of level %d has %d hashes, and should have %d.", n, level, have, want)
		want = have
	}
	for i := range want {
		if hash(stored[i*sha256.Size:]) != hashes[i] {
			wrong = append(wrong, i)
		}
	}
	return wrong, nil
}

// size is how many entries the stored tree has.
func (a *Audit) size(ctx context.Context) (size int64, err error) {
	err = a.DB.QueryRow(ctx, "SELECT size FROM ledger_tree WHERE id = 1", nil, &size)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // none; that the row is gone is found by ends
	}
	return size, err
}

// leaves compares a page that begins with a tile with the tile. A record that differs from its leaf is proved, or not,
// by the tree that was signed, which says which of the two was changed.
func (r *round) leaves(ctx context.Context, entries []ledger.Entry, size int64) (hashes []hash, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	for i := range entries {
		hashes = append(hashes, leafHash(entries[i].Record))
	}
	first := entries[0].Seq
	if entries[len(entries)-1].Seq != first+int64(len(entries))-1 || (first-1)%tileWidth != 0 {
		return nil, nil // some are missing, which was reported
	}
	n := (first - 1) / tileWidth
	wrong, err := r.compareTile(ctx, 0, n, size, hashes)
	if err != nil {
		return nil, err
	}
	covered, _ := r.a.Ledger.Covered()
	for _, i := range wrong {
		e := &entries[i]
		// What is not signed yet is looked at by the builder of the tree before it signs.
		if e.Seq > covered || !r.proved(ctx, e) {
			continue
		}
		r.report(ctx, Tiles, "", "Tile %d of level 0 does not have the hash of entry %d.", n, e.Seq)
	}
	return hashes, nil
}

// proved reports whether the signed tree has the record of an entry.
func (r *round) proved(ctx context.Context, e *ledger.Entry) bool {
	err := r.a.Ledger.Prover(context.WithoutCancel(ctx)).Check(ledger.Query{After: e.Seq - 1, UpTo: e.Seq}, e)
	if fault.Is(err, fault.LedgerMismatch) {
		r.report(ctx, Records, "", "Entry %d is not the one that was signed.", e.Seq)
	}
	return err == nil
}

// last looks at the last entries, each proved by the tree that was signed or by what this process has committed.
func (r *round) last(ctx context.Context, head int64) error {
	for at := max(0, head-lastEntries) / tileWidth * tileWidth; at < head; at += tileWidth {
		size, err := r.a.size(ctx)
		if err != nil {
			return err
		}
		entries, err := r.page(ctx, at, min(at+tileWidth, head))
		if err != nil {
			return err
		}
		if _, err := r.leaves(ctx, entries, size); err != nil {
			return err
		}
		for i := range entries {
			r.proved(ctx, &entries[i])
		}
		r.out.Entries += int64(len(entries))
		if err := r.w.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ends looks at what says where the ledger ends: its head, its last entry, the tree, the newest checkpoint and its
// file. None of them may be behind what this process has seen.
func (r *round) ends(ctx context.Context) (head int64, err error) {
	a := r.a
	covered, _ := a.Ledger.Covered() // before the others, which only grow
	a.mu.Lock()
	seen := max(a.seen, covered)
	a.mu.Unlock()
	var last, tree, newest int64
	snapshot, err := a.DB.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = snapshot.Rollback() }()
	const query = "SELECT coalesce((SELECT seq FROM ledger_head WHERE id = 1), 0), " +
		"coalesce((SELECT max(e.seq) FROM " + ledger.EntryTable + "), 0), " +
		"coalesce((SELECT size FROM ledger_tree WHERE id = 1), 0), coalesce((SELECT max(size) FROM ledger_checkpoint), 0)"
	if err := snapshot.QueryRowContext(ctx, query).Scan(&head, &last, &tree, &newest); err != nil {
		return 0, err
	}
	switch {
	case head != last:
		r.report(ctx, Head, "", "The head of the ledger says %d, and its last entry is %d.", head, last)
	case head < seen:
		r.report(ctx, Head, "", "The ledger had %d entries already, and ends at %d.", seen, head)
	case tree < covered || tree > head:
		r.report(ctx, Head, "", "The tree was signed over %d entries, and has %d of %d.", covered, tree, head)
	case newest < covered:
		r.report(ctx, Checkpoints, "", "A checkpoint over %d entries was signed, and the newest there is has %d.", covered,
			newest)
	}
	a.mu.Lock()
	a.seen = max(a.seen, head)
	a.mu.Unlock()
	return head, r.lookFile(ctx, covered)
}

// lookFile looks at the checkpoint file, which the next start goes by. A new node has none before the next checkpoint.
func (r *round) lookFile(ctx context.Context, covered int64) error {
	text, err := os.ReadFile(filepath.Join(r.a.Data, ledger.CheckpointFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if r.file {
			r.report(ctx, Checkpoints, ledger.CheckpointFile, "The file is gone.")
		}
		return nil
	case err != nil:
		return err
	}
	r.file = true
	if size, _, err := r.a.Ledger.OpenCheckpoint(text); err != nil {
		r.report(ctx, Checkpoints, ledger.CheckpointFile, "%s", fault.From(err).Message)
	} else if size < covered {
		r.report(ctx, Checkpoints, ledger.CheckpointFile, "It is over %d entries, and one over %d was signed.", size,
			covered)
	}
	return nil
}

// tree is the tree that the entries make, from the first one on: the hashes of the tiles that are not full yet, by
// level, and the roots of full subtrees, largest first.
type tree struct {
	size   int64
	levels [][]hash
	roots  []hash
}

// add adds a leaf: as in a binary counter, two full subtrees of the same size become one.
func (t *tree) add(leaf hash) {
	for n := t.size; n&1 == 1; n >>= 1 {
		last := len(t.roots) - 1
		leaf = nodeHash(t.roots[last], leaf)
		t.roots = t.roots[:last]
	}
	t.roots = append(t.roots, leaf)
	t.size++
}

// root is the root of the tree so far, which has leaves.
func (t *tree) root() hash {
	h := t.roots[len(t.roots)-1]
	for i := len(t.roots) - 2; i >= 0; i-- {
		h = nodeHash(t.roots[i], h)
	}
	return h
}

// subtree is the root over the hashes of a full tile.
func subtree(hashes []hash) hash {
	t := &tree{}
	for _, h := range hashes {
		t.add(h)
	}
	return t.root()
}

// grow adds the leaves of a page to the tree, and compares the tiles above them, and every checkpoint that was signed
// on the way.
func (r *round) grow(ctx context.Context, t *tree, leaves []hash, size int64) error {
	signed, err := store.Map[int64, string](r.a.DB.Reading(context.WithoutCancel(ctx)),
		"SELECT size, note FROM ledger_checkpoint WHERE size > $1 AND size <= $2", t.size, t.size+int64(len(leaves)))
	if err != nil {
		return err
	}
	covered, root := r.a.Ledger.Covered()
	for _, leaf := range leaves {
		t.add(leaf)
		if note, ok := signed[t.size]; ok {
			r.checkpoint(ctx, t, note)
		}
		if t.size == covered && t.root() != root {
			r.report(ctx, Records, "", "The first %d entries do not have the root that was signed.", t.size)
		}
	}
	return r.levels(ctx, t, leaves, size)
}

// levels puts the roots of full tiles into the tiles above, and compares those.
func (r *round) levels(ctx context.Context, t *tree, hashes []hash, size int64) error {
	for level := 1; len(hashes) == tileWidth; level++ {
		if len(t.levels) < level {
			t.levels = append(t.levels, nil)
		}
		above := append(t.levels[level-1], subtree(hashes))
		t.levels[level-1] = above
		n := (t.size>>(8*level) - 1) / tileWidth
		wrong, err := r.compareTile(ctx, int64(level), n, size, above)
		if err != nil {
			return err
		}
		if len(wrong) > 0 {
			r.report(ctx, Tiles, "", "Tile %d of level %d is not what the entries make of it.", n, level)
		}
		if hashes = above; len(above) == tileWidth {
			t.levels[level-1] = nil
		}
	}
	return nil
}

// checkpoint looks at a signed checkpoint at the size that the tree has.
func (r *round) checkpoint(ctx context.Context, t *tree, note string) {
	where := fmt.Sprintf("The checkpoint over %d entries", t.size)
	switch size, root, err := r.a.Ledger.OpenCheckpoint([]byte(note)); {
	case err != nil:
		r.report(ctx, Checkpoints, "", "%s: %s", where, fault.From(err).Message)
	case size != t.size:
		r.report(ctx, Checkpoints, "", "%s was replaced by one over %d.", where, size)
	case root != t.root():
		r.report(ctx, Records, "", "The first %d entries do not have the root that was signed.", size)
	}
}
