package counter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
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
	// Readers are those of the protocols, by kind of entry; Decisions find the decisions of rules in entries.
	Readers   map[string]Reader
	Decisions map[string]rulebook.Reader
	Look      time.Duration // how long to wait for a wake-up before looking for entries; 0 is a second
}

// Counters counts entries and answers questions. Any node answers; one counts.
type Counters struct {
	db        *store.DB
	ledger    *ledger.Ledger
	roster    *roster.Roster
	gates     *gate.Gates
	now       func() time.Time
	log       *slog.Logger
	readers   map[string]Reader
	decisions map[string]rulebook.Reader
	look      time.Duration
}

// New makes the counters of a ledger. Run must be running for anything to be counted, on
// some node.
func New(o Options) *Counters {
	readers, decisions := map[string]Reader{"gate.opened": countOpened}, map[string]rulebook.Reader{}
	maps.Copy(readers, o.Readers)
	for _, kind := range rulebook.Kinds() {
		decisions[kind] = rulebook.ReadDecision
	}
	maps.Copy(decisions, o.Decisions)
	return &Counters{
		o.DB, o.Ledger, o.Roster, o.Gates, o.Now, o.Log, readers, decisions, cmp.Or(o.Look, lookEvery),
	}
}

// Run counts while this node holds the lease, until ctx ends.
func (c *Counters) Run(ctx context.Context) error {
	return c.ledger.Hold(ctx, "counters", c.follow)
}

// follow counts pages until ctx ends, with a pause after each that was not full.
func (c *Counters) follow(ctx context.Context) error {
	given := newNames(0)
	for {
		news, began := c.ledger.News(), time.Now()
		more, err := c.step(ctx, &given)
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

// step counts a page of entries, and reports whether there are more. given are the names that earlier pages have
// taken; if those were counted by another node, they are read anew.
func (c *Counters) step(ctx context.Context, given **names) (more bool, err error) {
	from, err := position(ctx, c.db.Read)
	if err != nil {
		return false, err
	}
	entries, err := c.ledger.Next(ctx, from)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	if (*given).at != from {
		*given = newNames(from)
	}
	last := &entries[len(entries)-1]
	t, err := c.read(ctx, entries, *given)
	if err == nil {
		err = c.save(ctx, from, last.Seq, func(tx *store.Tx) {
			t.save(tx)
			(*given).save(tx, last.At)
		})
	}
	if err != nil {
		*given = newNames(0) // what was given out is not stored
		return false, err
	}
	(*given).saved(last.Seq, last.At)
	return len(entries) == ledger.Page, nil
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

// cell is the key of a row of counter_hour, the finest that is kept.
type cell struct{ hour, workspace, project, agent, protocol, model, rule string }

// day is the day of the hour.
func (at *cell) day() string { return at.hour[:len(time.DateOnly)] }

// sumKey is the key of a row of counter_sum: everything that was counted on a day in a deck, for one value of what the
// axis is about. Reports of many days are added up from these, which are few.
type sumKey struct{ axis, day, workspace, project, protocol, name string }

// The axes of counter_sum.
const (
	axisDeck  = "deck"
	axisAgent = "agent"
	axisModel = "model" // and protocol
	axisRule  = "rule"
	axisHour  = "hour" // the day is an hour
	axisEver  = "ever" // of all days and decks, by protocol and model
)

// sums are the rows of counter_sum that a cell is part of.
func (at *cell) sums(ever string) [6]sumKey {
	day := at.day()
	return [6]sumKey{
		{axisDeck, day, at.workspace, at.project, "", ""},
		{axisAgent, day, at.workspace, at.project, "", at.agent},
		{axisModel, day, at.workspace, at.project, at.protocol, at.model},
		{axisRule, day, at.workspace, at.project, "", at.rule},
		{axisHour, at.hour, at.workspace, at.project, "", ""},
		{axisEver, "", at.workspace, "", at.protocol, ever},
	}
}

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
	given     *names
	cells     map[cell]*Counts
	sums      map[sumKey]*Counts
	decks     map[deckName]int64 // when they were first used, in microseconds
	decisions []decision
}

// read adds up entries. One that cannot be read is logged and skipped: it must not stop the
// counting of the others.
func (c *Counters) read(ctx context.Context, entries []ledger.Entry, given *names) (tally, error) {
	t := tally{
		given: given, cells: map[cell]*Counts{}, sums: map[sumKey]*Counts{}, decks: map[deckName]int64{},
	}
	for i := range entries {
		e := &entries[i]
		counts, err := c.readEntry(ctx, e)
		if retry := (again{}); errors.As(err, &retry) {
			return t, retry.error
		}
		if err != nil {
			c.log.Error("entry not counted: it cannot be read", "seq", e.Seq, "kind", e.Kind, "error", err.Error())
		}
		if len(counts) == 0 {
			continue
		}
		hour := e.At.UTC().Format(hourForm)
		if err := given.load(ctx, c.db, hour[:len(time.DateOnly)], e.Workspace); err != nil {
			return t, err
		}
		for j := range counts {
			t.add(e, hour, &counts[j])
		}
	}
	t.addUp()
	return t, nil
}

// readEntry is what an entry adds: what its protocol counts, and what a rule has refused.
func (c *Counters) readEntry(ctx context.Context, e *ledger.Entry) (counts []Count, err error) {
	if e.Kind == "gate.resolved" {
		return c.countResolved(ctx, e)
	}
	if read := c.readers[e.Kind]; read != nil {
		counts, err = read(e)
	}
	if read := c.decisions[e.Kind]; read != nil {
		blocks, failed := countBlock(read, e)
		counts, err = append(counts, blocks...), cmp.Or(err, failed)
	}
	return counts, err
}

// hourForm is how hours are written. They sort as text, among days too.
const hourForm = "2006-01-02T15"

// add counts an entry under the hour of its own time, never that of the clock, so that counting
// again gives the same.
func (t *tally) add(e *ledger.Entry, hour string, n *Count) {
	at := cell{hour, e.Workspace, cmp.Or(n.Project, DefaultDeck), n.Agent, n.Protocol, n.Model, n.Rule}
	key := nameKey{day: at.day(), workspace: at.workspace, agent: n.Agent}
	name := func(of, own string) string {
		key.of, key.name = of, own
		return t.given.give(key)
	}
	at.project, at.model, at.rule = name(ofDeck, at.project), name(ofModel, at.model), name(ofRule, at.rule)
	partFor(t.cells, at).Add(&n.Counts)
	if deck := (deckName{at.workspace, at.project}); t.decks[deck] == 0 {
		t.decks[deck] = e.At.UnixMicro() // entries come in order
	}
	if n.Waited != nil {
		t.decisions = append(t.decisions, decision{at, e.Seq, n.Waited.Microseconds()})
	}
}

// addUp makes the sums of the cells.
func (t *tally) addUp() {
	// In order, so that a recount gives names of all time to the same models.
	for _, at := range slices.SortedFunc(maps.Keys(t.cells), compareCells) {
		ever := t.given.give(nameKey{workspace: at.workspace, of: ofModel, name: at.model})
		for _, key := range at.sums(ever) {
			partFor(t.sums, key).Add(t.cells[at])
		}
	}
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.workspace, b.workspace), cmp.Compare(a.model, b.model))
}

