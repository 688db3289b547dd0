package counter

import (
	"context"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
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
		{Name: "from", Meaning: "the first day (UTC), such as 2026-11-01, or hour, such as 2026-11-01T13; " +
			"30 days up to the last when absent"},
		{Name: "to", Meaning: "the last day or hour; today when absent"},
	}
	by := wire.Param{
		Name: "by",
		Meaning: "only one kind of parts beside the total: " + strings.Join(Kinds, ", ") + "; all when absent, with the " +
			"hours of the last two days",
	}
	filters := append([]wire.Param{
		workspace,
		{Name: "project", Meaning: "only this deck"},
		{Name: "agent", Meaning: "only the agent with this name or id"},
	}, days...)
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/counters",
			Summary: "The live counters; with Accept: text/event-stream again whenever they change", Auth: wire.Viewer,
			Query: append(filters, by), Answer: Report{}, Handle: c.getCounters,
		},
		{
			Method: "GET", Path: "/ops/decks", Summary: "List decks with what was counted in them", Auth: wire.Viewer,
			Query: append(append([]wire.Param{workspace}, days...), wire.PageParams...), Answer: DeckPage{},
			Handle: wire.List(c.getDecks),
		},
		{
			Method: "PUT", Path: "/ops/decks/{name}", Summary: "Say what a deck is", Auth: wire.Operator,
			Query: []wire.Param{workspace}, Request: DeckChange{}, Answer: Deck{},
			Handle: wire.Take(http.StatusOK, 1<<16, c.putDeck),
		},
	}
}

// question reads what a call asks for.
func question(r *http.Request) Question {
	q := r.URL.Query()
	return Question{
		Workspace: q.Get("workspace"), Project: q.Get("project"), Agent: q.Get("agent"), From: q.Get("from"),
		To: q.Get("to"), By: q.Get("by"),
	}
}

// getCounters answers once, or as a stream if the client accepts one.
func (c *Counters) getCounters(w http.ResponseWriter, r *http.Request) error {
	report, err := c.Ask(r.Context(), question(r))
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

// stream sends the counters, and again whenever they have changed, until the client
// disconnects or the server stops.
func (c *Counters) stream(w http.ResponseWriter, r *http.Request, report Report) error {
	events := wire.Events(w)
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	var sent string
	for ctx.Err() == nil {
		text, err := withoutAges(report)
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
		c.awaitChange(ctx, report.Seq)
		if report, err = c.Ask(r.Context(), question(r)); err != nil {
			return nil // the client connects again and hears it
		}
	}
	return nil
}

// awaitChange waits until more has been counted than up to seq, at most as long as a connection may
// be silent.
func (c *Counters) awaitChange(ctx context.Context, seq int64) {
	ledger.Pause(ctx, nil, pushEvery)
	for until := time.Now().Add(wire.StreamBeat); ctx.Err() == nil && time.Now().Before(until); {
		news := c.ledger.News()
		if now, err := position(ctx, c.db.Read); err == nil && now != seq {
			return
		}
		ledger.Pause(ctx, news, lookEvery)
		ledger.Pause(ctx, nil, 2*pace) // it is counted by then
	}
}

// withoutAges is a report without the parts that change with time alone, for comparing.
func withoutAges(r Report) (string, error) {
	r.OldestWaitingSeconds, r.Seq = nil, 0
	text, err := wire.Marshal(r)
	return string(text), err
}

func (c *Counters) getDecks(r *http.Request, p wire.Paging) (DeckPage, error) {
	return c.ListDecks(r.Context(), question(r), p.Cursor, p.Limit)
}

func (c *Counters) putDeck(r *http.Request, in DeckChange) (Deck, error) {
	return c.ChangeDeck(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), r.PathValue("name"), in)
}
