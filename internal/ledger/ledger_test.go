package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// notes is a projection for the tests: note.written puts a row, note.removed takes
// it away, note.failed breaks.
var noteMigrations = store.Migrations{Package: "notes", Steps: []string{`
CREATE TABLE note (name {text} PRIMARY KEY, text {text} NOT NULL, seq {bigint} NOT NULL) {strict};`}}

type noteBody struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

var notes = ledger.Projection{
	Name:   "notes",
	Tables: ledger.Tables("note (name)"),
	Apply: map[string]ledger.Apply{
		"note.written": func(tx *store.Tx, e *ledger.Entry) error {
			var b noteBody
			if err := e.Decode(&b); err != nil {
				return err
			}
			tx.Exec("INSERT INTO note (name, text, seq) VALUES ($1, $2, $3)", b.Name, b.Text, e.Seq)
			return nil
		},
		"note.removed": func(tx *store.Tx, e *ledger.Entry) error {
			tx.Exec("DELETE FROM note WHERE name = $1", e.Subject)
			return nil
		},
	},
}

func migrations() []store.Migrations {
	return []store.Migrations{ledger.Migrations, noteMigrations}
}

func written(name, text string) ledger.Event {
	return ledger.Event{
		Workspace: "default", Kind: "note.written", Actor: "system", Subject: name,
		Body: noteBody{name, text},
	}
}

// node is a ledger that runs.
type node struct {
	*ledger.Ledger
	db   *store.DB
	dir  string
	stop func()
	t    testing.TB
}

type nodeOption func(*ledger.Options)

func start(t testing.TB, address, dir string, options ...nodeOption) node {
	t.Helper()
	db := storetest.Open(t, address, migrations()...)
	o := ledger.Options{DB: db, Dir: dir, Origin: "test.example/ledger", Projections: []ledger.Projection{notes}}
	for _, option := range options {
		option(&o)
	}
	return run(t, o)
}

// run opens a ledger and runs it until the test ends or stops it.
func run(t testing.TB, o ledger.Options) node {
	t.Helper()
	l, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return node{l, o.DB, o.Dir, stop, t}
}

func write(t testing.TB, n node, name string) int64 {
	t.Helper()
	var seq int64
	err := n.Write(context.Background(), func(tx *ledger.Tx) error {
		seq = tx.Append(written(name, "text of "+name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func count(t testing.TB, n node, table string) (c int) {
	t.Helper()
	if err := n.db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())

		t.Run("an entry and the state that follows from it are there when Write returns", func(t *testing.T) {
			seq := write(t, n, "first")
			e, err := n.Entry(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind != "note.written" || e.Subject != "first" || string(e.Body) != `{"name":"first","text":"text of first"}` {
				t.Errorf("read back %+v", e)
			}
			if c := count(t, n, "note"); c != 1 {
				t.Errorf("%d rows of state, want 1", c)
			}
		})

		t.Run("a function that fails leaves nothing behind", func(t *testing.T) {
			before, _ := n.Head(t.Context())
			want := errors.New("changed my mind")
			err := n.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(written("doomed", ""))
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if after, _ := n.Head(t.Context()); after != before || count(t, n, "note") != 1 {
				t.Errorf("something was left behind: head %d, was %d", after, before)
			}
		})

		t.Run("a function that panics gets that as its error, and the ledger goes on", func(t *testing.T) {
			err := n.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(written("doomed", ""))
				panic("oh no")
			})
			if err == nil || !fault.Is(fault.From(err), fault.Internal) {
				t.Errorf("got %v", err)
			}
			write(t, n, "after the panic")
		})

		t.Run("state written without an entry is refused", func(t *testing.T) {
			for _, statement := range []string{
				"INSERT INTO note (name, text, seq) VALUES ('x', 'x', 1) RETURNING seq",
				"UPDATE note SET text = 'x' RETURNING seq",
				"DELETE FROM note RETURNING seq",
				"WITH gone AS (DELETE FROM note RETURNING seq) SELECT * FROM gone",
			} {
				before := count(t, n, "note")
				err := n.Write(t.Context(), func(tx *ledger.Tx) error {
					_, _ = tx.Query(statement) // also when the function does not look
					tx.Append(written("beside", ""))
					return nil
				})
				if !fault.Is(err, fault.UnrecordedWrite) {
					t.Errorf("%s: got %v", statement, err)
				}
				if c := count(t, n, "note"); c != before {
					t.Errorf("%s: %d rows, were %d", statement, c, before)
				}
			}
		})

		t.Run("a caller that was cancelled before its turn changes nothing and hears so", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			before, _ := n.Head(t.Context())
			// The request may already be in the committer's hands; then it is done.
			err := n.Write(ctx, func(tx *ledger.Tx) error { tx.Append(written("late", "")); return nil })
			after, _ := n.Head(t.Context())
			if (err == nil) != (after == before+1) {
				t.Errorf("head went from %d to %d, and the caller heard %v", before, after, err)
			}
		})

		t.Run("more callers than can wait are told so at once, and the others are served", func(t *testing.T) {
			holding, release := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = n.Write(context.Background(), func(*ledger.Tx) error { close(holding); <-release; return nil })
			})
			<-holding
			var served, refused atomic.Int32
			for range 4096 + 100 {
				wg.Go(func() {
					switch err := n.Write(context.Background(), func(*ledger.Tx) error { return nil }); {
					case err == nil:
						served.Add(1)
					case fault.Is(err, fault.Overloaded):
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			testbed.Until(t, "100 to be refused", func() bool { return refused.Load() == 100 })
			close(release)
			wg.Wait()
			if served.Load() != 4096 || refused.Load() != 100 {
				t.Errorf("%d were served and %d refused", served.Load(), refused.Load())
			}
		})

		t.Run("an entry with a bad kind or text that a database cannot hold is refused", func(t *testing.T) {
			for _, ev := range []ledger.Event{
				{Kind: "nonsense"}, {Kind: "a.b", Subject: "nul\x00"}, {Kind: "a.b", Actor: "\xff"}, {Kind: "a.b", Body: func() {}},
			} {
				if err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(ev); return nil }); err == nil {
					t.Errorf("%+v was accepted", ev)
				}
			}
		})
	})
}

