package behalf

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Migrations make the table of the index. who is the id of a user or of a handoff, or what was claimed with
// claimedPrefix before it.
// Nothing is decided by it: it finds entries, and they say for whom they are.
var Migrations = store.Migrations{Package: "behalf", Steps: []string{`
CREATE TABLE behalf_entry (
  who {text} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (who, seq)
) {keyed};

CREATE TABLE behalf_cursor (
  id {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};
INSERT INTO behalf_cursor (id, seq) VALUES (1, 0);
`}}

// claimedPrefix stands before what was only claimed. No id has a colon.
const claimedPrefix = "claimed:"

// workPrefix stands before the id of a handoff under which something was done that holds no decision.
const workPrefix = "work:"

// ofKey is for whom the entries under a key of the index are; ok is false for a key that is no user's.
func ofKey(key string) (of Of, ok bool) {
	if claimed, is := strings.CutPrefix(key, claimedPrefix); is {
		return Of{Claimed: claimed}, true
	}
	return Of{User: key}, strings.HasPrefix(key, userPrefix)
}

// Index finds entries by the user on whose behalf they are, and decisions by the handoff under which they were made. It
// follows the ledger, so that no caller waits for it: what
// was committed a moment ago may not be found yet. One node at a time keeps it (Run); any may ask.
type Index struct {
	db     *store.DB
	ledger *ledger.Ledger
	roster *roster.Roster
}

// New makes the index of a ledger.
func New(db *store.DB, l *ledger.Ledger, r *roster.Roster) *Index { return &Index{db, l, r} }

const (
	// pace is the least time between two transactions: on SQLite they delay those that callers wait for.
	pace = 100 * time.Millisecond
	// lookEvery is how long to wait for a wake-up before looking.
	lookEvery = time.Second
	// passed is after how many entries that are for nobody the place is stored all the same.
	passed = 10_000
)

// Run keeps the index while this node holds the lease, until ctx ends.
func (x *Index) Run(ctx context.Context) error { return x.ledger.Hold(ctx, "behalf", x.follow) }

// follow indexes entries from where the index has come to, until ctx ends. The place is stored with the rows, and not
// with every page: entries that are read twice change nothing.
func (x *Index) follow(ctx context.Context) error {
	var stored int64
	if err := x.db.QueryRow(ctx, Place, nil, &stored); err != nil {
		return err
	}
	for at := stored; ; {
		news, began := x.ledger.News(), time.Now()
		entries, err := x.ledger.Next(ctx, at)
		if err != nil || ctx.Err() != nil {
			return err
		}
		var found []row
		for i := range entries {
			found = append(found, rows(&entries[i])...)
			at = entries[i].Seq
		}
		if len(found) > 0 || at-stored > passed {
			if err := x.save(ctx, found, at); err != nil {
				return err
			}
			stored = at
		}
		if len(entries) < ledger.Page {
			ledger.Pause(ctx, news, lookEvery)
			ledger.Pause(ctx, nil, pace-time.Since(began))
		}
	}
}

// row is a row of the index.
type row struct {
	who string
	seq int64
}

// rows are those of an entry.
func rows(e *ledger.Entry) (all []row) {
	for _, of := range Read(e) {
		if of.User != "" {
			all = append(all, row{of.User, e.Seq})
		}
		if of.Claimed != "" {
			all = append(all, row{claimedPrefix + of.Claimed, e.Seq})
		}
	}
	under, asked := underAndWithin(e)
	for _, handoffID := range under {
		all = append(all, row{handoffID, e.Seq})
	}
	byWork, within := done(e)
	for _, handoffID := range []string{byWork, within, asked} {
		if r := (row{workPrefix + handoffID, e.Seq}); handoffID != "" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// IndexTable is the table of the index, and Place the query for the entry up to which it has all rows.
const (
	IndexTable = "behalf_entry (who, seq)"
	Place      = "SELECT seq FROM behalf_cursor WHERE id = 1"
)

// Put stores the rows of an entry, for those who build the index again to compare it.
func Put(tx *store.Tx, e *ledger.Entry) error {
	for _, r := range rows(e) {
		r.put(tx)
	}
	return nil
}

func (r row) put(tx *store.Tx) {
	tx.Exec("INSERT INTO behalf_entry (who, seq) VALUES ($1, $2) ON CONFLICT DO NOTHING", r.who, r.seq)
}

// save stores rows, in the order of the key, so that each page of the table is touched once, and the place.
func (x *Index) save(ctx context.Context, all []row, at int64) error {
	slices.SortFunc(all, func(a, b row) int { return cmp.Or(cmp.Compare(a.who, b.who), cmp.Compare(a.seq, b.seq)) })
	return x.db.Bookkeep(ctx, "behalf_cursor", func(tx *store.Tx) error {
		for _, r := range all {
			r.put(tx)
		}
		tx.Exec("UPDATE behalf_cursor SET seq = $1 WHERE id = 1 AND seq < $1", at)
		return nil
	})
}

// Reset empties the index, so that every entry is read again.
func Reset(ctx context.Context, db *store.DB) error {
	return db.Bookkeep(ctx, "behalf_cursor", func(tx *store.Tx) error {
		tx.Exec("DELETE FROM behalf_entry")
		tx.Exec("UPDATE behalf_cursor SET seq = 0 WHERE id = 1")
		return nil
	})
}
