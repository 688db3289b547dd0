package gate

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// selectGate reads gates, each from the entry that opened it and, when it is resolved, the
// row that says how.
const (
	selectGate = `SELECT coalesce(r.status, 'pending'), coalesce(r.resolved_at, 0), coalesce(r.resolved_by, ''),
  coalesce(r.cause, ''), coalesce(r.note, ''), r.modified, ` + ledger.EntryColumns
	fromEntry = " FROM " + ledger.EntryTable + " LEFT JOIN gate_resolved r ON r.opened_seq = e.seq"
)

// byID finds the entry that opened a gate. The ledger's index of subjects is partial, over
// those that are not empty, and SQLite uses it only for a query that repeats the condition.
const byID = fromEntry + " WHERE e.subject = $1 AND e.subject <> '' AND e.kind = 'gate.opened'"

// scanGate reads a row of selectGate. Votes are read apart, many gates at once.
func scanGate(scan store.Scan) (Gate, error) {
	var g Gate
	var resolvedAt int64
	var modified []byte
	var row ledger.Row
	err := scan(row.After(&g.Status, &resolvedAt, &g.ResolvedBy, &g.Cause, &g.Note, &modified)...)
	if err != nil {
		return g, err
	}
	g.ResolvedAt, g.Votes = store.Moment(resolvedAt), []Vote{}
	if len(modified) > 0 {
		g.Modified = modified
	}
	opened, err := row.Entry()
	if err != nil {
		return g, err
	}
	return g, g.fill(&opened)
}

// addVotes reads the votes of gates, in the order they were cast.
func addVotes(gates []Gate, query store.Query) error {
	if len(gates) == 0 {
		return nil
	}
	at, ids := map[string]*Gate{}, make([]any, len(gates))
	for i := range gates {
		at[gates[i].ID], ids[i] = &gates[i], gates[i].ID
	}
	return store.Each(query, func(scan store.Scan) error {
		var gateID string
		var v Vote
		var micros int64
		if err := scan(&gateID, &v.Operator, &v.CastBy, &v.Approve, &v.Note, &micros, (*[]byte)(&v.Modified),
			&v.Digest, &v.Passkey); err != nil {
			return err
		}
		if len(v.Modified) == 0 {
			v.Modified = nil
		}
		v.At = time.UnixMicro(micros).UTC()
		at[gateID].Votes = append(at[gateID].Votes, v)
		return nil
	}, "SELECT gate, operator, cast_by, approve, note, at, modified, digest, passkey FROM gate_vote WHERE gate IN ("+
		store.Marks(1, len(ids))+") ORDER BY at, operator", ids...)
}

// Get reads one gate, with its votes and how it was decided, from its entries. A decision that only stands in a
// table is none: the gate is then refused with state_mismatch, whatever the table says.
func (g *Gates) Get(ctx context.Context, gateID string) (Gate, error) {
	found, err := readGate(g.ledger.Prover(ctx), gateID)
	if run := found.Origin.Run; err == nil && run != "" && g.prompt != nil {
		found.Prompt = Title(g.prompt(ctx, found.Workspace, run))
	}
	return found, err
}

// Awaited are the gates that wait and name a run, the oldest first.
func (g *Gates) Awaited(ctx context.Context, workspace, run string) (all []Gate, err error) {
	p := g.ledger.Prover(ctx)
	ids, err := waitingFor(p.Query, workspace, run)
	for _, id := range ids {
		found, err := readGate(p, id)
		if err != nil {
			return nil, err
		}
		if found.Status == Pending && found.Origin.Run == run && found.Workspace == workspace {
			all = append(all, found)
		}
	}
	return all, err
}

// waitingFor are the ids of the gates that wait and name a run.
func waitingFor(query store.Query, workspace, run string) ([]string, error) {
	return store.All(query, store.Text, "SELECT e.subject FROM gate_waiting w JOIN "+ledger.EntryTable+
		" ON e.seq = w.opened_seq WHERE w.workspace = $1 AND w.run = $2 ORDER BY w.opened_seq", workspace, run)
}

// load reads a gate inside a transaction.
func load(tx *ledger.Tx, gateID string) (Gate, error) { return readGate(tx.Prover(), gateID) }

// aboutGate selects the entries that a gate follows from.
func aboutGate(gateID string) ledger.Query {
	return ledger.Query{Subject: gateID, Kinds: []string{"gate.opened", "gate.voted", "gate.resolved"}}
}

