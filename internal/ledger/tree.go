package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
)

// LED-16: leaf N-1 is the record of entry N. Functions here take sizes and leaf numbers;
// "seq" is always a sequence number.

const (
	// tileHeight is fixed by C2SP tlog-tiles (LED-17): 256 hashes a tile.
	tileHeight = 8
	// buildStep is how many entries are hashed before their tiles are stored. It bounds the
	// memory of a node that catches up with a large ledger.
	buildStep = 1 << 14
	// signEvery is the pause between checkpoints while entries arrive (LED-21: within a
	// second, with room for a slow database).
	signEvery = 500 * time.Millisecond
)

// tiles reads tree hashes from the stored tiles, and from hashes that are not
// stored yet. It lives for one call: what it has read stays in memory, and what it has
// hashed is lost unless storeTiles writes it.
type tiles struct {
	ctx   context.Context //nolint:containedctx // lives inside one call; tlog's interface has no context
	db    reader
	tiles map[[2]int64][]byte
	fresh map[int64]tlog.Hash
	check func(seq int64, leaf tlog.Hash) error // of a record before it is added; nil for none
}

func newTiles(ctx context.Context, db reader) *tiles {
	return &tiles{ctx: ctx, db: db, tiles: map[[2]int64][]byte{}, fresh: map[int64]tlog.Hash{}}
}

// ReadHashes is tlog.HashReader.
func (t *tiles) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if h, ok := t.fresh[index]; ok {
			hashes[i] = h
			continue
		}
		tile := tlog.TileForIndex(tileHeight, index)
		data, err := t.tile(int64(tile.L), tile.N)
		if err != nil {
			return nil, err
		}
		if len(data) < tile.W*tlog.HashSize {
			return nil, shortTile(tile)
		}
		if hashes[i], err = tlog.HashFromTile(tile, data[:tile.W*tlog.HashSize], index); err != nil {
			return nil, fmt.Errorf("read tile %s: %w", tile.Path(), err)
		}
	}
	return hashes, nil
}

// tile reads a stored tile once. One that is not stored is empty, and too short for whatever is
// looked up in it.
func (t *tiles) tile(level, n int64) ([]byte, error) {
	at := [2]int64{level, n}
	if data, ok := t.tiles[at]; ok {
		return data, nil
	}
	var data []byte
	err := t.db.QueryRowContext(t.ctx, "SELECT hashes FROM ledger_tile WHERE level = $1 AND n = $2", level, n).Scan(&data)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	t.tiles[at] = data
	return data, nil
}

// add puts the hash of one more record into the tree.
func (t *tiles) add(n int64, record tlog.Hash) error {
	hashes, err := tlog.StoredHashesForRecordHash(n, record, t)
	if err != nil {
		return err
	}
	first := tlog.StoredHashIndex(0, n)
	for i, h := range hashes {
		t.fresh[first+int64(i)] = h
	}
	return nil
}

