package behalf

import (
	"context"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Query selects entries as the ledger does, and by the user on whose behalf they are.
type Query struct {
	ledger.Query
	User string // by name, id or e-mail; "" selects everything
	// Claimed selects the entries that only claim to be on behalf of the user, instead of those that are. The user need
	// not exist.
	Claimed bool
	// Handoff selects the decisions that were made under a handoff, or under one below it; User is "" then.
	Handoff string
	// Work selects what else was done under the handoff, too, such as the gates of these decisions and calls of models.
	Work bool
}

// List is a page of the entries that the caller may see, as others are shown them.
func (x *Index) List(ctx context.Context, q Query) (ledger.EntryPage, error) {
	if q.User == "" && q.Handoff == "" {
		return x.ledger.List(ctx, q.Query)
	}
	page := ledger.EntryPage{Entries: []ledger.EntryView{}, Next: q.After}
	if q.User != "" && q.Handoff != "" {
		return page, fault.New(fault.InvalidRequest,
			"Ask for a user or for a handoff, and not for both: a handoff has one user.").About("handoff")
	}
	entries, err := x.Entries(ctx, q)
	for i := range entries {
		page.Next = entries[i].Seq
		page.Entries = append(page.Entries, entries[i].View())
	}
	return page, err
}

// Entries is List for callers of this process: the entries of a user, or under a handoff, that the caller may see, in
// order.
func (x *Index) Entries(ctx context.Context, q Query) ([]ledger.Entry, error) {
	var visible bool
	if q.Workspace, visible = wire.Within(ctx, q.Workspace); !visible {
		return nil, nil
	}
	who := []string{q.Handoff}
	if q.Work {
		who = append(who, workPrefix+q.Handoff)
	}
	if q.Handoff == "" {
		var err error
		if who, err = x.Keys(ctx, q.Workspace, q.User, q.Claimed); err != nil {
			return nil, err
		}
	}
	rest, args := q.text(who)
	entries, err := x.ledger.Select(ctx, rest, args...)
	entries = slices.CompactFunc(entries, func(a, b ledger.Entry) bool { return a.Seq == b.Seq })
	if q.Newest {
		slices.Reverse(entries)
	}
	// A row can be forged; the entry cannot. Of one whose body was erased the row is all there is.
	return slices.DeleteFunc(entries, func(e ledger.Entry) bool {
		return e.Body != nil && !slices.ContainsFunc(rows(&e), func(r row) bool { return slices.Contains(who, r.who) })
	}), err
}

// text is the statement that answers the query, after the names of the tables, with its values.
func (q Query) text(who []string) (rest string, args []any) {
	var where store.Where
	where.In("b.who", who)
	where.And("b.seq > %s", q.After)
	where.Equal("e.workspace", q.Workspace)
	where.Equal("e.subject", q.Subject)
	where.Equal("e.trace", q.Trace)
	return "JOIN behalf_entry b ON b.seq = e.seq " + q.End(&where, "e.kind", "b.seq"), where.Args()
}

// Keys are under what the index has the entries of a user, whom the caller may see; without a workspace, of all users
// who are called so. An id is looked for as it is, since a user may be gone.
func (x *Index) Keys(ctx context.Context, workspace, named string, claimed bool) (keys []string, err error) {
	if claimed {
		keys = append(keys, claimedPrefix+Clip(named))
	} else if strings.HasPrefix(named, userPrefix) {
		keys = append(keys, named)
	}
	all, err := x.roster.Users(ctx, workspace)
	if err != nil {
		return nil, err
	}
	for _, u := range all {
		switch {
		case u.Name != named && u.ID != named && (u.Email == "" || !strings.EqualFold(u.Email, named)):
		case claimed:
			keys = append(keys, claimedPrefix+u.Name, claimedPrefix+u.ID)
			if u.Email != "" {
				keys = append(keys, claimedPrefix+u.Email)
			}
		default:
			keys = append(keys, u.ID)
		}
	}
	if len(keys) == 0 {
		return nil, fault.New(fault.NotFound, "There is no user %.80q. `signalbox users ls` lists those there are, and one who "+
			"was removed is found by the id, usr_….", named).About("user")
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Among is the condition that a column has the number of an entry that is on behalf of a user, for lists of other
// packages whose rows name the entry that began them. keys are those of Keys; nil is no condition.
func Among(where *store.Where, column string, keys []string) {
	if keys != nil {
		where.And(column + " IN (SELECT seq FROM behalf_entry WHERE who IN (" + where.List(keys) + "))")
	}
}
