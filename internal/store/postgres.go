package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"signalbox/internal/fault"
)

// channel is the channel of LISTEN and NOTIFY. Several Signalboxes in one PostgreSQL
// database wake each other for nothing, which costs one query each time.
const channel = "signalbox"

// postgres is a pool of connections. Writes take one for the time of a transaction, reads go
// through the same pool by way of database/sql, and listen has a connection of its own.
type postgres struct {
	config *pgxpool.Config
	pool   *pgxpool.Pool
	read   *sql.DB
	name   string // what our own notifications say; we know of them already
}

// openPostgres sets what durability and liveness depend on, whatever the server's configuration
// says. Timeouts that are part of the address are kept.
func openPostgres(ctx context.Context, address string) (*DB, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		// The driver's error repeats the address, and with it the password.
		return nil, fault.New(fault.InvalidConfig,
			"The database address is not one that PostgreSQL's clients understand. It looks "+
				"like postgres://user:password@host:5432/name.").About("db")
	}
	params := config.ConnConfig.RuntimeParams
	setDefault(params, "application_name", "signalbox")
	// An entry that was acknowledged must be on disk, whatever the server's default.
	params["synchronous_commit"] = "on"
	// A node that is frozen while it holds the ledger's lock must not stop the
	// others for long.
	setDefault(params, "idle_in_transaction_session_timeout", "10000")
	setDefault(params, "lock_timeout", "15000")
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	config.MaxConns = max(config.MaxConns, 12)
	return connect(ctx, config)
}

// connect opens the pool and makes sure that the database answers.
func connect(ctx context.Context, config *pgxpool.Config) (*DB, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, Explain(err)
	}
	read := stdlib.OpenDBFromPool(pool)
	return &DB{
		Read: read, backend: &postgres{config: config, pool: pool, read: read, name: randomName("node_")},
		inserts: inserts{lists: true},
	}, nil
}

func setDefault(params map[string]string, key, value string) {
	if _, ok := params[key]; !ok {
		params[key] = value
	}
}

func (b *postgres) Name() string { return "postgres" }

func (b *postgres) close() {
	_ = b.read.Close()
	b.pool.Close()
}

// begin only takes a connection: BEGIN and the lock travel with the first query.
func (b *postgres) begin(ctx context.Context, lock string) (txn, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	first := []statement{{text: "BEGIN"}, {text: "SELECT 1 FROM " + lock + " WHERE id = 1 FOR UPDATE"}}
	return &pgTx{conn: conn, first: first, name: b.name}, nil
}

// pgTx is a transaction whose statements are sent as late as possible, many in one round
// trip: over a network a round trip costs more than a row.
type pgTx struct {
	conn  *pgxpool.Conn
	first []statement // still to be sent before anything else
	name  string      // what a notification says
}

// pipeline puts everything into one round trip.
func (t *pgTx) pipeline(queue []statement, last ...statement) *pgx.Batch {
	b := &pgx.Batch{}
	for _, part := range [][]statement{t.first, queue, last} {
		for _, st := range part {
			b.Queue(st.text, st.args...)
		}
	}
	t.first = nil
	return b
}

// query sends the queue and the query together. The answers of the queue come first, and
// its first error is the error of the query.
func (t *pgTx) query(ctx context.Context, queue []statement, q statement) (Rows, error) {
	before := len(t.first) + len(queue)
	results := t.conn.SendBatch(ctx, t.pipeline(queue, q))
	for range before {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return nil, err
		}
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return pgRows{rows, results}, nil
}

// pgRows are rows inside of a batch; closing them has to close the batch, or the connection
// cannot be used again.
type pgRows struct {
	pgx.Rows
	results pgx.BatchResults
}

func (r pgRows) Close() error {
	r.Rows.Close()
	return r.results.Close()
}

// commit sends the queue, the notification and COMMIT in one round trip. PostgreSQL answers
// COMMIT of a failed transaction with ROLLBACK and no error, so the answer is looked at.
func (t *pgTx) commit(ctx context.Context, queue []statement, notify bool) (unknown bool, err error) {
	var last []statement
	if notify {
		last = append(last, statement{text: "SELECT pg_notify('" + channel + "', $1)", args: []any{t.name}})
	}
	last = append(last, statement{text: "COMMIT"})
	batch := t.pipeline(queue, last...)
	results := t.conn.SendBatch(ctx, batch)
	var tag pgconn.CommandTag
	for range batch.Len() {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	if e := results.Close(); err == nil {
		err = e
	}
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("PostgreSQL answered COMMIT with %s", tag)
	}
	if err != nil {
		pg, answered := errors.AsType[*pgconn.PgError](err)
		t.rollback()
		// An ERROR is an answer: not committed. A broken connection, and a FATAL that ends it,
		// leave open what happened.
		return !answered || pg.Severity == "FATAL" || pg.Severity == "PANIC", err
	}
	t.conn.Release()
	return false, nil
}

