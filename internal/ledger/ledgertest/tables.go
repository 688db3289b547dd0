package ledgertest

import (
	"context"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// The table of entries, and its indexes as query plans name them.
const (
	EntryTable   = "ledger_entry"
	KindIndex    = "ledger_entry_kind"
	SubjectIndex = "ledger_entry_subject"
)

// InsertEntries begins a statement that puts rows into the table of entries, for benchmarks
// that have the database itself make a large ledger.
const InsertEntries = "INSERT INTO " + EntryTable + " (seq, workspace, kind, subject, trace, record, salt, body) "

// Tamper changes an entry behind the ledger's back, as somebody with access to the
// database can. The trigger that forbids changes is dropped first and not restored.
// change gets the stored record, salt and body, and returns another record and body.
func Tamper(t testing.TB, db *store.DB, seq int64, change func(record, salt, body []byte) (newRecord, newBody []byte)) {
	t.Helper()
	guard := map[string]string{
		"sqlite":   "DROP TRIGGER IF EXISTS ledger_entry_no_update",
		"postgres": "DROP TRIGGER IF EXISTS ledger_entry_no_change ON ledger_entry",
	}[db.Name()]
	err := db.Bookkeep(context.Background(), "ledger_tree", func(tx *store.Tx) error {
		var record, salt, body []byte
		if err := tx.QueryRow("SELECT record, salt, body FROM ledger_entry WHERE seq = $1", []any{seq}, &record, &salt,
			&body); err != nil {
			return err
		}
		record, body = change(record, salt, body)
		tx.Exec(guard)
		tx.Exec("UPDATE ledger_entry SET record = $1, body = $2 WHERE seq = $3", record, body, seq)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Seq is the number of the only entry of a kind about a subject, read from the table: for tests that have a
// database and no running ledger.
func Seq(t testing.TB, db *store.DB, kind, subject string) (seq int64) {
	t.Helper()
	err := db.QueryRow(t.Context(), "SELECT seq FROM "+EntryTable+" WHERE kind = $1 AND subject = $2",
		[]any{kind, subject}, &seq)
	if err != nil {
		t.Fatalf("the entry %s of %s: %v", kind, subject, err)
	}
	return seq
}

// Newest is the newest entry of a kind.
func (n *Node) Newest(kind string) ledger.Entry {
	n.T.Helper()
	return Newest(n.T, n.Ledger, kind)
}

// Newest is the newest entry of a kind.
func Newest(t testing.TB, l *ledger.Ledger, kind string) ledger.Entry {
	t.Helper()
	found, err := l.Entries(context.Background(), ledger.Query{Kinds: []string{kind}, Newest: true, Limit: 1})
	if err != nil || len(found) == 0 {
		t.Fatalf("there is no entry %s: %v", kind, err)
	}
	return found[0]
}
