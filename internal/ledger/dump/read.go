package dump

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/store"
)

// View is a ledger's database at one moment: all but the entries.
type View struct {
	Key     string // the verifier key that the ledger began with, "" in a database that no ledger was opened in
	Chain   notes.Chain
	Took    []string // the successions of keys, as they were signed
	Closed  *Closed
	Head    int64  // the number of the last entry
	Newest  string // the newest checkpoint as it was signed, "" for none
	Size    int64  // how many entries it is over
	Root    tlog.Hash
	Cursors map[string]int64
	Tables  []Table

	known string // what stands in the place of the key
}

// Table has the rows of a table that does not follow from the ledger.
type Table struct {
	Name    string    `json:"name"`
	Columns []string  `json:"columns"`
	Rows    [][]Value `json:"rows"`
}

// Value is a number, a text or bytes; none of them is null.
type Value struct {
	Number *int64  `json:"number,omitempty"`
	Text   *string `json:"text,omitempty"`
	Bytes  []byte  `json:"bytes,omitzero"`
}

// querier is a *sql.DB, or a *sql.Tx that sees one moment.
type querier interface {
	store.Querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Look reads everything but the entries, as of one moment. Of the tables that are named it reads the rows. A checkpoint
// that does not verify with the key is an error.
func Look(ctx context.Context, db *store.DB, tables []ledger.Table) (View, error) {
	var v View
	tx, err := db.Snapshot(ctx)
	if err != nil {
		return v, err
	}
	defer func() { _ = tx.Rollback() }()
	if v.Key, err = knownKey(ctx, tx); err != nil {
		return v, err
	}
	v.known = v.Key
	if v.Closed = parseClosed(v.Key); v.Closed != nil {
		v.Key = v.Closed.Key
	}
	if v.Head, err = headOf(ctx, tx); err != nil {
		return v, err
	}
	err = tx.QueryRowContext(ctx, "SELECT note FROM ledger_checkpoint ORDER BY size DESC LIMIT 1").Scan(&v.Newest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return v, err
	}
	if v.Key != "" {
		if err := v.readKeys(ctx, tx); err != nil {
			return v, err
		}
	}
	if v.Newest != "" {
		c, err := v.Chain.Open([]byte(v.Newest))
		if err != nil {
			return v, err
		}
		v.Size, v.Root = c.Size, c.Root
	}
	if v.Cursors, err = store.Map[string, int64](store.Reading(ctx, tx), "SELECT name, seq FROM ledger_cursor"); err != nil {
		return v, err
	}
	for _, t := range tables {
		read, err := readTable(ctx, tx, t)
		if err != nil {
			return v, err
		}
		v.Tables = append(v.Tables, read)
	}
	return v, nil
}

// readKeys reads the keys that took over from the first one.
func (v *View) readKeys(ctx context.Context, q querier) error {
	all, err := ledger.Successions(ctx, q, 0)
	for _, s := range all {
		v.Took = append(v.Took, string(s.Note))
	}
	if err == nil {
		v.Chain, err = Chain(v.Key, v.Took)
	}
	return err
}

// Chain is the keys of a ledger: the first one, and those that took over by the successions that they signed.
func Chain(first string, took []string) (notes.Chain, error) {
	c, err := notes.NewChain(first)
	for _, signed := range took {
		var s notes.Succession
		if err == nil {
			s, err = notes.OpenSuccession([]byte(signed))
		}
		if err == nil {
			c, err = c.With(s)
		}
	}
	return c, err
}

func knownKey(ctx context.Context, q querier) (known string, err error) {
	err = q.QueryRowContext(ctx, "SELECT vkey FROM ledger_tree WHERE id = 1").Scan(&known)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.LedgerMismatch, "The row of ledger_tree is gone from the database.")
	}
	return known, err
}

func headOf(ctx context.Context, q querier) (head int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&head)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.LedgerMismatch, "The row of ledger_head is gone from the database.")
	}
	return head, err
}