func TestABodyThatCouldNotBeReadBackIsRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		// No projection looks into this kind.
		ev := ledger.Event{Kind: "thing.seen", Actor: "system", Body: noteBody{"a", "b\x00c"}}
		err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ev)
			return nil
		})
		if !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("a body with a NUL: %v", err)
		}
	})
}

func TestAStoppedLedgerTakesNoWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "before")
		n.stop()
		err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("after", "")); return nil })
		if head, _ := n.Head(t.Context()); !fault.Is(err, fault.Stopping) || head != 1 {
			t.Errorf("head %d, %v", head, err)
		}
	})
}

func TestABatchHarmsNoNeighbour(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "taken")

		// The first function holds the committer until all others wait, so that
		// they share one batch.
		holding, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = n.Write(context.Background(), func(*ledger.Tx) error { close(holding); <-release; return nil })
		})
		<-holding
		const callers = 60
		errs := make([]error, callers)
		for i := range callers {
			wg.Go(func() {
				errs[i] = n.Write(context.Background(), func(tx *ledger.Tx) error {
					switch i % 6 {
					case 1: // fails before it appends
						return errors.New("no")
					case 2: // fails after it appended
						tx.Append(written(fmt.Sprint("undone ", i), ""))
						return errors.New("no")
					case 3: // the database refuses it: the name is taken
						tx.Append(written("taken", ""))
						return nil
					case 4: // fails after what it appended went to the database
						tx.Append(written(fmt.Sprint("sent ", i), ""))
						var c int
						if err := tx.QueryRow("SELECT count(*) FROM note", nil, &c); err != nil {
							return err
						}
						panic("no")
					}
					tx.Append(written(fmt.Sprint("good ", i), ""))
					return nil
				})
			})
		}
		testbed.Until(t, "all callers to wait", func() bool { return n.Stats().Queue == callers })
		close(release)
		wg.Wait()
		for i, err := range errs {
			if good := i%6 == 0 || i%6 == 5; good != (err == nil) {
				t.Errorf("caller %d (case %d): %v", i, i%6, err)
			}
		}
		if c := count(t, n, "note"); c != 1+callers/3 {
			t.Errorf("%d rows, want %d", c, 1+callers/3)
		}
		wantGapless(t, n, 1+callers/3)
	})
}

func wantGapless(t *testing.T, n node, want int) {
	t.Helper()
	head, err := n.Head(t.Context())
	if err != nil || int(head) != want {
		t.Errorf("head is %d (%v), want %d", head, err, want)
	}
	entries, err := n.Entries(t.Context(), ledger.Query{Limit: want + 10})
	if err != nil || len(entries) != want {
		t.Fatalf("%d entries (%v), want %d", len(entries), err, want)
	}
	for i, e := range entries {
		if e.Seq != int64(i)+1 {
			t.Fatalf("entry %d has number %d", i+1, e.Seq)
		}
		if i > 0 && e.At.Before(entries[i-1].At) {
			t.Errorf("entry %d is older than the one before it", e.Seq)
		}
	}
}

// several opens what stands for several processes: own connections, own committers.
func several(t *testing.T, address string, nodes int, options ...nodeOption) (all []node) {
	t.Helper()
	for range nodes {
		all = append(all, start(t, address, t.TempDir(), options...))
	}
	return all
}

// neverPolls makes followers depend on being woken.
func neverPolls(o *ledger.Options) { o.Poll = time.Hour }