// readGate reads a gate from its entries, and the row that says how it was resolved in the same statement, since
// the two have to agree.
func readGate(p ledger.Prover, gateID string) (found Gate, err error) {
	var row *resolvedRow
	var entries []ledger.Entry
	found.Status, found.Votes = Pending, []Vote{}
	err = store.Each(p.Query, func(scan store.Scan) error {
		at, e, err := scanAbout(scan)
		if e.Kind == "gate.opened" && !slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Kind == "gate.opened" }) {
			row = at
		}
		entries = append(entries, e)
		return err
	}, `SELECT r.status, r.resolved_at, r.resolved_by, r.cause, r.note, r.modified, `+ledger.EntryColumns+fromEntry+
		" WHERE e.subject = $1 AND e.subject <> '' AND e.kind IN ('gate.opened', 'gate.voted', 'gate.resolved') "+
		"ORDER BY e.seq", gateID)
	// A proof reads, too, so none is made while the rows are open: see store.Each.
	for i := 0; i < len(entries) && err == nil; i++ {
		if err = p.Check(aboutGate(gateID), &entries[i]); err == nil {
			err = found.follow(&entries[i])
		}
	}
	switch {
	case err != nil:
		return Gate{}, err
	case found.opened == 0:
		return Gate{}, noGate(gateID)
	case !row.says(&found):
		return Gate{}, p.Contradicts("gate_resolved", gateID, "the gate %s is %s there, and %s in the ledger", gateID,
			row.status(), found.Status)
	case found.Status == Approved && p.Mismatch() != nil: // nothing proves it, so nobody may hear it
		return Gate{}, p.Mismatch()
	}
	return found, nil
}

// resolvedRow is a row of gate_resolved, nil for none.
type resolvedRow struct {
	Resolution
	at int64
}

// scanAbout reads an entry about a gate, and the row that belongs to the one that opened it.
func scanAbout(scan store.Scan) (*resolvedRow, ledger.Entry, error) {
	var status, by, cause, note sql.NullString
	var at sql.NullInt64
	var modified []byte
	var row ledger.Row
	if err := scan(row.After(&status, &at, &by, &cause, &note, &modified)...); err != nil {
		return nil, ledger.Entry{}, err
	}
	e, err := row.Entry()
	if !status.Valid {
		return nil, e, err
	}
	return &resolvedRow{Resolution{
		Status: Status(status.String), By: by.String, Cause: Cause(cause.String), Note: note.String, Modified: modified,
	}, at.Int64}, e, err
}

func (r *resolvedRow) status() Status {
	if r == nil {
		return Pending
	}
	return r.Status
}

// says reports whether the row says what the entries say.
func (r *resolvedRow) says(g *Gate) bool {
	if r == nil || g.ResolvedAt == nil {
		return r == nil && g.ResolvedAt == nil
	}
	return r.Status == g.Status && r.at == g.ResolvedAt.UnixMicro() && r.By == g.ResolvedBy && r.Cause == g.Cause &&
		r.Note == g.Note && bytes.Equal(r.Modified, g.Modified)
}

// follow takes over what an entry about the gate says. The first that opens it counts, and the first that resolves
// it.
func (g *Gate) follow(e *ledger.Entry) error {
	switch {
	case e.Kind == "gate.opened" && g.opened == 0:
		return g.fill(e)
	case e.Kind == "gate.voted" && g.opened > 0:
		b, err := ledger.Read[voted](e)
		if err == nil {
			g.Votes = append(g.Votes, b.vote(e))
		}
		return err
	case e.Kind == "gate.resolved" && g.opened > 0 && g.ResolvedAt == nil:
		b, err := ledger.Read[Resolution](e)
		if err == nil {
			at := e.At
			g.Status, g.Cause, g.ResolvedAt, g.ResolvedBy, g.Note = b.Status, b.Cause, &at, b.By, b.Note
			g.Modified = b.Modified
		}
		return err
	}
	return nil
}

// vote is a vote as its entry has it.
func (b *voted) vote(e *ledger.Entry) Vote {
	v := Vote{
		Operator: b.Operator, CastBy: b.CastBy, Approve: b.Approve, Note: b.Note, Modified: b.Modified, Digest: b.Digest,
		At: e.At,
	}
	if b.Assertion != nil {
		v.Passkey = b.Assertion.Credential
	}
	return v
}

