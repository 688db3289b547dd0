package counter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

const (
	// pace is the least time between two transactions, unless there is more than a
	// page to count: on SQLite they compete with the writes that callers wait for.
	pace = 50 * time.Millisecond
	// lookEvery is how long to wait for a wake-up before polling.
	lookEvery = time.Second
	// lookAgain is how often Await polls.
	lookAgain = 5 * time.Millisecond
)

// Options say what counters stand on.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger // has Projection
	Roster *roster.Roster
	Gates  *gate.Gates
	Now    func() time.Time
	Log    *slog.Logger
	// Readers are those of the protocols, by kind of entry.
	Readers map[string]Reader
	Look    time.Duration // how long to wait for a wake-up before looking for entries; 0 is a second
}

// Counters counts entries and answers questions. Any node answers; one counts.
type Counters struct {
	db      *store.DB
	ledger  *ledger.Ledger
	roster  *roster.Roster
	gates   *gate.Gates
	now     func() time.Time
	log     *slog.Logger
	readers map[string]Reader
	look    time.Duration
}

// New makes the counters of a ledger. Run must be running for anything to be counted, on
// some node.
func New(o Options) *Counters {
	readers := gateReaders()
	maps.Copy(readers, o.Readers)
	return &Counters{o.DB, o.Ledger, o.Roster, o.Gates, o.Now, o.Log, readers, cmp.Or(o.Look, lookEvery)}
}

// Run counts while this node holds the lease, until ctx ends.
func (c *Counters) Run(ctx context.Context) error {
	return c.ledger.Hold(ctx, "counters", c.follow)
}

// follow counts pages until ctx ends, with a pause after each that was not full.
func (c *Counters) follow(ctx context.Context) error {
	for {
		news, began := c.ledger.News(), time.Now()
		more, err := c.step(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if more {
			continue
		}
		ledger.Pause(ctx, news, c.look)
		ledger.Pause(ctx, nil, pace-time.Since(began))
	}
}

// step counts a page of entries, and reports whether there are more.
func (c *Counters) step(ctx context.Context) (more bool, err error) {
	from, err := position(ctx, c.db.Read)
	if err != nil {
		return false, err
	}
	entries, err := c.ledger.Next(ctx, from)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	return len(entries) == ledger.Page, c.save(ctx, from, entries[len(entries)-1].Seq, c.read(entries))
}

// queryRower is a *sql.DB, or a *sql.Tx for reading the position as of a snapshot.
type queryRower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// position is the last entry that is counted.
func position(ctx context.Context, r queryRower) (seq int64, err error) {
	err = r.QueryRowContext(ctx, "SELECT seq FROM counter_cursor WHERE id = 1").Scan(&seq)
	return seq, err
}

// cell is a row of counter_day.
type cell struct{ day, workspace, project, agent string }

// deckName is the key of a deck.
type deckName struct{ workspace, name string }

// decision is how long people took for one gate. Each is kept, since a median cannot be added
// up.
type decision struct {
	cell
	seq, waited int64
}

// tally is what a page of entries adds.
type tally struct {
	cells     map[cell]*Counts
	decks     map[deckName]int64 // when they were first used, in microseconds
	decisions []decision
}

// read adds up entries. One that cannot be read is logged and skipped: it must not stop the
// counting of the others.
func (c *Counters) read(entries []ledger.Entry) tally {
	t := tally{cells: map[cell]*Counts{}, decks: map[deckName]int64{}}
	for i := range entries {
		e := &entries[i]
		read := c.readers[e.Kind]
		if read == nil {
			continue
		}
		n, err := read(e)
		if err != nil {
			c.log.Error("entry not counted: it cannot be read", "seq", e.Seq, "kind", e.Kind, "error", err.Error())
			continue
		}
		if n != nil {
			t.add(e, n)
		}
	}
	return t
}

// add counts an entry under the day of its own time, never that of the clock, so that counting
// again gives the same.
func (t *tally) add(e *ledger.Entry, n *Count) {
	at := cell{e.At.UTC().Format(time.DateOnly), e.Workspace, cmp.Or(n.Project, DefaultDeck), n.Agent}
	if t.cells[at] == nil {
		t.cells[at] = &Counts{}
	}
	t.cells[at].add(&n.Counts)
	if deck := (deckName{at.workspace, at.project}); t.decks[deck] == 0 {
		t.decks[deck] = e.At.UnixMicro() // entries come in order
	}
	if n.Waited != nil {
		t.decisions = append(t.decisions, decision{at, e.Seq, n.Waited.Microseconds()})
	}
}

// addCell is the statement that adds to a row of counter_day. Sums saturate as in plus.
var addCell = func() string {
	names, sums := []string{"day", "workspace", "project", "agent"}, []string{}
	for _, name := range columns {
		names = append(names, name)
		sums = append(sums, fmt.Sprintf("%[1]s = CASE WHEN counter_day.%[1]s > %[2]d - excluded.%[1]s THEN %[2]d ELSE "+
			"counter_day.%[1]s + excluded.%[1]s END", name, most))
	}
	return "INSERT INTO counter_day (" + strings.Join(names, ", ") + ") VALUES (" + store.Marks(1, len(names)) +
		") ON CONFLICT (day, workspace, project, agent) DO UPDATE SET " + strings.Join(sums, ", ")
}()

// save writes what was added up and moves the cursor, in one transaction. It does nothing if
// the cursor is no longer where the page began: another node has counted the page, or a Reset
// wants everything counted again.
func (c *Counters) save(ctx context.Context, from, to int64, t tally) error {
	err := c.db.Bookkeep(ctx, "counter_cursor", func(tx *store.Tx) error {
		if err := tx.QueryRow("UPDATE counter_cursor SET seq = $2 WHERE id = 1 AND seq = $1 RETURNING seq", []any{from, to},
			&to); err != nil {
			return err
		}
		t.save(tx)
		return nil
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil // another has counted these, or all are to be counted again
	}
	return err
}

// save queues the writes of a page: one row for each day, deck and agent, however many entries
// it had.
func (t *tally) save(tx *store.Tx) {
	for at, counts := range t.cells {
		args := []any{at.day, at.workspace, at.project, at.agent}
		for _, n := range counts.fields() {
			args = append(args, *n)
		}
		tx.Exec(addCell, args...)
	}
	for deck, at := range t.decks {
		tx.Exec("INSERT INTO counter_deck (workspace, name, first_at) VALUES ($1, $2, $3) "+
			"ON CONFLICT (workspace, name) DO NOTHING", deck.workspace, deck.name, at)
	}
	for _, d := range t.decisions {
		tx.Exec("INSERT INTO counter_decision (day, seq, workspace, project, agent, waited) VALUES ($1, $2, $3, $4, $5, $6)",
			d.day, d.seq, d.workspace, d.project, d.agent, d.waited)
	}
}

// Reset empties the counters, so that everything is counted again. A server may be running:
// its next save finds the cursor moved and starts from the beginning.
func Reset(ctx context.Context, db *store.DB) error {
	return db.Bookkeep(ctx, "counter_cursor", func(tx *store.Tx) error {
		for _, table := range counted {
			tx.Exec("DELETE FROM " + table)
		}
		tx.Exec("UPDATE counter_cursor SET seq = 0 WHERE id = 1")
		return nil
	})
}