// extend hashes the records after size, at most buildStep of them, and returns the
// new size. Nothing is stored yet.
func (t *tiles) extend(size int64) (int64, error) {
	rows, err := t.db.QueryContext(t.ctx, "SELECT seq, record FROM ledger_entry WHERE seq > $1 ORDER BY seq LIMIT $2",
		size, buildStep)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var records []tlog.Hash
	for next := size + 1; rows.Next(); next++ {
		var seq int64
		var rec sql.RawBytes
		if err := rows.Scan(&seq, &rec); err != nil {
			return 0, err
		}
		if seq != next {
			return 0, gap(next, seq)
		}
		leaf := tlog.RecordHash(rec)
		if t.check != nil {
			if err := t.check(seq, leaf); err != nil {
				return 0, err
			}
		}
		records = append(records, leaf)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, rec := range records {
		if err := t.add(size, rec); err != nil {
			return 0, err
		}
		size++
	}
	return size, nil
}

// build extends the tree by every committed entry, and returns its size and root. Nodes may
// do so at the same time: the first to store a step wins, the other reads the new size and
// goes on from there. Both compute the same hashes, so it does not matter which one wins.
func (l *Ledger) build(ctx context.Context) (size int64, root tlog.Hash, err error) {
	for {
		var from int64
		if err := l.db.Read.QueryRowContext(ctx, "SELECT size FROM ledger_tree WHERE id = 1").Scan(&from); err != nil {
			return 0, root, err
		}
		t := newTiles(ctx, l.db.Read)
		t.check = func(seq int64, leaf tlog.Hash) error {
			known, ok := l.leaves.get(seq)
			return l.checkLeaf(seq, leaf, known, ok)
		}
		to, err := t.extend(from)
		if err != nil {
			return 0, root, err
		}
		if to > from {
			stored, err := l.storeTiles(ctx, t, from, to)
			if err != nil {
				return 0, root, err
			}
			if !stored || to-from == buildStep {
				continue
			}
		}
		root, err = tlog.TreeHash(to, t)
		return to, root, err
	}
}

// storeTiles writes the tiles of one step, if the tree still has the size that the step
// began at. It is not stored, and no error, if another node was faster. The last tile of a
// level is usually partial and is written again as it fills up; readers take the part of it
// that they asked for.
func (l *Ledger) storeTiles(ctx context.Context, t *tiles, from, to int64) (stored bool, err error) {
	tx, err := l.db.Begin(ctx, "ledger_tree")
	if err != nil {
		return false, err
	}
	var now int64
	if err := tx.QueryRow("SELECT size FROM ledger_tree WHERE id = 1", nil, &now); err != nil {
		tx.Rollback()
		return false, err
	}
	if now != from {
		tx.Rollback()
		return false, nil
	}
	for _, tile := range tlog.NewTiles(tileHeight, from, to) {
		data, err := tlog.ReadTileData(tile, t)
		if err != nil {
			tx.Rollback()
			return false, err
		}
		tx.Exec("INSERT INTO ledger_tile (level, n, hashes) VALUES ($1, $2, $3) ON CONFLICT (level, "+
			"n) DO UPDATE SET hashes = excluded.hashes", int64(tile.L), tile.N, data)
	}
	tx.Exec("UPDATE ledger_tree SET size = $1 WHERE id = 1", to)
	_, err = tx.Commit(false)
	return err == nil, err
}

// Tile reads a tile of the published tree by its path, "tile/0/x001/234" or
// "tile/0/000.p/5"; under "tile/entries/" are the records themselves. LED-19: a tile is
// served only if the tree has that many entries, since it may be cached for ever. Whoever
// serves entries has to check that the caller may see them (LED-18); see Bundle.
func (l *Ledger) Tile(ctx context.Context, path string) ([]byte, error) {
	tile, err := tlog.ParseTilePath(goPath(path))
	if err != nil || tile.H != tileHeight {
		return nil, fault.New(fault.NotFound,
			"%q is not a tile. Tiles are tile/LEVEL/NNN or tile/LEVEL/NNN.p/WIDTH, as in C2SP tlog-tiles.", path)
	}
	var size int64
	if err := l.db.Read.QueryRowContext(ctx, "SELECT size FROM ledger_tree WHERE id = 1").Scan(&size); err != nil {
		return nil, err
	}
	// The tile's number is the caller's: it is not multiplied before it is known to
	// be small.
	hashes := size >> (max(tile.L, 0) * tileHeight)
	if tile.N < 0 || tile.N > hashes>>tileHeight || hashes-tile.N<<tileHeight < int64(tile.W) {
		return nil, fault.New(fault.NotFound, "The tree has %d entries, and that tile would hold more than are there.", size)
	}
	if tile.L == -1 {
		return l.bundle(ctx, tile)
	}
	data, err := newTiles(ctx, l.db.Read).tile(int64(tile.L), tile.N)
	if err != nil {
		return nil, err
	}
	if len(data) < tile.W*tlog.HashSize {
		return nil, shortTile(tile)
	}
	return data[:tile.W*tlog.HashSize], nil
}

func shortTile(tile tlog.Tile) error {
	return fault.New(fault.LedgerMismatch,
		"Tile %s of the ledger's tree is missing or too short in the database. Restore the database from a backup.",
		tile.Path())
}

// goPath turns a C2SP path into the one that Go's checksum database uses, which
// has the tile height in front and calls entries data. Go's own spelling is refused: with
// two names for a tile of records, the check of who may read them could be passed by.
func goPath(path string) string {
	rest, ok := strings.CutPrefix(path, "tile/")
	if !ok || strings.HasPrefix(rest, "data/") {
		return ""
	}
	if n, ok := strings.CutPrefix(rest, "entries/"); ok {
		rest = "data/" + n
	}
	return fmt.Sprintf("tile/%d/%s", tileHeight, rest)
}

// bundle is an entry bundle of C2SP tlog-tiles: records, each behind its length in two
// bytes, big-endian. LED-10 keeps records short enough for that.
func (l *Ledger) bundle(ctx context.Context, tile tlog.Tile) ([]byte, error) {
	first := tile.N<<tileHeight + 1
	rows, err := l.db.Read.QueryContext(ctx, "SELECT seq, record FROM ledger_entry WHERE seq >= $1 ORDER BY seq LIMIT $2",
		first, tile.W)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []byte
	next := first
	for ; rows.Next(); next++ {
		var seq int64
		var rec []byte
		if err := rows.Scan(&seq, &rec); err != nil {
			return nil, err
		}
		if seq != next {
			return nil, gap(next, seq)
		}
		out = append(out, byte(len(rec)>>8), byte(len(rec)))
		out = append(out, rec...)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if next < first+int64(tile.W) {
		return nil, missing(next)
	}
	return out, nil
}
