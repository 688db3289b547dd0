package task

import (
	"bytes"
	"database/sql"
	"errors"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// The tables find a task and its messages. What an agent acts on is read from the entries, or compared with them: a
// verdict, a dispatch or an approved plan that only stands in a table is none.

// provenTask is the task that a row holds, nil if there is none, and the entry that it was in. That has to be the last
// that says how the task stands.
func provenTask(p ledger.Prover, workspace, taskID string) (t *amp.Task, seq int64, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		var state []byte
		seq = 0
		err := store.Each(p.Query, func(scan store.Scan) error { return scan(&seq, &state) },
			"SELECT seq, state FROM task WHERE workspace = $1 AND task_id = $2", workspace, taskID)
		if err != nil {
			return false, err
		}
		since, err := p.Entries(ledger.Query{
			After: max(seq-1, 0), Workspace: workspace, Subject: taskID, Kinds: recordedKinds(),
		})
		if err != nil {
			return false, err
		}
		var last int64
		t = nil
		for i := range since {
			var b recorded
			if err := since[i].Decode(&b); err != nil {
				return false, err
			}
			if b.Task != nil {
				t, last = b.Task, since[i].Seq
			}
		}
		if last != seq || t == nil {
			return last == seq, nil
		}
		proven, err := wire.Marshal(t)
		return bytes.Equal(proven, state), err
	})
	if err == nil && !agree {
		err = p.Contradicts("task", workspace+" "+taskID, "the task %s does not stand like that", taskID)
	}
	return t, seq, err
}

// proveMessage checks that an entry holds the message that a row says it does.
func proveMessage(p ledger.Prover, e *ledger.Entry, b *recorded, row messageRow, taskID string) error {
	err := p.Check(ledger.Query{Subject: taskID, Kinds: recordedKinds()}, e)
	if err != nil {
		return err
	}
	is, err := b.messageRow(e)
	if err == nil && (is == nil || is.MsgID != row.MsgID || is.To != row.To || is.agent != row.agent) {
		err = p.Contradicts("task_message", row.MsgID, "the message %s was not sent like that", row.MsgID)
	}
	return err
}

// provePlan checks that a dispatch of which the table says that it may go out, or has gone out, was approved.
func (w *work) provePlan() error {
	if w.plan == nil || w.plan.State != amp.PlanApproved && w.plan.State != amp.PlanSent {
		return nil
	}
	g, err := w.tasks.core.Gates.In(w.tx, w.plan.Gate)
	if err == nil && (g.Status != gate.Approved || g.Origin.Reference != w.in.Message.MsgID || g.Trace != w.trace()) {
		err = w.tx.Prover().Contradicts("task_plan", w.in.Message.MsgID, "the dispatch %s was not approved",
			w.in.Message.MsgID)
	}
	return err
}

// findGate finds the task of a gate and what of it the gate is about, which has to be what the gate was opened for. It is
// false for an escalation without a task.
func (w *work) findGate(g *gate.Gate) (about string, found bool, err error) {
	err = w.tx.QueryRow("SELECT workspace, task_id, about FROM task_gate WHERE gate = $1", []any{g.ID}, &w.party.Workspace,
		&w.in.TaskID, &about)
	found = err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", false, err
	}
	is := g.Trace == "" && !found
	if found {
		is = g.Trace == w.trace() && g.Workspace == w.party.Workspace && (about == g.Origin.Reference || about == AboutPlan)
	}
	if !is {
		return "", false, w.tx.Prover().Contradicts("task_gate", g.ID, "the gate %s was not opened for that", g.ID)
	}
	return about, found, nil
}
