package backup_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/backup"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// move is a migration of the ledger at home into an empty database.
func (h *home) move(a *away) backup.Move {
	return backup.Move{Parts: parts(), From: h.DB, To: a.db, Dir: h.dir, Now: time.Now}
}

// wantLeft wants that the database at home is closed, and says where the ledger went.
func (h *home) wantLeft() {
	h.T.Helper()
	if _, err := ledger.Open(h.T.Context(), ledger.Options{DB: h.DB, Dir: h.dir, Origin: "x"}); err == nil {
		h.T.Error("the database that was left can be opened")
	}
	if err := dump.InUse(h.T.Context(), h.DB); err == nil || !strings.Contains(err.Error(), "igrat") {
		h.T.Errorf("the database that was left says %v", err)
	}
}

func TestALedgerMovesToTheOtherDatabase(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		h := newHome(t, address)
		h.write(1300)
		h.beside()
		h.Must(h.Ledger.Checkpoint(t.Context()))
		head := h.Head()
		was := entries(t, h.Ledger, head)
		h.Stop()
		a := h.newAway(other(t, address, false))
		a.dir = h.dir // the data folder stays

		ctx, cut := context.WithCancel(t.Context())
		if _, err := backup.Migrate(ctx, h.move(a), func(done, _ int64) {
			if done >= 500 {
				cut()
			}
		}); err == nil {
			t.Fatal("it was not cut off")
		}
		h.wantLeft()
		a.wantClosed("half a ledger")
		began := int64(0)
		got, err := backup.Migrate(t.Context(), h.move(a), func(done, _ int64) {
			if began == 0 {
				began = done
			}
		})
		if err != nil || got.Entries != head {
			t.Fatalf("%+v %v", got, err)
		}
		if began <= 500 {
			t.Errorf("the second call began again, at entry %d", began)
		}
		h.wantLeft()
		l := a.open()
		if at, err := l.Head(t.Context()); err != nil || at != head {
			t.Errorf("the ledger has %d entries, had %d: %v", at, head, err)
		}
		if diff := cmp.Diff(was, entries(t, l, head)); diff != "" {
			t.Errorf("entries (-before +after):\n%s", diff)
		}
		chain, err := dump.Chain(l.Key(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := chain.Open(signed(t, l))
		if err != nil || c.Size != head || c.Root.String() != got.Root {
			t.Errorf("the checkpoint is over %d entries with root %s, want %s: %v", c.Size, c.Root, got.Root, err)
		}
		a.wantClean(l, h.dir, head)
		var n int64
		if err := a.db.QueryRow(t.Context(), "SELECT n FROM sealed WHERE name = 'openai'", nil, &n); err != nil || n != 7 {
			t.Errorf("the row beside the ledger is %d: %v", n, err)
		}
		if _, err := backup.Migrate(t.Context(), h.move(a), quiet); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second migration: %v", err)
		}
	})
}

func signed(t *testing.T, l *ledger.Ledger) []byte {
	t.Helper()
	text, _, err := l.Signed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAMigrationCanBeGivenUp(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(600)
	h.Must(h.Ledger.Checkpoint(t.Context()))
	h.Stop()
	a := h.newAway(storetest.SQLite(t))
	if err := backup.CancelMigration(t.Context(), h.DB); !fault.Is(err, fault.Conflict) {
		t.Errorf("there was none: %v", err)
	}
	ctx, cut := context.WithCancel(t.Context())
	if _, err := backup.Migrate(ctx, h.move(a), func(_, _ int64) { cut() }); err == nil {
		t.Fatal("it was not cut off")
	}
	h.wantLeft()
	h.Must(backup.CancelMigration(t.Context(), h.DB))
	if _, err := ledger.Open(t.Context(), ledger.Options{DB: h.DB, Dir: h.dir, Origin: "x"}); err != nil {
		t.Errorf("after it was given up: %v", err)
	}
	a.wantClosed("what a migration that was given up has copied")
}

func TestALedgerInUseDoesNotMove(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.Postgres(t))
	h.write(5)
	held := make(chan struct{})
	tell := sync.OnceFunc(func() { close(held) })
	h.Run(func(ctx context.Context) error {
		return h.Ledger.Hold(ctx, "timers", func(ctx context.Context) error { tell(); <-ctx.Done(); return nil })
	})
	<-held
	h.Must(h.Ledger.Checkpoint(t.Context()))
	a := h.newAway(storetest.SQLite(t))
	if _, err := backup.Migrate(t.Context(), h.move(a), quiet); !fault.Is(err, fault.Conflict) {
		t.Errorf("a ledger that a server works on was moved: %v", err)
	}
	if err := dump.InUse(t.Context(), h.DB); err != nil {
		t.Errorf("the refusal has closed the database: %v", err)
	}
}

func TestTheScheduleMakesBackupsAndSaysHowTheyAre(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(3)
	h.Must(h.Ledger.Checkpoint(t.Context()))
	s := &backup.Schedule{
		Config: backup.Config{To: h.place, Every: time.Hour, Recipients: []string{h.recipient}},
		Source: h.source, Ledger: h.Ledger, Now: h.Now, Log: discard(),
	}
	state := func() *backup.State {
		t.Helper()
		now, err := s.State(t.Context())
		h.Must(err)
		return now
	}
	until := func(what string, is func(*backup.State) bool) {
		t.Helper()
		testbed.Until(t, what, func() bool { return is(state()) })
	}
	if now := state(); now.LastSuccess != nil || now.Overdue {
		t.Errorf("before the first: %+v", now)
	}
	h.Run(s.Run)
	until("the first backup", func(now *backup.State) bool { return now.LastSuccess != nil && now.Entries >= 3 })
	h.Move(3 * time.Hour)
	if now := state(); !now.Overdue {
		// The schedule may have been faster than this test.
		until("the second backup", func(now *backup.State) bool { return h.Now().Sub(*now.LastSuccess) < time.Hour })
	}
	if now := state(); now.Problem != "" || now.LastFailure != nil {
		t.Errorf("no backup has failed: %+v", now)
	}
}

func TestAScheduledBackupThatFailsIsSaid(t *testing.T) {
	t.Parallel()
	h := newHome(t, storetest.SQLite(t))
	h.write(3)
	h.Must(h.Ledger.Checkpoint(t.Context()))
	s := &backup.Schedule{
		Config: backup.Config{To: "/proc/no/such/place", Every: time.Hour, Recipients: []string{h.recipient}},
		Source: h.source, Ledger: h.Ledger, Now: h.Now, Log: discard(),
	}
	h.Run(s.Run)
	testbed.Until(t, "the failure to be recorded", func() bool {
		now, err := s.State(t.Context())
		return err == nil && now.LastFailure != nil && now.Problem != "" && now.Overdue
	})
	for _, wrong := range []backup.Config{
		{Every: time.Hour, Recipients: []string{h.recipient}}, {Every: time.Hour, To: h.place},
		{Every: time.Second, To: h.place, Recipients: []string{h.recipient}},
	} {
		if err := wrong.Check(); !fault.Is(err, fault.InvalidConfig) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
