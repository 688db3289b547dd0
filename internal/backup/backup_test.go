package backup_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"signalbox/internal/backup"
	"signalbox/internal/blob"
	"signalbox/internal/blob/blobtest"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// backups is how many are made under load; `make soak` makes fifty.
var backups = flag.Int("backups", 5, "how many backups the test under load makes and restores")

func TestABackupIsRestoredAsItWasOnEitherDatabase(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		for _, same := range []bool{true, false} {
			to := "another kind of database"
			if same {
				to = "the same kind of database"
			}
			t.Run(to, func(t *testing.T) {
				h := newHome(t, other(t, address, true))
				h.write(40)
				h.beside()
				h.attach("a1", "an attachment")
				h.attach("a2", "")
				made := h.mustBackup()
				a := h.newAway(other(t, address, same))
				got, err := a.restore(t.Context(), h.identity)
				if err != nil {
					t.Fatal(err)
				}
				if got.Entries != made.Entries || got.Root != made.Root || got.Blobs != 2 || got.Missing != nil || got.By != "ann" {
					t.Errorf("restored %+v of %+v", got, made)
				}
				l := a.wantHome(h, made.Entries)
				var n int64
				var sealed []byte
				if err := a.db.QueryRow(t.Context(), "SELECT n, bytes FROM sealed WHERE name = 'openai'", nil, &n,
					&sealed); err != nil || n != 7 || !bytes.Equal(sealed, []byte{0, 255, 1}) {
					t.Errorf("the row beside the ledger is %d %v, %v", n, sealed, err)
				}
				for name, want := range map[string]int64{"sender": 2, "words": 0} {
					if at, err := l.Cursor(t.Context(), name); err != nil || at != want {
						t.Errorf("the cursor %s is at %d, want %d: %v", name, at, want, err)
					}
				}
				for name, want := range map[string]string{"a1": "an attachment", "a2": ""} {
					r, err := a.target.Blobs.Get(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					if text, err := io.ReadAll(r); err != nil || string(text) != want {
						t.Errorf("the attachment %s is %q, %v", name, text, err)
					}
					_ = r.Close()
				}
			})
		}
	})
}

func TestTheNextBackupWritesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(1200)
	h.attach("a1", "first")
	first := h.mustBackup()
	before := files(t, h.place)
	if again := h.mustBackup(); !again.Nothing || again.Number != first.Number {
		t.Errorf("a backup of nothing new: %+v", again)
	}
	if got := files(t, h.place); !slices.Equal(got, before) {
		t.Errorf("a backup of nothing new has written %v beside %v", got, before)
	}
	h.write(3)
	h.attach("a2", "second")
	second := h.mustBackup()
	if second.Written != 3 || second.NewBlobs != 1 || second.Entries != first.Entries+3 || second.Bytes >= first.Bytes {
		t.Errorf("after three more entries: %+v, the first was %+v", second, first)
	}
	for range 4 {
		h.write(1)
		h.mustBackup()
	}
	manifests := 0
	for _, name := range files(t, h.place) {
		if strings.HasPrefix(name, "manifest-") {
			manifests++
		}
	}
	if manifests != 3 {
		t.Errorf("%d backups can be restored, want the last 3", manifests)
	}
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Fatal(err)
	}
	a.wantHome(h, second.Entries+4)
}

// A ledger whose key was replaced is backed up to the same place, and brought back and moved with the key in force.
func TestBackupsGoOnWhenAKeyTakesOver(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.write(5)
		h.mustBackup()
		before := testbed.Read(t, filepath.Join(h.dir, ledger.KeyFile))
		for range 2 {
			_, err := h.Ledger.Rotate(t.Context(), "operator:ines")
			h.Must(err)
			h.write(3)
		}
		made := h.mustBackup()
		old := h.newAway(other(t, address, true))
		testbed.Write(t, filepath.Join(old.dir, ledger.KeyFile), before)
		if _, err := old.restore(t.Context(), h.identity); !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("restored with the key of before: %v", err)
		}
		a := h.newAway(other(t, address, true))
		if _, err := a.restore(t.Context(), h.identity, signed(t, h.Ledger)); err != nil {
			t.Fatal(err)
		}
		a.wantHome(h, made.Entries)
		h.Stop()
		to := h.newAway(other(t, address, false))
		moved, err := backup.Migrate(t.Context(), h.move(to), quiet)
		if err != nil || moved.Entries < made.Entries {
			t.Fatalf("moved %+v: %v", moved, err)
		}
	})
}

