package ledger_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// intruder is somebody with a connection to the database and no manners.
type intruder struct {
	t  testing.TB
	db *sql.DB
}

func intrude(t testing.TB, address string) intruder {
	t.Helper()
	driver := "sqlite"
	if strings.HasPrefix(address, "postgres:") {
		driver = "pgx"
	} else {
		address = "file:" + address + "?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return intruder{t, db}
}

func (i intruder) exec(statement string, args ...any) {
	i.t.Helper()
	if _, err := i.db.ExecContext(i.t.Context(), statement, args...); err != nil {
		i.t.Fatalf("%s: %v", statement, err)
	}
}

// disarm drops the triggers that forbid what follows.
func (i intruder) disarm() {
	i.t.Helper()
	if _, err := i.db.ExecContext(i.t.Context(), "DROP TRIGGER ledger_entry_no_update"); err == nil {
		i.exec("DROP TRIGGER ledger_entry_no_delete")
		return
	}
	i.exec("DROP TRIGGER ledger_entry_no_change ON ledger_entry")
}

// flip changes a bit of byte at in a column that the query finds.
func (i intruder) flip(at int, table, column, where string) {
	i.t.Helper()
	var value []byte
	if err := i.db.QueryRowContext(i.t.Context(),
		"SELECT "+column+" FROM "+table+" WHERE "+where).Scan(&value); err != nil {
		i.t.Fatal(err)
	}
	value[at] ^= 1
	i.exec("UPDATE "+table+" SET "+column+" = $1 WHERE "+where, value)
}

// backup makes the database what it was when it held 400 entries.
func (i intruder) backup() {
	i.t.Helper()
	i.exec("DELETE FROM ledger_entry WHERE seq > 400")
	i.exec("DELETE FROM note WHERE seq > 400")
	i.exec("UPDATE ledger_head SET seq = 400")
	i.exec("UPDATE ledger_tree SET size = 400")
	i.exec("DELETE FROM ledger_checkpoint WHERE size > 400")
	i.exec("DELETE FROM ledger_tile WHERE level = 1")
	var tile []byte
	if err := i.db.QueryRowContext(i.t.Context(),
		"SELECT hashes FROM ledger_tile WHERE level = 0 AND n = 1").Scan(&tile); err != nil {
		i.t.Fatal(err)
	}
	i.exec("UPDATE ledger_tile SET hashes = $1 WHERE level = 0 AND n = 1", tile[:(400-256)*32])
	var old []byte
	if err := i.db.QueryRowContext(i.t.Context(),
		"SELECT hashes FROM ledger_tile WHERE level = 0 AND n = 0").Scan(&old); err != nil {
		i.t.Fatal(err)
	}
	var leaves [][]byte
	for k := 0; k < len(old); k += 32 {
		leaves = append(leaves, old[k:k+32])
	}
	i.exec("INSERT INTO ledger_tile (level, n, hashes) VALUES (1, 0, $1)", rootOf(leaves))
}

// stopped is a ledger with so many entries that runs no more, and its folder.
func stopped(t *testing.T, address string, entries int) (n node, dir string) {
	t.Helper()
	dir = t.TempDir()
	n = start(t, address, dir)
	fill(t, n, entries)
	n.stop()
	return n, dir
}

// wantRefused checks a ledger that must not go on: it explains itself, takes no
// write, and can be read.
func wantRefused(t *testing.T, n node) {
	t.Helper()
	if err := n.Mismatch(); !fault.Is(err, fault.LedgerMismatch) || len(err.Error()) < 40 {
		t.Fatalf("Mismatch is %v", err)
	}
	head, err := n.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, entries := count(t, n, "note"), count(t, n, "ledger_entry")
	err = n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("too late", "")); return nil })
	if !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("a write heard %v", err)
	}
	if after, err := n.Head(t.Context()); after != head || err != nil || count(t, n, "note") != rows ||
		count(t, n, "ledger_entry") != entries {
		t.Errorf("something was written: the head went from %d to %d (%v)", head, after, err)
	}
	if e, err := n.Entry(t.Context(), 1); err != nil || e.Subject != "note 1" {
		t.Errorf("entry 1 reads as %+v (%v)", e, err)
	}
}