// partFor is the value under a key, made on first use.
func partFor[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// addTo is the statement that adds to a row of a table with such a key. Sums saturate as in plus.
func addTo(table string, key ...string) string {
	var sums []string
	for _, name := range columns {
		sums = append(sums, fmt.Sprintf("%[1]s = CASE WHEN %[3]s.%[1]s > %[2]d - excluded.%[1]s THEN %[2]d ELSE "+
			"%[3]s.%[1]s + excluded.%[1]s END", name, most, table))
	}
	names := slices.Concat(key, columns)
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + store.Marks(1, len(names)) +
		") ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " + strings.Join(sums, ", ")
}

var (
	addCell = addTo("counter_hour", "hour", "workspace", "project", "agent", "protocol", "model", "rule")
	addSum  = addTo("counter_sum", "axis", "day", "workspace", "project", "protocol", "name")
)

// save writes what was added up and moves the cursor, in one transaction. It does nothing if
// the cursor is no longer where the page began: another node has counted the page, or a Reset
// wants everything counted again.
func (c *Counters) save(ctx context.Context, from, to int64, write func(*store.Tx)) error {
	err := c.db.Bookkeep(ctx, "counter_cursor", func(tx *store.Tx) error {
		if err := tx.QueryRow("UPDATE counter_cursor SET seq = $2 WHERE id = 1 AND seq = $1 RETURNING seq", []any{from, to},
			&to); err != nil {
			return err
		}
		write(tx)
		return nil
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil // another has counted these, or all are to be counted again
	}
	return err
}

// save queues the writes of a page: a few rows for what happened, however many entries it had.
func (t *tally) save(tx *store.Tx) {
	for at, counts := range t.cells {
		tx.Exec(addCell, counts.after(at.hour, at.workspace, at.project, at.agent, at.protocol, at.model, at.rule)...)
	}
	for at, counts := range t.sums {
		tx.Exec(addSum, counts.after(at.axis, at.day, at.workspace, at.project, at.protocol, at.name)...)
	}
	for deck, at := range t.decks {
		tx.Exec("INSERT INTO counter_deck (workspace, name, first_at) VALUES ($1, $2, $3) "+
			"ON CONFLICT (workspace, name) DO NOTHING", deck.workspace, deck.name, at)
	}
	for _, d := range t.decisions {
		tx.Exec("INSERT INTO counter_decision (hour, seq, workspace, project, agent, protocol, rule, waited) "+
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", d.hour, d.seq, d.workspace, d.project, d.agent, d.protocol, d.rule,
			d.waited)
	}
}

// after are the arguments of addTo: the key and the numbers.
func (c *Counts) after(key ...any) []any {
	for _, n := range c.fields() {
		key = append(key, *n)
	}
	return key
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
