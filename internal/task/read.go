package task

import (
	"context"
	"fmt"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Task finds a task. It reads outside of any transaction, so what it says may be out of date when
// a step begins.
func (s *Tasks) Task(ctx context.Context, workspace, taskID string) (*amp.Task, error) {
	t, _, err := provenTask(s.core.Ledger.Prover(ctx), workspace, taskID)
	if err == nil && t == nil {
		err = fault.New(fault.NotFound, "There is no task %.40q. GET /amp/tasks lists them.", taskID)
	}
	return t, err
}

// Page is a page of the board, with how many tasks there are of each status, on all pages.
type Page struct {
	Tasks  []amp.Record     `json:"tasks"`
	Counts map[string]int64 `json:"counts"`
	Next   string           `json:"next"`
}

// Board lists the tasks of a workspace, of one status or of all, most recently changed first.
// before and beforeID are where the page before ended. It reads one more row than it shows, to
// know whether there is a next page.
func (s *Tasks) Board(ctx context.Context, workspace string, f Filter, before int64, beforeID string, limit int) (Page,
	error,
) {
	page := Page{Tasks: []amp.Record{}, Counts: map[string]int64{}}
	var where store.Where
	where.And("workspace = %s AND (updated_at, task_id) < (%s, %s)", workspace, before, beforeID)
	where.Equal("status", f.Status)
	behalf.Among(&where, "seq", f.keys)
	tasks, err := store.All(s.core.DB.Reading(ctx), scanTask,
		"SELECT state FROM task WHERE "+where.String()+" ORDER BY updated_at DESC, task_id DESC LIMIT "+where.Mark(limit+1),
		where.Args()...)
	if err != nil {
		return page, store.Explain(err)
	}
	for i := range tasks[:min(len(tasks), limit)] {
		theirs, err := s.isOnBehalf(ctx, workspace, tasks[i].ID, f.keys)
		if err != nil {
			return page, err
		}
		shown := tasks[i].Show(workspace)
		if theirs {
			page.Tasks = append(page.Tasks, shown)
		}
		if i == limit-1 && len(tasks) > limit {
			page.Next = wire.Cursor(fmt.Sprint(shown.UpdatedAt.UnixMicro()), shown.TaskID)
		}
	}
	// Counted when entries are applied, so that it does not depend on how many tasks there are.
	page.Counts, err = store.Map[string, int64](s.core.DB.Reading(ctx),
		"SELECT status, tasks FROM task_count WHERE workspace = $1 AND tasks > 0", workspace)
	return page, store.Explain(err)
}

// isOnBehalf reports whether a task is on behalf of a user, as its entries say: a row of the index can be forged.
func (s *Tasks) isOnBehalf(ctx context.Context, workspace, taskID string, keys []string) (bool, error) {
	if keys == nil {
		return true, nil
	}
	t, _, err := provenTask(s.core.Ledger.Prover(ctx), workspace, taskID)
	return t != nil && behalf.Of{User: t.User, Claimed: t.Claimed}.Among(keys), err
}

// scanTask decodes the state of a task from its row.
func scanTask(scan store.Scan) (t amp.Task, err error) {
	var state []byte
	if err := scan(&state); err != nil {
		return t, err
	}
	return t, wire.Unmarshal(state, &t)
}

// messages reads the messages that a WHERE clause finds, in the clause's order. The table has what
// is searched for; the documents are in the entries.
func (s *Tasks) messages(ctx context.Context, where string, args ...any) (list []amp.Stored, err error) {
	p := s.core.Ledger.Prover(ctx)
	type found struct {
		messageRow
		e      ledger.Entry
		taskID string
		acked  bool
	}
	rows, err := store.All(p.Query, func(scan store.Scan) (is found, err error) {
		var row ledger.Row
		if err = scan(row.After(&is.acked, &is.agent, &is.MsgID, &is.To, &is.taskID)...); err == nil {
			is.e, err = row.Entry()
		}
		return is, err
	}, "SELECT m.acked, m.agent, m.msg_id, m.receiver, m.task_id, "+ledger.EntryColumns+" FROM task_message m JOIN "+ledger.EntryTable+
		" ON e.seq = m.seq WHERE "+
		where, args...)
	list = []amp.Stored{}
	for i := 0; i < len(rows) && err == nil; i++ { // not while the rows are open: a proof reads, too
		is, b := &rows[i], new(recorded)
		if err = is.e.Decode(b); err == nil {
			err = proveMessage(p, &is.e, b, is.messageRow, is.taskID)
		}
		list = append(list, amp.Stored{
			Seq: is.e.Seq, ReceivedAt: is.e.At, Acked: is.acked, Message: b.Record, Agent: is.agent,
		})
	}
	return list, store.Explain(err)
}

// Errors lists refused documents, newest first; actor and taskID narrow it down unless empty. next
// is the entry of the last row, to go on before. Erased refusals are left out, so a page may be
// short without being the last.
func (s *Tasks) Errors(ctx context.Context, workspace, actor, taskID string, before int64,
	limit int,
) (list []ErrorRecord, next int64, err error) {
	var where store.Where
	where.And("x.workspace = %s AND x.seq < %s", workspace, before)
	where.Equal("x.actor", actor)
	where.Equal("x.task_id", taskID)
	list = []ErrorRecord{}
	err = store.Each(s.core.DB.Reading(ctx), func(scan store.Scan) error {
		var body []byte
		if err := scan(&next, &body); err != nil || body == nil { // nil when it is erased
			return err
		}
		var one ErrorRecord
		err := wire.UnmarshalPart(body, &one)
		list = append(list, one)
		return err
	}, "SELECT x.seq, e.body FROM task_error x JOIN "+ledger.EntryTable+" ON e.seq = x.seq WHERE "+where.String()+
		" ORDER BY x.seq DESC LIMIT "+where.Mark(limit), where.Args()...)
	return list, next, store.Explain(err)
}
