package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"

	"signalbox/internal/testbed"
)

// HeldCommit holds the commits of one table. It reproduces the case that no client can
// tell apart: the answer to a commit is late, and the commit is carried out although the
// client has given up on it.
type HeldCommit struct {
	t    testing.TB
	conn *sql.Conn
	key  int64
}

// HoldCommits makes every commit that adds or changes a row of the table wait until
// Release, or until the client cancels it; then it is carried out all the same. A
// deferred trigger does that with an advisory lock, whose key is random, so that tests
// do not block each other.
func HoldCommits(t testing.TB, address, table string) *HeldCommit {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h := &HeldCommit{t: t, key: rand.Int64N(1 << 40)}
	if h.conn, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec("SELECT pg_advisory_lock($1)", h.key)
	h.exec(fmt.Sprintf(`CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(%d);
  RETURN NULL;
EXCEPTION WHEN query_canceled THEN
  RETURN NULL;
END $$`, h.key))
	h.exec("CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT OR UPDATE ON " + table +
		" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_commit()")
	return h
}

func (h *HeldCommit) exec(query string, args ...any) {
	h.t.Helper()
	if _, err := h.conn.ExecContext(context.Background(), query, args...); err != nil {
		h.t.Fatal(err)
	}
}

// Reached returns once a commit is waiting, so that a test can act in exactly that
// moment.
func (h *HeldCommit) Reached() {
	h.t.Helper()
	testbed.Until(h.t, "a commit", func() bool {
		var waiting bool
		err := h.conn.QueryRowContext(context.Background(), `SELECT EXISTS (SELECT 1 FROM pg_locks
WHERE locktype = 'advisory' AND NOT granted AND ((classid::bigint << 32) | objid::bigint) = $1)`, h.key).Scan(&waiting)
		return err == nil && waiting
	})
}

// Release lets the waiting commits through, and all later ones.
func (h *HeldCommit) Release() { h.t.Helper(); h.exec("SELECT pg_advisory_unlock($1)", h.key) }
