package gate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/store"
)

// selectGate reads a gate with the entry that opened it.
const selectGate = `SELECT g.opened_seq, g.workspace, g.project, g.status, g.risk, g.resolved_at, g.resolved_by, g.cause, g.note, g.modified, e.record, e.salt, e.body
FROM gate g JOIN ledger_entry e ON e.seq = g.opened_seq`

// byID finds the entry that opened a gate, and so the gate. The ledger's index of subjects
// has those that are not empty, and is only used by who says so.
const byID = " WHERE e.subject = $1 AND e.subject <> '' AND e.kind = 'gate.opened'"

func scanGate(scan func(...any) error) (Gate, error) {
	var g Gate
	var resolvedAt int64
	var modified, rec, salt, body []byte
	err := scan(&g.opened, &g.Workspace, &g.Project, &g.Status, &g.rank, &resolvedAt, &g.ResolvedBy, &g.Cause, &g.Note, &modified, &rec, &salt, &body)
	if err != nil {
		return g, err
	}
	g.ResolvedAt, g.Votes = store.Moment(resolvedAt), []Vote{}
	if len(modified) > 0 {
		g.Modified = modified
	}
	opened, err := ledger.Unseal(rec, salt, body)
	if err != nil {
		return g, err
	}
	return g, g.fill(&opened)
}

// addVotes reads the votes of gates, in the order they were cast.
func addVotes(gates []Gate, query func(text string, args ...any) (store.Rows, error)) error {
	if len(gates) == 0 {
		return nil
	}
	at, marks, args := map[string]*Gate{}, []string{}, []any{}
	for i := range gates {
		at[gates[i].ID] = &gates[i]
		args = append(args, gates[i].ID)
		marks = append(marks, fmt.Sprintf("$%d", len(args)))
	}
	rows, err := query("SELECT gate, operator, cast_by, approve, note, at FROM gate_vote WHERE gate IN ("+strings.Join(marks, ", ")+") ORDER BY at, operator", args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var gateID string
		var v Vote
		var micros int64
		if err := rows.Scan(&gateID, &v.Operator, &v.CastBy, &v.Approve, &v.Note, &micros); err != nil {
			return err
		}
		v.At = time.UnixMicro(micros).UTC()
		at[gateID].Votes = append(at[gateID].Votes, v)
	}
	return rows.Err()
}

// reading is addVotes' query outside of a transaction.
func (g *Gates) reading(ctx context.Context) func(string, ...any) (store.Rows, error) {
	return func(text string, args ...any) (store.Rows, error) { return g.db.Read.QueryContext(ctx, text, args...) } //nolint:rowserrcheck // addVotes does
}

// Get reads one gate.
func (g *Gates) Get(ctx context.Context, gateID string) (Gate, error) {
	found, err := scanGate(func(dest ...any) error { return g.db.QueryRow(ctx, selectGate+byID, []any{gateID}, dest...) })
	if errors.Is(err, sql.ErrNoRows) {
		return found, noGate(gateID)
	}
	if err != nil {
		return found, err
	}
	one := []Gate{found}
	err = addVotes(one, g.reading(ctx))
	return one[0], err
}

// Filter selects gates; zero fields select everything.
type Filter struct {
	Status    Status
	Workspace string
	Project   string
	Agents    []string // the agents' ids
}

// Place is the position of a gate in a listing.
type Place struct{ Risk, Opened int64 }

// List reads a page of gates: those that wait with the highest risk first, then the
// newest; others the newest first. next is where the following page begins.
func (g *Gates) List(ctx context.Context, f Filter, after *Place, limit int) (gates []Gate, next *Place, err error) {
	text, args := listing(f, after, limit)
	rows, err := g.db.Read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	gates = []Gate{}
	for rows.Next() {
		found, err := scanGate(rows.Scan)
		if err != nil {
			return nil, nil, err
		}
		gates = append(gates, found)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, err
	}
	if len(gates) == limit {
		last := gates[limit-1]
		next = &Place{last.rank, last.opened}
	}
	return gates, next, addVotes(gates, g.reading(ctx))
}

