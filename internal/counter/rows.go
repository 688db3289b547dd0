package counter

import (
	"fmt"
	"strings"
	"time"

	"signalbox/internal/store"
)

// Filter selects what is looked at; zero fields select everything.
type Filter struct {
	Workspace string
	Project   string
	Agents    []string // their ids
	From, To  string   // days, or hours such as 2026-11-01T13; they must be there
	// By is the only kind of parts to add up, such as ByModel; all when empty.
	By string
}

// The kinds of parts.
const (
	ByDeck     = "deck"
	ByAgent    = "agent"
	ByModel    = "model"
	ByProtocol = "protocol"
	ByRule     = "rule"
	ByDay      = "day"
	ByHour     = "hour"
)

// Kinds are the kinds of parts, as people ask for them.
var Kinds = []string{ByDeck, ByAgent, ByModel, ByProtocol, ByRule, ByDay, ByHour}

// wants reports whether the parts are asked for.
func (f *Filter) wants(by string) bool { return f.By == "" || f.By == by }

// fine reports whether the sums by day do not answer the question: they tell agents from models, and no hours.
func (f *Filter) fine() bool { return f.Agents != nil || len(f.From) > len(time.DateOnly) }

// last is the end of the span as an hour.
func (f *Filter) last() string {
	if len(f.To) == len(time.DateOnly) {
		return f.To + "T23"
	}
	return f.To
}

// where is the condition on the columns that counter_hour and counter_decision have.
func (f *Filter) where() *store.Where {
	var where store.Where
	where.And("hour >= %s AND hour <= %s", f.From, f.last())
	where.Equal("workspace", f.Workspace)
	where.Equal("project", f.Project)
	if f.Agents != nil {
		where.In("agent", f.Agents)
	}
	return &where
}

// parting is how parts are told apart: the axis, and the columns of counter_sum and of counter_hour.
type parting struct{ axis, sums, cells string }

// eachSum adds up rows by one column or two, in the database: of counter_sum, or of counter_hour if that is too coarse.
func (f *Filter) eachSum(query store.Query, p parting, of adding, fn func(a, b string, counts *Counts)) error {
	by, table, where := p.sums, "counter_sum", &store.Where{}
	if f.fine() {
		by, table, where = p.cells, "counter_hour", f.where()
	} else {
		where.And("axis = %s AND day >= %s AND day <= %s", p.axis, f.From, f.last())
		where.Equal("workspace", f.Workspace)
		where.Equal("project", f.Project)
	}
	group := "1, 2"
	if !strings.Contains(by, "workspace") {
		by, group = by+", ''", "1"
	}
	return store.Each(query, func(scan store.Scan) error {
		var a, b string
		var counts Counts
		if err := of.scan(scan, &counts, &a, &b); err != nil {
			return err
		}
		fn(a, b, &counts)
		return nil
	}, "SELECT "+by+of.columns()+" FROM "+table+" WHERE "+where.String()+" GROUP BY "+group, where.Args()...)
}

// adding are the columns that a query adds up, by their place in columns. Adding up is most of the time that a report
// takes, so columns that are known to be 0 are left out.
type adding []added

// added is a column that is added up. A sum that may overflow is made of two halves, since a database gives up where
// one does.
type added struct {
	i      int
	halved bool
}

// halfBits is the length of the lower half.
const halfBits = 31

// addingAll are all columns. Those that agents and providers report may each be as large as most; the others count
// entries.
var addingAll = func() (all adding) {
	for i, name := range columns {
		all = append(all, added{i, strings.HasSuffix(name, "_tokens") || name == "cost_nano"})
	}
	return all
}()

// addingWithin are the columns that make up a whole: nothing can be in a part that is not in the whole, and no part
// overflows if the whole does not.
func addingWithin(whole Counts) (some adding) {
	for i, n := range whole.fields() {
		if *n > 0 {
			some = append(some, added{i, *n >= most})
		}
	}
	return some
}

// columns are the sums, after a comma.
func (a adding) columns() string {
	var b strings.Builder
	for _, one := range a {
		name := columns[one.i]
		if one.halved {
			fmt.Fprintf(&b, ", CAST(sum(%s >> %d) AS BIGINT)", name, halfBits)
			name = fmt.Sprintf("%s & %d", name, 1<<halfBits-1)
		}
		b.WriteString(", CAST(sum(" + name + ") AS BIGINT)")
	}
	return b.String()
}

// scan reads a row of columns, with other columns before it.
func (a adding) scan(scan store.Scan, counts *Counts, before ...any) error {
	high := make([]int64, len(a))
	into, fields := before, counts.fields()
	for n, one := range a {
		if one.halved {
			into = append(into, &high[n])
		}
		into = append(into, fields[one.i])
	}
	if err := scan(into...); err != nil {
		return err
	}
	for n, one := range a {
		if one.halved {
			if to := fields[one.i]; high[n] >= most>>halfBits {
				*to = most
			} else {
				*to = plus(high[n]<<halfBits, *to)
			}
		}
	}
	return nil
}
