// Package storetest runs a test on every database that Signalbox supports: on SQLite in
// a temporary folder, and on a real PostgreSQL in a schema of its own. Tests run in
// parallel and never share a schema. Only tests import it.
package storetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/store"
	"signalbox/internal/testbed"
)

// Each runs fn as a parallel subtest for each database, with the address of an empty
// one.
func Each(t *testing.T, fn func(t *testing.T, address string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, SQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, Postgres(t))
	})
}

// Databases are the two, by name, for benchmarks and for tests that do not run on [Each].
var Databases = map[string]func(testing.TB) string{"sqlite": SQLite, "postgres": Postgres}

// SQLite is the address of an empty SQLite database.
func SQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "signalbox.db")
}

// Postgres is the address of an empty schema in the PostgreSQL that `make test` starts.
// Without one the test is skipped, or fails if CI is set: a skipped test must not look
// like a passed one.
func Postgres(t testing.TB) string {
	t.Helper()
	address := os.Getenv("SIGNALBOX_TEST_POSTGRES")
	if address == "" {
		testbed.Missing(t, "there is no PostgreSQL; run the tests with make test")
	}
	return Schema(t, address)
}

// Schema creates an empty schema in the database at the address and drops it at the end
// of the test. The returned address has it as its search path, so the code under test
// does not know of it.
func Schema(t testing.TB, address string) string {
	t.Helper()
	name := "t_" + strings.ToLower(rand.Text()[:12])
	if err := runSQL(address, "CREATE SCHEMA "+name); err != nil {
		t.Fatalf("make a schema in PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		// A test that has killed its PostgreSQL has nothing to drop.
		_ = runSQL(address, "DROP SCHEMA "+name+" CASCADE")
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	q.Set("sslmode", "disable")    // a second try for each connection
	q.Set("connect_timeout", "30") // a machine with much else to do answers late
	u.RawQuery = q.Encode()
	return u.String()
}

// Load runs the statements of a dump in the PostgreSQL at the address.
func Load(t testing.TB, address, dump string) {
	t.Helper()
	if err := runSQL(address, dump); err != nil {
		t.Fatalf("load a dump into PostgreSQL: %v", err)
	}
}

// runSQL runs statements without parameters, over a connection of its own, because the
// one of the test may be broken on purpose.
func runSQL(address, statements string) error {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(context.Background(), statements)
	return err
}

// Open opens the database, runs the migrations, and closes it at the end of the test. A
// second Open of the same address is a second process on the database, as far as the
// store can tell.
func Open(t testing.TB, address string, sets ...store.Migrations) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.Migrate(t.Context(), sets...); err != nil {
		t.Fatal(err)
	}
	return db
}

// Plan is how SQLite answers a query, a line for each step.
func Plan(t testing.TB, db *store.DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.Read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int64
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + " \n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// Strings is what a query finds, which selects one column of text.
func Strings(t testing.TB, db *store.DB, query string, args ...any) (found []string) {
	t.Helper()
	rows, err := db.Read.QueryContext(context.Background(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		found = append(found, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