// lock lets an update of the locked row take the place of SELECT … FOR UPDATE, which is
// still waiting to be sent: the update takes the same lock.
func (t *pgTx) lock(st statement) bool {
	if len(t.first) == 0 {
		return false
	}
	t.first[len(t.first)-1] = st
	return true
}

// rollback gives the connection back to the pool. A connection that cannot be rolled back is
// closed, so that the pool makes a new one. It has a deadline of its own, since the
// transaction's context may be over.
func (t *pgTx) rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if !t.conn.Conn().IsClosed() {
		if _, err := t.conn.Exec(ctx, "ROLLBACK"); err != nil {
			_ = t.conn.Conn().Close(ctx)
		}
	}
	t.conn.Release()
}

// listen keeps one connection for LISTEN and makes a new one when it breaks,
// with a wake-up in between since something may have been missed.
func (b *postgres) listen(ctx context.Context, wake func()) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		// Followers poll meanwhile, and whoever writes reports the loss.
		_ = b.listenOnce(ctx, func() {
			pause = 100 * time.Millisecond
			wake()
		})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// listenOnce listens until the connection breaks. It wakes once after LISTEN has taken
// effect, for commits before that.
func (b *postgres) listenOnce(ctx context.Context, wake func()) error {
	conn, err := pgx.ConnectConfig(ctx, b.config.ConnConfig.Copy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	wake()
	for {
		from, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if from.Payload != b.name {
			wake()
		}
	}
}

// clock is that of the moment at which the server answers, and not that of a transaction.
func (b *postgres) clock(ctx context.Context) (time.Time, error) {
	var at int64
	err := b.read.QueryRowContext(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&at)
	return time.UnixMicro(at).UTC(), err
}

// snapshot begins a transaction in which all reads see the moment of the first one.
// foreign: nodes share the database.
func (b *postgres) foreign(context.Context) (bool, error) { return false, nil }

func (b *postgres) snapshot(ctx context.Context) (*sql.Tx, error) {
	tx, err := b.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	// A long comparison spends its time outside of the database. The moment is that
	// of the first SELECT, so this is one.
	if _, err := tx.ExecContext(ctx, "SELECT set_config('idle_in_transaction_session_timeout', '0', true)"); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// beside makes a schema in the same database, which drop removes with everything in it.
func (b *postgres) beside(ctx context.Context) (*DB, func(), error) {
	schema := randomName("signalbox_rebuild_")
	if _, err := b.pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return nil, nil, fmt.Errorf("make a schema to rebuild in: %w", err)
	}
	config := b.config.Copy()
	config.ConnConfig.RuntimeParams["search_path"] = schema
	db, err := connect(ctx, config)
	drop := func() {
		if db != nil {
			db.Close()
		}
		_, _ = b.pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+schema+" CASCADE")
	}
	if err != nil {
		drop()
		return nil, nil, err
	}
	return db, drop, nil
}

// migrating runs the steps in one transaction under an advisory lock: PostgreSQL can roll
// back DDL, so a step that fails leaves the schema as it was.
func (b *postgres) migrating(ctx context.Context, fn func(q Querier, run func(text string) error) error) error {
	conn, err := b.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	run := func(text string) error {
		return conn.Raw(func(driver any) error {
			_, err := driver.(*stdlib.Conn).Conn().PgConn().Exec(ctx, text).ReadAll()
			return err
		})
	}
	// One lock for every schema of the server: migrations are rare and short. A
	// second node waits for the first however long that takes.
	if err := run("BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7446)"); err != nil {
		return err
	}
	if err := fn(conn, run); err != nil {
		_ = run("ROLLBACK")
		return err
	}
	return run("COMMIT")
}

func (b *postgres) tokens() *strings.Replacer {
	return strings.NewReplacer("{bigint}", "bigint", "{blob}", "bytea", "{bool}", "boolean", "{text}", `text COLLATE "C"`,
		"{strict}", "", "{keyed}", "")
}

func (b *postgres) fullText(table string) string {
	return fmt.Sprintf("CREATE TABLE %[1]s (number bigint PRIMARY KEY, words tsvector NOT NULL);\n"+
		"CREATE INDEX %[1]s_words ON %[1]s USING gin (words);\n", table)
}

