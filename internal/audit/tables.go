package audit

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// built are tables that are made of the entries, beside the live ones. Those of the fast round stay and follow the
// ledger; those of the whole round are made anew each time.
type built struct {
	db     *store.DB
	dir    string
	apply  map[string][]ledger.Apply
	every  []ledger.Apply // for entries of all kinds
	kinds  []string       // those that are read; none is all
	tables []ledger.Table
	at     int64 // the last entry that was applied
}

// build makes empty tables.
func (a *Audit) build(ctx context.Context, name string, from []ledger.Projection, all bool) (*built, error) {
	path := a.path(name)
	b := &built{dir: filepath.Dir(path), apply: map[string][]ledger.Apply{}}
	for _, p := range from {
		for kind, apply := range p.Apply {
			b.apply[kind] = append(b.apply[kind], apply)
			if !all && !slices.Contains(b.kinds, kind) {
				b.kinds = append(b.kinds, kind)
			}
		}
		b.tables = append(b.tables, p.Tables...)
	}
	slices.Sort(b.kinds)
	if err := errors.Join(os.RemoveAll(b.dir), os.MkdirAll(b.dir, 0o700)); err != nil {
		return nil, err
	}
	var err error
	if b.db, err = store.Scratch(ctx, path); err == nil {
		err = b.db.Migrate(ctx, a.Sets...)
	}
	if err != nil {
		drop([]*built{b})
		return nil, err
	}
	return b, nil
}

// drop removes tables that were built.
func drop(all []*built) {
	for _, b := range all {
		if b.db != nil {
			b.db.Close()
		}
		_ = os.RemoveAll(b.dir)
	}
}

// take applies entries, of which the last one up to a number is among them.
func (b *built) take(ctx context.Context, entries []ledger.Entry, upTo int64) error {
	tx, err := b.db.Begin(context.WithoutCancel(ctx), "ledger_head")
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range entries {
		e := &entries[i]
		for _, apply := range slices.Concat(b.apply[e.Kind], b.every) {
			if err := apply(tx, e); err != nil {
				return fmt.Errorf("apply entry %d (%s): %w", e.Seq, e.Kind, err)
			}
		}
	}
	if _, err = tx.Commit(false); err == nil {
		b.at = upTo
	}
	return err
}

// step is how many entries are read at once, of which those of other kinds are not looked at.
const step = 2 * tileWidth

// next applies the next entries, up to a number at the most. prove proves each, for tables that are made of some
// entries only; those of the others are proved by what they make together.
func (r *round) next(ctx context.Context, b *built, from store.Querier, upTo int64, prove bool) error {
	upTo = min(upTo, b.at+step)
	var where store.Where
	where.And("e.seq > %s AND e.seq <= %s", b.at, upTo)
	if len(b.kinds) > 0 {
		where.In("e.kind", b.kinds)
	}
	query := "SELECT " + ledger.EntryColumns + " FROM " + ledger.EntryTable + " WHERE " + where.String() +
		" ORDER BY e.seq"
	reading := store.Reading(context.WithoutCancel(ctx), from)
	entries, err := store.All(reading, func(scan store.Scan) (ledger.Entry, error) {
		var row ledger.Row
		if err := scan(row.After()...); err != nil {
			return ledger.Entry{}, err
		}
		return row.Entry()
	}, query, where.Args()...)
	if err != nil {
		return err
	}
	for i := range entries {
		if e := &entries[i]; prove && !r.proved(ctx, e) {
			return fmt.Errorf("entry %d is not the one that was signed", e.Seq)
		}
	}
	return b.take(ctx, entries, upTo)
}

// chase is how many more entries than there are at first are applied before a round is given up: the server writes
// faster than the audit may read.
const chase = 100_000

// catchUp applies entries until few are left.
func (r *round) catchUp(ctx context.Context, b *built, prove bool) error {
	for most := int64(0); ; {
		head, err := r.a.Ledger.Head(ctx)
		if err != nil || head-b.at <= step {
			return err
		}
		if most == 0 {
			most = head + chase
		} else if b.at > most {
			return fault.New(fault.Overloaded, "The server writes faster than the audit can follow with its share of a "+
				"processor, so tables are not compared. Raise audit.percent.")
		}
		if err := r.next(ctx, b, r.a.DB.Read, head, prove); err != nil {
			return err
		}
		if err := r.w.rest(ctx); err != nil {
			return err
		}
	}
}

// rowsAtOnce is how many rows of a table are compared in one step.
const rowsAtOnce = 400

// compare compares a table with the one that was built, in steps. Each sees one moment, up to which the entries are
// applied first, so that the server goes on working meanwhile. differs is called with the row that is there and the
// one that should be, either of which may be nil.
func (r *round) compare(ctx context.Context, b *built, t ledger.Table, prove bool,
	differs func(is, should row, snapshot *sql.Tx) error,
) error {
	for after := (row{}); ; {
		if err := r.catchUp(ctx, b, prove); err != nil {
			return err
		}
		last, err := r.compareStep(ctx, b, t, prove, after, differs)
		if err != nil {
			return fmt.Errorf("compare the table %s: %w", t.Name, err)
		}
		if err := r.w.rest(ctx); err != nil || last.values == nil {
			return err
		}
		after = last
	}
}

