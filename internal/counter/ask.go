package counter

import (
	"context"
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
	From, To  string // days (UTC) such as 2026-11-01
}

const (
	// ordinarySpan is how many days a question without days covers.
	ordinarySpan = 30
	// maxSpan bounds the rows that one question can read.
	maxSpan = 366
)

// filter turns a question into a filter over what the caller may see. visible is false if
// that is nothing.
func (c *Counters) filter(ctx context.Context, q Question) (f Filter, visible bool, err error) {
	f.Project = q.Project
	if f.From, f.To, err = c.readDays(q.From, q.To); err != nil {
		return f, false, err
	}
	if f.Workspace, visible = wire.Within(ctx, q.Workspace); visible && q.Agent != "" {
		f.Agents, err = c.roster.AgentIDs(ctx, f.Workspace, q.Agent)
		visible = len(f.Agents) > 0
	}
	return f, visible, err
}

// readDays reads a span of days, both included; today and the 30 days up to it are the
// defaults.
func (c *Counters) readDays(from, to string) (first, last string, err error) {
	end := c.now().UTC()
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
		return "", "", fault.New(fault.InvalidRequest, "The days should be 1 to %d, and %s to %s are not.", maxSpan, first,
			last).About("from")
	}
	return first, last, nil
}

func wrongDay(field, text string) error {
	return fault.New(fault.InvalidRequest, "The parameter %s should be a day such as 2026-11-01, and is %.40q.", field,
		text).About(field)
}

// Ask answers a question with what the caller may see.
func (c *Counters) Ask(ctx context.Context, q Question) (Report, error) {
	f, visible, err := c.filter(ctx, q)
	if err != nil {
		return Report{}, err
	}
	if !visible {
		return Report{From: f.From, To: f.To, Decks: []DeckSum{}, Agents: []AgentSum{}, Days: []DaySum{}}, nil
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
	f := Filter{Workspace: workspace, Project: name}
	if f.From, f.To, err = c.readDays("", ""); err != nil {
		return Deck{}, err
	}
	return c.Deck(ctx, f, name)
}
