package ledger

import (
	"context"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// The reads here are for callers who may be confined to a workspace, as the context says
// (LED-33). An entry of another workspace does not exist for them: the error is not_found,
// not forbidden, so that numbers cannot be probed.

// Retry logs that a follower could not read, and says when it should try again.
func (l *Ledger) Retry(err error) <-chan time.Time {
	l.log.Warn("cannot read the ledger; retrying", "error", err.Error())
	return time.After(l.poll)
}

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

// The answers of the operators' API.
type (
	// EntryView is an entry as JSON. The body is shown as it is if it is JSON, and
	// in base64 otherwise.
	EntryView struct {
		Seq       int64     `json:"seq"`
		At        time.Time `json:"at"`
		Workspace string    `json:"workspace"`
		Kind      string    `json:"kind"`
		Actor     string    `json:"actor"`
		Subject   string    `json:"subject"`
		Trace     string    `json:"trace"`
		Body      wire.Raw  `json:"body,omitzero"`
		RawBody   []byte    `json:"raw_body,omitzero"`
		Erased    bool      `json:"erased,omitempty"`
		LeafHash  string    `json:"leaf_hash"`
	}
	// EntryPage is a page of entries; next is what to give as after.
	EntryPage struct {
		Entries []EntryView `json:"entries"`
		Next    int64       `json:"next"`
	}
)

// View makes the JSON form of an entry.
func (e *Entry) View() EntryView {
	v := EntryView{
		Seq: e.Seq, At: e.At, Workspace: e.Workspace, Kind: e.Kind, Actor: e.Actor, Subject: e.Subject, Trace: e.Trace,
		Erased: e.Body == nil, LeafHash: tlog.RecordHash(e.Record).String(),
	}
	if raw := wire.Raw(e.Body); raw.IsValid() {
		v.Body = raw
	} else {
		v.RawBody = e.Body
	}
	return v
}
