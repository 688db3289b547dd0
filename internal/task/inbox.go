package task

import (
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Inbox is what waits for a role, oldest first.
type Inbox struct {
	To       amp.Role  `json:"to"`
	Messages []Waiting `json:"messages"`
	Next     int64     `json:"next"`    // to ask for what comes later: ?after=
	Pending  bool      `json:"pending"` // nothing came while the call waited; ask again
}

// Waiting is a message in an inbox.
type Waiting struct {
	amp.Stored
	// Handoff is what the executor was handed with the task: beside a dispatch, for the agent that has the task.
	Handoff *handoff.Handed `json:"handoff,omitempty"`
}

// maxWait is the longest that one call waits. Many HTTP clients and proxies give up after a
// minute.
const maxWait = 55 * time.Second

// inboxOf is whose inbox the caller asks for, its own for "". The admin may read every inbox;
// agents only their own role's.
func (p Party) inboxOf(to amp.Role) (amp.Role, error) {
	switch {
	case to == "":
		return p.Role, nil
	case to != amp.Admin && !slices.Contains(amp.AgentRoles, to):
		return to, fault.New(fault.InvalidRequest, "to should be admin, coordinator, executor or reviewer, and is %.40q.",
			string(to)).About("to")
	case p.Role != to && p.Role != amp.Admin:
		return to, fault.New(fault.Forbidden, "Your key is that of the %s, who reads the messages to the %s. Ask with to=%s.",
			p.Role, p.Role, p.Role).About("to")
	}
	return to, nil
}

// Wait reads the inbox of a role, the caller's own for "", and waits up to wait if it is empty.
// With after 0 it is what nobody has acknowledged; else everything after that entry. Reading is
// not acknowledging: an agent that crashes after reading finds the message again.
//
// No message is handed over from memory. The ledger only wakes the call, which then reads the
// table, so it does not matter on which node the message arrived.
func (s *Tasks) Wait(ctx context.Context, p Party, to amp.Role, after int64, limit int, wait time.Duration) (Inbox,
	error,
) {
	to, err := p.inboxOf(to)
	if err != nil {
		return Inbox{}, err
	}
	waiting, end := wire.Waiting(ctx, min(wait, maxWait))
	defer end()
	var box Inbox
	err = s.news.Await(waiting, p.Workspace, func(ctx context.Context) (done bool, err error) {
		box, err = s.inbox(ctx, p, to, after, limit)
		return len(box.Messages) > 0 || wait <= 0, err
	})
	// The time may be over, the caller may have gone, or the server stops.
	// Pending tells a client to call again. The wait may have ended early: the server stops, or the
	// caller has gone.
	box.Pending = err == nil && wait > 0 && len(box.Messages) == 0
	return box, err
}

// inbox reads one page of an inbox. It reads on past messages that belong to another agent of the
// role (TSK-39), so that an agent is not told "pending" while its message is on the next page.
func (s *Tasks) inbox(ctx context.Context, p Party, to amp.Role, after int64, limit int) (Inbox, error) {
	where := "m.workspace = $1 AND m.receiver = $2 AND m.seq > $3 AND m.acked = $5 ORDER BY m.seq LIMIT $4"
	args := []any{p.Workspace, string(to), after, limit, false}
	// Nobody acknowledges escalations, so the admin's inbox is all of them.
	if after > 0 || to == amp.Admin { // nobody waits for acks of escalations
		where, args = "m.workspace = $1 AND m.receiver = $2 AND m.seq > $3 ORDER BY m.seq LIMIT $4", args[:4]
	}
	box := Inbox{To: to, Messages: []Waiting{}, Next: after}
	for { // a page may hold nothing but messages for others
		args[2] = box.Next
		list, err := s.messages(ctx, where, args...)
		if err != nil {
			return Inbox{}, err
		}
		for _, stored := range list {
			m := Waiting{Stored: stored}
			box.Next = m.Seq
			mine, err := s.isFor(ctx, p, &m)
			if err != nil {
				return Inbox{}, err
			}
			if mine {
				box.Messages = append(box.Messages, m)
			}
		}
		if len(box.Messages) > 0 || len(list) < limit {
			return box, nil
		}
	}
}

// isFor reports whether a message is for this agent, and not for another one that holds the role
// in the task. It also adds what the agent should know before it works: the generation of the
// lease, a hold, the lock that is near, and what was found out about the commits to review.
func (s *Tasks) isFor(ctx context.Context, p Party, m *Waiting) (bool, error) {
	if m.Agent != "" {
		return p.Role == amp.Admin || m.Agent == p.Identity.ID, nil
	}
	var envelope amp.Message
	if err := wire.UnmarshalPart(m.Message, &envelope); err != nil {
		return false, err
	}
	t, err := s.Task(ctx, p.Workspace, envelope.TaskID)
	if err != nil {
		return false, err
	}
	seat := t.Seats[envelope.To]
	m.Generation = seat.Generation
	if h := t.Stops(envelope.To); h != nil {
		m.Notice = "The task is held (" + h.Kind + "): acknowledge it, and do nothing else until the admin has answered."
	} else if envelope.Type == amp.TypeRequest && t.Streak >= int64(s.Policy.LockAt)-1 {
		m.Notice = amp.LockNotice + ": another reject locks the task."
	}
	if sub := t.Find(func(x *amp.Subtask) bool { return x.ID == t.Reviewed }); sub != nil && sub.Claim != nil &&
		envelope.Type == amp.TypeRequest {
		m.Notice = strings.TrimSpace(m.Notice + " What the result says of commits: " + sub.Claim.String() + ".")
	}
	if envelope.Type == amp.TypeDispatch && p.Role == amp.Executor && executor(t) == p.Identity.ID {
		found, err := s.handed(s.core.Ledger.Prover(ctx), p.Workspace, envelope.TaskID, p.Identity.ID)
		if err != nil {
			return false, err
		}
		m.Handoff = s.core.Handoffs.Give(found.ID)
	}
	return p.Role == amp.Admin || seat.Open(p.Identity.ID), nil
}
