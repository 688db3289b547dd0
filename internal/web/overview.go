package web

import (
	"cmp"
	"context"
	"time"

	"signalbox/internal/counter"
	"signalbox/internal/gate"
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
	Tokens    chart
	Decisions chart
	Presence  []share
	Agents    int64
	Online    int64
	Ages      []share // gates that wait, by age
	Waiting   int64
	Spenders  []spender
}

// spender is an agent with what it used, relative to the one that used most. An agent that was
// removed keeps its numbers and loses its name.
type spender struct {
	Name, Workspace, ID string
	Sum                 counter.Sum
	Width               string
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
		Waiting: report.Total.Gates.Waiting, Spenders: spenders(report.Spenders),
	}
	// Charts need the days in order, with gaps filled.
	page.draw(first)
	if err := w.countPresence(r.Context(), r.Who.Workspace, page); err != nil {
		return nil, err
	}
	page.Ages, err = w.waitingByAge(r.Context(), r.Who.Workspace, page.Waiting)
	return page, err
}

// draw makes the charts of the last overviewDays days. Days without entries are 0.
func (o *overview) draw(first time.Time) {
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
	for _, day := range o.Report.Days {
		if day.Day == days[overviewDays-1] {
			o.Today = day.Counts
		}
	}
	o.Cost = newChart("cost", "Cost", days, money, series{"spent", "c1", value(func(s counter.Sum) float64 {
		return s.CostUSD
	})})
	o.Tokens = newChart("tokens", "Tokens", days, tally,
		series{"in", "c1", value(func(s counter.Sum) float64 { return float64(s.InputTokens) })},
		series{"out", "c2", value(func(s counter.Sum) float64 { return float64(s.OutputTokens) })})
	o.Decisions = newChart("decisions", "Decisions", days, tally,
		series{"approved", "c3", value(func(s counter.Sum) float64 { return float64(s.Gates.Approved) })},
		series{"rejected", "c4", value(func(s counter.Sum) float64 { return float64(s.Gates.Rejected) })},
		series{"expired", "c5", value(func(s counter.Sum) float64 { return float64(s.Gates.Expired) })})
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

// maxAged is how many gates are looked at to say how long they have waited. If more wait, the
// newest of the highest risk stand for all, and the page says so.
const maxAged = 200

// Sampled is how many of the gates that wait were looked at for their age, 0 for all.
func (o *overview) Sampled() int64 {
	if o.Waiting <= maxAged {
		return 0
	}
	return maxAged
}

// waitingByAge is how long gates have waited.
func (w *Web) waitingByAge(ctx context.Context, workspace string, waiting int64) ([]share, error) {
	if waiting == 0 {
		return nil, nil
	}
	// The sample is what the inbox shows first, so its age matters most.
	gates, _, err := w.Gates.List(ctx, gate.Filter{Status: gate.Pending, Workspace: workspace}, nil, maxAged)
	parts := []share{
		{Name: "under 10 min", Class: "c3"},
		{Name: "under 1 h", Class: "c2"},
		{Name: "under 24 h", Class: "c4"},
		{Name: "longer", Class: "c5"},
	}
	for i := range gates {
		switch age := w.Now().Sub(gates[i].OpenedAt); {
		case age < 10*time.Minute:
			parts[0].N++
		case age < time.Hour:
			parts[1].N++
		case age < 24*time.Hour:
			parts[2].N++
		default:
			parts[3].N++
		}
	}
	return shares(parts...), err
}

// spenders relates agents to the one that cost most, which is the first.
func spenders(all []counter.AgentSum) (out []spender) {
	for _, a := range all {
		out = append(out,
			spender{
				cmp.Or(a.Name, "(removed)"), a.Workspace, a.ID, a.Counts,
				percent(100 * a.Counts.CostUSD / all[0].Counts.CostUSD),
			})
	}
	return out
}
