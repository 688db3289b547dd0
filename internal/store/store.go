// Package store opens SQLite or PostgreSQL and hides the few things that the two
// do differently: opening, taking a lock first, sending many writes in one round
// trip, waking other nodes after a commit, and explaining errors.
//
// It owns no tables but its own list of migrations, and knows nothing of entries
// or agents. One SQL text serves both databases: $n placeholders, times as integer
// microseconds, ON CONFLICT, top-level RETURNING, keyset pages. Reads go through
// DB.Read, an ordinary *sql.DB. Writes go through a Tx, which holds a lock from its
// first statement and keeps writes in a queue until something has to be read or
// the transaction commits, so that a batch costs PostgreSQL two round trips.
//
// Durability is not configurable: SQLite runs in WAL mode with synchronous=FULL,
// PostgreSQL with synchronous_commit=on. A commit that returns is on disk.
//
// One thing cannot be hidden: an empty blob comes back from SQLite as nil. Where it
// matters, select "c IS NULL" beside it.
//
// No database driver is imported anywhere else.
package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
)

// DB is an open database. Open makes it, Close ends it after the transactions under way have
// ended. It is safe for concurrent use; a Tx that it begins is not.
type DB struct {
	Read *sql.DB // for queries outside of a write transaction
	backend
	inserts  inserts
	prepared sync.Map // texts of queries to their *sql.Stmt, which end with Read
	trouble  atomic.Pointer[error]
}

// backend is what SQLite and PostgreSQL do differently.
type backend interface {
	// Name is "sqlite" or "postgres".
	Name() string
	// begin returns a transaction that will take the lock on the table's only row
	// before anything else.
	begin(ctx context.Context, lock string) (txn, error)
	// listen calls wake after every commit that was made with a notice, by any
	// process, until ctx ends. A wake-up may be missing or too many.
	listen(ctx context.Context, wake func()) error
	// foreign reports whether another process has committed since it was asked last. It is for databases
	// that one process writes to, and always false for others.
	foreign(ctx context.Context) (bool, error)
	// clock reads the database's clock, the zero time where it is this machine's.
	clock(ctx context.Context) (time.Time, error)
	// snapshot starts a read-only transaction in which all reads see one moment.
	snapshot(ctx context.Context) (*sql.Tx, error)
	// beside opens an empty database next to this one; drop removes it.
	beside(ctx context.Context) (db *DB, drop func(), err error)
	// migrating runs fn alone among all processes, in one transaction. run executes
	// statements without parameters.
	migrating(ctx context.Context, fn func(q Querier, run func(text string) error) error) error
	// schema describes every table, index and trigger, one a line, in a fixed order.
	schema(ctx context.Context) (string, error)
	// tokens are what {type} tokens in migrations stand for.
	tokens() *strings.Replacer
	// fullText is the text that makes a table for finding words, and matching is the
	// condition under which the row of a number has all the words of a text.
	fullText(table string) string
	matching(number, table, mark string) string
	// appendOnly is the text that forbids changing rows, but for an update for which
	// the condition holds.
	appendOnly(table, erasing string) string
	close()
}

// txn is one write transaction of a backend.
type txn interface {
	// query sends the queued writes and then the query.
	query(ctx context.Context, queue []statement, q statement) (Rows, error)
	// commit sends the queued writes and commits. unknown says that the error
	// leaves open whether the commit happened: the connection broke after the commit was
	// sent and before its answer arrived. The transaction is over in any case.
	commit(ctx context.Context, queue []statement, notify bool) (unknown bool, err error)
	// lock makes a write to the locked row take the place of the lock, and reports
	// false when the lock is held already.
	lock(st statement) bool
	rollback()
}

// statement is a query with its arguments, as one of the drivers takes them.
type statement struct {
	text string
	args []any
}

