package task

import (
	"context"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// A dispatch is work that its coordinator hands on to the executor. Who that is, is known once an agent has the seat, so
// the handoff is opened by the dispatch if somebody has it, and by the document that takes it otherwise. What the dispatch
// hands on is checked when it is sent in both cases. It ends with the lease and with the task.

// handing is what a step does to the handoff of its task.
type handing struct {
	by   handoff.By
	open handoff.Opening // To is empty if none is opened
	like handoff.Handoff // what it would be
	end  string          // why the one that is open ends, "" if it goes on
}

// executor is the agent that works on a task, "" if nobody does.
func executor(t *amp.Task) string {
	if t == nil || t.Over() {
		return ""
	}
	if seat := t.Seats[amp.Executor]; !seat.Lost {
		return seat.Agent
	}
	return ""
}

// handed is what the executor of a task was handed.
func (s *Tasks) handed(p ledger.Prover, workspace, taskID, executor string) (handoff.Handoff, error) {
	if executor == "" {
		return handoff.Handoff{}, nil
	}
	return handoff.ForWork(p, handoff.Work{Workspace: workspace, Protocol: Name, ID: taskID, To: executor})
}

// presume lets a document of the executor that shows no token be under the handoff of its task: the server knows both.
func (s *Tasks) presume(ctx context.Context, w *work) error {
	claim := &w.named.Claim
	if w.party.Role != amp.Executor || claim.Token != "" || claim.Hops {
		return nil
	}
	found, err := s.handed(s.core.Ledger.Prover(ctx), w.party.Workspace, w.in.TaskID, w.party.Identity.ID)
	if found.ID != "" {
		claim.Token = s.core.Handoffs.Token(found.ID)
	}
	return err
}

// checkToken refuses a document whose sender shows a token that is not valid here. A dispatch is refused by the policy,
// and an escalation never: it changes nothing but who has to look.
func (w *work) checkToken(under handoff.Standing) *amp.Refusal {
	if !under.Refused || w.in.IsEscalation() || w.in.Message != nil && w.in.Message.Dispatch != nil {
		return nil
	}
	return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "/x_delegation", under.Reason,
		"the token that came with the dispatch, or none; an escalation is taken", nil)
}

// offer is what a dispatch hands on. x_scopes was checked when the document was read.
func offer(raw []byte, taskID string) handoff.Opening {
	o := handoff.Opening{Work: taskID, Protocol: Name, Lasting: true}
	members, _ := wire.Members(raw)
	if scopes, has := members["x_scopes"]; has && wire.Unmarshal(scopes, &o.Scopes) == nil && o.Scopes == nil {
		o.Scopes = []string{} // null is nothing, as an empty list is
	}
	return o
}

// planHandoff finds out what the step does to the handoff of its task, and refuses a dispatch that would hand on more
// than its coordinator has.
func (w *work) planHandoff(ctx context.Context, next *amp.Task) (*amp.Refusal, error) {
	var err error
	switch m := w.in.Message; {
	case m != nil && m.Dispatch != nil:
		w.handing.by, w.handing.open = w.decision.By(w.party.Identity, ""), offer(w.in.Raw, w.in.TaskID)
		w.handing.like, err = w.tasks.core.Handoffs.CheckIn(w.tx, w.handing.by, w.handing.open)
		w.handing.open.To, w.handing.end = executor(next), "the task was dispatched again"
	case w.takesOver(next):
		err = w.offered(ctx, next)
	}
	refusal, err := handoffRefusal(err)
	if w.in.IsEscalation() { // which is taken all the same
		refusal = nil
	}
	return refusal, err
}

// handoffRefusal is the refusal of a document because of what is handed on with it.
func handoffRefusal(err error) (*amp.Refusal, error) {
	if !fault.Is(err, fault.Forbidden) && !fault.Is(err, fault.InvalidPayload) && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	f := fault.From(err)
	pointer := ""
	if slices.Contains([]string{"scopes", "delegation"}, f.Field) {
		pointer = "/" + extension + f.Field
	}
	return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, pointer, f.Message, "work that the coordinator may hand on", nil), nil
}

// takesOver reports whether the document gives its sender the seat of the executor, of work that was dispatched. One
// that refuses the work gets nothing with it.
func (w *work) takesOver(next *amp.Task) bool {
	return w.party.Role == amp.Executor && next != nil && next.Dispatch != "" && executor(next) != executor(w.before) &&
		(w.in.Ack == nil || w.in.Ack.Status != amp.Refused)
}

// offered is what the dispatch of the task hands on, as its coordinator stands now.
func (w *work) offered(ctx context.Context, next *amp.Task) error {
	var seq int64
	err := store.Each(w.tx.Query, func(scan store.Scan) error { return scan(&seq) },
		"SELECT seq FROM task_message WHERE workspace = $1 AND msg_id = $2", w.party.Workspace, next.Dispatch)
	if err != nil || seq == 0 {
		return err
	}
	entries, err := w.tx.Prover().Entries(ledger.Query{
		After: seq - 1, UpTo: seq, Workspace: w.party.Workspace, Subject: w.in.TaskID, Kinds: []string{kinds[amp.TypeDispatch]},
	})
	if err != nil || len(entries) == 0 {
		return err
	}
	var b recorded
	if err := entries[0].Decode(&b); err != nil {
		return err
	}
	s := w.tasks
	coordinator, err := s.core.Roster.ByID(ctx, w.party.Workspace, b.Agent)
	if err != nil {
		return err
	}
	claim := policy.Claim{}
	if b.Under != "" {
		claim.Token = s.core.Handoffs.Token(b.Under)
	}
	found, under, err := s.core.Book.Behalf(ctx, coordinator, claim, taskUser(next))
	if err != nil {
		return err
	}
	w.handing.by = handoff.By{Who: coordinator, Under: under, User: found.User, Proof: found.Proof}
	w.handing.open = offer(b.Record, w.in.TaskID)
	if w.handing.like, err = s.core.Handoffs.CheckIn(w.tx, w.handing.by, w.handing.open); err == nil {
		w.handing.open.To = executor(next)
	}
	return err
}

// handOn ends the handoff of a task that nobody works on any more, and opens the one that planHandoff has found. It is
// called for every step, whoever or whatever has made it.
func (w *work) handOn(ctx context.Context, next *amp.Task) (opened string, err error) {
	was, is := executor(w.before), executor(next)
	opens := w.handing.open.To != "" && is != ""
	if was == "" && !opens {
		return "", nil
	}
	end := w.handing.end
	switch {
	case next.Over():
		end = "the task is " + string(next.Phase)
	case is != was:
		end = "the executor has lost the task"
	case opens:
		// What the executor has may go on, so that its sessions need no other token.
		open, err := w.tasks.handed(w.tx.Prover(), w.party.Workspace, w.in.TaskID, is)
		if err != nil || open.Goes(&w.handing.like) {
			return "", err
		}
	}
	if was != "" && end != "" {
		err := handoff.EndWorkIn(w.tx, w.party.Identity, w.party.Workspace, w.in.TaskID, end)
		if err != nil {
			return "", err
		}
	}
	if !opens {
		return "", nil
	}
	given, err := w.tasks.core.Handoffs.OpenIn(ctx, w.tx, w.handing.by, w.handing.open)
	if fault.Is(err, fault.NotFound) {
		return "", nil // the executor was removed; the admin gives the task to another
	}
	return given.ID, err
}
