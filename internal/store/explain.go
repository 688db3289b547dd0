package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"signalbox/internal/fault"
)

// Explain turns an error of a database into a fault with a stable code and a sentence that
// says what to do. Other errors, and faults, are returned unchanged.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if e := explainSQLite(err); e != nil {
		return e
	}
	if e := explainPostgres(err); e != nil {
		return e
	}
	return err
}

// IsUnique reports whether a write was refused because a unique value was taken.
func IsUnique(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "23505"
}

// IsDamaged reports whether the database could not read its own pages: somebody has written over them, or the disk fails.
func IsDamaged(err error) bool {
	if code := primaryCode(err); code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "XX001" || e.Code == "XX002")
}

// lines reads the first column of every row.
func lines(ctx context.Context, db *sql.DB, query string) (string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var out strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		out.WriteString(line + "\n")
	}
	return out.String(), rows.Err()
}