// Rows is the result of a query. Close it, or read it to its end.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Open opens the database at the address: postgres://… or the path of a SQLite file. An
// address that is neither is refused before a file is made of it: such a slip often holds a
// password.
func Open(ctx context.Context, address string) (*DB, error) {
	// A slip such as postgres:/user:password@host must not become a file's name.
	if scheme, _, _ := strings.Cut(address, ":"); scheme == "postgres" || scheme == "postgresql" {
		return openPostgres(ctx, address)
	}
	if key, _, ok := strings.Cut(address, "="); ok &&
		slices.Contains([]string{"host", "hostaddr", "port", "dbname", "user", "password", "service"}, key) {
		return nil, fault.New(fault.InvalidConfig,
			"The database address is a list of settings. Write it as postgres://user:password@host:5432/name.").About("db")
	}
	if scheme, rest, ok := strings.Cut(address, ":"); ok && !strings.Contains(scheme, "/") &&
		!strings.HasPrefix(rest, "//") {
		return nil, fault.New(fault.InvalidConfig,
			"The database address starts with %q. Use postgres://user@host/name, or leave it out for SQLite in the data folder.",
			scheme+":").About("db")
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return nil, fault.New(fault.InvalidConfig,
			"The database address starts with %q. Use postgres://user@host/name, or leave it out for SQLite in the data folder.",
			scheme+"://").About("db")
	}
	return openSQLite(ctx, address)
}

// QueryRow reads one row outside of a write transaction. The statement is prepared once,
// which matters to what is asked for thousands of times a second.
func (db *DB) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	known, ok := db.prepared.Load(query)
	if !ok {
		stmt, err := db.Read.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		if known, ok = db.prepared.LoadOrStore(query, stmt); ok {
			_ = stmt.Close() //nolint:sqlclosecheck // another was faster; this one is of no use
		}
	}
	if db.Name() == "sqlite" {
		ctx = uncut // a context that can end costs a goroutine, more than the read itself
	}
	return known.(*sql.Stmt).QueryRowContext(ctx, args...).Scan(dest...)
}

// Close waits for what is under way and closes.
func (db *DB) Close() { db.close() }

// Listen calls wake after commits of other processes until ctx ends; see Tx.Commit. Own
// commits are not reported. A wake-up may be missing, so listeners also poll.
func (db *DB) Listen(ctx context.Context, wake func()) error { return db.listen(ctx, wake) }

// Foreign reports whether another process has written since it was asked last. SQLite is for one
// process, so that this should never happen; on PostgreSQL it is how nodes work, and never reported.
func (db *DB) Foreign(ctx context.Context) (bool, error) { return db.foreign(ctx) }

