package task

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Record is a task as the protocol's task file has it, with our own beside it.
type Record struct {
	Record       string                   `json:"record"`
	TaskID       string                   `json:"task_id"`
	Phase        Phase                    `json:"phase"`
	Status       string                   `json:"task_status"`
	Risk         string                   `json:"risk_level,omitempty"`
	PlanApproved bool                     `json:"plan_approved"`
	Dispatch     *string                  `json:"governing_dispatch"`
	Subtasks     map[string]SubtaskRecord `json:"subtasks"`
	Count        int64                    `json:"reject_count"`
	Streak       int64                    `json:"reject_streak"`
	Lifetime     int64                    `json:"reject_lifetime"`
	Holds        []HoldRecord             `json:"holds"`
	Last         *string                  `json:"last_successful_msg_id"`
	UpdatedAt    time.Time                `json:"updated_at"`

	Repo      string             `json:"x_repo,omitempty"`
	Branch    string             `json:"x_branch,omitempty"`
	Criteria  []string           `json:"x_acceptance_criteria,omitempty"`
	Open      []Opened           `json:"x_open_escalations"`
	Awaiting  []AwaitedRecord    `json:"x_awaiting"`
	Beats     map[Role]time.Time `json:"x_heartbeats_due"`
	Seats     map[Role]Seat      `json:"x_seats"`
	CI        map[string]string  `json:"x_ci_status,omitempty"`
	Waits     string             `json:"x_waits_for"` // why nothing happens, in a sentence
	Workspace string             `json:"x_workspace"`
	Messages  []Stored           `json:"x_messages,omitempty"`
}

// SubtaskRecord is a subtask in a Record.
type SubtaskRecord struct {
	State    State   `json:"state"`
	Dispatch string  `json:"dispatch_ref,omitempty"`
	Result   *string `json:"last_result_ref"`
	Verdict  *string `json:"last_verdict_ref"`
	Commit   *string `json:"pinned_commit"`
}

// HoldRecord is a hold in a Record.
type HoldRecord struct {
	Kind      string    `json:"kind"`
	Cause     string    `json:"cause"`
	Scope     string    `json:"scope"`
	AutoClear *string   `json:"auto_clear"`
	Since     time.Time `json:"since"`
}

// AwaitedRecord is a message that waits for its ack.
type AwaitedRecord struct {
	MsgID string     `json:"msg_id"`
	To    Role       `json:"to"`
	Due   *time.Time `json:"due_at"` // nil while deadlines stand still
	Late  bool       `json:"late"`
}

// Stored is a message as it was taken.
type Stored struct {
	Seq        int64     `json:"seq"` // of its entry in the ledger
	ReceivedAt time.Time `json:"received_at"`
	Acked      bool      `json:"acked"`
	Notice     string    `json:"notice,omitempty"` // what the receiver should know
	Generation int64     `json:"generation,omitempty"`
	Message    wire.Raw  `json:"message"`
}

func maybe(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// Show is the task as others see it.
func (t *Task) Show(workspace string) Record {
	r := Record{
		Record: "task", TaskID: t.ID, Phase: t.Phase, Status: t.Status(), Risk: t.Risk, PlanApproved: t.PlanApproved, Dispatch: maybe(t.Dispatch),
		Subtasks: map[string]SubtaskRecord{}, Count: t.Count, Streak: t.Streak, Lifetime: t.Lifetime, Holds: []HoldRecord{}, Last: maybe(t.Last), UpdatedAt: moment(t.Updated),
		Repo: t.Repo, Branch: t.Branch, Criteria: t.Criteria, Open: t.Open, Awaiting: []AwaitedRecord{}, Beats: map[Role]time.Time{}, Seats: t.Seats, CI: t.CI,
		Waits: t.waitsFor(), Workspace: workspace,
	}
	for _, s := range t.Subtasks {
		r.Subtasks[s.ID] = SubtaskRecord{s.State, s.Dispatch, maybe(s.Result), maybe(s.Verdict), maybe(s.Commit)}
	}
	for _, h := range t.Holds {
		r.Holds = append(r.Holds, HoldRecord{h.Kind, h.Cause, h.Scope, maybe(h.AutoClear), moment(h.Since)})
	}
	for _, a := range t.Awaiting {
		one := AwaitedRecord{MsgID: a.MsgID, To: a.To, Late: a.Late}
		if a.Due > 0 {
			due := moment(a.Due)
			one.Due = &due
		}
		r.Awaiting = append(r.Awaiting, one)
	}
	for role, due := range t.Beats {
		r.Beats[role] = moment(due)
	}
	if r.Open == nil {
		r.Open = []Opened{}
	}
	if r.Seats == nil {
		r.Seats = map[Role]Seat{}
	}
	return r
}

// waitsFor says in a sentence what has to happen next.
func (t *Task) waitsFor() string {
	var waits []string
	for _, h := range t.Holds {
		waits = append(waits, fmt.Sprintf("The admin has to answer %s (%s).", h.Cause, h.Kind))
	}
	if t.PlanAsked {
		waits = append(waits, "The admin has to approve the plan.")
	}
	for _, a := range t.Awaiting {
		waits = append(waits, fmt.Sprintf("The %s has to acknowledge %s.", a.To, a.MsgID))
	}
	for _, role := range AgentRoles {
		if t.hasBall(role) {
			waits = append(waits, fmt.Sprintf("It is the %s's turn.", role))
		}
	}
	if len(waits) == 0 && t.Phase == Planning {
		return "The coordinator has to dispatch it."
	}
	return strings.Join(waits, " ")
}

// Task finds a task.
func (s *Tasks) Task(ctx context.Context, workspace, taskID string) (*Task, error) {
	var state []byte
	err := s.core.DB.QueryRow(ctx, "SELECT state FROM task WHERE workspace = $1 AND task_id = $2", []any{workspace, taskID}, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "There is no task %.40q. GET /amp/tasks lists those there are.", taskID)
	}
	if err != nil {
		return nil, err
	}
	t := new(Task)
	return t, wire.Unmarshal(state, t)
}

