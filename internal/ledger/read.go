package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/store"
)

const (
	// Page is how many entries Next gives at the most; after fewer there are no more.
	Page = 500
	// pollEvery is the time between two looks: for what nobody may have been woken for, for
	// a lease that another holds, and after a failure.
	pollEvery = time.Second
)

// Query selects entries; zero fields select everything.
type Query struct {
	After     int64 // entries with a greater sequence number
	UpTo      int64 // entries with no greater one; 0 is all there are
	Limit     int   // 100 when zero
	Workspace string
	Kinds     []string
	Subject   string
	Subjects  []string // one of these
	Trace     string
	Newest    bool // the last entries instead of the first; still in order
}

// Entries reads a page of entries, in order. It does not check who may see them: calls for
// others go through List or Visible.
func (l *Ledger) Entries(ctx context.Context, q Query) ([]Entry, error) {
	text, args := q.text()
	entries, err := readEntries(ctx, l.db.Read, text, args...)
	if q.Newest {
		slices.Reverse(entries)
	}
	return entries, err
}

// text is the statement that answers the query.
func (q Query) text() (string, []any) {
	var where store.Where
	where.And("seq > %s", q.After)
	where.Equal("workspace", q.Workspace)
	// The indexes have what is not empty, and SQLite uses them only for who says so.
	if q.Subject != "" {
		where.And("subject <> '' AND subject = %s", q.Subject)
	}
	if len(q.Subjects) > 0 {
		where.And("subject <> ''")
		where.In("subject", q.Subjects)
	}
	if q.Trace != "" {
		where.And("trace <> '' AND trace = %s", q.Trace)
	}
	return "SELECT record, salt, body FROM ledger_entry " + q.End(&where, "kind", "seq"), where.Args()
}

// End is the end of a statement that answers the query, from WHERE on: it adds the kinds and the last number to the
// conditions, by the names of these columns, and puts the entries in order. Packages that find entries by tables of
// their own call it, so that a query means the same everywhere.
func (q Query) End(where *store.Where, kind, seq string) string {
	if q.UpTo > 0 {
		where.And(seq+" <= %s", q.UpTo)
	}
	if len(q.Kinds) > 0 {
		where.In(kind, q.Kinds)
	}
	order := "ASC"
	if q.Newest {
		order = "DESC"
	}
	limit := where.Mark(cmp.Or(q.Limit, 100))
	return "WHERE " + where.String() + " ORDER BY " + seq + " " + order + " LIMIT " + limit
}

// Select reads the entries that rows of a table of another package refer to. rest goes on
// after the names of the two tables: "JOIN x ON x.seq = e.seq WHERE …".
func (l *Ledger) Select(ctx context.Context, rest string, args ...any) ([]Entry, error) {
	return readEntries(ctx, l.db.Read, "SELECT "+EntryColumns+" FROM "+EntryTable+" "+rest, args...)
}

// reader is a *sql.DB, or a *sql.Tx that sees one moment.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readEntries(ctx context.Context, r reader, query string, args ...any) ([]Entry, error) {
	return store.All(store.Reading(ctx, r), scanEntry, query, args...)
}

// scanEntry reads a row of record, salt and body.
func scanEntry(scan store.Scan) (Entry, error) {
	var row Row
	if err := scan(row.After()...); err != nil {
		return Entry{}, err
	}
	return row.Entry()
}

// Entry reads one entry.
func (l *Ledger) Entry(ctx context.Context, seq int64) (Entry, error) {
	entries, err := l.Entries(ctx, Query{After: seq - 1, Limit: 1})
	if err != nil {
		return Entry{}, err
	}
	if len(entries) == 0 || entries[0].Seq != seq {
		head, err := l.Head(ctx)
		if err != nil {
			return Entry{}, err
		}
		return Entry{}, fault.New(fault.NotFound, "There is no entry %d. The ledger holds entries 1 to %d.", seq, head)
	}
	return entries[0], nil
}

// Head is the sequence number of the last entry.
func (l *Ledger) Head(ctx context.Context) (int64, error) {
	var seq int64
	err := l.db.Read.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.LedgerMismatch,
			"The row of the table ledger_head is gone from the database. Restore the database from a backup.")
	}
	return seq, err
}

// SeqBefore is the sequence number of the last entry made before t, 0 if there is none. It
// is found by bisection: numbers have no gaps (LED-1), and times go back only where they were healed (LED-36).
func (l *Ledger) SeqBefore(ctx context.Context, t time.Time) (int64, error) {
	head, err := l.Head(ctx)
	if err != nil {
		return 0, err
	}
	healed, err := l.Entries(ctx, Query{Kinds: []string{Healed}, Limit: math.MaxInt32})
	from := int64(0)
	for _, e := range healed {
		if e.At.Before(t) {
			from = e.Seq
		}
	}
	n := sort.Search(int(head-from), func(i int) bool {
		e, readErr := l.Entry(ctx, from+int64(i)+1)
		err = errors.Join(err, readErr)
		return readErr != nil || !e.At.Before(t)
	})
	return from + int64(n), err
}

