package ledger

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/store"
)

// Difference is a row that is not what the ledger says.
type Difference struct {
	Table string `json:"table"`
	Live  string `json:"live,omitempty"`    // the row that is there
	Built string `json:"rebuilt,omitempty"` // the row that should be there
}

// Check is the outcome of CheckRebuild.
type Check struct {
	Entries     int64        `json:"entries"`
	Tables      int          `json:"tables"`
	Rows        int64        `json:"rows"`
	Differences []Difference `json:"differences"` // the first hundred
}

// maxDifferences bounds what is reported: a table that differs usually differs everywhere.
const maxDifferences = 100

// CheckRebuild applies every entry to empty tables beside the live ones and
// compares, all as of one moment, while the server may go on working. The ledger is audited
// first: tables that agree with changed entries would prove nothing.
func CheckRebuild(ctx context.Context, db *store.DB, sets []store.Migrations, all []Projection,
	progress func(done, total int64),
) (Check, error) {
	out := Check{Differences: []Difference{}}
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		return out, err
	}
	defer func() { _ = snapshot.Rollback() }()
	side, drop, err := db.Beside(ctx, sets...)
	if err != nil {
		return out, err
	}
	defer drop()
	if err := snapshot.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&out.Entries); err != nil {
		return out, err
	}
	if err := audit(ctx, snapshot, out.Entries); err != nil {
		return out, err
	}
	projections := combine(all)
	for after := int64(0); after < out.Entries; after = min(after+Page, out.Entries) {
		entries, err := readEntries(ctx, snapshot,
			"SELECT record, salt, body FROM ledger_entry WHERE seq > $1 ORDER BY seq LIMIT $2", after, Page)
		if err == nil {
			err = complete(entries, after, out.Entries)
		}
		if err != nil {
			return out, err
		}
		if err := applyBeside(ctx, side, projections, entries); err != nil {
			return out, err
		}
		if progress != nil {
			progress(min(after+Page, out.Entries), out.Entries)
		}
	}
	for _, p := range all {
		for _, table := range p.Tables {
			if err := compareTable(ctx, table, snapshot, side.Read, &out); err != nil {
				return out, fmt.Errorf("compare %s: %w", table.Name, err)
			}
			out.Tables++
		}
	}
	return out, nil
}

// applyBeside applies one page of entries in a transaction of its own.
func applyBeside(ctx context.Context, side *store.DB, p projections, entries []Entry) error {
	tx, err := side.Begin(ctx, "ledger_head")
	if err != nil {
		return err
	}
	for i := range entries {
		if err := p.run(tx, &entries[i]); err != nil {
			tx.Rollback()
			return fmt.Errorf("apply entry %d (%s): %w", entries[i].Seq, entries[i].Kind, err)
		}
	}
	_, err = tx.Commit(false)
	return err
}

// Rebuild replaces every table by what the ledger says, in one transaction, and
// records that it did. It holds the lock on the head, so nobody else writes meanwhile. If it
// fails, the tables are as they were.
func Rebuild(ctx context.Context, db *store.DB, all []Projection, progress func(done, total int64)) (entries int64,
	err error,
) {
	var head int64
	if err := db.Read.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&head); err != nil {
		return 0, err
	}
	if err := audit(ctx, db.Read, head); err != nil {
		return 0, err
	}
	st, err := db.Begin(ctx, "ledger_head")
	if err != nil {
		return 0, err
	}
	l := &Ledger{projections: combine(all)}
	tx := &Tx{l: l, st: st, now: time.Now().UnixMicro()}
	before, err := tx.rebuild(all, progress)
	if err != nil {
		st.Rollback()
		return 0, err
	}
	moveHead(st, before, tx.head)
	unknown, err := st.Commit(true)
	if unknown {
		err = fault.Wrap(err, fault.OutcomeUnknown,
			"The database went away while it was saving. Run `signalbox ledger rebuild "+
				"--check` to see whether the tables were replaced.")
	}
	return tx.head.seq - 1, err
}

