package store

import "context"

// Query asks for rows: inside of a transaction (Tx.Query) or outside of one (DB.Reading).
type Query func(text string, args ...any) (Rows, error)

// Scan reads the columns of a row.
type Scan = func(dest ...any) error

// Reading asks for rows outside of a transaction.
func (db *DB) Reading(ctx context.Context) Query {
	return func(text string, args ...any) (Rows, error) {
		return db.Read.QueryContext(ctx, text, args...) //nolint:rowserrcheck // Each does
	}
}

// Each calls fn for every row, until one fails.
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