func TestTheLedgerIsComparedWithTheCheckpointFileAtTheStart(t *testing.T) {
	t.Parallel()
	file := func(text string) func(intruder, string) {
		return func(i intruder, dir string) {
			testbed.Write(i.t, filepath.Join(dir, ledger.CheckpointFile), text)
		}
	}
	for name, tamper := range map[string]func(i intruder, dir string){
		"the last record is changed": func(i intruder, _ string) { i.flip(20, "ledger_entry", "record", "seq = 512") },
		"a record is changed":        func(i intruder, _ string) { i.flip(20, "ledger_entry", "record", "seq = 300") },
		"the last entries are gone": func(i intruder, _ string) {
			i.exec("DELETE FROM ledger_entry WHERE seq > 500")
			i.exec("UPDATE ledger_head SET seq = 500")
		},
		"the last entries are gone, not so the head": func(i intruder, _ string) {
			i.exec("DELETE FROM ledger_entry WHERE seq > 500")
		},
		"an entry is gone": func(i intruder, _ string) { i.exec("DELETE FROM ledger_entry WHERE seq = 400") },
		"all entries are gone": func(i intruder, _ string) {
			i.exec("DELETE FROM ledger_entry WHERE seq > 1")
			i.exec("UPDATE ledger_head SET seq = 1")
		},
		"an old backup was restored": func(i intruder, _ string) { i.backup() },
		"the tree is shorter":        func(i intruder, _ string) { i.exec("UPDATE ledger_tree SET size = 511") },
		"a leaf's hash is changed": func(i intruder, _ string) {
			i.flip(5, "ledger_tile", "hashes", "level = 0 AND n = 1")
		},
		"a hash of the upper tile is changed": func(i intruder, _ string) {
			i.flip(5, "ledger_tile", "hashes", "level = 1 AND n = 0")
		},
		"the upper tile is gone": func(i intruder, _ string) { i.exec("DELETE FROM ledger_tile WHERE level = 1") },
		"the last tile is gone": func(i intruder, _ string) {
			i.exec("DELETE FROM ledger_tile WHERE level = 0 AND n = 1")
		},
		"the checkpoint file is empty":      file(""),
		"the checkpoint file is garbage":    file("garbage\x00\n\n\n"),
		"the checkpoint file is not signed": file("test.example/ledger\n512\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"),
		"the checkpoint file is of another log": file(strings.Join(split(readFile(t, "testdata", exportSeed)).signed, "\n") +
			"\n"),
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				_, dir := stopped(t, address, 512)
				same := start(t, address, dir)
				if err := same.Mismatch(); err != nil {
					t.Fatalf("nothing was touched, and the ledger says %v", err)
				}
				same.stop()

				i := intrude(t, address)
				i.disarm()
				tamper(i, dir)
				before := readFile(t, dir, ledger.CheckpointFile)
				again := start(t, address, dir)
				wantRefused(t, again)
				again.stop()
				if diff := cmp.Diff(before, readFile(t, dir, ledger.CheckpointFile)); diff != "" {
					t.Errorf("the evidence was overwritten:\n%s", diff)
				}
			})
		})
	}
}

func TestAKeyThatIsNotTheLedgersIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n, dir := stopped(t, address, 3)
		private, public := otherKey(t)
		for name, c := range map[string]struct {
			files map[string]string
			want  fault.Code
		}{
			"a pair of another log": {
				map[string]string{ledger.KeyFile: private, ledger.PublicKeyFile: public},
				fault.LedgerMismatch,
			},
			"another private key":             {map[string]string{ledger.KeyFile: private}, fault.LedgerMismatch},
			"another public key":              {map[string]string{ledger.PublicKeyFile: public}, fault.LedgerMismatch},
			"a private key that is none":      {map[string]string{ledger.KeyFile: "nonsense"}, fault.InvalidConfig},
			"a public key in the private one": {map[string]string{ledger.KeyFile: n.Key()}, fault.InvalidConfig},
		} {
			other := t.TempDir()
			for _, name := range []string{ledger.KeyFile, ledger.PublicKeyFile, ledger.CheckpointFile} {
				text := readFile(t, dir, name)
				if changed, ok := c.files[name]; ok {
					text = changed
				}
				testbed.Write(t, filepath.Join(other, name), text)
			}
			_, err := ledger.Open(t.Context(), ledger.Options{DB: n.db, Dir: other, Origin: "test.example/ledger"})
			if !fault.Is(err, c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			if err != nil && strings.Contains(fault.From(err).Message, private) {
				t.Errorf("%s: the error shows the private key", name)
			}
		}
	})
}

