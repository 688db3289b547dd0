package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// The budgets are ratios, so each benchmark runs both sides in turn, in one run on
// one machine, and reports their ratio. Run them with make bench.

const (
	callers   = 64
	turns     = 6
	turnTime  = time.Second
	stateText = 560 // with its name and number, a row of about 600 bytes
)

var filler = strings.Repeat("x", stateText)

// save is one durable write by one of the two sides.
type save func(i int64) error

// versus measures both sides in turn and reports the ratio of their totals.
func versus(b *testing.B, callers int, ours, bare save) {
	b.Helper()
	for b.Loop() {
		var next atomic.Int64
		counted := func(fn save) func() error { return func() error { return fn(next.Add(1)) } }
		var a, z float64
		for range turns {
			a += testbed.PerSecond(b, callers, turnTime, counted(ours)) / turns
			z += testbed.PerSecond(b, callers, turnTime, counted(bare)) / turns
		}
		b.ReportMetric(a, "ours/s")
		b.ReportMetric(z, "bare/s")
		b.ReportMetric(a/z, "ratio")
	}
	b.ReportMetric(0, "ns/op")
}

func ledgerSave(n node) save {
	return func(i int64) error {
		return n.Write(context.Background(), func(tx *ledger.Tx) error {
			tx.Append(written(fmt.Sprintf("note %d", i), filler))
			return nil
		})
	}
}

// row is what both sides store: the bare loop writes the same columns.
func row(i int64) (entry, state []any) {
	name := fmt.Sprintf("note %d", i)
	body := fmt.Appendf(nil, `{"name":%q,"text":%q}`, name, filler)
	rec := fmt.Appendf(
		nil, `{"seq":%d,"at":1763164800000000,"workspace":"default","kind":"note.written","actor":"system",`+
			`"subject":%q,"trace":"","body":"%s"}`, i, name, hex.EncodeToString(make([]byte, 32)),
	)
	return []any{i, "default", "note.written", name, "", rec, make([]byte, 16), body}, []any{name, filler, i}
}

const (
	insertEntry = "INSERT INTO ledger_entry (seq, workspace, kind, subject, trace, record, salt, " +
		"body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
	insertState = "INSERT INTO note (name, text, seq) VALUES ($1, $2, $3)"
)

// batcher is a bare group commit: whoever waits is in the next batch.
type batcher struct {
	queue chan waiter
}

type waiter struct {
	i    int64
	done chan error
}

func newBatcher(b *testing.B, commit func(batch []waiter) error) save {
	q := batcher{make(chan waiter, 4096)}
	b.Cleanup(func() { close(q.queue) })
	go func() {
		var batch []waiter
		for w := range q.queue {
			batch = append(batch[:0], w)
			for len(batch) < 512 && len(q.queue) > 0 {
				batch = append(batch, <-q.queue)
			}
			err := commit(batch)
			for _, w := range batch {
				w.done <- err
			}
		}
	}()
	return func(i int64) error {
		w := waiter{i, make(chan error, 1)}
		q.queue <- w
		return <-w.done
	}
}

func bareSQLite(b *testing.B) save {
	b.Helper()
	path := storetest.SQLite(b)
	storetest.Open(b, path, migrations()...)
	db, err := sql.Open("sqlite",
		"file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
			"&_pragma=journal_size_limit(67108864)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		b.Fatal(err)
	}
	prepare := func(text string) *sql.Stmt {
		s, err := conn.PrepareContext(ctx, text)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	begin, commit := prepare("BEGIN IMMEDIATE"), prepare("COMMIT")
	entry, state := prepare(insertEntry), prepare(insertState)
	return newBatcher(b, func(batch []waiter) error {
		if _, err := begin.ExecContext(ctx); err != nil {
			return err
		}
		for _, w := range batch {
			e, s := row(w.i)
			if _, err := entry.ExecContext(ctx, e...); err != nil {
				return err
			}
			if _, err := state.ExecContext(ctx, s...); err != nil {
				return err
			}
		}
		_, err := commit.ExecContext(ctx)
		return err
	})
}

func barePostgres(b *testing.B) save {
	b.Helper()
	address := storetest.Postgres(b)
	storetest.Open(b, address, migrations()...)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(ctx) })
	return newBatcher(b, func(batch []waiter) error {
		p := &pgx.Batch{}
		p.Queue("BEGIN")
		for _, w := range batch {
			e, s := row(w.i)
			p.Queue(insertEntry, e...)
			p.Queue(insertState, s...)
		}
		p.Queue("COMMIT")
		return conn.SendBatch(ctx, p).Close()
	})
}

func BenchmarkWrite(b *testing.B) {
	b.Run("sqlite/64", func(b *testing.B) {
		versus(b, callers, ledgerSave(start(b, storetest.SQLite(b), b.TempDir())), bareSQLite(b))
	})
	b.Run("postgres/64", func(b *testing.B) {
		versus(b, callers, ledgerSave(start(b, storetest.Postgres(b), b.TempDir())), barePostgres(b))
	})
	b.Run("sqlite/1", func(b *testing.B) {
		versus(b, 1, ledgerSave(start(b, storetest.SQLite(b), b.TempDir())), bareSQLite(b))
	})
	b.Run("postgres/1", func(b *testing.B) {
		versus(b, 1, ledgerSave(start(b, storetest.Postgres(b), b.TempDir())), barePostgres(b))
	})
}

// filled starts a ledger that holds n entries already.
func filled(b *testing.B, address string, n int64) node {
	b.Helper()
	l := start(b, address, b.TempDir())
	const each = 250
	for done := int64(0); done < n; done += each {
		err := l.Write(context.Background(), func(tx *ledger.Tx) error {
			for i := range int64(each) {
				tx.Append(written(fmt.Sprintf("old %d", done+i), filler))
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Checkpoint(b.Context()); err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkGrowth compares writing to a long ledger with writing to a short one.
func BenchmarkGrowth(b *testing.B) {
	for name, address := range storetest.Databases {
		b.Run(name, func(b *testing.B) {
			long, short := filled(b, address(b), 1_000_000), filled(b, address(b), 10_000)
			versus(b, callers, ledgerSave(long), ledgerSave(short))
		})
	}
}

// BenchmarkVerify verifies an export on one core.
func BenchmarkVerify(b *testing.B) {
	const entries = 100_000
	l := filled(b, storetest.SQLite(b), entries)
	var export bytes.Buffer
	if err := l.Export(b.Context(), &export); err != nil {
		b.Fatal(err)
	}
	key := l.Key()
	l.stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	began := time.Now()
	n := 0
	for b.Loop() {
		if _, err := ledger.VerifyExport(bytes.NewReader(export.Bytes()), key, nil, ledger.Watch{}); err != nil {
			b.Fatal(err)
		}
		n++
	}
	rate := float64(entries*n) / time.Since(began).Seconds()
	b.ReportMetric(rate, "ours/s")
	b.ReportMetric(200_000, "bare/s")
	b.ReportMetric(rate/200_000, "ratio")
	b.ReportMetric(0, "ns/op")
}
