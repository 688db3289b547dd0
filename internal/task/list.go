package task

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Filter selects tasks; zero fields select everything. User is on whose behalf they are, as behalf.Query has it, and for
// operators alone.
type Filter struct {
	Status, User string
	Claimed      bool

	keys []string // of the user
}

// List is a page of the board that the caller sees. cursor is Next of the page before.
func (s *Tasks) List(ctx context.Context, p Party, f Filter, cursor string, limit int) (Page, error) {
	at, err := wire.ParseCursor(cursor, 2)
	if err != nil {
		return Page{}, err
	}
	before, err := wire.CursorNumber(at[0])
	if err != nil {
		return Page{}, err
	}
	if f.User != "" {
		if p.Identity.Kind != roster.HolderOperator {
			return Page{}, fault.New(fault.Forbidden, "Only an operator may ask for the tasks of a user. Leave user out.").About("user")
		}
		if f.keys, err = s.core.Behalf.Keys(ctx, p.Workspace, f.User, f.Claimed); err != nil {
			return Page{}, err
		}
	}
	return s.Board(ctx, p.Workspace, f, before, at[1], limit)
}

// Show is a task as it stands, with every message about it if messages is true.
func (s *Tasks) Show(ctx context.Context, p Party, taskID string, messages bool) (amp.Record, error) {
	t, err := s.Task(ctx, p.Workspace, taskID)
	if err != nil {
		return amp.Record{}, err
	}
	out := t.Show(p.Workspace)
	if messages {
		out.Messages, err = s.messages(ctx, "m.workspace = $1 AND m.task_id = $2 ORDER BY m.seq", p.Workspace, t.ID)
	}
	return out, err
}

// ErrorPage is a page of the error log, newest first.
type ErrorPage struct {
	Errors []ErrorRecord `json:"errors"`
	Next   string        `json:"next"`
}

// ListErrors is a page of what was refused, about one task or all. An agent sees only its own
// refusals, since those of others may quote what it must not read.
func (s *Tasks) ListErrors(ctx context.Context, p Party, taskID, cursor string, limit int) (ErrorPage, error) {
	before, err := wire.ParseSeqCursor(cursor)
	if err != nil {
		return ErrorPage{}, err
	}
	actor := ""
	// Operators see every refusal, agents their own.
	if p.Role != amp.Admin {
		actor = p.Identity.Actor()
	}
	list, next, err := s.Errors(ctx, p.Workspace, actor, taskID, before, limit)
	page := ErrorPage{Errors: list}
	if err == nil && len(list) == limit {
		page.Next = wire.SeqCursor(next)
	}
	return page, err
}