// Trouble is the reason why the last write failed, if the next one will probably fail too: the disk is full or
// read-only, or the database is away. It is nil after a write that was committed.
func (db *DB) Trouble() error {
	if p := db.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// note remembers for Trouble how a write ended.
func (db *DB) note(err error) {
	if err == nil {
		db.trouble.Store(nil)
		return
	}
	if err = Explain(err); fault.Is(err, fault.StoreFull) || fault.Is(err, fault.StoreReadOnly) ||
		fault.Is(err, fault.StoreUnavailable) {
		db.trouble.Store(&err)
	}
}

// Clock is the database's clock, which all its nodes have in common, and the zero time for SQLite, which has none.
func (db *DB) Clock(ctx context.Context) (time.Time, error) { return db.clock(ctx) }

// Snapshot starts a read-only transaction in which all reads see one moment.
func (db *DB) Snapshot(ctx context.Context) (*sql.Tx, error) { return db.snapshot(ctx) }

// Beside opens an empty database next to this one, with the same migrations.
// drop closes and removes it.
func (db *DB) Beside(ctx context.Context, sets ...Migrations) (other *DB, drop func(), err error) {
	other, drop, err = db.beside(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := other.Migrate(ctx, sets...); err != nil {
		drop()
		return nil, nil, err
	}
	return other, drop, nil
}

// Schema describes what is in the database, for comparing with a golden file.
func (db *DB) Schema(ctx context.Context) (string, error) { return db.schema(ctx) }

// Tx is a write transaction. Begin makes it; it ends with Commit or Rollback, and every later
// call is an error. It belongs to one goroutine.
//
// What always holds: writes wait in a queue until a query or the commit sends them, in the
// order of their calls, except that inserts into one table may go together (gather.go).
// After the first error of the database the transaction is lost, and every call returns
// that error.
type Tx struct {
	ctx   context.Context //nolint:containedctx // a Tx lives inside one call
	txn   txn
	queue []statement
	sent  int      // writes that have left the queue and can only be undone by a rollback
	open  *watched // rows that are being read
	err   error
	over  bool // committed or rolled back

	inserts *inserts
	db      *DB
}

// Begin starts a transaction that holds a lock on the only row of the table named
// lock, so that transactions with the same lock follow one another on any number
// of nodes.
func (db *DB) Begin(ctx context.Context, lock string) (*Tx, error) {
	txn, err := db.begin(ctx, lock)
	if err != nil {
		db.note(err)
		return nil, err
	}
	return &Tx{ctx: ctx, txn: txn, inserts: &db.inserts, db: db}, nil
}

// Exec queues a write. If it fails, the next Query or Commit says so.
func (tx *Tx) Exec(query string, args ...any) {
	tx.queue = append(tx.queue, statement{query, args})
}

// ExecLocked queues a write to the row that is locked. If nothing has been sent yet,
// the write itself takes the lock, which saves a statement.
func (tx *Tx) ExecLocked(query string, args ...any) {
	if st := (statement{query, args}); !tx.txn.lock(st) {
		tx.queue = append(tx.queue, st)
	}
}

// Query sends what is queued and reads. The rows end with the next Query, Commit or
// Rollback. After an error the transaction is lost: every later call returns the
// same error.
func (tx *Tx) Query(query string, args ...any) (Rows, error) {
	tx.cutRows()
	if tx.err != nil {
		return nil, tx.err
	}
	tx.sent += len(tx.queue)
	tx.queue = tx.inserts.gather(tx.queue)
	if !strings.HasPrefix(strings.TrimSpace(query), "SELECT") {
		tx.sent++ // INSERT … RETURNING and the like
	}
	rows, err := tx.txn.query(tx.ctx, tx.queue, statement{query, args})
	tx.clear()
	if err != nil {
		tx.db.note(err)
		tx.lose(err)
		return nil, err
	}
	tx.open = &watched{Rows: rows, tx: tx}
	return tx.open, nil
}

// QueryRow reads one row into dest; no row is sql.ErrNoRows.
func (tx *Tx) QueryRow(query string, args []any, dest ...any) error {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return err
	}
	if !rows.Next() {
		if err := rows.Close(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	err = rows.Scan(dest...)
	if e := rows.Close(); err == nil {
		err = e
	}
	return err
}

// Context is the one that the transaction was begun with.
func (tx *Tx) Context() context.Context { return tx.ctx }

// Err is the error that has made the transaction useless, if there is one.
func (tx *Tx) Err() error { return tx.err }

// Mark is a position among the writes so far, for Undo.
func (tx *Tx) Mark() int { return tx.sent + len(tx.queue) }

// Undo drops what was queued since the mark. It reports false when some of it has
// been sent: then only a rollback undoes it.
func (tx *Tx) Undo(mark int) bool {
	if tx.sent > mark || tx.err != nil {
		return false
	}
	keep := min(mark-tx.sent, len(tx.queue))
	clear(tx.queue[keep:])
	tx.queue = tx.queue[:keep]
	return true
}

// Commit sends what is queued and commits durably. With notify, listeners of other nodes
// are woken. unknown means that the database went away in between and may have committed;
// whoever gets that has to find out before it reports failure.
func (tx *Tx) Commit(notify bool) (unknown bool, err error) {
	tx.cutRows()
	if tx.err != nil {
		err := tx.err
		tx.Rollback()
		return false, err
	}
	tx.end()
	unknown, err = tx.txn.commit(tx.ctx, tx.inserts.gather(tx.queue), notify)
	tx.db.note(err)
	return unknown, err
}

// Rollback undoes everything, unless the transaction is over already.
func (tx *Tx) Rollback() {
	if !tx.over {
		tx.cutRows()
		tx.end()
		tx.txn.rollback()
	}
}

// errOver is the error of every call on a transaction after its end.
var errOver = errors.New("the transaction is over")

// end makes every later call an error: the connection goes back to the pool and serves
// another caller.
func (tx *Tx) end() {
	tx.over = true
	tx.lose(errOver)
}

func (tx *Tx) clear() {
	clear(tx.queue)
	tx.queue = tx.queue[:0]
}