func noGate(gateID string) error {
	return fault.New(fault.NotFound, "There is no gate %.80q. `signalbox gates ls` lists those that wait.", gateID)
}

// Filter selects gates; zero fields select everything.
type Filter struct {
	Status    Status
	Workspace string
	Project   string
	Agents    []string // the agents' ids
	// For are the users on whose behalf they are, as behalf.Index.Keys has them.
	For []string
}

// Place is the position of a gate in a listing.
type Place struct{ Risk, Opened int64 }

func (g *Gate) place() Place {
	return Place{int64(slices.Index(Risks, g.Risk)), g.opened}
}

// compare puts the highest risk first, then the newest.
func (p Place) compare(other Place) int {
	return -cmp.Or(cmp.Compare(p.Risk, other.Risk), cmp.Compare(p.Opened, other.Opened))
}

// List reads a page of gates: those that wait with the highest risk first, then the
// newest; others the newest first. next is where the following page begins.
func (g *Gates) List(ctx context.Context, f Filter, after *Place, limit int) (gates []Gate, next *Place, err error) {
	if f.Status == Pending {
		gates, err = g.waiting(ctx, f, after, limit)
	} else {
		text, args := listing(f, after, limit)
		gates, err = store.All(g.db.Reading(ctx), scanGate, text, args...)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(gates) == limit {
		last := gates[limit-1].place()
		next = &last
	}
	gates = slices.DeleteFunc(gates, func(one Gate) bool { return !one.Among(f.For) }) // as their entries say
	return gates, next, addVotes(gates, g.db.Reading(ctx))
}

// waiting is a page of the inbox. The inbox is stored by workspace, so that opening a gate
// costs one row and no further index. For a caller who sees every workspace, the pages of
// each are merged; a page that is full already bounds what the next workspace has to read.
func (g *Gates) waiting(ctx context.Context, f Filter, after *Place, limit int) ([]Gate, error) {
	workspaces := []string{f.Workspace}
	if f.Workspace == "" {
		var err error
		if workspaces, err = g.workspacesWaiting(ctx); err != nil {
			return nil, err
		}
	}
	gates := []Gate{}
	var last *Place // of a page that is full: what comes behind it is of no interest
	for _, f.Workspace = range workspaces {
		text, args := inbox(f, after, last, limit)
		found, err := store.All(g.db.Reading(ctx), scanGate, text, args...)
		if err != nil {
			return nil, err
		}
		gates = append(gates, found...)
		slices.SortFunc(gates, func(a, b Gate) int { return a.place().compare(b.place()) })
		if len(gates) >= limit {
			gates = gates[:limit]
			place := gates[limit-1].place()
			last = &place
		}
	}
	return gates, nil
}

// workspacesWaiting lists the workspaces in which gates wait. It skips from one to the next
// by the key, so it costs as many steps as there are workspaces, however many gates wait.
func (g *Gates) workspacesWaiting(ctx context.Context) ([]string, error) {
	return store.All(g.db.Reading(ctx), store.Text, `WITH RECURSIVE has (workspace) AS (
  SELECT min(workspace) FROM gate_waiting
  UNION ALL SELECT (SELECT min(workspace) FROM gate_waiting WHERE workspace > has.workspace)
    FROM has WHERE has.workspace IS NOT NULL
) SELECT workspace FROM has WHERE workspace IS NOT NULL`)
}

// add adds the conditions on project, agent and user, by what both tables of gates have as columns.
func (f Filter) add(where *store.Where, column func(string) string) {
	if f.Agents != nil {
		where.In(column("agent"), f.Agents)
	}
	where.Equal(column("project"), f.Project)
	behalf.Among(where, column("opened_seq"), f.For)
}

// page is the query of a page of gates.
func page(where *store.Where, from, order string, limit int) (text string, args []any) {
	text = selectGate + from + " WHERE " + where.String() + " ORDER BY " + order + " LIMIT " + where.Mark(limit)
	return text, where.Args()
}

// inbox is the query of a page of one workspace's gates that wait, between two places.
func inbox(f Filter, after, before *Place, limit int) (text string, args []any) {
	var where store.Where
	where.And("w.workspace = %s", f.Workspace)
	f.add(&where, func(name string) string { return "w." + name })
	if after != nil {
		where.And("(w.risk, w.opened_seq) < (%s, %s)", after.Risk, after.Opened)
	}
	if before != nil {
		where.And("(w.risk, w.opened_seq) > (%s, %s)", before.Risk, before.Opened)
	}
	const from = " FROM gate_waiting w JOIN " + ledger.EntryTable +
		" ON e.seq = w.opened_seq LEFT JOIN gate_resolved r ON r.opened_seq = e.seq"
	return page(&where, from, "w.risk DESC, w.opened_seq DESC", limit)
}

// listing is the query of a page of gates that are resolved, in the order of their
// indexes; or of gates whatever their status, in the order of the ledger.
func listing(f Filter, after *Place, limit int) (text string, args []any) {
	var where store.Where
	from, workspace, seq := " FROM gate_resolved r JOIN "+ledger.EntryTable+
		" ON e.seq = r.opened_seq", "r.workspace", "r.opened_seq"
	column := func(name string) string { return "r." + name }
	if f.Status == "" {
		from, workspace, seq = fromEntry+
			" LEFT JOIN gate_waiting w ON w.workspace = e.workspace AND w.risk IN (0, 1, 2) AND w.opened_seq = e.seq",
			"e.workspace", "e.seq"
		column = func(name string) string { return "coalesce(r." + name + ", w." + name + ")" }
		where.And("e.kind = 'gate.opened'")
	} else {
		where.And("r.status = %s", string(f.Status))
	}
	where.Equal(workspace, f.Workspace)
	f.add(&where, column)
	if after != nil {
		where.And(seq+" < %s", after.Opened)
	}
	return page(&where, from, seq+" DESC", limit)
}

// Wait returns the gate as soon as it is resolved, or as it is when ctx ends.
func (g *Gates) Wait(ctx context.Context, gateID string) (Gate, error) {
	var found Gate
	err := g.wait(ctx, gateID, func(ctx context.Context) (Status, error) {
		var err error
		found, err = g.Get(ctx, gateID)
		return found.Status, err
	})
	return found, err
}

// Resolved waits like Wait, and reports whether the gate is resolved. It keeps no gate in
// memory meanwhile, which matters to a protocol with thousands of waiting calls.
func (g *Gates) Resolved(ctx context.Context, gateID string) (bool, error) {
	var status Status
	err := g.wait(ctx, gateID, func(ctx context.Context) (Status, error) {
		err := g.db.QueryRow(ctx, "SELECT coalesce(r.status, 'pending')"+byID, []any{gateID}, &status)
		return status, err
	})
	return err == nil && status != Pending, err
}

// wait looks at a gate until it is resolved, or ctx ends.
func (g *Gates) wait(ctx context.Context, gateID string, look func(context.Context) (Status, error)) error {
	return g.waiters.Await(ctx, gateID, func(ctx context.Context) (bool, error) {
		status, err := look(ctx)
		return status != Pending, err
	})
}

// parseStatus reads a status from a query; "" is any.
func parseStatus(s string) (Status, error) {
	switch status := Status(s); status {
	case "", Pending, Approved, Rejected:
		return status, nil
	}
	return "", fault.New(fault.InvalidRequest, "The status should be pending, approved or rejected, and is %.40q.",
		s).About("status")
}

const selectDelegation = "SELECT operator, delegate, until_at FROM delegation WHERE until_at > $2 AND "

// Delegations are those that an operator has granted and that have not ended.
func (g *Gates) Delegations(ctx context.Context, operator string, now time.Time) ([]Delegation, error) {
	return store.All(g.db.Reading(ctx), func(scan store.Scan) (d Delegation, err error) {
		var until int64
		err = scan(new(string), &d.Delegate, &until)
		d.Until = time.UnixMicro(until).UTC()
		return d, err
	}, selectDelegation+"operator = $1 ORDER BY delegate", operator, now.UnixMicro())
}

// Delegators are the operators whose votes another may cast now.
func (g *Gates) Delegators(ctx context.Context, delegate string, now time.Time) ([]string, error) {
	return store.All(g.db.Reading(ctx), func(scan store.Scan) (operator string, err error) {
		err = scan(&operator, new(string), new(int64))
		return operator, err
	}, selectDelegation+"delegate = $1 ORDER BY operator", delegate, now.UnixMicro())
}