func (b *postgres) matching(number, table, mark string) string {
	return number + " IN (SELECT number FROM " + table + " WHERE words @@ plainto_tsquery('simple', " + mark + "::text))"
}

// appendOnly makes triggers that refuse deletes, truncation, and every update but an erasure
// (LED-6).
func (b *postgres) appendOnly(table, erasing string) string {
	return fmt.Sprintf(`
CREATE FUNCTION %[1]s_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'UPDATE' OR NOT (%[2]s) THEN RAISE EXCEPTION '%[1]s is append only'; END IF;
  RETURN new;
END $$;
CREATE TRIGGER %[1]s_no_change BEFORE UPDATE OR DELETE ON %[1]s FOR EACH ROW EXECUTE FUNCTION %[1]s_append_only();
CREATE TRIGGER %[1]s_no_truncate BEFORE TRUNCATE ON %[1]s FOR EACH STATEMENT EXECUTE FUNCTION %[1]s_append_only();
`, table, erasing)
}

// schema describes columns, constraints, indexes, triggers and functions, one a line.
// PostgreSQL keeps no text of CREATE TABLE, so it is put together from the catalogue.
func (b *postgres) schema(ctx context.Context) (string, error) {
	return lines(ctx, b.read, `
SELECT line FROM (
  SELECT 'table ' || table_name || ' ' || column_name || ' ' || data_type ||
    CASE WHEN collation_name IS NULL THEN '' ELSE ' collate ' || collation_name END ||
    CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END ||
    CASE WHEN column_default IS NULL THEN '' ELSE ' default ' || column_default END AS line,
    1 AS part, table_name AS a, ordinal_position AS b
  FROM information_schema.columns WHERE table_schema = current_schema()
  UNION ALL
  SELECT 'constraint ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid), 2,
    conrelid::regclass::text || conname, 0
  FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
  UNION ALL
  SELECT replace(indexdef, current_schema() || '.', ''), 3, indexname, 0
  FROM pg_indexes WHERE schemaname = current_schema()
  UNION ALL
  SELECT replace(pg_get_triggerdef(oid), current_schema() || '.', ''), 4, tgrelid::regclass::text || tgname, 0
  FROM pg_trigger WHERE NOT tgisinternal
    AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
  UNION ALL
  SELECT 'function ' || proname || regexp_replace(prosrc, '\s+', ' ', 'g'), 5, proname, 0
  FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
) s ORDER BY part, a COLLATE "C", b`)
}

// explainPostgres says what to do about an error of PostgreSQL or of the way to it,
// nil for one that is neither.
func explainPostgres(err error) *fault.Error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "53100":
			return fault.Wrap(err, fault.StoreFull,
				"PostgreSQL's disk is full. Nothing was changed. Free some space; writes work again by themselves.")
		case pg.Code == "25006":
			return fault.Wrap(err, fault.StoreReadOnly,
				"PostgreSQL accepts no writes: the address leads to a standby, or the database "+
					"is set to read only. Nothing was changed.")
		case pg.Code == "28P01" || pg.Code == "28000":
			return fault.Wrap(err, fault.StoreUnavailable,
				"PostgreSQL refuses the user or password in the database address. Check them with psql.")
		case pg.Code == "3D000":
			return fault.Wrap(err, fault.StoreUnavailable,
				"The database named in the address does not exist. Make it with createdb, then start again.")
		case pg.Code == "42501":
			return fault.Wrap(err, fault.StoreReadOnly,
				"The database user may not do this. It needs the right to create tables in its schema, and to read and write them.")
		case pg.Code == "55P03":
			return fault.Wrap(err, fault.StoreUnavailable,
				"Another node held the ledger's lock for too long. Nothing was changed; try again.")
		case pg.Code == "25P03":
			return fault.Wrap(err, fault.StoreUnavailable,
				"This node held a transaction for too long without going on, as if it was paused, and "+
					"PostgreSQL ended it. Nothing was changed; try again.")
		case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "57P"), strings.HasPrefix(pg.Code, "53"):
			return lost(err)
		}
		return nil
	}
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[*net.OpError](err)
	if refused || network || pgconn.Timeout(err) || strings.Contains(err.Error(), "conn closed") ||
		strings.Contains(err.Error(), "unexpected EOF") || strings.Contains(err.Error(), "closed pool") {
		return lost(err)
	}
	return nil
}

func lost(err error) *fault.Error {
	return fault.Wrap(err, fault.StoreUnavailable,
		"PostgreSQL cannot be reached. Nothing was changed. Check that it runs and that "+
			"the address given with --db leads to it.")
}
