package counter

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// DefaultDeck is the deck of entries that name none.
const DefaultDeck = "default"

// Deck is a group of runs and gates, such as a project, with what was counted in it. Agents
// make one by naming it; it is never removed.
type Deck struct {
	Workspace string     `json:"workspace"`
	Name      string     `json:"name"`
	Title     string     `json:"title"`
	Sorted    bool       `json:"sorted"` // an operator has said what it is
	FirstAt   *time.Time `json:"first_at"`
	Counts    Sum        `json:"counts"`
}

const maxTitle = 120 // characters

// deckForm is the form of a name that operators give. Agents may name decks in any way.
var deckForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Describe gives a deck a title, whether or not it has been used. A title that it has already
// is not appended again.
func (c *Counters) Describe(ctx context.Context, by roster.Identity, workspace, name, title string) error {
	if len(name) > 63 || !deckForm.MatchString(name) {
		return fault.New(fault.InvalidPayload,
			"The name of a deck should be 1 to 63 lower-case letters and digits, with single "+
				"hyphens between them, such as %q. It is %.80q.", "job-search", name).About("name")
	}
	if n := utf8.RuneCountInString(title); strings.TrimSpace(title) == "" || n > maxTitle {
		return fault.New(fault.InvalidPayload, "The title should be 1 to %d characters, such as %q, and has %d.", maxTitle,
			"Job search", n).About("title")
	}
	return c.ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := roster.RequireWorkspace(tx, workspace); err != nil {
			return err
		}
		var now string
		err := tx.QueryRow("SELECT title FROM deck WHERE workspace = $1 AND name = $2", []any{workspace, name}, &now)
		if err != nil && !errors.Is(err, sql.ErrNoRows) || now == title {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: kindDeckChanged, Actor: by.Actor(), Subject: name,
			Body: deckChanged{title},
		})
		return nil
	})
}

// selectDecks lists the decks that were used and those that were described; $1 is a workspace or
// "" for all.
const selectDecks = `SELECT d.workspace, d.name, COALESCE(t.title, ''), COALESCE(u.first_at, 0)
FROM (SELECT workspace, name FROM counter_deck UNION SELECT workspace, name FROM deck) d
LEFT JOIN counter_deck u ON u.workspace = d.workspace AND u.name = d.name
LEFT JOIN deck t ON t.workspace = d.workspace AND t.name = d.name
WHERE ($1 = '' OR d.workspace = $1) AND `

// Decks lists decks by workspace and name, after the given ones, with what was counted on
// the days of the filter.
func (c *Counters) Decks(ctx context.Context, f Filter, after [2]string, limit int) ([]Deck, error) {
	return c.decks(ctx, f, "(d.workspace, d.name) > ($2, $3) ORDER BY d.workspace, d.name LIMIT $4", after[0], after[1],
		limit)
}

// Deck finds one deck.
func (c *Counters) Deck(ctx context.Context, f Filter, name string) (Deck, error) {
	all, err := c.decks(ctx, f, "d.name = $2", name)
	if err != nil {
		return Deck{}, err
	}
	if len(all) == 0 {
		return Deck{}, fault.New(fault.NotFound, "There is no deck %.80q.", name)
	}
	return all[0], nil
}

// decks reads decks that meet a condition, whose arguments begin at $2, with their counts.
func (c *Counters) decks(ctx context.Context, f Filter, where string, args ...any) ([]Deck, error) {
	all, err := store.All(c.db.Reading(ctx), func(scan store.Scan) (d Deck, err error) {
		var first int64
		err = scan(&d.Workspace, &d.Name, &d.Title, &first)
		d.Sorted, d.FirstAt = d.Title != "", store.Moment(first)
		return d, err
	}, selectDecks+where, append([]any{f.Workspace}, args...)...)
	if err != nil {
		return nil, err
	}
	p, err := c.collect(ctx, f)
	if err != nil {
		return nil, err
	}
	for i, d := range all {
		all[i].Counts = partFor(p.decks, deckName{d.Workspace, d.Name}).sum()
	}
	return all, nil
}
