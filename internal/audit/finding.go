package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Kind says what a finding is about. Kinds are labels of metrics and words for programs.
type Kind string

// The kinds. Those that stop writes come first.
const (
	Records     Kind = "records"     // an entry is not the one that was signed, or is missing
	Bodies      Kind = "bodies"      // a body is not the one in its record
	Erasures    Kind = "erasures"    // a body is gone, and no entry records that it was erased
	Tiles       Kind = "tiles"       // a tile of the tree is not what the entries make of it
	Checkpoints Kind = "checkpoints" // a signed checkpoint, or its file, is not one of this tree
	Head        Kind = "head"        // the head of the ledger, or of its tree, has gone back
	Pages       Kind = "pages"       // the database cannot read what is in its files
	Power       Kind = "power"       // a table that grants power is not what the ledger says
	State       Kind = "state"       // another table is not what the ledger says
	Followers   Kind = "followers"   // a table that follows the ledger is not what it should be
	Cursors     Kind = "cursors"     // a cursor stands behind the end of the ledger
	Indexes     Kind = "indexes"     // an index has other rows than its table
	Schema      Kind = "schema"      // tables, triggers or migrations are not those of this program
)

// Kinds are all kinds.
var Kinds = []Kind{
	Records, Bodies, Erasures, Tiles, Checkpoints, Head, Pages, Power, State, Followers, Cursors, Indexes, Schema,
}

// stops reports whether a finding of the kind means that nothing must be written any more.
func (k Kind) stops() bool { return slices.Index(Kinds, k) <= slices.Index(Kinds, Power) }

// titles are what an alarm about each kind says, and what to do about it.
var titles = map[Kind][2]string{
	Records:     {"Entries of the ledger are not what was signed", restore},
	Bodies:      {"Bodies of entries are not what was recorded", restore},
	Erasures:    {"Bodies of entries are gone that nobody has erased", restore},
	Tiles:       {"The ledger's tree in the database is not what its entries make of it", restore},
	Checkpoints: {"A checkpoint of the ledger is not one of its tree", restore},
	Head:        {"The end of the ledger is gone", restore},
	Pages:       {"The database cannot read what is in its files", restore},
	Power:       {"A table that grants power is not what the ledger says", rebuild},
	State:       {"A table is not what the ledger says", rebuild},
	Followers:   {"A table that follows the ledger is not what it should be", rebuild},
	Cursors:     {"A cursor stands behind the end of the ledger", rebuild},
	Indexes:     {"An index of the database has other rows than its table", "Run REINDEX on it, and check the disk."},
	Schema: {
		"The tables of the database are not made as this program makes them",
		"Somebody has changed them by hand. Put back what is missing, or restore the database from a backup.",
	},
}

const (
	restore = "Writes are stopped. Find out who has changed the database, and restore it from a backup."
	rebuild = "Find out who has changed the database. `signalbox ledger rebuild --check` shows what differs, and " +
		"`signalbox ledger rebuild` repairs it."
)

// Finding is something that is not what was signed or recorded. What is wrong in the same way in the same place is one
// finding, with a count.
type Finding struct {
	Kind    Kind      `json:"kind"`
	Where   string    `json:"where,omitempty"` // the table, index or file
	Details []string  `json:"details"`         // the first of them
	Count   int64     `json:"count"`
	At      time.Time `json:"at"`
	Stops   bool      `json:"stops_writes"`
	Repair  string    `json:"repair"`
}

// maxDetails is how many of a finding are told apart; the others are counted.
const maxDetails = 20

// kindFound is the entry by which nodes hear of what another has found.
const kindFound = "audit.found"

// place is where a finding is kept: what both rounds find is two, so that each round can take its own back.
type place struct {
	fast  bool
	kind  Kind
	where string
}

// found is a finding with the round that has found it last.
type found struct {
	Finding
	round int64
}

