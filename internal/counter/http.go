package counter

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

const (
	maxBody = 1 << 16
	// ordinarySpan is how many days are looked at when nobody says.
	ordinarySpan = 30
	maxSpan      = 366
)

// The bodies of the operators' API.
type (
	// DeckPage is a page of decks.
	DeckPage struct {
		Decks []Deck `json:"decks"`
		Next  string `json:"next"`
	}
	// DeckChange describes a deck.
	DeckChange struct {
		Title string `json:"title"`
	}
)

// Routes are the counters' part of the operators' API.
func (c *Counters) Routes() []wire.Route {
	workspace := wire.Param{Name: "workspace", Meaning: "only what belongs to this workspace"}
	days := []wire.Param{
		{Name: "from", Meaning: "the first day (UTC), such as 2026-11-01; 30 days up to the last when absent"},
		{Name: "to", Meaning: "the last day; today when absent"},
	}
	filters := append([]wire.Param{workspace, {Name: "project", Meaning: "only this deck"}, {Name: "agent", Meaning: "only the agent with this name or id"}}, days...)
	return []wire.Route{
		{Method: "GET", Path: "/ops/counters", Summary: "The live counters; with Accept: text/event-stream again whenever they change", Auth: wire.Viewer, Query: filters, Answer: Report{}, Handle: c.getCounters},
		{Method: "GET", Path: "/ops/decks", Summary: "List decks with what was counted in them", Auth: wire.Viewer, Query: append(append([]wire.Param{workspace}, days...), wire.PageParams...), Answer: DeckPage{}, Handle: c.getDecks},
		{Method: "PUT", Path: "/ops/decks/{name}", Summary: "Say what a deck is", Auth: wire.Operator, Query: []wire.Param{workspace}, Request: DeckChange{}, Answer: Deck{}, Handle: c.putDeck},
	}
}

// readFilter reads what is to be looked at. visible is false when the caller may see
// nothing of it.
func (c *Counters) readFilter(r *http.Request) (f Filter, visible bool, err error) {
	q := r.URL.Query()
	f = Filter{Workspace: cmp.Or(q.Get("workspace"), wire.Scope(r.Context())), Project: q.Get("project")}
	if f.From, f.To, err = c.readDays(q.Get("from"), q.Get("to")); err != nil {
		return f, false, err
	}
	visible = wire.InScope(r.Context(), f.Workspace)
	if agent := q.Get("agent"); agent != "" && visible {
		f.Agents, err = c.Roster.AgentIDs(r.Context(), f.Workspace, agent)
		visible = len(f.Agents) > 0
	}
	return f, visible, err
}

// readDays reads a span of days.
func (c *Counters) readDays(from, to string) (first, last string, err error) {
	end := c.Now().UTC()
	if to != "" {
		if end, err = time.Parse(time.DateOnly, to); err != nil {
			return "", "", wrongDay("to", to)
		}
	}
	begin := end.AddDate(0, 0, 1-ordinarySpan)
	if from != "" {
		if begin, err = time.Parse(time.DateOnly, from); err != nil {
			return "", "", wrongDay("from", from)
		}
	}
	first, last = begin.Format(time.DateOnly), end.Format(time.DateOnly)
	if first > last || first < end.AddDate(0, 0, 1-maxSpan).Format(time.DateOnly) {
		return "", "", fault.New(fault.InvalidRequest, "The days should be 1 to %d, and %s to %s are not.", maxSpan, first, last).About("from")
	}
	return first, last, nil
}

func wrongDay(field, text string) error {
	return fault.New(fault.InvalidRequest, "The parameter %s should be a day such as 2026-11-01, and is %.40q.", field, text).About(field)
}

// report is what the caller may see of what was asked for.
func (c *Counters) report(r *http.Request) (Report, error) {
	f, visible, err := c.readFilter(r)
	if err != nil {
		return Report{}, err
	}
	if !visible {
		return Report{From: f.From, To: f.To, Decks: []DeckSum{}, Agents: []AgentSum{}, Days: []DaySum{}}, nil
	}
	return c.Report(r.Context(), f)
}

func (c *Counters) getCounters(w http.ResponseWriter, r *http.Request) error {
	report, err := c.report(r)
	if err != nil {
		return err
	}
	if wire.WantsEvents(r) {
		return c.stream(w, r, report)
	}
	return wire.Reply(w, http.StatusOK, report)
}

// pushEvery is the least time between two pushes.
const pushEvery = 250 * time.Millisecond

// stream sends the counters, and sends them again when they have changed.
func (c *Counters) stream(w http.ResponseWriter, r *http.Request, report Report) error {
	events := wire.Events(w)
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	var sent string
	for ctx.Err() == nil {
		text, err := unaged(report)
		if err != nil {
			return err
		}
		if text == sent {
			err = events.Beat()
		} else {
			data, failed := wire.Marshal(report)
			if failed != nil {
				return failed
			}
			err = events.Send("", "counters", data)
		}
		sent = text
		if err != nil {
			return nil // the client has gone
		}
		c.change(ctx, report.Seq)
		if report, err = c.report(r); err != nil {
			return nil // the client connects again and hears it
		}
	}
	return nil
}

// change waits until more has been counted, for as long as a connection may be silent.
func (c *Counters) change(ctx context.Context, seq int64) {
	ledger.Pause(ctx, nil, pushEvery)
	for until := time.Now().Add(wire.StreamBeat); ctx.Err() == nil && time.Now().Before(until); {
		news := c.Ledger.News()
		if now, err := position(ctx, c.DB.Read); err == nil && now != seq {
			return
		}
		ledger.Pause(ctx, news, lookEvery)
		ledger.Pause(ctx, nil, 2*pace) // it is counted by then
	}
}

// unaged is the part of a report that does not change by itself.
func unaged(r Report) (string, error) {
	r.OldestWaitingSeconds, r.Seq = nil, 0
	text, err := wire.Marshal(r)
	return string(text), err
}

func (c *Counters) getDecks(w http.ResponseWriter, r *http.Request) error {
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	after, err := wire.ReadCursor(r, 2)
	if err != nil {
		return err
	}
	f, visible, err := c.readFilter(r)
	if err != nil {
		return err
	}
	page := DeckPage{Decks: []Deck{}}
	if !visible {
		return wire.Reply(w, http.StatusOK, page)
	}
	if page.Decks, err = c.Decks(r.Context(), f, [2]string(after), limit); err != nil {
		return err
	}
	if len(page.Decks) == limit {
		last := page.Decks[limit-1]
		page.Next = wire.Cursor(last.Workspace, last.Name)
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (c *Counters) putDeck(w http.ResponseWriter, r *http.Request) error {
	var in DeckChange
	if err := wire.ReadJSON(w, r, maxBody, &in); err != nil {
		return err
	}
	workspace, err := roster.QueryWorkspace(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	if err := c.Describe(r.Context(), roster.From(r.Context()), workspace, name, in.Title); err != nil {
		return err
	}
	f := Filter{Workspace: workspace, Project: name}
	if f.From, f.To, err = c.readDays("", ""); err != nil {
		return err
	}
	d, err := c.Deck(r.Context(), f, name)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, d)
}