// Page is a page of the board, with how many tasks there are of each status.
type Page struct {
	Tasks  []Record         `json:"tasks"`
	Counts map[string]int64 `json:"counts"`
	Next   string           `json:"next"`
}

// Board lists the tasks of a workspace, of one status or of all, those that changed last
// first.
func (s *Tasks) Board(ctx context.Context, workspace, status string, before int64, beforeID string, limit int) (Page, error) {
	page := Page{Tasks: []Record{}, Counts: map[string]int64{}}
	var where store.Where
	where.And("workspace = %s AND (updated_at, task_id) < (%s, %s)", workspace, before, beforeID)
	where.Equal("status", status)
	tasks, err := store.All(s.core.DB.Reading(ctx), scanTask, "SELECT state FROM task WHERE "+where.String()+" ORDER BY updated_at DESC, task_id DESC LIMIT "+where.Mark(limit+1), where.Args()...)
	if err != nil {
		return page, store.Explain(err)
	}
	for i := range tasks[:min(len(tasks), limit)] {
		page.Tasks = append(page.Tasks, tasks[i].Show(workspace))
	}
	if len(tasks) > limit {
		last := page.Tasks[limit-1]
		page.Next = wire.Cursor(fmt.Sprint(last.UpdatedAt.UnixMicro()), last.TaskID)
	}
	page.Counts, err = store.Map[string, int64](s.core.DB.Reading(ctx), "SELECT status, tasks FROM task_count WHERE workspace = $1 AND tasks > 0", workspace)
	return page, store.Explain(err)
}

// scanTask reads the state of a task.
func scanTask(scan store.Scan) (t Task, err error) {
	var state []byte
	if err := scan(&state); err != nil {
		return t, err
	}
	return t, wire.Unmarshal(state, &t)
}

// messages reads messages that a query finds, in the order of the query.
func (s *Tasks) messages(ctx context.Context, where string, args ...any) (list []Stored, err error) {
	list, err = store.All(s.core.DB.Reading(ctx), func(scan store.Scan) (one Stored, err error) {
		var row ledger.Row
		if err := scan(row.After(&one.Acked)...); err != nil {
			return one, err
		}
		e, err := row.Entry()
		if err != nil {
			return one, err
		}
		var b recorded
		err = e.Decode(&b)
		one.Seq, one.ReceivedAt, one.Message = e.Seq, e.At, b.Record
		return one, err
	}, "SELECT m.acked, "+ledger.EntryColumns+" FROM task_message m JOIN "+ledger.EntryTable+" ON e.seq = m.seq WHERE "+where, args...)
	return list, store.Explain(err)
}

// Errors lists refused documents, the newest first; actor, if not "", is whose.
func (s *Tasks) Errors(ctx context.Context, workspace, actor, taskID string, before int64, limit int) (list []ErrorRecord, next int64, err error) {
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
	}, "SELECT x.seq, e.body FROM task_error x JOIN "+ledger.EntryTable+" ON e.seq = x.seq WHERE "+where.String()+" ORDER BY x.seq DESC LIMIT "+where.Mark(limit), where.Args()...)
	return list, next, store.Explain(err)
}
