package task

import (
	"maps"
	"slices"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Migrations make the tables of tasks. What was sent lives in the body of the entry seq,
// once; state is what the next step starts from. The dispatch of a plan lives in the entry
// seq of task_plan until it goes out, with an entry of its own. The agent of a message is the
// one that alone it is for, ” for all of the role.
var Migrations = store.Migrations{Package: "task", Steps: []string{`
CREATE TABLE task (
  workspace {text} NOT NULL,
  task_id {text} NOT NULL,
  status {text} NOT NULL,
  branch {text} NOT NULL,
  updated_at {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  state {blob} NOT NULL,
  PRIMARY KEY (workspace, task_id)
) {strict};
CREATE INDEX task_status ON task (workspace, status, updated_at, task_id);
CREATE INDEX task_updated ON task (workspace, updated_at, task_id);
CREATE INDEX task_branch ON task (workspace, branch);

CREATE TABLE task_count (
  workspace {text} NOT NULL,
  status {text} NOT NULL,
  tasks {bigint} NOT NULL,
  PRIMARY KEY (workspace, status)
) {strict};

CREATE TABLE task_message (
  workspace {text} NOT NULL,
  msg_id {text} NOT NULL,
  task_id {text} NOT NULL,
  type {text} NOT NULL,
  receiver {text} NOT NULL,
  hash {text} NOT NULL,
  acked {bool} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (workspace, msg_id)
) {strict};
CREATE INDEX task_inbox ON task_message (workspace, receiver, acked, seq);
CREATE INDEX task_messages ON task_message (workspace, task_id, seq);

CREATE TABLE task_error (
  seq {bigint} PRIMARY KEY,
  workspace {text} NOT NULL,
  task_id {text} NOT NULL,
  actor {text} NOT NULL
) {strict};
CREATE INDEX task_error_workspace ON task_error (workspace, seq);

CREATE TABLE task_gate (
  gate {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  task_id {text} NOT NULL,
  about {text} NOT NULL
) {strict};
CREATE INDEX task_gate_about ON task_gate (workspace, task_id, about);

CREATE TABLE task_hook (
  workspace {text} NOT NULL,
  role {text} NOT NULL,
  url {text} NOT NULL,
  generation {bigint} NOT NULL,
  PRIMARY KEY (workspace, role)
) {strict};
`, `
CREATE TABLE task_plan (
  workspace {text} NOT NULL,
  msg_id {text} NOT NULL,
  task_id {text} NOT NULL,
  agent {text} NOT NULL,
  digest {text} NOT NULL,
  gate {text} NOT NULL,
  state {text} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (workspace, msg_id)
) {strict};
CREATE INDEX task_plan_approved ON task_plan (seq) WHERE state = 'approved';

ALTER TABLE task_message ADD COLUMN agent {text} NOT NULL DEFAULT '';
`}}

// The kinds of entries. The subject is the task's id. Kinds are stored, so they never change.
const (
	kindAcked      = "task.acked"
	kindHeard      = "task.heard" // a heartbeat
	kindInstructed = "task.instructed"
	kindNoted      = "task.noted" // what the server found by itself
	kindRefused    = "task.refused"
	kindEscalated  = "task.escalated"
	kindHooked     = "task.hooked"
	kindKept       = "task.kept" // a dispatch waits until it is approved
	kindTold       = "task.told" // what its coordinator hears of it
)

// kinds are the kinds of the entries that hold messages.
var kinds = map[amp.Type]string{
	amp.TypeDispatch: "task.dispatched", amp.TypeResult: "task.reported", amp.TypeRequest: "review.requested",
	amp.TypeVerdict: "review.decided", amp.TypeEscalation: kindEscalated,
}

// recordedKinds are the kinds of the entries whose body is a recorded.
func recordedKinds() []string {
	return slices.AppendSeq([]string{kindAcked, kindHeard, kindInstructed, kindNoted, kindKept, kindTold}, maps.Values(kinds))
}

// dueTimer is the timer of a task's earliest deadline. Its subject is the workspace and the task
// with a space between them, which neither can contain.
const dueTimer = "task.due"

// Projection is what the entries do to the tables. Only refusals are erasable: every other entry
// is needed to rebuild the state of its task.
func Projection() ledger.Projection {
	apply := map[string]ledger.Apply{kindRefused: applyRefused, kindHooked: ledger.ApplyBody(applyHooked)}
	for _, kind := range recordedKinds() {
		apply[kind] = applyRecorded
	}
	return ledger.Projection{
		Name: "task",
		Tables: ledger.Tables(
			"task (workspace, task_id)", "task_count (workspace, status)",
			"task_message (workspace, msg_id)", "task_error (seq)", "task_gate (gate)",
			"task_hook (workspace, role)", "task_plan (workspace, msg_id)",
		),
		Erasable: []string{kindRefused},
		Apply:    apply,
	}
}

// applyRecorded writes what an entry says: the message in it, the task as it stands after it, who
// has to acknowledge what, and the timer of the earliest deadline. It decides nothing; the step
// has. It runs when the entry is written and again in every rebuild, so it depends on the entry
// alone.
func applyRecorded(tx *store.Tx, e *ledger.Entry) error {
	var b recorded
	if err := e.Decode(&b); err != nil {
		return err
	}
	if err := insertMessage(tx, e, &b); err != nil {
		return err
	}
	for _, id := range b.Acked {
		tx.Exec("UPDATE task_message SET acked = $3 WHERE workspace = $1 AND msg_id = $2", e.Workspace, id, true)
	}
	for _, id := range b.Reopened {
		tx.Exec("UPDATE task_message SET acked = $3 WHERE workspace = $1 AND msg_id = $2", e.Workspace, id, false)
	}
	if err := applyPlans(tx, e, &b); err != nil {
		return err
	}
	for _, g := range b.Gates {
		tx.Exec("INSERT INTO task_gate (gate, workspace, task_id, about) VALUES ($1, $2, $3, $4)", g.Gate, e.Workspace,
			e.Subject, g.About)
	}
	// An entry that follows from another holds no task; that one does.
	if b.Task == nil {
		return nil
	}
	state := b.state
	if state == nil { // it was read from the ledger
		var err error
		if state, err = wire.Marshal(b.Task); err != nil {
			return err
		}
	}
	tx.Exec("INSERT INTO task (workspace, task_id, status, branch, updated_at, seq, state) "+
		"VALUES ($1, $2, $3, $7, $4, $5, $6)\n"+
		"ON CONFLICT (workspace, task_id) DO UPDATE SET status = excluded.status, branch = excluded.branch, "+
		"updated_at = excluded.updated_at, seq = excluded.seq, state = excluded.state",
		e.Workspace, e.Subject, b.Task.Status(), b.Task.Updated, e.Seq, state, b.Task.Branch)
	countTask(tx, e.Workspace, b.Was, b.Task.Status())
	subject := e.Workspace + " " + e.Subject
	switch due := b.Task.Due(); {
	case due > 0:
		clock.Set(tx, clock.Timer{Kind: dueTimer, Subject: subject, Workspace: e.Workspace, Due: time.UnixMicro(due)})
	case b.HadDue:
		clock.Clear(tx, dueTimer, subject)
	}
	return nil
}

// countTask keeps the number of tasks of each status, so that the board need not count all rows.
func countTask(tx *store.Tx, workspace, was, is string) {
	if was == is {
		return
	}
	if was != "" {
		tx.Exec("UPDATE task_count SET tasks = tasks - 1 WHERE workspace = $1 AND status = $2", workspace, was)
	}
	tx.Exec("INSERT INTO task_count (workspace, status, tasks) VALUES ($1, $2, 1) ON CONFLICT (workspace, status) DO "+
		"UPDATE SET tasks = task_count.tasks + 1", workspace, is)
}

// insertMessage adds the row of the message or instruction that an entry holds, if it holds one. A
// message that needs no ack is acked from the start.
func insertMessage(tx *store.Tx, e *ledger.Entry, b *recorded) error {
	row, err := b.messageRow(e)
	if err != nil || row == nil {
		return err
	}
	tx.Exec("INSERT INTO task_message (workspace, msg_id, task_id, type, receiver, hash, acked, seq, agent) "+
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		e.Workspace, row.MsgID, e.Subject, row.Type, row.To, row.hash, !row.RequiresAck, e.Seq, row.agent)
	return nil
}

// messageRow is the row of the message or instruction that an entry holds, nil if it holds none.
func (b *recorded) messageRow(e *ledger.Entry) (*messageRow, error) {
	row := b.row
	if row == nil {
		switch e.Kind {
		case kindAcked, kindHeard, kindNoted, kindKept:
			return nil, nil //nolint:nilnil // that there is none is an answer
		}
		row = new(messageRow)
		if err := wire.UnmarshalPart(b.Record, row); err != nil {
			return nil, err
		}
		if row.MsgID == "" {
			row.MsgID, row.Type = row.InstructionID, "admin_instruction"
		}
		row.hash = amp.ContentHash(b.Record)
		if e.Kind == kindTold { // an agent cannot address a message to one agent
			d, err := readDecision(b.Record)
			if err != nil {
				return nil, err
			}
			row.agent = d.Coordinator
		}
	}
	if row.MsgID == "" {
		return nil, nil //nolint:nilnil // as above
	}
	return row, nil
}

// messageRow is what the table keeps of a message or an instruction. hash tells a duplicate from a
// conflict.
type messageRow struct {
	MsgID         string `json:"msg_id"`
	InstructionID string `json:"instruction_id"`
	Type          string `json:"type"`
	To            string `json:"to"`
	RequiresAck   bool   `json:"requires_ack"`
	hash          string
	agent         string // the id of the agent that alone it is for, "" for all of the role
}

// applyRefused needs no body, so that refusals can be erased and the table rebuilt all the same.
func applyRefused(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO task_error (seq, workspace, task_id, actor) VALUES ($1, $2, $3, $4)", e.Seq, e.Workspace,
		e.Subject, e.Actor)
	return nil
}

// applyHooked sets the webhook of a role. The latest entry counts.
func applyHooked(tx *store.Tx, e *ledger.Entry, b *hooked) {
	tx.Exec("INSERT INTO task_hook (workspace, role, url, generation) VALUES ($1, $2, $3, $4) ON CONFLICT (workspace, "+
		"role) DO UPDATE SET url = excluded.url, generation = excluded.generation",
		e.Workspace, string(b.Role), b.URL, b.Generation)
}
