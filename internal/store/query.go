package store

import (
	"context"
	"database/sql"
)

// Query reads rows: inside of a transaction (Tx.Query) or outside of one (DB.Reading).
// Functions that take one work in both.
type Query func(text string, args ...any) (Rows, error)

// Scan reads the columns of a row.
type Scan = func(dest ...any) error

// Reading asks for rows outside of a transaction.
func (db *DB) Reading(ctx context.Context) Query { return Reading(ctx, db.Read) }

// Querier is the reading half of *sql.DB, *sql.Tx and *sql.Conn.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Reading asks for rows outside of a write transaction, such as in a snapshot.
func Reading(ctx context.Context, from Querier) Query {
	return func(text string, args ...any) (Rows, error) {
		return from.QueryContext(ctx, text, args...) //nolint:rowserrcheck // Each does
	}
}

// Bookkeep runs fn in a write transaction of its own that holds the lock on the table named
// lock, and commits if fn succeeds. It is for what is kept about the ledger and does not
// follow from it, such as cursors and leases. State that follows from the ledger must not be
// written this way: it could not be rebuilt.
func (db *DB) Bookkeep(ctx context.Context, lock string, fn func(tx *Tx) error) error {
	tx, err := db.Begin(ctx, lock)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	_, err = tx.Commit(false)
	return err
}

// Each calls fn for every row, until one fails. It holds a connection until then, so fn must not ask the database for
// anything: there are few connections for reading, and calls that each hold one and wait for another wait for ever.
func Each(query Query, fn func(Scan) error, text string, args ...any) error {
	rows, err := query(text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// All reads every row. None is an empty list.
func All[T any](query Query, read func(Scan) (T, error), text string, args ...any) ([]T, error) {
	all := []T{}
	err := Each(query, func(scan Scan) error {
		one, err := read(scan)
		all = append(all, one)
		return err
	}, text, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Text reads a row of one text.
func Text(scan Scan) (text string, err error) {
	err = scan(&text)
	return text, err
}

// Map reads rows of two columns, a key and its value.
func Map[K comparable, V any](query Query, text string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := Each(query, func(scan Scan) error {
		var key K
		var value V
		if err := scan(&key, &value); err != nil {
			return err
		}
		all[key] = value
		return nil
	}, text, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}
