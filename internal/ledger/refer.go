package ledger

// Tables of other packages refer to entries by their sequence number, and their queries read
// the entry together with the row. These are the parts of such a query that name the table of
// entries. No other package names it, so that its columns can change in one place.
const (
	// EntryTable is the table of entries, under the name e: "FROM run JOIN "+ledger.EntryTable+" ON
	// e.seq = run.seq". Its columns seq, workspace, kind, subject and trace can be compared.
	EntryTable = "ledger_entry e"
	// EntryColumns are what a Row takes from EntryTable.
	EntryColumns = "e.record, e.salt, e.body"
	// SeqsOfTrace selects the numbers of the entries of a trace, which follows it as a
	// placeholder. The index of traces has those that are not empty, and SQLite uses it only
	// for queries that say so.
	SeqsOfTrace = "SELECT seq FROM ledger_entry WHERE trace <> '' AND trace = "
)

// Row takes EntryColumns from a row of a query.
type Row struct{ record, salt, body []byte }

// After is where Scan puts a row whose last columns are EntryColumns: first is where it puts those
// before them.
func (r *Row) After(first ...any) []any {
	return append(first, &r.record, &r.salt, &r.body)
}

// Size is how many bytes the body has.
func (r *Row) Size() int { return len(r.body) }

// Entry is the entry that was taken.
func (r *Row) Entry() (Entry, error) { return Unseal(r.record, r.salt, r.body) }