func TestSeveralNodesWriteAtOnce(t *testing.T) {
	t.Parallel()
	nodes := several(t, storetest.Postgres(t), 3)
	const each, callers = 20, 8

	ctx := testbed.Context(t)
	followed := make([][]int64, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			for e := range n.Follow(ctx, 0) {
				followed[i] = append(followed[i], e.Seq)
				if len(followed[i]) == each*callers*len(nodes) {
					return
				}
			}
		})
		for c := range callers {
			wg.Go(func() {
				for k := range each {
					write(t, n, fmt.Sprintf("%d/%d/%d", i, c, k))
				}
			})
		}
	}
	wg.Wait()
	wantGapless(t, nodes[1], each*callers*len(nodes))
	for i := range nodes {
		if diff := cmp.Diff(followed[0], followed[i]); diff != "" || len(followed[i]) != each*callers*len(nodes) {
			t.Errorf("node %d followed %d entries; against node 0: %s", i, len(followed[i]), diff)
		}
		for k, seq := range followed[i] {
			if seq != int64(k)+1 {
				t.Fatalf("node %d: entry %d came as number %d", i, k+1, seq)
			}
		}
	}
}

func TestAnotherNodeIsWokenBeforeItPolls(t *testing.T) {
	t.Parallel()
	nodes := several(t, storetest.Postgres(t), 2, neverPolls)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan int64, 100)
	go func() {
		defer close(got)
		for e := range nodes[1].Follow(ctx, 0) {
			got <- e.Seq
		}
	}()
	for i := range 10 {
		want := write(t, nodes[0], fmt.Sprint("entry ", i))
		if seq := testbed.Receive(t, "a wake-up", got); seq != want {
			t.Errorf("followed %d, want %d", seq, want)
		}
	}
	cancel()
	<-got
}

func TestFollow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := start(t, address, dir, neverPolls)
		for i := range 700 { // more than a page
			write(t, n, fmt.Sprint("before ", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan int64, 2000)
		go func() {
			defer close(got)
			for e := range n.Follow(ctx, 3) {
				got <- e.Seq
			}
		}()
		for want := int64(4); want <= 700; want++ {
			if seq := <-got; seq != want {
				t.Fatalf("followed %d, want %d", seq, want)
			}
		}
		// What comes from now on arrives by wake-up.
		seq := write(t, n, "now")
		if got := testbed.Receive(t, "a wake-up", got); got != seq {
			t.Errorf("followed %d, want %d", got, seq)
		}
		cancel()
		for range got {
			continue // until the follower has ended
		}

		// A second ledger on the same database stands for a restart.
		n.stop()
		again := start(t, address, dir)
		for e := range again.Follow(testbed.Context(t), seq-1) {
			if e.Seq != seq {
				t.Errorf("after a restart followed %d, want %d", e.Seq, seq)
			}
			break
		}
	})
}

func TestACursorIsHeldByOneAndSurvives(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := start(t, address, dir)
		for i := range 30 {
			write(t, n, fmt.Sprint(i))
		}
		var mu sync.Mutex
		var seen []int64
		consume := func(l *ledger.Ledger, until int64) {
			ctx, cancel := context.WithCancel(testbed.Context(t))
			defer cancel()
			failed := false
			_ = l.Consume(ctx, "test", everything, func(_ context.Context, entries []ledger.Entry) error {
				if !failed { // the first call of each consumer fails and comes again
					failed = true
					return errors.New("not yet")
				}
				mu.Lock()
				defer mu.Unlock()
				for _, e := range entries {
					seen = append(seen, e.Seq)
				}
				if entries[len(entries)-1].Seq >= until {
					cancel()
				}
				return nil
			})
		}
		consume(n.Ledger, 30)
		n.stop()
		again := start(t, address, dir)
		for i := range 10 {
			write(t, again, fmt.Sprint("more ", i))
		}
		consume(again.Ledger, 40)
		for i, seq := range seen {
			if seq != int64(i)+1 {
				t.Fatalf("entry %d was handled as number %d: %v", i+1, seq, seen)
			}
		}
		if at, err := again.Cursor(t.Context(), "test"); at != 40 || err != nil {
			t.Errorf("the cursor stands at %d (%v), want 40", at, err)
		}
	})
}

func TestASubjectAndATraceAreFoundByTheirIndexes(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), t.TempDir())
	for _, c := range []struct {
		index string
		q     ledger.Query
	}{
		{"ledger_entry_subject", ledger.Query{Subject: "s"}},
		{"ledger_entry_subject", ledger.Query{Subject: "s", Kinds: []string{"a.b", "c.d", "e.f"}}},
		{"ledger_entry_subject", ledger.Query{Subjects: []string{"s", "t"}, Kinds: []string{"a.b", "c.d", "e.f"}}},
		{"ledger_entry_trace", ledger.Query{Trace: "t", Workspace: "w", Newest: true}},
		{"ledger_entry_trace", ledger.Query{Trace: "t", After: 7, Kinds: []string{"a.b", "c.d"}}},
		{"ledger_entry_kind", ledger.Query{Kinds: []string{"a.b"}, Newest: true, Limit: 1}},
	} {
		text, args := c.q.Text()
		if plan := storetest.Plan(t, n.db, text, args...); !strings.Contains(plan, "INDEX "+c.index+" ") {
			t.Errorf("%+v: %s", c.q, plan)
		}
	}
}
