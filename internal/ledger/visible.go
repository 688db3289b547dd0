package ledger

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// The reads here are for callers who may be confined to a workspace, as the context says
// (LED-33). An entry of another workspace does not exist for them: the error is not_found,
// not forbidden, so that numbers cannot be probed.

// Visible reads an entry that the caller may see.
func (l *Ledger) Visible(ctx context.Context, seq int64) (Entry, error) {
	e, err := l.Entry(ctx, seq)
	if err == nil && !wire.InScope(ctx, e.Workspace) {
		err = fault.New(fault.NotFound, "There is no entry %d in workspace %q.", seq, wire.Scope(ctx))
	}
	return e, err
}

// List is a page of the entries that the caller may see, as others are shown them.
func (l *Ledger) List(ctx context.Context, q Query) (EntryPage, error) {
	page := EntryPage{Entries: []EntryView{}, Next: q.After}
	var visible bool
	if q.Workspace, visible = wire.Within(ctx, q.Workspace); !visible {
		return page, nil
	}
	entries, err := l.Entries(ctx, q)
	for i := range entries {
		page.Entries = append(page.Entries, entries[i].View())
		page.Next = entries[i].Seq
	}
	return page, err
}

// Bundle reads a bundle of records by its path below "tile/entries/", for those who may see
// the records of every workspace.
func (l *Ledger) Bundle(ctx context.Context, path string) ([]byte, error) {
	if err := wire.Unconfined(ctx, "This shows the records of"); err != nil {
		return nil, err
	}
	return l.Tile(ctx, path)
}
