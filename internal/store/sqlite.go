package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"signalbox/internal/fault"
)

// lite is SQLite in one file: one connection that writes, a pool that reads. SQLite allows
// one writer at a time; a queue of our own (turn) is fair and can be waited for with a
// context, which SQLite's busy timeout is not and cannot.
type lite struct {
	path  string
	read  *sql.DB
	write *sql.DB

	turn   chan struct{} // holds a token while the write connection is free
	closed chan struct{} // closed when the token is gone for good
	once   sync.Once     // of close
	conn   *sql.Conn     // the write connection
	stmts  map[string]*sql.Stmt
	writes map[string]driver.Stmt
	args   []driver.NamedValue // of the statement that runs

	version int64 // of the database, when foreign was asked last

	copying *sql.DB       // copies the WAL into the database file, beside the writer
	full    chan struct{} // says that there is much to copy
	written int           // how many values since that was said
	copied  chan struct{} // closed when nothing copies any more
}

// copyEvery is how many values are written before the WAL is copied into the database file,
// some ten MB: a page that is written again before that is copied once, and each time writers wait for two syncs.
// If copying cannot keep up, the writer does it itself, at ownCopy pages.
const (
	copyEvery = 30_000
	ownCopy   = "wal_autocheckpoint(16000)"
)

// uncut is the context of the write connection, which cannot be cancelled: modernc starts a
// goroutine per statement to watch one that can, and a commit must not be interrupted.
var uncut = context.Background()

// openSQLite opens a database that is durable.
func openSQLite(ctx context.Context, path string) (*DB, error) {
	return openLite(ctx, path, "synchronous(FULL)")
}

// Scratch opens a SQLite file for what is made again if it is lost: nothing is synced to disk.
func Scratch(ctx context.Context, path string) (*DB, error) {
	return openLite(ctx, path, "synchronous(OFF)")
}

// openLite opens the file three times: one connection that writes, a pool that can only read,
// and one that copies the WAL. The first connection switches a new file to WAL.
func openLite(ctx context.Context, path, sync string) (*DB, error) {
	if err := ownFile(path); err != nil {
		return nil, err
	}
	// busy_timeout comes first, so that switching to WAL waits its turn too.
	write, err := openFile(path, "busy_timeout(10000)", "journal_mode(WAL)", sync, ownCopy,
		"journal_size_limit(67108864)")
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	conn, err := firstConn(ctx, write)
	if err != nil {
		_ = write.Close()
		return nil, Explain(err)
	}
	read, err := openFile(path, "busy_timeout(10000)", "query_only(1)")
	if err != nil {
		_ = write.Close()
		return nil, err
	}
	copying, err := openFile(path, "busy_timeout(10000)", sync)
	if err != nil {
		_ = write.Close()
		_ = read.Close()
		return nil, err
	}
	copying.SetMaxOpenConns(1)
	read.SetMaxOpenConns(max(4, 2*runtime.NumCPU()))
	read.SetMaxIdleConns(max(4, 2*runtime.NumCPU()))
	b := &lite{
		path: path, read: read, write: write, conn: conn, turn: make(chan struct{}, 1), closed: make(chan struct{}),
		stmts: map[string]*sql.Stmt{}, writes: map[string]driver.Stmt{}, copying: copying, full: make(chan struct{}, 1),
		copied: make(chan struct{}),
	}
	b.turn <- struct{}{}
	go b.copyLog()
	return &DB{Read: read, backend: b}, nil
}

// firstConn connects, which switches a new file to WAL. If two processes do so at the same
// moment, SQLite may answer busy at once, whatever the timeout. A retry finds the file
// switched already.
func firstConn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for began := time.Now(); ; {
		conn, err := db.Conn(ctx)
		if primaryCode(err) != sqlite3.SQLITE_BUSY || time.Since(began) > 10*time.Second {
			return conn, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ownFile makes a new database file that is for its owner alone, and finds out
// before anything else whether the file can be written to.
func ownFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		return fault.Wrap(err, fault.StoreFull,
			"The disk that holds the data folder is full. Free some space and start again.")
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly,
			"The database file %s cannot be opened for writing. Check that its folder exists and that "+
				"this user may write to it and to the files in it.", path)
	}
	return f.Close()
}

