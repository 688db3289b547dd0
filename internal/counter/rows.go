package counter

import (
	"fmt"
	"slices"
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

// eachSum adds up rows by one column or two, in the database: of counter_sum, or of counter_hour if that is too coarse.
func (f *Filter) eachSum(query store.Query, axis, sums, cells string, fn func(a, b string, counts *Counts)) error {
	by, table, where := sums, "counter_sum", &store.Where{}
	if f.fine() {
		by, table, where = cells, "counter_hour", f.where()
	} else {
		where.And("axis = %s AND day >= %s AND day <= %s", axis, f.From, f.last())
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
		if err := scanSums(scan, &counts, &a, &b); err != nil {
			return err
		}
		fn(a, b, &counts)
		return nil
	}, "SELECT "+by+", "+sumColumns+" FROM "+table+" WHERE "+where.String()+" GROUP BY "+group, where.Args()...)
}

// wide are the columns that agents and providers report, and that may be as large as most. Their sum is made of two
// halves, since a database gives up where a sum overflows.
var wide = []string{"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_nano"}

// halfBits is the length of the lower half.
const halfBits = 31

// sumColumns are the sums of columns, in their order.
var sumColumns = func() string {
	var all []string
	for _, name := range columns {
		if slices.Contains(wide, name) {
			all = append(all, fmt.Sprintf("CAST(sum(%s >> %d) AS BIGINT)", name, halfBits))
			name = fmt.Sprintf("%s & %d", name, 1<<halfBits-1)
		}
		all = append(all, "CAST(sum("+name+") AS BIGINT)")
	}
	return strings.Join(all, ", ")
}()

// scanSums reads a row of sumColumns, with other columns before it.
func scanSums(scan store.Scan, counts *Counts, before ...any) error {
	var high [5]int64
	n, into := 0, before
	fields := counts.fields()
	for i, name := range columns {
		if slices.Contains(wide, name) {
			into, n = append(into, &high[n]), n+1
		}
		into = append(into, fields[i])
	}
	if err := scan(into...); err != nil {
		return err
	}
	n = 0
	for i, name := range columns {
		if slices.Contains(wide, name) {
			if *fields[i] = plus(high[n]<<halfBits, *fields[i]); high[n] >= most>>halfBits {
				*fields[i] = most
			}
			n++
		}
	}
	return nil
}
