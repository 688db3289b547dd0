package ledger_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// clock is a clock that a test moves.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) advance(d time.Duration)  { c.micros.Add(d.Microseconds()) }
func (c *clock) option(o *ledger.Options) { o.Now = c.now }

// tags is a projection that does without bodies: it takes the subject.
var tagMigrations = store.Migrations{Package: "tags", Steps: []string{`
CREATE TABLE tag (name {text} PRIMARY KEY, seq {bigint} NOT NULL) {strict};`}}

var tags = ledger.Projection{
	Name:   "tags",
	Tables: ledger.Tables("tag (name)"),
	Apply: map[string]ledger.Apply{
		"tag.set": func(tx *store.Tx, e *ledger.Entry) error {
			tx.Exec("INSERT INTO tag (name, seq) VALUES ($1, $2)", e.Subject, e.Seq)
			return nil
		},
	},
	Erasable: []string{"tag.set"},
}

// bodies says of each entry whether it still has its body.
func bodies(t testing.TB, n node) (out []string) {
	t.Helper()
	entries, err := n.Entries(t.Context(), ledger.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		kept := "kept"
		if e.Body == nil && e.Salt == nil {
			kept = "erased"
		} else if e.Body == nil || e.Salt == nil {
			kept = "half"
		}
		out = append(out, fmt.Sprintf("%s %s", e.Kind, kept))
	}
	return out
}

func TestRetention(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		sets := append(migrations(), tagMigrations)
		all := []ledger.Projection{notes, tags}
		clock := newClock()
		db := storetest.Open(t, address, sets...)
		n := run(t, ledger.Options{DB: db, Dir: t.TempDir(), Origin: "test.example/ledger", Projections: all, Now: clock.now})
		say := func() {
			t.Helper()
			err := n.Write(context.Background(), func(tx *ledger.Tx) error {
				head, err := n.Head(context.Background())
				tx.Append(written(fmt.Sprint("note ", head), "state is built from this"))
				tx.Append(ledger.Event{
					Kind: "tag.set", Actor: "system", Subject: fmt.Sprint("tag ", head),
					Body: "and not from this",
				})
				tx.Append(ledger.Event{Kind: "thing.seen", Actor: "agent:a", Body: []byte("something private")})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		erase := func(want int64) {
			t.Helper()
			if erased, err := n.Erase(t.Context(), clock.now().Add(-time.Hour)); err != nil || erased != want {
				t.Fatalf("erased %d bodies (%v), want %d", erased, err, want)
			}
		}
		wantBodies := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, bodies(t, n)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		wantProvable := func(erased int64) {
			t.Helper()
			if got, err := verify(export(t, n), n.Key(), nil); err != nil || got.Erased != erased {
				t.Errorf("the export has %d erased bodies (%v), want %d", got.Erased, err, erased)
			}
			head, err := n.Head(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for seq := int64(1); seq <= head; seq++ {
				file, err := n.ProofFile(t.Context(), seq, false)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := ledger.VerifyProof(file, n.Key()); err != nil {
					t.Errorf("the proof of entry %d: %v", seq, err)
				}
			}
			got, err := ledger.CheckRebuild(t.Context(), n.db, sets, all, nil)
			if err != nil || len(got.Differences) > 0 || got.Tables != 2 {
				t.Errorf("the state is not what the ledger says: %+v, %v", got, err)
			}
		}

		erase(0)
		say()
		erase(0)
		wantBodies("note.written kept", "tag.set kept", "thing.seen kept")

		clock.advance(30 * time.Minute)
		say()
		clock.advance(31 * time.Minute) // the first three are old by now
		erase(2)
		wantBodies("note.written kept", "tag.set erased", "thing.seen erased", "note.written kept", "tag.set kept",
			"thing.seen kept", "body.erased kept")
		wantProvable(2)
		if e, err := n.Entry(t.Context(), 7); err != nil || string(e.Body) != `{"after":0,"count":2,"to":3}` ||
			e.Actor != "system" {
			t.Errorf("what was erased is recorded as %s by %s (%v)", e.Body, e.Actor, err)
		}
		erase(0)

		clock.advance(24 * time.Hour) // everything is old
		erase(2)
		erase(0)
		wantBodies("note.written kept", "tag.set erased", "thing.seen erased", "note.written kept", "tag.set erased",
			"thing.seen erased", "body.erased kept", "body.erased kept")
		wantProvable(4)

		clock.advance(24 * time.Hour) // what was erased stays on record, and that is all
		erase(0)
		if _, err := ledger.Rebuild(t.Context(), n.db, all, nil); err != nil {
			t.Fatal(err)
		}
		wantProvable(4)
	})
}

func TestRetentionRunsByItself(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		dir, clock := t.TempDir(), newClock()
		n := start(t, address, dir, clock.option)
		odd(t, n)
		n.stop()
		clock.advance(2 * time.Hour)
		again := start(t, address, dir, clock.option, func(o *ledger.Options) { o.Retention = time.Hour })
		for e := range again.Follow(testbed.Context(t), 6) {
			if e.Kind != "body.erased" || string(e.Body) != `{"after":0,"count":6,"to":6}` {
				t.Errorf("after the old entries came %s %s", e.Kind, e.Body)
			}
			return
		}
		t.Error("nothing was erased")
	})
}

func TestTimesInTheLedgerNeverGoBack(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		clock := newClock()
		n := start(t, address, t.TempDir(), clock.option)
		for i, d := range []time.Duration{0, time.Hour, -2 * time.Hour, time.Minute, 3 * time.Hour} {
			clock.advance(d)
			write(t, n, fmt.Sprint(i))
		}
		wantGapless(t, n, 5)
		begin := newClock().now()
		for at, want := range map[time.Time]int64{
			begin: 0, begin.Add(time.Microsecond): 1, begin.Add(time.Hour): 1, begin.Add(time.Hour + time.Microsecond): 4,
			begin.Add(24 * time.Hour): 5,
		} {
			if got, err := n.SeqBefore(t.Context(), at); got != want || err != nil {
				t.Errorf("before %v are %d entries (%v), want %d", at, got, err, want)
			}
		}
	})
}