// listing is the query of a page. Gates that wait come out of the inbox's indexes,
// resolved ones of a workspace or an agent out of the history's.
func listing(f Filter, after *Place, limit int) (text string, args []any) {
	where := []string{}
	add := func(condition string, values ...any) {
		var marks []any
		for _, v := range values {
			args = append(args, v)
			marks = append(marks, fmt.Sprintf("$%d", len(args)))
		}
		where = append(where, fmt.Sprintf(condition, marks...))
	}
	from, table, order := selectGate, "g", "g.opened_seq DESC"
	switch {
	case f.Status == Pending:
		where, order = append(where, "g.status = 'pending'"), "g.risk DESC, g.opened_seq DESC" // as in the index
	case f.Status != "":
		add("g.status = %s", string(f.Status))
		if f.Workspace != "" || f.Agents != nil {
			from, table, order = selectGate+" JOIN gate_history h ON h.opened_seq = g.opened_seq", "h", "h.opened_seq DESC"
		}
	}
	if f.Workspace != "" {
		add(table+".workspace = %s", f.Workspace)
	}
	if f.Agents != nil {
		var ids []any
		for _, agent := range f.Agents {
			ids = append(ids, agent)
		}
		add(table+".agent IN ("+strings.TrimSuffix(strings.Repeat("%s, ", len(ids)), ", ")+")", ids...)
	}
	if f.Project != "" {
		add("g.project = %s", f.Project)
	}
	switch {
	case after != nil && f.Status == Pending:
		add("(g.risk, g.opened_seq) < (%s, %s)", after.Risk, after.Opened)
	case after != nil:
		add(table+".opened_seq < %s", after.Opened)
	}
	if len(where) > 0 {
		from += " WHERE " + strings.Join(where, " AND ")
	}
	args = append(args, limit)
	return fmt.Sprintf("%s ORDER BY %s LIMIT $%d", from, order, len(args)), args
}

// Wait returns the gate as soon as it is resolved, or as it is when ctx ends.
func (g *Gates) Wait(ctx context.Context, gateID string) (Gate, error) {
	woken, forget := g.register(gateID)
	defer forget()
	for {
		found, err := g.Get(context.WithoutCancel(ctx), gateID)
		if err != nil || found.Status != Pending {
			return found, err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return found, nil
		}
	}
}

// register comes before the first look at the gate, so that no wake-up is missed.
func (g *Gates) register(gateID string) (woken chan struct{}, forget func()) {
	woken = make(chan struct{}, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiters[gateID] = append(g.waiters[gateID], woken)
	return woken, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		left := g.waiters[gateID]
		for i, w := range left {
			if w == woken {
				left = append(left[:i:i], left[i+1:]...)
				break
			}
		}
		if len(left) == 0 {
			delete(g.waiters, gateID)
		} else {
			g.waiters[gateID] = left
		}
	}
}

// Run wakes those who wait, on whichever node the decision was made, until ctx ends.
func (g *Gates) Run(ctx context.Context) error {
	before := func(context.Context) error {
		g.wakeAll() // what was resolved before the first look
		return nil
	}
	for e := range g.ledger.FollowNow(ctx, before) {
		if e.Kind == "gate.resolved" {
			g.wake(e.Subject)
		}
	}
	return nil
}

func (g *Gates) wake(gateID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiters[gateID] {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (g *Gates) wakeAll() {
	g.mu.Lock()
	ids := make([]string, 0, len(g.waiters))
	for gateID := range g.waiters {
		ids = append(ids, gateID)
	}
	g.mu.Unlock()
	for _, gateID := range ids {
		g.wake(gateID)
	}
}

// Status reads a status from a query.
func parseStatus(s string) (Status, error) {
	switch status := Status(s); status {
	case "", Pending, Approved, Rejected:
		return status, nil
	}
	return "", fault.New(fault.InvalidRequest, "The status should be pending, approved or rejected, and is %.40q.", s).About("status")
}
