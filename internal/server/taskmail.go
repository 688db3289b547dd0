package server

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/roster"
	"signalbox/internal/task"
)

// taskMail brings the messages of tasks to agents that have an address, by mail. It
// follows the ledger from a cursor, so that nothing is missed and the senders of messages
// wait for nothing; mail takes each notice once, so that it may begin again anywhere.
type taskMail struct {
	ledger *ledger.Ledger
	roster *roster.Roster
	mail   *mail.Mail
}

// taskMailCursor is the follower's place, and the first part of its address.
const (
	taskMailCursor = "task.mail"
	taskMailName   = "_tasks"
)

// begin sets the cursor where the ledger ends, the first time that there is one: what was
// sent before is not sent again.
func (t *taskMail) begin(ctx context.Context) error {
	head, err := t.ledger.Head(ctx)
	if err != nil {
		return err
	}
	return t.ledger.BeginAt(ctx, taskMailCursor, head)
}

// run sends until ctx ends.
func (t *taskMail) run(ctx context.Context) error {
	for t.begin(ctx) != nil { // the server's start says what is wrong
		if ledger.Pause(ctx, nil, time.Second) {
			return nil
		}
	}
	return t.ledger.Consume(ctx, taskMailCursor, task.IsSent, t.send)
}

// send sends what is in a page of entries.
func (t *taskMail) send(ctx context.Context, entries []ledger.Entry) error {
	known := map[string][]roster.Agent{} // who has an address, by workspace
	for i := range entries {
		workspace := entries[i].Workspace
		if _, ok := known[workspace]; !ok {
			var err error
			if known[workspace], err = t.roster.Correspondents(ctx, workspace); err != nil {
				return err
			}
		}
		if len(known[workspace]) == 0 {
			continue
		}
		m, err := task.ReadSent(&entries[i])
		if err != nil {
			return err
		}
		for _, a := range known[workspace] {
			if m.Holder != "" && m.Holder != a.ID || a.Labels[task.RoleLabel] != string(m.To) {
				continue
			}
			if err := t.mail.Notify(ctx, taskNotice(m, a)); err != nil {
				return err
			}
		}
	}
	return nil
}

// taskNotice is the mail about a message.
func taskNotice(m *task.Sent, to roster.Agent) mail.Notice {
	return mail.Notice{
		From: taskMailName, To: to, Key: m.MsgID + " " + to.ID, Kind: string(m.Type),
		Subject: fmt.Sprintf("%s of %s", m.Type, m.TaskID),
		Text: fmt.Sprintf("A %s for the %s waits in the task %s. Acknowledge it with POST /amp/messages/%s/ack, or with "+
			"`signalbox tasks ack %s`; an answer to this mail acknowledges nothing.", m.Type, m.To, m.TaskID, m.MsgID, m.MsgID),
		Context: map[string]any{"message": m.Document, "task_status": m.Status, "generation": m.Generation},
	}
}
