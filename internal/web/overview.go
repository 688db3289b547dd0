package web

import (
	"cmp"
	"context"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/counter"
	"signalbox/internal/roster"
)

const (
	// overviewDays is how far back the charts go, with today.
	overviewDays = 30
	// counted is how long a refresh waits for the counters.
	counted = 100 * time.Millisecond
)

// overview is the state of everything at a glance: what waits, what was spent and decided, and who
// is there. Counters come from package counter, presence and ages are read for the page.
type overview struct {
	Report    counter.Report
	Behind    bool // there are entries that are not counted yet
	Today     counter.Sum
	Oldest    *time.Time
	Cost      chart
	Hours     chart
	Tokens    chart
	Decisions chart
	Presence  []share
	Agents    int64
	Online    int64
	Ages      []share // gates that wait, by age
	Waiting   int64
	Spenders  []costBar
	Models    []costBar
	Protocols []costBar
}

// costBar is what something cost, relative to what cost most.
type costBar struct {
	Name, At string // At is its page, "" for none
	Sum      counter.Sum
	Width    string
}

// loadOverview reads counters, presence and waiting gates. Counters follow the ledger, so a
// refresh that was caused by an entry waits a moment for that entry to be counted.
func (w *Web) loadOverview(r *Request) (any, error) {
	head, err := w.ledger.Head(r.Context())
	if err != nil {
		return nil, err
	}
	// A refresh was caused by an entry, which the page should show. A person who opens the page does
	// not wait.
	if r.Header.Get(partHeader) != "" { // something has changed, and the page is to show it
		if err := w.Counters.Await(r.Context(), head, counted); err != nil {
			return nil, err
		}
	}
	now := w.Now().UTC()
	first := now.AddDate(0, 0, 1-overviewDays)
	// Days are UTC, as everywhere in the counters.
	report, err := w.Counters.Report(r.Context(),
		counter.Filter{Workspace: r.Who.Workspace, From: first.Format(time.DateOnly), To: now.Format(time.DateOnly)})
	if err != nil {
		return nil, err
	}
	page := &overview{
		Report: report, Behind: report.Seq < head, Oldest: report.OldestWaiting,
		Waiting: report.Total.Gates.Waiting, Today: report.Today(), Spenders: spenders(report.Spenders),
		Models: costBars(report.Models, func(name string) string { return cmp.Or(name, "no model named") }),
		Protocols: costBars(report.Protocols, func(name string) string {
			return cmp.Or(w.Protocols.Label(name), name, "none")
		}),
	}
	// Charts need the days in order, with gaps filled.
	page.draw(first, now)
	if err := w.countPresence(r.Context(), r.Who.Workspace, page); err != nil {
		return nil, err
	}
	page.Ages, err = w.waitingByAge(r.Context(), r.Who.Workspace, page.Waiting)
	return page, err
}

// draw makes the charts of the last overviewDays days, and of the hours since yesterday. Those without entries are 0.
func (o *overview) draw(first, now time.Time) {
	// Every day has a bar, also those that nothing was counted on.
	days, at := make([]string, overviewDays), map[string]int{}
	for i := range days {
		days[i] = first.AddDate(0, 0, i).Format(time.DateOnly)
		at[days[i]] = i
	}
	value := func(of func(counter.Sum) float64) []float64 {
		values := make([]float64, overviewDays)
		for _, day := range o.Report.Days {
			if i, ok := at[day.Day]; ok {
				values[i] = of(day.Counts)
			}
		}
		return values
	}
	o.Cost = newChart("cost", "Cost", days, money, series{"spent", "c1", value(func(s counter.Sum) float64 {
		return s.CostUSD
	})})
	o.drawHours(now)
	o.Tokens = newChart("tokens", "Tokens", days, tally,
		series{"in", "c1", value(func(s counter.Sum) float64 { return float64(s.InputTokens) })},
		series{"out", "c2", value(func(s counter.Sum) float64 { return float64(s.OutputTokens) })})
	o.Decisions = newChart("decisions", "Decisions", days, tally,
		series{"approved", "c3", value(func(s counter.Sum) float64 { return float64(s.Gates.Approved) })},
		series{"rejected", "c4", value(func(s counter.Sum) float64 { return float64(s.Gates.Rejected) })},
		series{"expired", "c5", value(func(s counter.Sum) float64 { return float64(s.Gates.Expired) })})
}

