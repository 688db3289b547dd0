package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

const (
	makeList = "CREATE TABLE list (n {bigint} NOT NULL) {strict};"
	addOne   = "INSERT INTO list (n) VALUES (1);"
)

func set(name string, steps ...string) store.Migrations {
	return store.Migrations{Package: name, Steps: steps}
}

// open opens a database without migrating it.
func open(t *testing.T, address string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func schema(t *testing.T, db *store.DB) string {
	t.Helper()
	text, err := db.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func count(t *testing.T, db *store.DB, table string) (n int) {
	t.Helper()
	if err := db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAStepRunsOnceAndNewOnesFollow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := open(t, address)
		for _, steps := range [][]string{
			{makeList, addOne},
			{makeList, addOne},
			{makeList, addOne, addOne, addOne},
			{makeList, addOne, addOne, addOne},
		} {
			if err := db.Migrate(t.Context(), set("list", steps...)); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(t, db, "list"); n != 3 {
			t.Errorf("three steps that add a row have added %d", n)
		}
		if n := count(t, db, "schema_step"); n != 4 {
			t.Errorf("%d steps are noted", n)
		}
	})
}

func TestManyStepsAreNotedInTheirOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := open(t, address)
		steps := append([]string{makeList}, slices.Repeat([]string{addOne}, 11)...)
		for range 2 {
			if err := db.Migrate(t.Context(), set("list", steps...)); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(t, db, "list"); n != 11 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestNodesThatStartTogetherMigrateOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				db, err := store.Open(t.Context(), address)
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				if err := db.Migrate(t.Context(), set("list", makeList, addOne), notes); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := count(t, open(t, address), "list"); n != 1 {
			t.Errorf("the step ran %d times", n)
		}
	})
}

func TestADatabaseOfAnotherBuildIsRefusedAndLeftAsItIs(t *testing.T) {
	fresh := set("fresh", "CREATE TABLE fresh (n {bigint}) {strict};")
	for _, c := range []struct {
		name string
		sets []store.Migrations
		says string
	}{
		{"a changed step", []store.Migrations{fresh, set("list", makeList, addOne+" ")}, "Step 2 of list"},
		{"a step from the future", []store.Migrations{fresh, set("list", makeList)}, "its list tables are ahead"},
		{"a package from the future", []store.Migrations{fresh}, "its list tables are ahead"},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				db := storetest.Open(t, address, set("list", makeList, addOne))
				before := schema(t, db)
				err := db.Migrate(t.Context(), c.sets...)
				if !fault.Is(err, fault.SchemaNewer) || !strings.Contains(fault.From(err).Message, c.says) {
					t.Errorf("got %v", err)
				}
				if diff := cmp.Diff(before, schema(t, db)); diff != "" {
					t.Errorf("the schema has changed (-before +after):\n%s", diff)
				}
				if n := count(t, db, "schema_step"); n != 2 {
					t.Errorf("%d steps are noted", n)
				}
				if err := db.Migrate(t.Context(), set("list", makeList, addOne)); err != nil {
					t.Errorf("the right build is refused: %v", err)
				}
			})
		})
	}
}

func TestAStepThatFailsLeavesNothingBehind(t *testing.T) {
	const broken = "CREATE TABLE half (n {bigint}) {strict}; INSERT INTO half (n) VALUES " +
		"(1); INSERT INTO nowhere (n) VALUES (1);"
	for name, sets := range map[string][]store.Migrations{
		"the only step":                    {set("list", broken)},
		"the second of two":                {set("list", makeList, broken)},
		"in the second of two packages":    {set("list", makeList), set("other", broken)},
		"a statement that is not even SQL": {set("list", makeList, "CREATE nonsense")},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				db := open(t, address)
				if err := db.Migrate(t.Context(), sets...); err == nil {
					t.Fatal("no error")
				} else if !strings.Contains(err.Error(), "migrate ") {
					t.Errorf("the error does not say which step: %v", err)
				}
				if diff := cmp.Diff("", schema(t, db)); diff != "" {
					t.Errorf("something is left (-want +got):\n%s", diff)
				}
				if err := db.Migrate(t.Context(), set("list", makeList, addOne)); err != nil {
					t.Errorf("after the step was put right: %v", err)
				}
			})
		})
	}
}

func TestAMigrationThatIsCalledOffLeavesNothingBehind(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := open(t, address)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.Migrate(ctx, set("list", makeList)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := db.Migrate(t.Context(), set("list", makeList, addOne)); err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, "list"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestAnAppendOnlyTableRefusesChanges(t *testing.T) {
	table := set("log", `
CREATE TABLE log (seq {bigint} PRIMARY KEY, record {text} NOT NULL, body {text}) {strict};
{append-only log seq record / body}
CREATE TABLE fixed (name {text} NOT NULL) {strict};
{append-only fixed}
INSERT INTO log (seq, record, body) VALUES (1, 'r', 'b');
INSERT INTO fixed (name) VALUES ('a');`)
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, notes, table)
		for statement, allowed := range map[string]bool{
			"INSERT INTO log (seq, record, body) VALUES (2, 'r', 'b')": true,
			"UPDATE log SET body = NULL WHERE seq = 1":                 true,
			"UPDATE log SET body = 'other'":                            false,
			"UPDATE log SET body = NULL, record = 'other'":             false,
			"UPDATE log SET body = NULL, seq = seq + 10":               false,
			"UPDATE log SET record = 'other'":                          false,
			"DELETE FROM log":                                          false,
			"INSERT INTO log (seq, record) VALUES (1, 'x') ON CONFLICT (seq) DO UPDATE SET record = excluded.record": false,
			"UPDATE fixed SET name = 'b'":  false,
			"UPDATE fixed SET name = name": false,
			"DELETE FROM fixed":            false,
			"TRUNCATE log":                 false,
			"TRUNCATE fixed":               false,
		} {
			tx := begin(t, db)
			tx.Exec(statement)
			_, err := tx.Commit(false)
			if (err == nil) != allowed {
				t.Errorf("%s: %v", statement, err)
			}
		}
		if count(t, db, "fixed") != 1 || count(t, db, "log") != 2 {
			t.Error("rows are gone")
		}
	})
}

func TestTheSchemaReadsTheSameForTwoFreshDatabases(t *testing.T) {
	table := set("log", `
CREATE TABLE log (seq {bigint} PRIMARY KEY, record {blob} NOT NULL, n {bigint} NOT NULL DEFAULT 3, body {text}) {strict};
CREATE INDEX log_body ON log (body, seq) WHERE body <> '';
{append-only log seq record n / body}`)
	for name, address := range storetest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := schema(t, storetest.Open(t, address(t), notes, table))
			second := schema(t, storetest.Open(t, address(t), notes, table))
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("(-first +second):\n%s", diff)
			}
			for _, word := range []string{"schema_step", "note", "log_body", "log_no_"} {
				if !strings.Contains(first, word) {
					t.Errorf("nothing of %s in:\n%s", word, first)
				}
			}
			if name == "postgres" && !strings.Contains(first, "table note name text collate C not null") {
				// A test server sorts by bytes anyway; others need not.
				t.Errorf("text is not in byte order:\n%s", first)
			}
			if name == "postgres" && (!strings.Contains(first, "TRUNCATE") || !strings.Contains(first, "RAISE EXCEPTION")) {
				t.Errorf("the triggers are not told in full:\n%s", first)
			}
		})
	}
}
