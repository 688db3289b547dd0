package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// fast is the fast round: where the ledger ends, what others have found, its last entries, the schema, the cursors, and
// the tables that grant power.
func (r *round) fast(ctx context.Context, copies *[]*built) error {
	a := r.a
	head, err := r.ends(ctx)
	if err != nil {
		return err
	}
	for _, look := range []func(context.Context) error{
		r.others, func(ctx context.Context) error { return r.last(ctx, head) }, r.cursors, r.schema,
	} {
		if err := errors.Join(look(ctx), r.w.rest(ctx)); err != nil {
			return err
		}
	}
	for i, names := range a.Power {
		if len(*copies) == i {
			b, err := a.build(ctx, fmt.Sprintf("power-%d", i), a.named(names), false)
			if err != nil {
				return err
			}
			*copies = append(*copies, b)
		}
		if err := r.power(ctx, (*copies)[i]); err != nil {
			// The tables beside are of no use after a failure: a transaction may be half of it.
			drop((*copies)[i:])
			*copies = (*copies)[:i]
			return err
		}
	}
	return nil
}

// power compares the tables of a group.
func (r *round) power(ctx context.Context, b *built) error {
	for _, t := range b.tables {
		if slices.Contains(r.a.Shared, t.Name) {
			continue
		}
		err := r.compare(ctx, b, t, true, func(is, should row, _ *sql.Tx) error {
			r.report(ctx, Power, t.Name, "%s", difference(is, should))
			return nil
		})
		if err != nil {
			return err
		}
		r.out.Tables++
	}
	return nil
}

// named are the projections with these names.
func (a *Audit) named(names []string) (all []ledger.Projection) {
	for _, p := range a.Projections {
		if slices.Contains(names, p.Name) {
			all = append(all, p)
		}
	}
	return all
}

// grants reports whether a table grants power.
func (a *Audit) grants(table string) bool {
	return slices.ContainsFunc(a.named(slices.Concat(a.Power...)), func(p ledger.Projection) bool {
		return slices.ContainsFunc(p.Tables, func(t ledger.Table) bool { return t.Name == table })
	})
}

// others stops writes if another node has found something that stops them.
func (r *round) others(ctx context.Context) error {
	a := r.a
	after := max(r.heard, 1) - 1
	found, err := a.Ledger.Entries(ctx, ledger.Query{Kinds: []string{kindFound}, After: after})
	if err != nil {
		return err
	}
	for i := range found {
		e := &found[i]
		var f Finding
		// What an earlier process has found is looked at again by this one.
		if r.heard = e.Seq + 1; e.At.After(a.began) && e.Decode(&f) == nil && f.Kind.stops() && len(f.Details) > 0 {
			a.Ledger.Refuse(f.fault())
		}
	}
	return nil
}

// cursors looks for cursors behind the end of the ledger: whoever follows from there would miss what comes next.
func (r *round) cursors(ctx context.Context) error {
	head, err := r.a.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	const query = "SELECT name, seq FROM ledger_cursor WHERE seq > $1"
	ahead, err := store.Map[string, int64](r.a.DB.Reading(ctx), query, head)
	if err != nil {
		return err
	}
	for _, f := range r.a.Followers {
		var seq int64
		if err := r.a.DB.QueryRow(ctx, f.Cursor, nil, &seq); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if seq > head {
			ahead[f.Table.Name] = seq
		}
	}
	now, err := r.a.Ledger.Head(ctx)
	for name, seq := range ahead {
		if seq > now && err == nil {
			r.report(ctx, Cursors, name, "It stands at %d, and the ledger ends at %d.", seq, now)
		}
	}
	return err
}

// whole is the whole round: every entry, every table, every index.
func (r *round) whole(ctx context.Context) error {
	a := r.a
	b, err := a.build(ctx, "all", a.Projections, true)
	if err != nil {
		return err
	}
	defer func() { drop([]*built{b}) }()
	for _, f := range a.Followers {
		b.every = append(b.every, f.Apply)
	}
	if err := r.learnSchema(ctx, b); err != nil {
		return err
	}
	broken, err := r.entries(ctx, b)
	if err != nil {
		return err
	}
	if broken == nil {
		if err := r.tables(ctx, b); err != nil {
			return err
		}
	}
	a.doing(doingIndexes, b.at, b.at)
	if err := r.indexes(ctx, b); err != nil {
		return err
	}
	if err := r.record(ctx); err != nil {
		a.Log.Warn("cannot record that the audit has gone through everything", "error", err.Error())
	}
	return nil
}

// entries looks at every entry up to the one that is the last when it begins, and applies it to the tables beside.
// broken is why that was not possible, which is a finding.
func (r *round) entries(ctx context.Context, b *built) (broken, err error) {
	t, missing := &tree{}, false
	head, err := r.a.Ledger.Head(ctx)
	if err != nil {
		return nil, err
	}
	for at := int64(0); at < head; {
		size, err := r.a.size(ctx)
		if err != nil {
			return nil, err
		}
		upTo := min(at+tileWidth, head)
		r.a.doing(doingEntries, at, head)
		entries, err := r.page(ctx, at, upTo)
		if err != nil {
			return nil, err
		}
		if missing = missing || int64(len(entries)) < upTo-at; !missing {
			hashes, err := r.leaves(ctx, entries, size)
			if err == nil {
				err = r.grow(ctx, t, hashes, size)
			}
			if err != nil {
				return nil, err
			}
		}
		r.out.Entries += int64(len(entries))
		if broken == nil {
			if broken = b.take(ctx, entries, upTo); broken != nil {
				r.report(ctx, State, "", "The tables cannot be built from the entries: %s.", broken)
			}
		}
		at = upTo
		if err := r.w.rest(ctx); err != nil {
			return nil, err
		}
	}
	r.counted(ctx)
	return broken, nil
}

// tables compares every table with what was built beside it, first those that projections keep.
func (r *round) tables(ctx context.Context, b *built) error {
	for _, t := range b.tables {
		r.a.doing(doingTables, b.at, b.at)
		kind := State
		if r.a.grants(t.Name) {
			kind = Power
		}
		err := r.compare(ctx, b, t, false, func(is, should row, _ *sql.Tx) error {
			r.report(ctx, kind, t.Name, "%s", difference(is, should))
			return nil
		})
		if err != nil {
			return err
		}
		r.out.Tables++
	}
	for _, f := range r.a.Followers {
		if err := r.follower(ctx, b, f); err != nil {
			return err
		}
		r.out.Tables++
	}
	steps := ledger.Table{Name: "schema_step", Key: "package, step"}
	return r.compare(ctx, b, steps, false, func(is, should row, _ *sql.Tx) error {
		r.report(ctx, Schema, steps.Name, "%s", difference(is, should))
		return nil
	})
}

// follower compares a table that follows the ledger. A row that is not there yet is no finding.
func (r *round) follower(ctx context.Context, b *built, f Follower) error {
	return r.compare(ctx, b, f.Table, false, func(is, should row, snapshot *sql.Tx) error {
		if is.values == nil {
			var upTo int64
			err := snapshot.QueryRowContext(context.WithoutCancel(ctx), f.Cursor).Scan(&upTo)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if seq, _ := should.values[slices.Index(should.columns, f.Seq)].(int64); seq > upTo {
				return nil
			}
		}
		r.report(ctx, Followers, f.Table.Name, "%s", difference(is, should))
		return nil
	})
}