// readTable reads all rows. Such tables are small: a row for each key of a provider, and for each agent.
func readTable(ctx context.Context, q querier, t ledger.Table) (Table, error) {
	out := Table{Name: t.Name, Rows: [][]Value{}}
	rows, err := q.QueryContext(ctx, "SELECT * FROM "+t.Name+" ORDER BY "+t.Key)
	if err != nil {
		return out, err
	}
	defer func() { _ = rows.Close() }()
	if out.Columns, err = rows.Columns(); err != nil {
		return out, err
	}
	for rows.Next() {
		cells, into := make([]any, len(out.Columns)), make([]any, len(out.Columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return out, err
		}
		row := make([]Value, len(cells))
		for i, cell := range cells {
			switch x := cell.(type) {
			case int64:
				row[i].Number = &x
			case string:
				row[i].Text = &x
			case []byte:
				row[i].Bytes = append([]byte{}, x...)
			}
		}
		out.Rows = append(out.Rows, row)
	}
	return out, rows.Err()
}

// pageBytes is how much of entries Page reads at once, beside the last of them.
const pageBytes = 4 << 20

// errFull ends a page early.
var errFull = errors.New("the page is full")

// Page reads the entries that follow after, up to a number, as many as go together. It has at least one, or the ledger
// is not what it should be. Each is checked against its record.
func Page(ctx context.Context, db *store.DB, after, upTo int64) ([]ledger.Entry, error) {
	var entries []ledger.Entry
	size := 0
	err := store.Each(db.Reading(ctx), func(scan store.Scan) error {
		var record, salt, body []byte
		if err := scan(&record, &salt, &body); err != nil {
			return err
		}
		e, err := ledger.Unseal(record, salt, body)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		if size += len(record) + len(body); size > pageBytes {
			return errFull
		}
		return nil
	}, "SELECT record, salt, body FROM ledger_entry WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3", after, upTo,
		ledger.Page)
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fault.New(fault.LedgerMismatch, "Entry %d of the ledger is missing from the database: rows were removed.",
			after+1)
	}
	return entries, nil
}

// Checkpoint is one that was signed, over so many entries.
type Checkpoint struct {
	Size int64  `json:"size"`
	Note string `json:"note"`
}

// Checkpoints reads those over more entries than after, up to a number, a thousand at the most.
func Checkpoints(ctx context.Context, db *store.DB, after, upTo int64) ([]Checkpoint, error) {
	return store.All(db.Reading(ctx), func(scan store.Scan) (c Checkpoint, err error) {
		err = scan(&c.Size, &c.Note)
		return c, err
	}, "SELECT size, note FROM ledger_checkpoint WHERE size > $1 AND size <= $2 ORDER BY size LIMIT 1000", after, upTo)
}

// Erased are the numbers of entries up to a number whose bodies were erased by the entries of kind body.erased among
// these.
func Erased(ctx context.Context, db *store.DB, entries []ledger.Entry, upTo int64) (erased []int64, err error) {
	for i := range entries {
		if entries[i].Kind != "body.erased" {
			continue
		}
		var b struct {
			After   int64   `json:"after"`
			To      int64   `json:"to"`
			Count   int64   `json:"count"`
			Entries []int64 `json:"entries"`
		}
		if err := entries[i].Decode(&b); err != nil {
			return nil, err
		}
		for _, seq := range b.Entries {
			if seq <= upTo {
				erased = append(erased, seq)
			}
		}
		of, err := store.All(db.Reading(ctx), func(scan store.Scan) (seq int64, err error) { err = scan(&seq); return seq, err },
			"SELECT seq FROM ledger_entry WHERE seq > $1 AND seq <= $2 AND salt IS NULL", b.After, min(b.To, upTo))
		if err != nil {
			return nil, err
		}
		erased = append(erased, of...)
	}
	return erased, nil
}

// Verify checks a signed note with a verifier key and returns its text.
func Verify(signed []byte, vkey string) (text string, err error) {
	v, err := note.NewVerifier(strings.TrimSpace(vkey))
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "%.80q is not a verifier key.", vkey)
	}
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		return "", fault.Wrap(err, fault.VerificationFailed,
			"It is not signed by the ledger's key %s, or was changed after it was signed.", v.Name())
	}
	return n.Text, nil
}