// drawHours makes the chart of what was spent in each hour of yesterday and today, up to now.
func (o *overview) drawHours(now time.Time) {
	const form = "2006-01-02T15"
	spent := map[string]float64{}
	for _, h := range o.Report.Hours {
		spent[h.Hour] = h.Counts.CostUSD
	}
	var hours []string
	var values []float64
	for at := now.Truncate(24*time.Hour).AddDate(0, 0, -1); !at.After(now); at = at.Add(time.Hour) {
		hours, values = append(hours, at.Format(form)), append(values, spent[at.Format(form)])
	}
	o.Hours = newHours("hours", "Cost by hour (UTC)", hours, money, series{"spent", "c1", values})
}

// Median is how long people recently took to decide, a dash if nobody has decided anything.
func (o *overview) Median() string {
	if o.Report.Total.MedianSeconds == nil {
		return "—"
	}
	if *o.Report.Total.MedianSeconds < 1 {
		return "< 1 s"
	}
	return lasts(time.Duration(*o.Report.Total.MedianSeconds * float64(time.Second)))
}

// TokensToday are all tokens of today.
func (o *overview) TokensToday() string {
	return tally(float64(o.Today.InputTokens + o.Today.OutputTokens))
}

// DecidedToday are the gates that people and rules have decided today.
func (o *overview) DecidedToday() int64 {
	return o.Today.Gates.Approved + o.Today.Gates.Rejected + o.Today.Gates.Expired
}

// countPresence counts agents by when they were last seen.
func (w *Web) countPresence(ctx context.Context, workspace string, o *overview) error {
	var lately, away, never, suspended int64
	// Suspended comes first: an agent that is online and suspended counts as suspended.
	err := w.Roster.EachPresence(ctx, workspace, func(p roster.Presence) {
		o.Agents++
		switch {
		case p.Suspended:
			suspended++
		case p.Online:
			o.Online++
		case p.LastSeenAt == nil:
			never++
		case w.Now().Sub(*p.LastSeenAt) < 24*time.Hour:
			lately++
		default:
			away++
		}
	})
	o.Presence = shares(share{Name: "online", Class: "c3", N: o.Online}, share{Name: "seen today", Class: "c1", N: lately},
		share{Name: "away", Class: "c5", N: away}, share{Name: "suspended", Class: "c4", N: suspended},
		share{Name: "never seen", Class: "c0", N: never})
	return err
}

// waitingByAge is how long gates have waited, all of them.
func (w *Web) waitingByAge(ctx context.Context, workspace string, waiting int64) ([]share, error) {
	if waiting == 0 {
		return nil, nil
	}
	now := w.Now()
	n, err := w.Gates.WaitingSince(ctx, workspace, now.Add(-10*time.Minute), now.Add(-time.Hour), now.Add(-24*time.Hour))
	if err != nil {
		return nil, err
	}
	return shares(
		share{Name: "under 10 min", Class: "c3", N: n[0]}, share{Name: "under 1 h", Class: "c2", N: n[1] - n[0]},
		share{Name: "under 24 h", Class: "c4", N: n[2] - n[1]}, share{Name: "longer", Class: "c5", N: max(0, waiting-n[2])},
	), nil
}

// spenders are the agents that cost most. An agent that was removed keeps its numbers and loses its name, and some
// runs are no agent's.
func spenders(all []counter.AgentSum) (out []costBar) {
	for _, a := range all {
		one := costBar{cmp.Or(a.Name, "(removed)"), address.Agent.At(a.Workspace, a.ID), a.Counts, ""}
		if a.ID == "" {
			one.Name, one.At = "Runs of agent CLIs", address.Runs.At()
		}
		out = append(out, one)
	}
	return withWidths(out)
}

// maxCostBars is how many models or protocols are shown; the rest is one of them.
const maxCostBars = 8

// costBars are models or protocols that cost something, the dearest first. label makes a name readable.
func costBars(all []counter.NameSum, label func(string) string) (out []costBar) {
	for _, one := range all {
		switch {
		case one.Counts.CostUSD == 0:
		case len(out) == maxCostBars:
			out[maxCostBars-1].Name = "all others"
			out[maxCostBars-1].Sum.CostUSD += one.Counts.CostUSD
		default:
			out = append(out, costBar{Name: label(one.Name), Sum: one.Counts})
		}
	}
	return withWidths(out)
}

// withWidths relates bars to the widest.
func withWidths(bars []costBar) []costBar {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.Sum.CostUSD)
	}
	for i := range bars {
		bars[i].Width = percent(100 * bars[i].Sum.CostUSD / most)
	}
	return bars
}
