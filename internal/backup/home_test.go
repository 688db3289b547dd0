package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/backup"
	"signalbox/internal/blob"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

type note struct {
	Text string `json:"text"`
}

// notes is what stands on the ledgers of these tests: a table that follows from the entries, and one that does not.
var notes = ledgertest.Part{
	Migrations: store.Migrations{Package: "note", Steps: []string{`
CREATE TABLE note (name {text} PRIMARY KEY, text {text} NOT NULL, seq {bigint} NOT NULL) {strict};
CREATE TABLE sealed (name {text} PRIMARY KEY, n {bigint} NOT NULL, bytes {blob} NOT NULL) {strict};`}},
	Projection: ledger.Projection{
		Name: "note", Tables: ledger.Tables("note (name)"),
		Apply: map[string]ledger.Apply{"note.written": ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *note) {
			tx.Exec("INSERT INTO note (name, text, seq) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET "+
				"text = excluded.text, seq = excluded.seq", e.Subject, b.Text, e.Seq)
		})},
	},
}

func parts() backup.Parts {
	return backup.Parts{
		Schema:      []store.Migrations{ledger.Migrations, notes.Migrations},
		Projections: []ledger.Projection{notes.Projection},
		Tables:      ledger.Tables("sealed (name)"),
		Indexes:     []string{"words"},
	}
}

// home is a ledger that is backed up.
type home struct {
	*ledgertest.Node
	dir, place, identity string
	recipient            string
	source               backup.Source
	names                []string // of attachments
}

func newHome(t *testing.T, address string) *home {
	t.Helper()
	h := &home{dir: t.TempDir(), place: filepath.Join(t.TempDir(), "place"), identity: filepath.Join(t.TempDir(), "id")}
	h.Node = ledgertest.Open(t, address, nil, []ledgertest.Part{notes}, ledgertest.Dir(h.dir))
	h.Run()
	var err error
	h.recipient, err = backup.NewIdentity(h.identity)
	h.Must(err)
	blobs, err := blob.Open(filepath.Join(h.dir, "attachments"))
	h.Must(err)
	h.source = backup.Source{
		Parts: parts(), DB: h.DB, Dir: h.dir, Blobs: blobs,
		Names: func(context.Context) ([]string, error) { return h.names, nil },
	}
	return h
}

// write appends so many entries: some change the table, and some are only told.
func (h *home) write(count int) {
	h.T.Helper()
	events := make([]ledger.Event, count)
	for i := range events {
		events[i] = ledger.Event{
			Workspace: "default", Kind: []string{"note.written", "note.told"}[i%2], Actor: "system",
			Subject: fmt.Sprintf("n%d", i%7), Body: note{fmt.Sprintf("text %d é <\t> of %d", i, count)},
		}
	}
	h.Append(events...)
}

// attach stores an attachment.
func (h *home) attach(name, text string) {
	h.T.Helper()
	_, err := h.source.Blobs.Put(h.T.Context(), name, strings.NewReader(text), 1<<20)
	h.Must(err)
	h.names = append(h.names, name)
}

// beside puts a row into the table that does not follow from the entries, and moves cursors.
func (h *home) beside() {
	h.T.Helper()
	h.Must(h.DB.Bookkeep(h.T.Context(), "ledger_tree", func(tx *store.Tx) error {
		tx.Exec("INSERT INTO sealed (name, n, bytes) VALUES ($1, $2, $3)", "openai", int64(7), []byte{0, 255, 1})
		return nil
	}))
	for _, name := range []string{"sender", "words"} {
		h.Must(h.Ledger.BeginAt(h.T.Context(), name, 2))
	}
}

func quiet(_, _ int64) {}

// backup makes a backup of all that is there.
func (h *home) backup() (backup.Made, error) {
	h.T.Helper()
	h.Must(h.Ledger.Checkpoint(h.T.Context()))
	return h.backupTo(h.place, blob.S3{})
}

func (h *home) backupTo(place string, s3 blob.S3) (backup.Made, error) {
	h.T.Helper()
	to, err := backup.Open(h.T.Context(), place, s3, true)
	h.Must(err)
	return backup.Make(h.T.Context(), h.source, to, []string{h.recipient}, time.Now(), quiet)
}

// mustBackup is backup, without an error.
func (h *home) mustBackup() backup.Made {
	h.T.Helper()
	made, err := h.backup()
	h.Must(err)
	return made
}