func TestBackupsUnderLoadAllRestoreAndVerify(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.write(20)
		stop := make(chan struct{})
		var writing sync.WaitGroup
		for i := range 3 {
			writing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						err := h.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
							tx.Append(ledger.Event{
								Kind: "note.written", Actor: "system", Subject: fmt.Sprintf("w%d", i), Body: note{fmt.Sprint(n)},
							})
							return nil
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		defer writing.Wait()
		defer close(stop)
		before := int64(0)
		for range *backups {
			// The server signs by itself, as others write; the first checkpoint has to be there.
			testbed.Until(t, "a checkpoint over new entries", func() bool {
				_, size, err := h.Ledger.Signed(t.Context())
				return err == nil && size > before
			})
			made, err := h.backupTo(h.place, blob.S3{})
			if err != nil {
				t.Fatal(err)
			}
			before = made.Entries
			a := h.newAway(other(t, address, true))
			if _, err := a.restore(t.Context(), h.identity); err != nil {
				t.Fatal(err)
			}
			a.wantHome(h, made.Entries)
			a.db.Close()
		}
	})
}

// wantClosed wants that no server would open the database.
func (a *away) wantClosed(what string) {
	a.t.Helper()
	if l, err := ledger.Open(a.t.Context(), ledger.Options{DB: a.db, Dir: a.dir, Origin: "x"}); err == nil {
		a.t.Errorf("%s: the database can be opened, with key %s", what, l.Key())
	}
}

func TestABackupThatWasChangedIsNotRestored(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(30)
	h.attach("a1", "first")
	h.mustBackup()
	h.write(5)
	h.mustBackup()
	newest := "manifest-0000000002"
	older := testbed.Read(t, filepath.Join(h.place, "manifest-0000000001"))
	oldState := ""
	for _, name := range files(t, h.place) {
		// The state of the first backup is named by its manifest alone.
		if strings.HasPrefix(name, "state-") && bytes.Contains(older, []byte(name)) {
			oldState = name
		}
	}
	refused := func(t *testing.T, what string) {
		t.Helper()
		a := h.newAway(storetest.SQLite(t))
		if got, err := a.restore(t.Context(), h.identity); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
		a.wantClosed(what)
	}
	for _, name := range files(t, h.place) {
		if name == "manifest-0000000001" || name == oldState {
			continue // of the older backup alone
		}
		t.Run(strings.SplitN(name, "-", 2)[0], func(t *testing.T) {
			path := filepath.Join(h.place, name)
			whole := testbed.Read(t, path)
			for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
				flipped := bytes.Clone(whole)
				flipped[at] ^= 1
				testbed.Write(t, path, flipped)
				refused(t, fmt.Sprintf("byte %d of %s was flipped", at, name))
			}
			testbed.Write(t, path, whole[:len(whole)-1])
			refused(t, name+" was cut")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if name != newest { // without the newest manifest the one before is the newest
				refused(t, name+" was removed")
			}
			testbed.Write(t, path, whole)
		})
	}
	testbed.Write(t, filepath.Join(h.place, "manifest-0000000003"), older)
	refused(t, "an older manifest has the newest number")
	if err := os.Remove(filepath.Join(h.place, "manifest-0000000003")); err != nil {
		t.Fatal(err)
	}
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

func TestAWrongKeyRestoresNothing(t *testing.T) {
	t.Parallel()
	h, stranger := newHome(t, storetest.SQLite(t)), newHome(t, storetest.SQLite(t))
	h.write(3)
	h.mustBackup()
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), stranger.identity); !fault.Is(err, fault.VerificationFailed) {
		t.Errorf("the identity of somebody else: %v", err)
	}
	a = stranger.newAway(storetest.SQLite(t))
	a.place = h.place
	if _, err := a.restore(t.Context(), h.identity); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("the key of another ledger: %v", err)
	}
	a = h.newAway(storetest.SQLite(t))
	if err := os.Remove(filepath.Join(a.dir, ledger.KeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.restore(t.Context(), h.identity); !fault.Is(err, fault.NotFound) {
		t.Errorf("no key of the ledger: %v", err)
	}
	stranger.write(9)
	stranger.place = h.place
	if _, err := stranger.backup(); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("a backup of another ledger into the same place: %v", err)
	}
	for _, recipient := range []string{"", "age1nobody", "AGE-SECRET-KEY-1"} {
		if _, err := backup.Recipients(strings.Fields(recipient)); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("the recipient %q: %v", recipient, err)
		}
	}
}

