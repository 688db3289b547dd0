package store_test

import (
	"context"
	"database/sql"
	"net/url"
	"sync"
	"testing"
	"time"

	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// increment adds one to the counter by reading it and writing it back, which
// loses counts unless transactions follow one another.
func increment(ctx context.Context, db *store.DB) error {
	tx, err := db.Begin(ctx, "head")
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT n FROM head WHERE id = 1", nil, &n); err != nil {
		return err
	}
	tx.Exec("UPDATE head SET n = $1 WHERE id = 1", n+1)
	_, err = tx.Commit(true)
	return err
}

func TestTransactionsWithTheSameLockFollowOneAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		nodes := []*store.DB{storetest.Open(t, address, notes), storetest.Open(t, address, notes)}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for range 25 {
					if err := increment(t.Context(), nodes[g%len(nodes)]); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		var n int
		if err := nodes[0].Read.QueryRowContext(t.Context(), "SELECT n FROM head WHERE id = 1").Scan(&n); err != nil ||
			n != 200 {
			t.Errorf("the counter is at %d, %v", n, err)
		}
	})
}

func TestACallerWhoGivesUpWaitingForTheLockLeavesItToTheNext(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		holder := begin(t, db)
		if err := holder.QueryRow("SELECT n FROM head WHERE id = 1", nil, new(int)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := increment(ctx, db); err == nil {
			t.Error("the lock was taken while another held it")
		}
		commit(t, holder)
		if err := increment(t.Context(), db); err != nil {
			t.Errorf("after the lock was free: %v", err)
		}
	})
}

func TestAListenerIsWokenByACommitFromAnotherNode(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	named, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := named.Query()
	q.Set("application_name", "listener")
	named.RawQuery = q.Encode()
	listener, writer := storetest.Open(t, named.String(), notes), storetest.Open(t, address, notes)

	woken := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- listener.Listen(ctx, func() { woken <- struct{}{} }) }()
	wait := func(why string) {
		t.Helper()
		testbed.Receive(t, "a wake-up "+why, woken)
	}
	wait("once when it begins, for what was committed before")
	if err := increment(t.Context(), writer); err != nil {
		t.Fatal(err)
	}
	wait("by the commit")
	for range len(woken) {
		<-woken
	}
	_, err = writer.Read.ExecContext(t.Context(),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener' AND query LIKE 'LISTEN%'")
	if err != nil {
		t.Fatal(err)
	}
	wait("when it is back after its connection was lost")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestListeningOnSQLiteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, storetest.SQLite(t), notes)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Listen(ctx, func() {}); err != nil {
		t.Error(err)
	}
}

func TestASnapshotSeesOneMomentWhileOthersWrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, notes, store.Migrations{Package: "account", Steps: []string{`
CREATE TABLE account (id {bigint} PRIMARY KEY, n {bigint} NOT NULL) {strict};
INSERT INTO account (id, n) VALUES (1, 1000), (2, 1000);`}})
		stop, moved := make(chan struct{}), make(chan struct{}, 1000)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				tx, err := db.Begin(t.Context(), "head")
				if err != nil {
					t.Error(err)
					return
				}
				// The sum stays the same.
				tx.Exec("UPDATE account SET n = n - 1 WHERE id = 1")
				tx.Exec("UPDATE account SET n = n + 1 WHERE id = 2")
				if _, err := tx.Commit(false); err != nil {
					t.Error(err)
					return
				}
				select {
				case moved <- struct{}{}:
				case <-stop:
					return
				}
			}
		})
		defer wg.Wait()
		defer close(stop)
		for range 10 {
			tx, err := db.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := account(t, tx, 1)
			<-moved // what others do in between changes nothing, and is not held up
			<-moved
			if second := account(t, tx, 2); first+second != 2000 {
				t.Errorf("%d and %d are not of one moment", first, second)
			}
			if _, err := tx.ExecContext(t.Context(), "UPDATE account SET n = 0"); err == nil {
				t.Error("a snapshot can be written to")
			}
			_ = tx.Rollback()
		}
	})
}

func TestTheMomentOfASnapshotIsThatOfTheCall(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		snapshot, err := db.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = snapshot.Rollback() }()
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		commit(t, tx)
		var n int
		if err := snapshot.QueryRowContext(t.Context(), "SELECT count(*) FROM note").Scan(&n); err != nil || n != 0 {
			t.Errorf("it sees %d that came later, %v", n, err)
		}
	})
}

func account(t *testing.T, tx *sql.Tx, id int) (n int) {
	t.Helper()
	if err := tx.QueryRowContext(t.Context(), "SELECT n FROM account WHERE id = $1", id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestADatabaseBesideIsEmptyAndGoneAfterwards(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		commit(t, tx)
		other, drop, err := db.Beside(t.Context(), notes)
		if err != nil {
			t.Fatal(err)
		}
		wantNames(t, other, "")
		tx = begin(t, other)
		tx.Exec(insertNote, 1, "b")
		commit(t, tx)
		drop()
		wantNames(t, db, "a")
		if err := other.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM note").Scan(new(int)); err == nil {
			t.Error("it is still there")
		}
		if _, _, err := db.Beside(t.Context(),
			store.Migrations{Package: "x", Steps: []string{"CREATE nonsense"}}); err == nil {
			t.Error("migrations that fail give a database")
		}
	})
}
