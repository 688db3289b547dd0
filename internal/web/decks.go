package web

import (
	"signalbox/internal/counter"
)

// deckList is a page of decks with what was counted in them, in 30 days.
type deckList struct {
	Decks      []counter.Deck
	Sum        counter.Sum // of all decks
	Next       string
	Workspaces bool // there is more than one
}

// deckRows is how many decks one page lists.
const deckRows = 100

// loadDecks reads a page of decks.
func (w *Web) loadDecks(r *Request) (any, error) {
	v := &deckList{}
	workspaces, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	if err != nil {
		return nil, err
	}
	v.Workspaces = len(workspaces) > 1
	all, err := w.Counters.Ask(r.Context(), counter.Question{By: counter.ByDay})
	if err != nil {
		return nil, err
	}
	page, err := w.Counters.ListDecks(r.Context(), counter.Question{}, r.Query("cursor"), deckRows)
	v.Decks, v.Sum, v.Next = page.Decks, all.Total, nextPage(r, page.Next)
	return v, err
}
