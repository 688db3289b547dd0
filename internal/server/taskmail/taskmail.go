// Package taskmail sends a mail for each message of a task to receivers that have an address. It stands above both,
// because tasks and mail must not know each other, and owns nothing but its cursor.
package taskmail

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/roster"
	"signalbox/internal/task"
)

// Sender sends the mails. It follows the ledger from a cursor, so none is missed, and senders of messages do not wait for
// it. Mail takes a notice with the same key once, so reading entries again after a crash does no harm.
type Sender struct {
	Ledger *ledger.Ledger
	Roster *roster.Roster
	Mail   *mail.Mail
}

// The name of the cursor, which is stored, and the sender's name in addresses. The
// underscore keeps the name apart from those of agents.
const (
	cursor = "task.mail"
	name   = "_tasks"
)

// Begin sets the cursor to the end of the ledger if it does not exist yet: messages from
// before this feature are not sent again.
func (t *Sender) Begin(ctx context.Context) error {
	head, err := t.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	return t.Ledger.BeginAt(ctx, cursor, head)
}

// Run sends until ctx ends. A server whose ledger refuses writes cannot set the cursor;
// Run then waits for it, since prepare has reported the reason.
func (t *Sender) Run(ctx context.Context) error {
	for t.Begin(ctx) != nil { // the server's start says what is wrong
		if ledger.Pause(ctx, nil, time.Second) {
			return nil
		}
	}
	return t.Ledger.Consume(ctx, cursor, task.IsSent, t.send)
}

// send sends notices for a page of entries. An error leaves the cursor where it was, and
// the page is read again. The correspondents of a workspace are read once for each page.
func (t *Sender) send(ctx context.Context, entries []ledger.Entry) error {
	known := map[string][]roster.Agent{} // who has an address, by workspace
	for i := range entries {
		workspace := entries[i].Workspace
		if _, ok := known[workspace]; !ok {
			var err error
			if known[workspace], err = t.Roster.Correspondents(ctx, workspace); err != nil {
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
			// A message goes to the agent that holds the role in this task, or else to all
			// agents of the workspace that have the role.
			if m.Holder != "" && m.Holder != a.ID || a.Labels[roster.RoleLabel] != string(m.To) {
				continue
			}
			if err := t.Mail.Notify(ctx, taskNotice(m, a)); err != nil {
				return err
			}
		}
	}
	return nil
}

// taskNotice is the mail about one message. The key has message and receiver, so each receiver gets one. The text
// says that answering the mail acknowledges nothing: some agents answer every mail.
func taskNotice(m *task.Sent, to roster.Agent) mail.Notice {
	return mail.Notice{
		From: name, To: to, Key: m.MsgID + " " + to.ID, Kind: string(m.Type),
		Subject: fmt.Sprintf("%s of %s", m.Type, m.TaskID),
		Text: fmt.Sprintf("A %s for the %s waits in the task %s. Acknowledge it with POST /amp/messages/%s/ack, or with "+
			"`signalbox tasks ack %s`; an answer to this mail acknowledges nothing.", m.Type, m.To, m.TaskID, m.MsgID, m.MsgID),
		Context: map[string]any{"message": m.Document, "task_status": m.Status, "generation": m.Generation},
	}
}
