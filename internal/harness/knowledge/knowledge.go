package knowledge

import (
	"context"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Knowledge is one piece: a fact with its source, or, with a path, a snippet of a file.
// An operator adds it for one workspace, and it stays until an operator removes it. Its
// content never changes.
type Knowledge struct {
	ID         string    `json:"id"`
	Workspace  string    `json:"workspace"`
	Content    string    `json:"content"`
	Source     string    `json:"source,omitempty"`
	Path       string    `json:"path,omitempty"`
	Confidence float64   `json:"confidence"`
	AddedAt    time.Time `json:"added_at"`
	AddedBy    string    `json:"added_by"`
	Score      float64   `json:"score,omitempty"` // how well it answers a search
}

// NewKnowledge is the request that adds a piece.
type NewKnowledge struct {
	Workspace  string   `json:"workspace,omitempty"`
	Content    string   `json:"content"`
	Source     string   `json:"source,omitempty"`
	Path       string   `json:"path,omitempty"`
	Confidence *float64 `json:"confidence,omitempty"` // 1 when absent
}

// KnowledgePage is a page of pieces, oldest first, or the result of a search, best
// first.
type KnowledgePage struct {
	Knowledge []Knowledge `json:"knowledge"`
	Next      string      `json:"next"`
}

// known is the body of knowledge.added, which is stored.
type known struct {
	Content    string  `json:"content"`
	Source     string  `json:"source,omitzero"`
	Path       string  `json:"path,omitzero"`
	Confidence float64 `json:"confidence"`
}

// maxContent bounds the content, and maxSource the source and the path, in bytes.
const (
	maxContent = 64 << 10
	maxSource  = 2000
)

// check checks a request, and returns it as the body of its entry. The content is
// trimmed, so that white space alone is no content.
func (n *NewKnowledge) check() (known, error) {
	k := known{strings.TrimSpace(n.Content), n.Source, n.Path, 1}
	if n.Confidence != nil {
		k.Confidence = *n.Confidence
	}
	wrong := func(field, format string, args ...any) (known, error) {
		return k, fault.New(fault.InvalidPayload, format, args...).About(field)
	}
	switch {
	case k.Content == "" || len(k.Content) > maxContent:
		return wrong("content", "The content should be a fact or a snippet of a file, of 1 to %d bytes.", maxContent)
	// A fact without a source cannot be checked by the agent that gets it.
	case k.Source == "" && k.Path == "":
		return wrong("source",
			"Say where this is from, such as \"source\": \"runbook.md\", or give the path of the file that it is a part of.")
	case len(k.Source) > maxSource || len(k.Path) > maxSource:
		return wrong("source", "The source and the path have at most %d bytes.", maxSource)
	case k.Confidence < 0 || k.Confidence > 1:
		return wrong("confidence", "The confidence should be a number from 0 to 1.")
	}
	return k, nil
}

// Base is the knowledge of every workspace. It has no state of its own and may be used
// by many goroutines.
type Base struct {
	db     *store.DB
	ledger *ledger.Ledger
}

// New makes the base. The ledger must have Tables and Apply in a projection.
func New(db *store.DB, l *ledger.Ledger) *Base { return &Base{db, l} }

// Add adds a piece to a workspace that the caller may see.
func (b *Base) Add(ctx context.Context, by roster.Identity, n NewKnowledge) (Knowledge, error) {
	var err error
	if n.Workspace, err = roster.WorkspaceOf(ctx, n.Workspace); err != nil {
		return Knowledge{}, err
	}
	k, err := n.check()
	if err != nil {
		return Knowledge{}, err
	}
	name := id.New("fact")
	err = b.ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := roster.RequireWorkspace(tx, n.Workspace); err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: n.Workspace, Kind: kindAdded, Actor: by.Actor(), Subject: name, Body: k})
		return nil
	})
	if err != nil {
		return Knowledge{}, err
	}
	return b.Get(ctx, name)
}

// Remove removes a piece from a workspace that the caller may see.
func (b *Base) Remove(ctx context.Context, by roster.Identity, name string) error {
	found, err := b.Get(ctx, name)
	if err != nil {
		return err
	}
	return b.ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: found.Workspace, Kind: kindRemoved, Actor: by.Actor(), Subject: found.ID, Body: struct{}{},
		})
		return nil
	})
}

// Get reads one piece. A piece in a workspace that the caller may not see does not
// exist for the caller.
func (b *Base) Get(ctx context.Context, name string) (Knowledge, error) {
	found, _, err := b.read(ctx, "WHERE k.id = $1", name)
	if err == nil && (len(found) == 0 || !wire.InScope(ctx, found[0].Workspace)) {
		err = fault.New(fault.NotFound, "There is no knowledge %.80q. GET /ops/knowledge lists all of it.", name)
	}
	if err != nil {
		return Knowledge{}, err
	}
	return found[0], nil
}

// Filter selects pieces of one workspace.
type Filter struct {
	Workspace string // "" for the one that the caller is confined to, or the first
	Search    string // words to look for: then the best answers come first, on one page
	Cursor    string // KnowledgePage.Next of the page before
	Limit     int    // 1 to wire.MaxPage
}

// Page lists pieces of a workspace that the caller may see, or searches them.
func (b *Base) Page(ctx context.Context, f Filter) (KnowledgePage, error) {
	page := KnowledgePage{Knowledge: []Knowledge{}}
	workspace, err := roster.WorkspaceOf(ctx, f.Workspace)
	if err != nil {
		return page, err
	}
	if f.Search != "" {
		page.Knowledge, err = b.Search(ctx, workspace, f.Search, f.Limit)
		return page, err
	}
	at, err := wire.ParseCursor(f.Cursor, 1)
	if err != nil {
		return page, err
	}
	after := int64(0)
	if at[0] != "" {
		if after, err = wire.CursorNumber(at[0]); err != nil {
			return page, err
		}
	}
	found, last, err := b.read(ctx, "WHERE k.workspace = $1 AND k.seq > $2 ORDER BY k.seq LIMIT $3", workspace, after,
		f.Limit)
	if err != nil {
		return page, err
	}
	if page.Knowledge = found; len(found) == f.Limit {
		page.Next = wire.SeqCursor(last)
	}
	return page, nil
}
