package audit

import (
	"context"
	"database/sql"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// indexes compares the indexes with their tables, one table or index after the other.
func (r *round) indexes(ctx context.Context, b *built) error {
	if r.a.DB.Name() == "sqlite" {
		names := []string{strings.Fields(ledger.EntryTable)[0], "ledger_tile", "ledger_checkpoint"}
		for _, t := range b.tables {
			names = append(names, t.Name)
		}
		for _, f := range r.a.Followers {
			names = append(names, f.Table.Name)
		}
		for _, name := range names {
			if err := r.integrity(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	all, err := store.All(r.a.DB.Reading(ctx), func(scan store.Scan) (x index, err error) {
		err = scan(&x.table, &x.name, &x.columns, &x.where, &x.checked)
		return x, err
	}, listIndexes)
	if err != nil {
		return err
	}
	for _, x := range all {
		if err := r.index(ctx, x); err != nil {
			return err
		}
		if err := r.w.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// integrity has SQLite look at the pages of a table and of its indexes: that each row is in each index, and that there
// are no others. It is one statement, which ends with ctx.
func (r *round) integrity(ctx context.Context, table string) error {
	found, err := store.All(r.a.DB.Reading(ctx), store.Text, "PRAGMA integrity_check("+table+")")
	if err != nil && ctx.Err() == nil {
		r.report(ctx, Indexes, table, "%s.", err)
	}
	for _, text := range found {
		if text != "ok" {
			r.report(ctx, Indexes, table, "%s.", text)
		}
	}
	return r.w.rest(ctx)
}

// index is an index of PostgreSQL.
type index struct {
	table, name, columns, where string
	checked                     bool // amcheck is there to look at it
}

// listIndexes lists the indexes that have an order, with the condition of those that do not have all rows.
const listIndexes = `
SELECT t.relname, i.relname,
  (SELECT string_agg(pg_get_indexdef(x.indexrelid, k, true), ', ' ORDER BY k) FROM generate_series(1, x.indnkeyatts) k),
  coalesce(pg_get_expr(x.indpred, x.indrelid), 'true'),
  EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'amcheck')
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
  JOIN pg_am a ON a.oid = i.relam
WHERE t.relnamespace = current_schema()::regnamespace AND a.amname = 'btree' ORDER BY 1, 2`

// index reads the rows of a table by an index and without one, both at one moment, and compares what they add up to.
// Where amcheck is installed, that looks at the index.
func (r *round) index(ctx context.Context, x index) error {
	if x.checked {
		var none sql.NullString
		err := r.a.DB.Read.QueryRowContext(ctx, "SELECT bt_index_check($1::regclass, true)", x.name).Scan(&none)
		if err != nil && ctx.Err() == nil {
			r.report(ctx, Indexes, x.name, "%s.", err)
		}
		return nil
	}
	snapshot, err := r.a.DB.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Rollback() }()
	sum := func(plan, order string) (rows int64, sum string, err error) {
		if _, err := snapshot.ExecContext(ctx, plan); err != nil {
			return 0, "", err
		}
		err = snapshot.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(h), 0)::text FROM (SELECT "+
			"hashtextextended(ROW("+x.columns+")::text, 0)::numeric AS h FROM "+x.table+" WHERE "+x.where+order+") s").
			Scan(&rows, &sum)
		return rows, sum, err
	}
	rows, all, err := sum(planWithout, "")
	if err != nil {
		return err
	}
	by, listed, err := sum(planWith, " ORDER BY "+x.columns)
	if err != nil {
		return err
	}
	if rows != by || all != listed {
		r.report(ctx, Indexes, x.name, "It has %d rows, and the table %s has %d, or other ones.", by, x.table, rows)
	}
	return nil
}

// What PostgreSQL may read a table with: not an index, or nothing else.
var (
	planWithout = plan(`name IN ('enable_seqscan', 'enable_sort')`)
	planWith    = plan(`name IN ('enable_indexscan', 'enable_indexonlyscan')`)
)

// plan allows the ways of reading for which the condition holds, until the end of the transaction, and no other.
func plan(allowed string) string {
	return "SELECT set_config(name, CASE WHEN " + allowed + " THEN 'on' ELSE 'off' END, true) FROM pg_settings WHERE " +
		"name IN ('enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan', 'enable_sort')"
}