func TestTheTriggersKeepTheLedgerAppendOnly(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 5)
		i := intrude(t, address)
		statements := []string{
			"UPDATE ledger_entry SET record = salt WHERE seq = 2",
			"UPDATE ledger_entry SET seq = 9 WHERE seq = 2",
			"UPDATE ledger_entry SET body = salt WHERE seq = 2",
			"UPDATE ledger_entry SET salt = NULL WHERE seq = 2",
			"UPDATE ledger_entry SET body = NULL WHERE seq = 2",
			"UPDATE ledger_entry SET record = salt, salt = NULL, body = NULL WHERE seq = 2",
			"DELETE FROM ledger_entry WHERE seq = 2",
			"DELETE FROM ledger_entry",
			"INSERT INTO ledger_entry (seq, workspace, kind, subject, trace, record) SELECT 2, '', '', " +
				"'', '', record FROM ledger_entry WHERE seq = 1",
		}
		if n.db.Name() == "postgres" {
			statements = append(statements, "TRUNCATE ledger_entry")
		}
		for _, statement := range statements {
			if _, err := i.db.ExecContext(context.Background(), statement); err == nil {
				t.Errorf("the database let this pass: %s", statement)
			}
		}
		i.exec("UPDATE ledger_entry SET salt = NULL, body = NULL WHERE seq = 2")
		if got, err := verify(export(t, n), n.Key(), nil); err != nil || got.Erased != 1 || got.Entries != 5 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestALedgerThatIsTamperedWithWhileItRunsStopsWriting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper func(i intruder)
		notice func(t *testing.T, n node)
	}{
		"a tile is changed": {
			func(i intruder) { i.flip(5, "ledger_tile", "hashes", "level = 1 AND n = 0") }, signNow,
		},
		"a tile is gone": {
			func(i intruder) { i.exec("DELETE FROM ledger_tile WHERE level = 1") }, signNow,
		},
		"its end is gone, and only the tiles stay": {
			func(i intruder) {
				i.exec("DELETE FROM ledger_entry WHERE seq > 400")
				i.exec("UPDATE ledger_head SET seq = 400")
				i.exec("UPDATE ledger_tree SET size = 400")
			}, signNow,
		},
		"an old backup is restored under it": {
			func(i intruder) { i.backup() }, signNow,
		},
		"entries are gone, and a follower sees the gap": {
			func(i intruder) { i.exec("DELETE FROM ledger_entry WHERE seq = 2") },
			func(t *testing.T, n node) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				ledger.ForgetRecent(n.Ledger) // what is in memory nobody can take away
				var following sync.WaitGroup
				following.Go(func() {
					for e := range n.Follow(ctx, 1) {
						t.Errorf("the follower got entry %d", e.Seq)
					}
				})
				testbed.Until(t, "the mismatch", func() bool { return n.Mismatch() != nil })
				cancel()
				following.Wait()
			},
		},
		"an old record is changed, and somebody wants it proved": {
			func(i intruder) { i.flip(20, "ledger_entry", "record", "seq = 5") }, prove5,
		},
		"a hash far back is changed, and somebody wants a proof with it": {
			func(i intruder) { i.flip(5*32, "ledger_tile", "hashes", "level = 0 AND n = 0") }, prove5,
		},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				n := signed(t, address, 512)
				i := intrude(t, address)
				i.disarm()
				c.tamper(i)
				c.notice(t, n)
				wantRefused(t, n)
			})
		})
	}
}

func signNow(t *testing.T, n node) {
	t.Helper()
	sign(t, n)
}

func prove5(t *testing.T, n node) {
	t.Helper()
	if p, err := n.Prove(t.Context(), 5, 0); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("the proof is %+v (%v)", p, err)
	}
}