// report notes a finding. The first of its kind and place becomes an entry and an alarm, and stops writes if its kind
// does.
func (r *round) report(ctx context.Context, kind Kind, where, detail string, args ...any) {
	a, at := r.a, place{r.w.fast, kind, where}
	a.mu.Lock()
	f := a.findings[at]
	first := f == nil
	if first {
		f = &found{Finding: Finding{
			Kind: kind, Where: where, At: a.Now().UTC(), Stops: kind.stops(), Repair: titles[kind][1],
		}}
		a.findings[at] = f
	}
	if f.round != r.number {
		f.round, f.Count, f.Details = r.number, 0, nil
	}
	if f.Count++; f.Count <= maxDetails {
		f.Details = append(f.Details, fmt.Sprintf(detail, args...))
	}
	told := a.told[string(kind)+" "+where]
	if !told {
		a.count[kind]++ // what both rounds find counts once
	}
	a.told[string(kind)+" "+where] = true
	tell := f.Finding
	a.mu.Unlock()
	if first && !told {
		a.tell(ctx, tell)
	}
	if tell.Stops {
		a.Ledger.Refuse(tell.fault())
	}
}

// tell records a finding, and raises an alarm. If writes stop, channels are told at once: nothing can be queued for
// them any more.
func (a *Audit) tell(ctx context.Context, f Finding) {
	a.Log.Error("the audit found something that is not what was signed or recorded", "kind", f.Kind, "where", f.Where,
		"detail", f.Details[0])
	one := alarm.Alarm{
		Kind: "audit_" + string(f.Kind), Title: f.Title(), Detail: f.Details[0] + " " + f.Repair, RaisedAt: f.At,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := a.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Kind: kindFound, Actor: "system", Subject: string(f.Kind), Body: f})
		return alarm.Raise(tx, one)
	})
	if err != nil {
		a.Log.Error("cannot record what the audit found", "kind", f.Kind, "error", err.Error())
	}
	if f.Stops {
		a.Ledger.Refuse(f.fault())
	}
	if (f.Stops || err != nil) && a.Tell != nil {
		a.Tell(ctx, one)
	}
}

// Title says what is wrong in a few words. It names the place, which no agent can choose: tables, indexes and files
// have the names that the program gives.
func (f *Finding) Title() string {
	if f.Where == "" {
		return titles[f.Kind][0]
	}
	return titles[f.Kind][0] + ": " + f.Where
}

// fault is why writes are refused.
func (f *Finding) fault() error {
	return fault.New(fault.LedgerMismatch, "%s. %s %s", f.Title(), f.Details[0], f.Repair)
}

// forget drops what an earlier round of the same kind has found and this one has not.
func (r *round) forget() {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	for at, f := range r.a.findings {
		if at.fast == r.w.fast && f.round < r.number {
			delete(r.a.findings, at)
			delete(r.a.told, string(at.kind)+" "+at.where)
		}
	}
}

// Findings are what there is now, those that stop writes first.
func (a *Audit) Findings() []Finding {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []Finding{}
	for at, f := range a.findings {
		if other := a.findings[place{true, at.kind, at.where}]; !at.fast && other != nil {
			continue // both rounds have found it
		}
		one := f.Finding
		one.Details = slices.Clone(one.Details) // it goes on being added to
		all = append(all, one)
	}
	slices.SortFunc(all, func(x, y Finding) int {
		order := cmp.Compare(slices.Index(Kinds, x.Kind), slices.Index(Kinds, y.Kind))
		return cmp.Or(order, strings.Compare(x.Where, y.Where))
	})
	return all
}

// Brief are the kinds of what was found, with how often, for callers who may not see more.
func (a *Audit) Brief() []string {
	counts := map[Kind]int64{}
	for _, f := range a.Findings() {
		counts[f.Kind] += f.Count
	}
	var all []string
	for _, k := range Kinds {
		if counts[k] > 0 {
			all = append(all, fmt.Sprintf("%s: %d", k, counts[k]))
		}
	}
	return all
}