// compareStep compares the rows after one, and returns the last of them; it has no values at the end of the table.
func (r *round) compareStep(ctx context.Context, b *built, t ledger.Table, prove bool, after row,
	differs func(is, should row, snapshot *sql.Tx) error,
) (last row, err error) {
	ctx = context.WithoutCancel(ctx)
	snapshot, err := r.a.DB.Snapshot(ctx)
	if err != nil {
		return last, err
	}
	defer func() { _ = snapshot.Rollback() }()
	var head int64
	if err := snapshot.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&head); err != nil {
		return last, err
	}
	if head < b.at {
		r.report(ctx, Head, "", "The ledger had %d entries already, and ends at %d.", b.at, head)
		return last, errors.New("the end of the ledger is gone")
	}
	for b.at < head {
		if err := r.next(ctx, b, snapshot, head, prove); err != nil {
			return last, err
		}
	}
	keys := strings.Split(strings.ReplaceAll(t.Key, " ", ""), ",")
	live, err := rowsAfter(ctx, snapshot, t.Name, keys, after)
	if err != nil {
		return last, err
	}
	side, err := rowsAfter(ctx, b.db.Read, t.Name, keys, after)
	if err != nil {
		return last, err
	}
	// Both are known up to the smaller of their ends.
	for _, rows := range [][]row{live, side} {
		if n := len(rows); n == rowsAtOnce && (last.values == nil || rows[n-1].compare(last) < 0) {
			last = rows[n-1]
		}
	}
	for len(live)+len(side) > 0 {
		var is, should row
		switch order := firstOf(live).compare(firstOf(side)); {
		case order < 0:
			is, live = live[0], live[1:]
		case order > 0:
			should, side = side[0], side[1:]
		default:
			is, live, should, side = live[0], live[1:], side[0], side[1:]
		}
		if last.values != nil && (is.behind(last) || should.behind(last)) {
			break
		}
		if is.values != nil {
			r.out.Rows++
		}
		if !reflect.DeepEqual(is.values, should.values) {
			if err := differs(is, should, snapshot); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// row is a row of any table, with its key columns first.
type row struct {
	columns []string
	values  []any
	keys    int
}

// rowsAfter reads the rows that follow one, in the order of the key.
func rowsAfter(ctx context.Context, from store.Querier, table string, keys []string, after row) ([]row, error) {
	query, args := "SELECT * FROM "+table, []any(nil)
	by := strings.Join(keys, ", ")
	if after.values != nil {
		args = after.values[:len(keys)]
		query += " WHERE (" + by + ") > (" + store.Marks(1, len(keys)) + ")"
	}
	found, err := from.QueryContext(ctx, fmt.Sprintf("%s ORDER BY %s LIMIT %d", query, by, rowsAtOnce), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	var all []row
	for found.Next() {
		one := row{columns, make([]any, len(columns)), len(keys)}
		into := make([]any, len(columns))
		for i := range into {
			into[i] = &one.values[i]
		}
		if err := found.Scan(into...); err != nil {
			return nil, err
		}
		for i, v := range one.values {
			one.values[i] = alike(v)
		}
		all = append(all, one)
	}
	return all, found.Err()
}

// alike is a value in the one form of both databases: the live table may be PostgreSQL's, and the one beside it is
// SQLite's.
func alike(v any) any {
	switch x := v.(type) {
	case bool:
		if x {
			return int64(1)
		}
		return int64(0)
	case []byte:
		if len(x) == 0 {
			return nil // SQLite has an empty blob come back as none
		}
	}
	return v
}

// firstOf is the first row, or none.
func firstOf(rows []row) row {
	if len(rows) == 0 {
		return row{}
	}
	return rows[0]
}

// compare orders rows by their keys; none comes after every row.
func (a row) compare(b row) int {
	if a.values == nil || b.values == nil {
		return cmp.Compare(len(b.values), len(a.values))
	}
	for i := range a.keys {
		order := 0
		switch x := a.values[i].(type) {
		case int64:
			y, _ := b.values[i].(int64)
			order = cmp.Compare(x, y)
		case string:
			y, _ := b.values[i].(string)
			order = cmp.Compare(x, y)
		case []byte:
			y, _ := b.values[i].([]byte)
			order = bytes.Compare(x, y)
		}
		if order != 0 {
			return order
		}
	}
	return 0
}

// behind reports whether there is a row, and it comes after another.
func (a row) behind(b row) bool { return a.values != nil && a.compare(b) > 0 }

// key is the row's key for people.
func (a row) key() string {
	var parts []string
	for i := range a.keys {
		if b, ok := a.values[i].([]byte); ok {
			parts = append(parts, fmt.Sprintf("%s=%x", a.columns[i], b))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s=%.80q", a.columns[i], fmt.Sprint(a.values[i])))
	}
	return strings.Join(parts, " ")
}

// difference says how two rows differ, without their values: some are secrets.
func difference(is, should row) string {
	switch {
	case should.values == nil:
		return "The row " + is.key() + " was added by hand."
	case is.values == nil:
		return "The row " + should.key() + " is missing."
	}
	var names []string
	for i, v := range is.values {
		if i < len(should.values) && !reflect.DeepEqual(v, should.values[i]) {
			names = append(names, is.columns[i])
		}
	}
	return "The row " + is.key() + " has another " + strings.Join(names, ", ") + "."
}