func TestErasedBodiesStayErased(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.Append(ledger.Event{Kind: "note.told", Actor: "system", Body: []byte("secret one")},
			ledger.Event{Kind: "note.told", Actor: "system", Body: []byte("secret two")})
		first := h.mustBackup()
		h.Must(h.Ledger.Write(t.Context(), func(tx *ledger.Tx) error { tx.Erase(1); return nil }))
		h.Move(48 * time.Hour)
		if n, err := h.Ledger.Erase(t.Context(), h.Now()); err != nil || n != 1 {
			t.Fatalf("retention has erased %d bodies: %v", n, err)
		}
		h.write(2)
		second := h.mustBackup()
		a := h.newAway(other(t, address, true))
		if _, err := a.restore(t.Context(), h.identity); err != nil {
			t.Fatal(err)
		}
		l := a.wantHome(h, second.Entries)
		for seq := int64(1); seq <= first.Entries; seq++ {
			if e, err := l.Entry(t.Context(), seq); err != nil || e.Body != nil || e.Salt != nil {
				t.Errorf("entry %d has the body %q again: %v", seq, e.Body, err)
			}
		}
	})
}

func TestALedgerThatWasChangedIsNotBackedUp(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.write(10)
		first := h.mustBackup()
		h.write(10)
		h.Must(h.Ledger.Checkpoint(t.Context()))
		before := files(t, h.place)
		ledgertest.Tamper(t, h.DB, 15, func(record, _, body []byte) ([]byte, []byte) {
			return bytes.Replace(record, []byte(`"actor":"system"`), []byte(`"actor":"sister"`), 1), body
		})
		if made, err := h.backupTo(h.place, blob.S3{}); !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("a changed record was backed up: %+v %v", made, err)
		}
		if got := files(t, h.place); slices.Contains(got, "manifest-0000000002") || len(got) < len(before) {
			t.Errorf("it has left %v in the place, before it was %v", got, before)
		}
		a := h.newAway(other(t, address, true))
		got, err := a.restore(t.Context(), h.identity)
		if err != nil || got.Entries != first.Entries {
			t.Errorf("the backup before: %+v %v", got, err)
		}
	})
}

func TestADatabaseOlderThanItsBackupIsNotBackedUp(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(5)
	h.mustBackup()
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Fatal(err)
	}
	h.write(50)
	h.mustBackup()
	a.open()
	h.source.DB, h.source.Dir = a.db, a.dir
	if made, err := h.backupTo(h.place, blob.S3{}); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("an older ledger has taken the place of the newer one: %+v %v", made, err)
	}
}

func TestBackupsAtOnceHarmNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(20)
	h.Must(h.Ledger.Checkpoint(t.Context()))
	const at = 4
	errs := make([]error, at)
	testbed.AtOnce(at, func(i int) { _, errs[i] = h.backupTo(h.place, blob.S3{}) })
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !fault.Is(err, fault.Conflict) {
			t.Errorf("the one that was later: %v", err)
		}
	}
	if made == 0 {
		t.Error("none was made")
	}
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Fatal(err)
	}
	a.wantHome(h, 20)
}