// away is where a ledger is restored.
type away struct {
	t        testing.TB
	db       *store.DB
	dir      string
	target   backup.Target
	progress func(done, total int64)
	place    string
	s3       blob.S3
}

// newAway is an empty database, and a folder with the ledger's key.
func (h *home) newAway(address string) *away {
	h.T.Helper()
	a := &away{t: h.T, dir: h.T.TempDir(), place: h.place, progress: quiet}
	a.db = storetest.Open(h.T, address, parts().Schema...)
	testbed.Write(h.T, filepath.Join(a.dir, ledger.KeyFile), testbed.Read(h.T, filepath.Join(h.dir, ledger.KeyFile)))
	blobs, err := blob.Open(filepath.Join(a.dir, "attachments"))
	h.Must(err)
	a.target = backup.Target{Parts: parts(), DB: a.db, Dir: a.dir, Blobs: blobs}
	return a
}

// restore brings the newest backup back.
func (a *away) restore(ctx context.Context, identity string, known ...[]byte) (backup.Restored, error) {
	a.t.Helper()
	from, err := backup.Open(ctx, a.place, a.s3, false)
	if err != nil {
		return backup.Restored{}, err
	}
	who, err := backup.Identities([]string{identity}, "")
	if err != nil {
		a.t.Fatal(err)
	}
	return backup.Restore(ctx, a.target, backup.Order{From: from, Who: who, Known: known, By: "ann", Now: time.Now()},
		a.progress)
}

// open opens the restored ledger as a server would.
func (a *away) open() *ledger.Ledger {
	a.t.Helper()
	l, err := ledger.Open(a.t.Context(), ledger.Options{
		DB: a.db, Dir: a.dir, Origin: "test.example/other", Projections: parts().Projections,
	})
	if err == nil {
		err = l.Mismatch()
	}
	if err == nil {
		err = l.Checkpoint(a.t.Context())
	}
	if err == nil {
		err = l.Mismatch()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return l
}

// stored is an entry as it is stored.
type stored struct{ Record, Salt, Body string }

// entries are those from 1 to a number.
func entries(t testing.TB, l *ledger.Ledger, upTo int64) (all []stored) {
	t.Helper()
	found, err := l.Entries(t.Context(), ledger.Query{UpTo: upTo, Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		all = append(all, stored{string(e.Record), string(e.Salt), string(e.Body)})
	}
	return all
}

// wantHome wants the restored ledger to have the first entries of the one at home, to go on with the entry that says
// so, to have the tables that follow, and to verify offline against a checkpoint of home.
func (a *away) wantHome(h *home, size int64) *ledger.Ledger {
	a.t.Helper()
	l := a.open()
	if diff := cmp.Diff(entries(a.t, h.Ledger, size), entries(a.t, l, size)); diff != "" {
		a.t.Errorf("entries (-home +restored):\n%s", diff)
	}
	if last := ledgertest.Newest(a.t, l, backup.KindRestored); last.Seq != size+1 {
		a.t.Errorf("the entry %s is number %d, want %d", backup.KindRestored, last.Seq, size+1)
	}
	a.wantClean(l, h.dir, size)
	return l
}

// wantClean wants the tables to be what the ledger says, and its export to verify.
func (a *away) wantClean(l *ledger.Ledger, keyDir string, least int64) {
	a.t.Helper()
	found, err := ledger.CheckRebuild(a.t.Context(), a.db, parts().Schema, parts().Projections, nil)
	if err != nil || len(found.Differences) > 0 {
		a.t.Errorf("the tables are not what the ledger says: %v %v", err, found.Differences)
	}
	var out bytes.Buffer
	if err := l.Export(a.t.Context(), &out); err != nil {
		a.t.Fatal(err)
	}
	key := string(testbed.Read(a.t, filepath.Join(keyDir, ledger.PublicKeyFile)))
	verified, err := ledger.VerifyExport(&out, key, nil, ledger.Watch{})
	if err != nil || verified.Entries < least {
		a.t.Errorf("the export of the restored ledger: %d entries, %v", verified.Entries, err)
	}
}

// other is an address of an empty database of the same kind, or of the other one.
func other(t testing.TB, address string, same bool) string {
	t.Helper()
	if strings.Contains(address, "://") == same {
		return storetest.Postgres(t)
	}
	return storetest.SQLite(t)
}

// files are the names of what is in a place.
func files(t testing.TB, place string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(place)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// discard is a log that nobody reads.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