// rebuild empties the tables and applies every entry, then appends state.rebuilt, by which
// caches on all nodes know that they have to be read again. It returns the head as it was.
func (tx *Tx) rebuild(all []Projection, progress func(done, total int64)) (before head, err error) {
	if err := tx.st.QueryRow("SELECT seq, at FROM ledger_head WHERE id = 1", nil, &tx.head.seq, &tx.head.at); err != nil {
		return before, err
	}
	before = tx.head
	tables := 0
	for _, p := range all {
		for _, table := range p.Tables {
			tx.st.Exec("DELETE FROM " + table.Name)
			tables++
		}
	}
	for after := int64(0); after < tx.head.seq; after += Page {
		entries, err := tx.page(after)
		if err == nil {
			err = complete(entries, after, tx.head.seq)
		}
		if err != nil {
			return before, err
		}
		for i := range entries {
			if err := tx.l.projections.run(tx.st, &entries[i]); err != nil {
				return before, fmt.Errorf("apply entry %d (%s): %w", entries[i].Seq, entries[i].Kind, err)
			}
		}
		if progress != nil {
			progress(min(after+Page, tx.head.seq), tx.head.seq)
		}
	}
	tx.Append(Event{
		Kind: "state.rebuilt", Actor: "system",
		Body: map[string]any{"entries": tx.head.seq, "tables": tables},
	})
	return before, tx.err
}

// complete checks that a page has every entry it should: state is not built from a
// ledger with holes.
func complete(entries []Entry, after, head int64) error {
	if err := inOrder(entries, after); err != nil {
		return err
	}
	if n := int64(len(entries)); n < min(Page, head-after) {
		return missing(after + n + 1)
	}
	return nil
}

func (tx *Tx) page(after int64) ([]Entry, error) {
	return store.All(tx.st.Query, scanEntry,
		"SELECT record, salt, body FROM ledger_entry WHERE seq > $1 ORDER BY seq LIMIT $2", after, int64(Page))
}

// compareTable walks both tables in the order of the key and notes where they differ. It
// holds one row of each in memory, so it compares tables of any size.
func compareTable(ctx context.Context, table Table, live, built reader, out *Check) error {
	query := "SELECT * FROM " + table.Name + " ORDER BY " + table.Key
	a, err := newWalk(ctx, live, query)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := newWalk(ctx, built, query)
	if err != nil {
		return err
	}
	defer b.close()
	keys := strings.Count(table.Key, ",") + 1
	differ := func(d Difference) {
		if len(out.Differences) < maxDifferences {
			d.Table = table.Name
			out.Differences = append(out.Differences, d)
		}
	}
	for a.row != nil || b.row != nil {
		order := compareKeys(a.row, b.row, keys)
		switch {
		case order < 0:
			differ(Difference{Live: a.text()})
		case order > 0:
			differ(Difference{Built: b.text()})
		case !reflect.DeepEqual(a.row, b.row):
			differ(Difference{Live: a.text(), Built: b.text()})
		}
		if order <= 0 {
			out.Rows++
			if err := a.next(); err != nil {
				return err
			}
		}
		if order >= 0 {
			if err := b.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk reads rows of any table one by one.
type walk struct {
	rows    *sql.Rows
	columns []string
	row     []any // nil at the end
}

// newWalk begins at the first row; row is nil if there is none.
func newWalk(ctx context.Context, r reader, query string) (*walk, error) {
	rows, err := r.QueryContext(ctx, query) //nolint:rowserrcheck // next does
	if err != nil {
		return nil, err
	}
	w := &walk{rows: rows}
	if w.columns, err = rows.Columns(); err == nil {
		err = w.next()
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *walk) close() { _ = w.rows.Close() }

// next moves to the next row. Values are kept as the driver returns them: both sides come from
// the same kind of database.
func (w *walk) next() error {
	w.row = nil
	if !w.rows.Next() {
		return w.rows.Err()
	}
	row, into := make([]any, len(w.columns)), make([]any, len(w.columns))
	for i := range row {
		into[i] = &row[i]
	}
	w.row = row
	return w.rows.Scan(into...)
}

// text is the row for a person: the names of the columns with their values.
func (w *walk) text() string {
	var b strings.Builder
	for i, v := range w.row {
		switch x := v.(type) {
		case []byte:
			v = fmt.Sprintf("%x", x)
		case string:
			v = fmt.Sprintf("%q", x)
		}
		fmt.Fprintf(&b, "%s=%v ", w.columns[i], v)
	}
	return strings.TrimSpace(b.String())
}

// compareKeys orders rows by their first columns; the end comes after every row.
func compareKeys(a, b []any, keys int) int {
	if a == nil || b == nil {
		return cmp.Compare(len(b), len(a))
	}
	for i := range keys {
		order := 0
		switch x := a[i].(type) {
		case int64:
			y, _ := b[i].(int64)
			order = cmp.Compare(x, y)
		case string:
			y, _ := b[i].(string)
			order = cmp.Compare(x, y)
		case []byte:
			y, _ := b[i].([]byte)
			order = bytes.Compare(x, y)
		}
		if order != 0 {
			return order
		}
	}
	return 0
}