func TestWhatIsMissingFromAPlaceIsWrittenAgain(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(20)
	h.mustBackup()
	for _, name := range files(t, h.place) {
		if strings.HasPrefix(name, "entries-") {
			if err := os.Remove(filepath.Join(h.place, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.write(2)
	if made := h.mustBackup(); made.Written != 22 {
		t.Errorf("%d entries were written, want all 22", made.Written)
	}
	a := h.newAway(storetest.SQLite(t))
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Fatal(err)
	}
	a.wantHome(h, 22)
}

func TestABucketHasBackups(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	s3 := blobtest.S3(t)
	h.write(30)
	h.attach("a1", "first")
	h.Must(h.Ledger.Checkpoint(t.Context()))
	for range 2 {
		if _, err := h.backupTo("s3://"+s3.Bucket, s3); err != nil {
			t.Fatal(err)
		}
		h.write(4)
		h.Must(h.Ledger.Checkpoint(t.Context()))
	}
	const at = 3
	errs := make([]error, at)
	testbed.AtOnce(at, func(i int) { _, errs[i] = h.backupTo("s3://"+s3.Bucket, s3) })
	if !slices.Contains(errs, nil) {
		t.Errorf("of three at once none was made: %v", errs)
	}
	a := h.newAway(storetest.SQLite(t))
	a.place, a.s3 = "s3://"+s3.Bucket, s3
	if _, err := a.restore(t.Context(), h.identity); err != nil {
		t.Fatal(err)
	}
	a.wantHome(h, 38)
	for _, wrong := range []string{"s3://", "s3://a/b", "ftp://x", ""} {
		if _, err := backup.Open(t.Context(), wrong, s3, true); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("the place %q: %v", wrong, err)
		}
	}
}

func TestEntriesYoungerThanTheBackupAreCounted(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(10)
	made := h.mustBackup()
	h.write(7)
	h.Must(h.Ledger.Checkpoint(t.Context()))
	newer, size, err := h.Ledger.Signed(t.Context())
	h.Must(err)
	a := h.newAway(storetest.SQLite(t))
	// The folder still has the checkpoint of the ledger that was lost.
	testbed.Write(t, filepath.Join(a.dir, ledger.CheckpointFile), newer)
	got, err := a.restore(t.Context(), h.identity, newer)
	if err != nil || got.Missing == nil || *got.Missing != size-made.Entries {
		t.Fatalf("%+v %v", got, err)
	}
	l := a.wantHome(h, made.Entries)
	var body backup.Restored
	e := ledgertest.Newest(t, l, backup.KindRestored)
	if err := e.Decode(&body); err != nil || *body.Missing != 7 || body.Newest != string(newer) || body.By != "ann" {
		t.Errorf("%+v %v", body, err)
	}
	if kept := testbed.Read(t, filepath.Join(a.dir, "checkpoint.lost")); !bytes.Equal(kept, newer) {
		t.Errorf("the checkpoint that was put aside is %q", kept)
	}
	// The one that went on from the backup is another history than the one that was lost.
	b := h.newAway(storetest.SQLite(t))
	h.write(1)
	h.mustBackup()
	fork, _, err := l.Signed(t.Context())
	h.Must(err)
	if got, err := b.restore(t.Context(), h.identity, fork); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("a checkpoint of another history: %+v %v", got, err)
	}
	b.wantClosed("a checkpoint of another history")
}

func TestARestoreThatWasCutOffGoesOn(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.write(1700)
		made := h.mustBackup()
		a := h.newAway(other(t, address, true))
		ctx, cut := context.WithCancel(t.Context())
		a.progress = func(done, _ int64) {
			if done >= 1000 {
				cut()
			}
		}
		if _, err := a.restore(ctx, h.identity); err == nil {
			t.Fatal("it was not cut off")
		}
		a.wantClosed("half a ledger")
		if err := dump.InUse(t.Context(), a.db); err == nil || !strings.Contains(err.Error(), "signalbox restore") {
			t.Errorf("half a ledger says %v", err)
		}
		began := int64(0)
		a.progress = func(done, _ int64) {
			if began == 0 {
				began = done
			}
		}
		if _, err := a.restore(t.Context(), h.identity); err != nil {
			t.Fatal(err)
		}
		if began <= 1000 {
			t.Errorf("the second call began again, at entry %d", began)
		}
		a.wantHome(h, made.Entries)
		if _, err := a.restore(t.Context(), h.identity); !fault.Is(err, fault.Conflict) {
			t.Errorf("a restore into a ledger: %v", err)
		}
	})
}

func TestKeysAreKeptApart(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(2)
	testbed.Write(t, filepath.Join(h.dir, "vault.key"), "a vault key")
	h.mustBackup()
	to, err := backup.Recipients([]string{h.recipient})
	h.Must(err)
	saved := filepath.Join(t.TempDir(), "keys.age")
	names, err := backup.SaveKeys(h.dir, saved, to)
	if err != nil || !slices.Equal(names, []string{"ledger.key", "vault.key"}) {
		t.Errorf("saved %v: %v", names, err)
	}
	who, err := backup.Identities([]string{h.identity}, "")
	h.Must(err)
	key := testbed.Read(t, filepath.Join(h.dir, ledger.KeyFile))
	for _, name := range files(t, h.place) {
		text := testbed.Read(t, filepath.Join(h.place, name))
		if plain, err := age.Decrypt(bytes.NewReader(text), who...); err == nil {
			if text, err = io.ReadAll(plain); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Contains(text, bytes.TrimSpace(key)) || bytes.Contains(text, []byte("a vault key")) {
			t.Errorf("%s holds a key", name)
		}
	}
	dir := t.TempDir()
	for range 2 { // a second time it finds them there
		h.Must(backup.LoadKeys(saved, dir, who))
	}
	if got := testbed.Read(t, filepath.Join(dir, ledger.KeyFile)); !bytes.Equal(got, key) {
		t.Error("the ledger's key is another")
	}
	testbed.Write(t, filepath.Join(dir, "vault.key"), "another")
	if err := backup.LoadKeys(saved, dir, who); !fault.Is(err, fault.Conflict) {
		t.Errorf("another key was there: %v", err)
	}
}