func openFile(path string, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

func (b *lite) Name() string { return "sqlite" }

// close waits for the transaction under way and for the copying, then closes the connections. It
// may be called more than once.
func (b *lite) close() {
	b.once.Do(func() {
		<-b.turn
		close(b.closed)
		<-b.copied
		_ = b.copying.Close()
		for _, s := range b.stmts {
			_ = s.Close()
		}
		for _, s := range b.writes {
			_ = s.Close()
		}
		_ = b.conn.Close()
		_ = b.read.Close()
		_ = b.write.Close()
	})
}

// begin waits for the write connection and begins. The named lock is not needed, since
// BEGIN IMMEDIATE excludes every other writer.
func (b *lite) begin(ctx context.Context, _ string) (txn, error) {
	select {
	case <-b.turn:
	case <-b.closed:
		return nil, fault.New(fault.StoreUnavailable,
			"The database is closed: the server is stopping. Nothing was changed; try again in a moment.")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := b.exec(statement{text: "BEGIN IMMEDIATE"}); err != nil {
		b.turn <- struct{}{}
		return nil, err
	}
	return liteTx{b}, nil
}

// foreign asks the write connection for its data version, which is moved by commits of every connection
// but its own; and no other of ours commits.
func (b *lite) foreign(ctx context.Context) (bool, error) {
	select {
	case <-b.turn:
	case <-b.closed:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { b.turn <- struct{}{} }()
	before := b.version
	if err := b.conn.QueryRowContext(uncut, "PRAGMA data_version").Scan(&b.version); err != nil {
		return false, err
	}
	return before != 0 && b.version != before, nil
}

// clock: SQLite has none of its own.
func (b *lite) clock(context.Context) (time.Time, error) { return time.Time{}, nil }

// copyLog copies the WAL into the database file when it has grown, until close. If a commit
// did that, its callers would wait for two more syncs and thousands of pages. Most of it is
// copied while others write. The rest is copied while this goroutine holds the turn, so that
// no writer is active and SQLite can start the WAL from its beginning.
func (b *lite) copyLog() {
	defer close(b.copied)
	for {
		select {
		case <-b.full:
		case <-b.closed:
			return
		}
		b.checkpoint()
		select {
		case <-b.turn:
			b.checkpoint()
			b.turn <- struct{}{}
		case <-b.closed:
			return
		}
	}
}

// checkpoint copies what it can without waiting for readers. The rest is copied the next
// time.
func (b *lite) checkpoint() {
	_, _ = b.copying.ExecContext(uncut, "PRAGMA wal_checkpoint(PASSIVE)") // the log goes on if it fails
}

// prepare returns a statement of the write connection, prepared once for its lifetime. The
// texts are those of the source, so the map stays small. The caller holds the turn.
func (b *lite) prepare(text string) (*sql.Stmt, error) {
	if s, ok := b.stmts[text]; ok {
		return s, nil
	}
	s, err := b.conn.PrepareContext(uncut, text)
	if err != nil {
		return nil, err
	}
	b.stmts[text] = s
	return s, nil
}

// exec runs writes on the driver's own connection. Passing thousands of arguments a second
// through database/sql has a measurable cost. The caller holds the turn.
func (b *lite) exec(queue ...statement) error {
	return b.conn.Raw(func(conn any) error {
		for _, st := range queue {
			if err := b.execRaw(conn.(driver.ConnPrepareContext), st); err != nil {
				return err
			}
		}
		return nil
	})
}

// execRaw runs one write, prepared once for the lifetime of the connection. It also notices when
// enough was written for the WAL to be copied.
func (b *lite) execRaw(conn driver.ConnPrepareContext, st statement) error {
	s, ok := b.writes[st.text]
	if !ok {
		var err error
		if s, err = conn.PrepareContext(uncut, forSQLite(st.text)); err != nil {
			return err
		}
		b.writes[st.text] = s
	}
	if b.written += len(st.args); b.written >= copyEvery {
		b.written = 0
		select {
		case b.full <- struct{}{}:
		default: // it is at it
		}
	}
	defer func() { clear(b.args); b.args = b.args[:0] }()
	for i, arg := range st.args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return fmt.Errorf("argument %d of %s: %w", i+1, st.text, err)
		}
		b.args = append(b.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	_, err := s.(driver.StmtExecContext).ExecContext(uncut, b.args)
	return err
}

// forSQLite rewrites a statement to what SQLite runs at the least cost. $1, $2 and so on are
// looked up by name among all parameters, and a plain ? is not. An insert that fails would
// undo its first rows by itself, for which SQLite keeps a copy of every page it touches; OR
// FAIL does without, since a failed write always rolls back the whole transaction here.
func forSQLite(text string) string {
	if rest, ok := strings.CutPrefix(text, "INSERT INTO "); ok {
		text = "INSERT OR FAIL INTO " + rest
	}
	n, inOrder := 0, true
	plain := placeholder.ReplaceAllStringFunc(text, func(mark string) string {
		n++
		inOrder = inOrder && mark == "$"+strconv.Itoa(n)
		return "?"
	})
	if !inOrder {
		return text
	}
	return plain
}

// liteTx is a transaction; it holds the turn until it commits or rolls back.
type liteTx struct{ b *lite }

func (t liteTx) flush(queue []statement) error {
	return t.b.exec(queue...)
}

func (t liteTx) query(_ context.Context, queue []statement, q statement) (Rows, error) {
	if err := t.flush(queue); err != nil {
		return nil, err
	}
	s, err := t.b.prepare(q.text) //nolint:sqlclosecheck // kept for the next time, until close
	if err != nil {
		return nil, err
	}
	return s.QueryContext(uncut, q.args...) //nolint:rowserrcheck // the caller's to close
}

// commit gives the turn back, whatever the outcome.
func (t liteTx) commit(_ context.Context, queue []statement, _ bool) (unknown bool, err error) {
	if err := t.flush(queue); err != nil {
		t.rollback()
		return false, err
	}
	if err := t.b.exec(statement{text: "COMMIT"}); err != nil {
		t.rollback()
		// A failed sync leaves open what has reached the disk.
		return primaryCode(err) == sqlite3.SQLITE_IOERR, err
	}
	t.b.turn <- struct{}{}
	return false, nil
}

// lock has nothing to replace: the transaction holds SQLite's own lock since it began.
func (t liteTx) lock(statement) bool { return false }

func (t liteTx) rollback() {
	// SQLite may have rolled back by itself (a full disk); then this fails, and
	// the transaction is gone either way.
	_ = t.b.exec(statement{text: "ROLLBACK"})
	t.b.turn <- struct{}{}
}

// listen never calls wake: only this process writes, and own commits are not reported.
func (b *lite) listen(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// snapshot begins a read transaction, which in WAL mode sees one moment and blocks no writer.
func (b *lite) snapshot(ctx context.Context) (*sql.Tx, error) {
	tx, err := b.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	// A WAL snapshot begins with the first read.
	var one int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&one); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// beside makes a database in a temporary folder next to the file, on the same disk, so that a
// rebuild fills the disk that has room for the original.
func (b *lite) beside(ctx context.Context) (*DB, func(), error) {
	dir, err := os.MkdirTemp(filepath.Dir(b.path), "rebuild-")
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot make a folder beside %s to rebuild in.", b.path)
	}
	db, err := openSQLite(ctx, filepath.Join(dir, "rebuild.db"))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return db, func() { db.Close(); _ = os.RemoveAll(dir) }, nil
}

// migrating holds the write lock for all steps: a second process waits, and then finds them
// done.
func (b *lite) migrating(ctx context.Context, fn func(q Querier, run func(text string) error) error) error {
	t, err := b.begin(ctx, "")
	if err != nil {
		return err
	}
	err = fn(b.conn, func(text string) error {
		_, err := b.conn.ExecContext(uncut, text)
		return err
	})
	if err != nil {
		t.rollback()
		return err
	}
	_, err = t.commit(ctx, nil, false)
	return err
}

func (b *lite) tokens() *strings.Replacer {
	return strings.NewReplacer("{bigint}", "INTEGER", "{blob}", "BLOB", "{bool}", "INTEGER", "{text}", "TEXT", "{strict}",
		"STRICT", "{keyed}", "STRICT, WITHOUT ROWID")
}

// fullText makes an FTS5 table without content: it knows where words occur, and keeps no
// text that would have to be erased too.
func (b *lite) fullText(table string) string {
	return "CREATE VIRTUAL TABLE " + table +
		" USING fts5(words, content='', contentless_delete=1, tokenize='unicode61');\n"
}

func (b *lite) matching(number, table, mark string) string {
	return number + " IN (SELECT rowid FROM " + table + " WHERE " + table + " MATCH " + mark + ")"
}

// appendOnly makes triggers that refuse deletes, and every update but an erasure (LED-6).
func (b *lite) appendOnly(table, erasing string) string {
	// SQLite keeps this text in its schema, which is compared with a golden file: no byte of
	// it may change.
	const refuse = "BEGIN SELECT RAISE(ABORT, '%[1]s is append only'); END;\n"
	return fmt.Sprintf("\nCREATE TRIGGER %[1]s_no_delete BEFORE DELETE ON %[1]s "+refuse+
		"CREATE TRIGGER %[1]s_no_update BEFORE UPDATE ON %[1]s WHEN NOT (%[2]s) "+refuse, table, erasing)
}

func (b *lite) schema(ctx context.Context) (string, error) {
	return lines(ctx, b.read, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name")
}

// primaryCode is SQLite's primary result code of an error, 0 for an error of another kind.
func primaryCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// explainSQLite says what to do about an error of SQLite that an operator can do something
// about: disk, permissions, another process. It is nil for any other.
func explainSQLite(err error) *fault.Error {
	switch primaryCode(err) {
	case sqlite3.SQLITE_FULL:
		return fault.Wrap(err, fault.StoreFull,
			"The disk that holds the data folder is full. Nothing was changed. Free some "+
				"space; writes work again by themselves.")
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fault.Wrap(err, fault.StoreReadOnly,
			"The database file cannot be opened for writing. Nothing was changed. Check that the data folder exists and that "+
				"this user may write to it and to the files in it.")
	case sqlite3.SQLITE_IOERR:
		return fault.Wrap(err, fault.StoreUnavailable,
			"The disk that holds the data folder reports an error. Nothing was changed. Check the disk, and its free space.")
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fault.Wrap(err, fault.StoreUnavailable,
			"Another process holds the database file. Nothing was changed. Close it (a "+
				"backup tool, a sqlite3 shell) and try again.")
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fault.Wrap(err, fault.StoreUnavailable,
			"The database file is damaged or is not a Signalbox database. Restore it from a backup; "+
				"`signalbox ledger verify` checks an export.")
	}
	return nil
}

// randomName makes a name for something that lives for one command.
func randomName(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }
