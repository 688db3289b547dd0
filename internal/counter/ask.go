package counter

import (
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Question is a query for the counters as a person asks it: names, and days that may be left
// out. A question about another workspace than the caller's gets an empty answer.
type Question struct {
	Workspace string
	Project   string // the name of a deck
	Agent     string // a name or an id
	From, To  string // days (UTC) such as 2026-11-01, or hours such as 2026-11-01T13
	By        string // the only kind of parts to add up; see Kinds
}

const (
	// ordinarySpan is how many days a question without days covers.
	ordinarySpan = 30
	// maxSpan bounds the rows that one question can read, in days, and hourSpan where they are read by hour.
	maxSpan  = 366
	hourSpan = 31
)

// filter turns a question into a filter over what the caller may see. visible is false if
// that is nothing.
func (c *Counters) filter(ctx context.Context, q Question) (f Filter, visible bool, err error) {
	f.Project, f.By = q.Project, q.By
	if f.By != "" && !slices.Contains(Kinds, f.By) {
		return f, false, fault.New(fault.InvalidRequest, "The parameter by should be one of %s, and is %.40q.",
			strings.Join(Kinds, ", "), f.By).About("by")
	}
	if f.From, f.To, err = c.readSpan(q); err != nil {
		return f, false, err
	}
	if f.Workspace, visible = wire.Within(ctx, q.Workspace); visible && q.Agent != "" {
		f.Agents, err = c.roster.AgentIDs(ctx, f.Workspace, q.Agent)
		visible = len(f.Agents) > 0
	}
	return f, visible, err
}

// readSpan reads a span of days or of hours, both included; today and the 30 days up to it are the
// defaults.
func (c *Counters) readSpan(q Question) (first, last string, err error) {
	form, most := time.DateOnly, maxSpan
	if len(q.From) > len(form) || len(q.To) > len(form) {
		form = hourForm
	}
	if form == hourForm || q.By == ByHour {
		most = hourSpan
	}
	end := c.now().UTC()
	if q.To != "" {
		if end, err = readMoment("to", q.To); err != nil {
			return "", "", err
		}
	}
	begin := end.AddDate(0, 0, 1-ordinarySpan)
	if q.From != "" {
		if begin, err = readMoment("from", q.From); err != nil {
			return "", "", err
		}
	}
	if form == hourForm && len(q.To) == len(time.DateOnly) { // to the end of that day
		end = end.Add(23 * time.Hour)
	}
	first, last = begin.Format(form), end.Format(form)
	if first > last || first < end.AddDate(0, 0, 1-most).Format(time.DateOnly) {
		return "", "", fault.New(fault.InvalidRequest, "The days should be 1 to %d, and %s to %s are not.", most, first,
			last).About("from")
	}
	return first, last, nil
}

// readMoment reads a day or an hour.
func readMoment(field, text string) (time.Time, error) {
	for _, form := range []string{time.DateOnly, hourForm} {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fault.New(fault.InvalidRequest,
		"The parameter %s should be a day such as 2026-11-01, or an hour such as 2026-11-01T13, and is %.40q.", field,
		text).About(field)
}

// Ask answers a question with what the caller may see.
func (c *Counters) Ask(ctx context.Context, q Question) (Report, error) {
	f, visible, err := c.filter(ctx, q)
	if err != nil {
		return Report{}, err
	}
	if !visible {
		return noReport(f), nil
	}
	return c.Report(ctx, f)
}

// ListDecks is a page of the decks that the caller may see, with what was counted in them.
func (c *Counters) ListDecks(ctx context.Context, q Question, cursor string, limit int) (DeckPage, error) {
	page := DeckPage{Decks: []Deck{}}
	after, err := wire.ParseCursor(cursor, 2)
	if err != nil {
		return page, err
	}
	q.By = ByDeck
	f, visible, err := c.filter(ctx, q)
	if err != nil || !visible {
		return page, err
	}
	if page.Decks, err = c.Decks(ctx, f, [2]string(after), limit); err != nil {
		return page, err
	}
	if len(page.Decks) == limit {
		last := page.Decks[limit-1]
		page.Next = wire.Cursor(last.Workspace, last.Name)
	}
	return page, nil
}

// ChangeDeck describes a deck as Describe does, and reads it with what was counted of late.
func (c *Counters) ChangeDeck(ctx context.Context, by roster.Identity, workspace, name string, change DeckChange) (Deck,
	error,
) {
	workspace, err := roster.WorkspaceOf(ctx, workspace)
	if err != nil {
		return Deck{}, err
	}
	if err := c.Describe(ctx, by, workspace, name, change.Title); err != nil {
		return Deck{}, err
	}
	f := Filter{Workspace: workspace, Project: name, By: ByDeck}
	if f.From, f.To, err = c.readSpan(Question{}); err != nil {
		return Deck{}, err
	}
	return c.Deck(ctx, f, name)
}