// Follow yields every entry after the given one, once and in order, and waits for more
// until ctx ends. If the database cannot be reached, it retries.
func (l *Ledger) Follow(ctx context.Context, after int64) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for entries := range l.FollowPages(ctx, after) {
			for _, e := range entries {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
		}
	}
}

// FollowPages is Follow for callers that take what has come together: it yields the
// entries in pages, none of which is empty.
func (l *Ledger) FollowPages(ctx context.Context, after int64) iter.Seq[[]Entry] {
	return func(yield func([]Entry) bool) {
		for ctx.Err() == nil {
			news := l.News()
			entries, err := l.Next(ctx, after)
			if err != nil && ctx.Err() == nil {
				l.log.Warn("cannot read the ledger; retrying", "error", err.Error())
			}
			if len(entries) > 0 {
				after = entries[len(entries)-1].Seq
				if !yield(entries) {
					return
				}
			}
			if len(entries) < Page {
				Pause(ctx, news, l.poll)
			}
		}
	}
}

// FollowNow is for callers that keep a view in memory: load reads the current state, and
// every entry after it is yielded. The head is read before load, so an entry that is written
// meanwhile is seen by load, or yielded, or both; applying it twice must be harmless. load is
// called again after a pause until it succeeds, or ctx ends.
func (l *Ledger) FollowNow(ctx context.Context, load func(context.Context) error) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for ctx.Err() == nil {
			after, err := l.Head(ctx)
			if err == nil {
				err = load(ctx)
			}
			if err == nil {
				l.Follow(ctx, after)(yield)
				return
			}
			if ctx.Err() == nil {
				l.log.Warn("cannot load the current state; retrying", "error", err.Error())
			}
			Pause(ctx, nil, pollEvery)
		}
	}
}

// Next reads the page that follows seq, of at most Page entries, and makes sure that
// nothing is missing from it. What this process has just committed comes from memory. A gap
// means that rows were removed, and the ledger refuses writes from then on.
func (l *Ledger) Next(ctx context.Context, seq int64) ([]Entry, error) {
	if entries := l.recent.after(seq, Page); len(entries) > 0 {
		return entries, nil
	}
	entries, err := l.Entries(ctx, Query{After: seq, Limit: Page})
	if err != nil {
		return nil, err
	}
	if err := inOrder(entries, seq); err != nil {
		l.refuse(err)
		return nil, err
	}
	return entries, nil
}

// Appended are the entries that the functions of the transaction have appended so far, this one's included. They
// follow those up to Begun, which are committed; a function that fails takes its own back.
func (tx *Tx) Appended() []*Entry { return tx.appended }

// Begun is the number of the last entry before those of the transaction.
func (tx *Tx) Begun() int64 { return tx.head.seq - int64(len(tx.appended)) }

// inOrder checks that entries are those that follow seq, without a gap.
func inOrder(entries []Entry, seq int64) error {
	for i, e := range entries {
		if want := seq + int64(i) + 1; e.Seq != want {
			return gap(want, e.Seq)
		}
	}
	return nil
}

// missing and gap are the errors for rows that were removed or replaced.
func missing(seq int64) error {
	return fault.New(fault.LedgerMismatch,
		"Entry %d of the ledger is missing from the database: rows were removed. Restore the database from a backup.", seq)
}

func gap(want, got int64) error {
	return fault.New(fault.LedgerMismatch,
		"Entry %d of the ledger is missing, and entry %d follows in its place: rows were removed from the database "+
			"or changed. Restore the database from a backup.", want, got)
}

// atOnce is how many entries WalkBack reads at once: a body may be as large as a message.
const atOnce = 4

// WalkBack hands entries to look, newest first, until it has as many as the query's
// limit or so many bytes. It returns the last entry it has seen, and whether there may
// be more.
func (l *Ledger) WalkBack(ctx context.Context, q Query, bytes int, look func(*Entry) error) (last int64, more bool,
	err error,
) {
	q.Newest = true
	for left := q.Limit; left > 0 && bytes > 0; {
		q.Limit = min(left, atOnce)
		entries, err := l.Entries(ctx, q)
		if err != nil {
			return last, false, err
		}
		for _, e := range slices.Backward(entries) {
			if err := look(&e); err != nil {
				return last, false, err
			}
			last, bytes, left = e.Seq, bytes-len(e.Body), left-1
		}
		if len(entries) < q.Limit || last == 1 {
			return last, false, nil
		}
		q.UpTo = last - 1
	}
	return last, true, nil
}
