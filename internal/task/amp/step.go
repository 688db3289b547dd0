package amp

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"signalbox/internal/wire"
)

// Ref is what is known of a stored message that another document refers to.
type Ref struct {
	TaskID string
	To     Role
	Acked  bool
	Hash   string // of its content
	Agent  string // the id of the agent that alone it is for or, while it is kept, that sent it
	Kept   bool   // a dispatch that has not gone out: its id is taken, and nothing can refer to it
}

// World is everything that a step depends on beside the task and the input. A caller reads it
// before the step; the step itself reads nothing and looks at no clock, so the same arguments
// always give the same result.
type World struct {
	Now   int64  // microseconds
	Agent string // the id of the agent that writes, "" for the admin and the server
	// Refs are those messages that exist among the ones that the input refers to, and the one that
	// already has the input's own id. A missing key means that there is no such message.
	Refs map[string]Ref
	Hash string // of what came
	// Taken reports whether a message has the id. It is asked only for ids of the server's own
	// messages.
	Taken func(msgID string) bool
	// AskPlan and PlanOK are what the operator's policy says of a dispatch: a person must approve the
	// plan, or a rule approves it.
	AskPlan, PlanOK bool
	// Release says that the dispatch was kept, and is about to go out because it was approved.
	Release bool
	// ByRisk replays an entry of version 0.1, in which an approval covered a risk and no content.
	ByRisk bool
	// BySeat replays an entry from before claims, when an ack of anybody was good and a lost lease went to whoever wrote.
	BySeat bool
	// ByWord replays an entry from before claims about commits were checked.
	ByWord bool
	// Successor is the id of the agent to which the admin gives a role, "" for anybody else.
	Successor string
	Git       *GitFacts
	// User and Claimed are for whom a task is that begins with this input: the id of a user, and whom its first document
	// names without proof.
	User, Claimed string
}

// Outcome is what follows from a step beside the task's new state. The caller has to carry out all
// of it, in the same transaction.
type Outcome struct {
	// Duplicate says that the same document was stored before, and that nothing has changed.
	Duplicate bool
	Warnings  []Problem
	// Raised are escalations of the server. Each needs an entry, a gate and a row.
	Raised []*Message // escalations of the server
	Acks   []Ack      // that the server writes because an answer came
	// Acked are messages that nobody has to acknowledge any more, and Reopened those that have to be
	// acknowledged again, by another agent.
	Acked    []string // messages that nobody has to acknowledge any more
	Reopened []string // messages that have to be acknowledged again
	Closed   []Closed // escalations that are answered
	// AskPlan says that the admin is to be asked about the dispatch that was refused. Plans are those
	// that stand otherwise now, and Decisions what their coordinators hear.
	AskPlan   bool
	Plans     []PlanChange
	Decisions []Told
	// PlanDone is how a question of version 0.1 was answered, "" if it was not.
	PlanDone string
}

// Closed is an escalation that was answered, and by what.
type Closed struct {
	ID string `json:"msg_id"`
	By string `json:"resolved_by"` // late_ack, heartbeat, or what the admin did
}

// minLeft is what is left at least of a deadline when a held task goes on, in microseconds
// (TSK-43). Without it an agent could be late the moment it is resumed.
const minLeft = 60 * 1_000_000

// step is one change of a task under way. It works on a clone; if it is refused, the clone is
// dropped and the old task stands.
type step struct {
	Policy
	t      *Task
	w      World
	now    int64
	writer Role
	out    Outcome
}

// begin prepares a step on a task, or on a new one if t is nil. writer is the role whose write
// this is, "" if it is nobody's sign of life.
func (p Policy) begin(t *Task, id string, w World, writer Role) *step {
	next := &Task{ID: id, Phase: Planning, User: w.User, Claimed: w.Claimed}
	if t != nil {
		next = t.clone()
	}
	// States that were stored without these maps are read with nil ones.
	if next.Beats == nil {
		next.Beats = map[Role]int64{}
	}
	if next.Seats == nil {
		next.Seats = map[Role]Seat{}
	}
	// A clock that was set back does not move a task back.
	return &step{Policy: p, t: next, w: w, now: max(w.Now, next.Updated), writer: writer}
}

// end sets the deadlines that follow from where the task now stands, and returns the result. Every
// step that is not refused ends with it. Deadlines for acks stop and go on with critical holds;
// heartbeats restart with each write of their role and exist only for the role that has the turn.
func (s *step) end() (*Task, Outcome) {
	t := s.t
	critical := t.critical()
	for i := range t.Awaiting {
		a := &t.Awaiting[i]
		switch {
		// Stop: remember what is left, at least a microsecond, since 0 means that nothing is stopped.
		case critical && a.Due > 0:
			a.Left, a.Due = max(a.Due-s.now, 1), 0
		// Go on, with a minute at least.
		case !critical && a.Left > 0:
			a.Due, a.Left = s.now+max(a.Left, minLeft), 0
		}
	}
	for _, role := range AgentRoles {
		switch {
		// A role that is stopped cannot write, so its silence is not its fault.
		case !t.hasTurn(role) || t.stops(role) != nil:
			delete(t.Beats, role)
		case t.Beats[role] == 0 || s.writer == role:
			t.Beats[role] = s.now + seconds(s.Heartbeat)
		}
	}
	t.Updated = s.now
	return t, s.out
}

// await starts the deadline for a message's ack. R-509: an escalation has none, because
// the admin is a person.
func (s *step) await(m *Message) {
	if m.Type == TypeEscalation { // never
		return
	}
	after := int64(m.AckTimeout)
	if after == 0 {
		after = ackTimeouts[m.Type]
	}
	s.t.Awaiting = append(s.t.Awaiting, Awaited{MsgID: m.MsgID, Type: m.Type, To: m.To, Due: s.now + seconds(after)})
}

// ackTimeouts are the deadlines for acks by type, in seconds.
var ackTimeouts = map[Type]int64{TypeDispatch: 300, TypeResult: 120, TypeRequest: 600, TypeVerdict: 60}

// raise has the server escalate, with the hold that goes with it; a Hold without a kind holds
// nothing. It returns the id of the escalation. While an escalation with the same why is open,
// that one is returned and nothing is raised: a deadline that keeps failing must not flood the
// admin's inbox.
func (s *step) raise(kind, severity, why, description string, hold Hold, affected ...string) string {
	for _, o := range s.t.Open {
		if o.Why == why {
			return o.ID
		}
	}
	id := s.freshID(TypeEscalation)
	if hold.Kind != "" {
		hold.Cause, hold.Since, hold.Critical = id, s.now, severity == "critical"
		s.t.Holds = append(s.t.Holds, hold)
	}
	s.t.Open = append(s.t.Open, Opened{id, kind, severity, System, why})
	e := &Escalation{
		Type: kind, Severity: severity, TriggeredBy: System, Description: description,
		Affected: slices.DeleteFunc(affected, func(id string) bool {
			return id == ""
		}),
		Snapshot: s.t.snapshot(), Suspended: severity != "info" || hold.Kind != "",
	}
	if e.Affected == nil {
		e.Affected = []string{}
	}
	m := &Message{
		MsgID: id, Version: Version, Type: TypeEscalation, From: System, To: Admin, TaskID: s.t.ID,
		Timestamp: time.UnixMicro(s.now).UTC().Format(time.RFC3339Nano), Escalation: e,
	}
	m.Payload, _ = wire.Marshal(e) // plain fields always encode
	m.Raw, _ = wire.Marshal(m)
	s.out.Raised = append(s.out.Raised, m)
	return id
}

// freshID is an unused id for a message of the server. Ids have millisecond resolution and
// a step may write several, so it counts on from now.
func (s *step) freshID(t Type) string {
	for ms := s.now / 1000; ; ms++ {
		id := fmt.Sprintf("%s-%s-%013d", t, s.t.ID, ms)
		used := s.t.findEscalation(id) != nil || s.w.Taken != nil && s.w.Taken(id) ||
			slices.ContainsFunc(s.out.Raised, func(m *Message) bool { return m.MsgID == id }) ||
			slices.ContainsFunc(s.out.Decisions, func(m Told) bool { return m.MsgID == id })
		if !used {
			return id
		}
	}
}

// snapshot is the state that an escalation of the server carries.
func (t *Task) snapshot() Snapshot {
	snap := Snapshot{Status: t.Status(), RejectCount: t.Count}
	if t.Last != "" {
		last := t.Last
		snap.Last = &last
	}
	return snap
}

// close answers an escalation and removes its holds.
func (s *step) close(escalation, by string) {
	s.t.Open = slices.DeleteFunc(s.t.Open, func(o Opened) bool { return o.ID == escalation })
	s.t.Holds = slices.DeleteFunc(s.t.Holds, func(h Hold) bool { return h.Cause == escalation })
	s.out.Closed = append(s.out.Closed, Closed{escalation, by})
}

// noteWrite notes a sign of life of a role. It clears the hold that the role's silence caused
//
func (s *step) noteWrite(role Role) {
	for _, h := range slices.Clone(s.t.Holds) {
		if h.AutoClear == ClearHeartbeat && h.About == string(role) {
			s.close(h.Cause, ClearHeartbeat)
		}
	}
}

// claimSeat gives the seat of the role to the writer, or refuses a writer who does not hold it
// (TSK-39). A document that names a generation must name the current one: an executor that was
// given up and comes back learns here to stop. The admin and the server hold no seats.
//
// A lease that was lost is taken again with an ack or a heartbeat: claim is that of the ack, or "heartbeat". A result
// or a verdict does not take one, since somebody else may do the same work by then.
func (s *step) claimSeat(role Role, generation *whole, claim string) *Refusal {
	if !slices.Contains(AgentRoles, role) {
		return nil
	}
	seat, taken := s.t.Seats[role]
	switch {
	// Nobody has played this role in the task before.
	case !taken:
		return s.takeSeat(role, 1, claim)
	case generation != nil && int64(*generation) != seat.Generation || generation != nil && seat.Lost:
		return refuse(LayerAuth, AuthRole, "/x_generation",
			fmt.Sprintf("The lease of generation %d on this task is over; the %s's is now generation %d.", *generation, role,
				seat.Generation)).
			expecting("stop working on this task; if it is given to you again, you hear the new "+
				"generation with the answer to your ack", nil)
	// The lease is free. The old holder may take it again, under a new generation.
	case seat.Lost:
		if refusal := s.mayTake(role, seat, claim); refusal != nil {
			return refusal
		}
		return s.takeSeat(role, seat.Generation+1, claim)
	case seat.Agent != s.w.Agent:
		return refuse(LayerAuth, AuthRole, "/from", "Another agent holds the role of "+string(role)+" in this task.").
			expecting("a message from the agent that holds it; the admin can reassign the role", nil)
	}
	return nil
}

// mayTake refuses a writer who may not take a lease that was lost.
func (s *step) mayTake(role Role, seat Seat, claim string) *Refusal {
	why := "The agent that had this work has lost its lease on it, and nobody has claimed it since."
	switch {
	case s.w.BySeat:
		return nil
	case seat.For != "" && seat.For != s.w.Agent, seat.Reassigned && seat.For == "" && seat.Agent == s.w.Agent:
		return refuse(LayerAuth, AuthRole, "/from", "The admin has given the role of "+string(role)+
			" in this task to another agent.").expecting("stop working on this task", nil)
	case claim != "" || role == Coordinator:
		return nil
	case seat.Agent == s.w.Agent:
		why = "You have lost your lease on this task: you have not written in time."
	}
	return refuse(LayerAuth, AuthRole, "/from", why).expecting(
		"an ack of the message in your inbox, which claims the work; then the work itself", nil)
}

// takeSeat gives the seat of the role to the writer. Four eyes: whoever has executed a task does not review it, and
// the other way round, whatever their labels say by now.
func (s *step) takeSeat(role Role, generation int64, claim string) *Refusal {
	if s.w.BySeat {
		s.t.Seats[role] = Seat{Agent: s.w.Agent, Generation: generation}
		return nil
	}
	if other := otherEyes[role]; other != "" && s.w.Agent != "" {
		if s.t.workedAs(other, s.w.Agent) {
			return refuse(LayerAuth, AuthRole, "/from", fmt.Sprintf(
				"You were the %s of this task, and another agent has to be its %s.", other, role)).expecting(
				"a "+string(role)+" that has not worked on the task", nil)
		}
		if !slices.Contains(s.t.Worked[role], s.w.Agent) {
			if s.t.Worked == nil {
				s.t.Worked = map[Role][]string{}
			}
			s.t.Worked[role] = append(slices.Clip(s.t.Worked[role]), s.w.Agent)
		}
	}
	s.t.Seats[role] = Seat{Agent: s.w.Agent, Generation: generation, Claim: claim}
	return nil
}

// otherEyes are the two roles that nobody plays both of.
var otherEyes = map[Role]Role{Executor: Reviewer, Reviewer: Executor}

// workedAs reports whether an agent has held the seat of a role.
func (t *Task) workedAs(role Role, agent string) bool {
	return slices.Contains(t.Worked[role], agent) || t.Seats[role].Agent == agent
}

// inHands is the subtask that a role works on because of a message, nil if it does not.
func (t *Task) inHands(role Role, msgID string) *Subtask {
	return t.findSubtask(func(x *Subtask) bool {
		return role == Executor && x.State == Executing && x.Dispatch == msgID ||
			role == Reviewer && x.State == Reviewing && t.Review == msgID && t.Reviewed == x.ID
	})
}

// endLease ends the lease of a role. The next agent of the role that writes takes the seat, with a
// higher generation.
func (s *step) endLease(role Role) {
	if seat, ok := s.t.Seats[role]; ok {
		seat.Lost = true
		s.t.Seats[role] = seat
	}
}

// ackImplicitly writes the ack that an answer amounts to (TSK-51), and does what an ack does. It
// does nothing if the message was acknowledged.
func (s *step) ackImplicitly(msgID string) {
	a := s.t.findAwaited(msgID)
	if a == nil {
		return
	}
	s.out.Acks = append(s.out.Acks, Ack{
		Record: "ack", AckID: fmt.Sprintf("ack-%s-%013d", s.t.ID, s.now/1000), Version: Version, TaskID: s.t.ID,
		Timestamp: time.UnixMicro(s.now).UTC().Format(time.RFC3339Nano), AckOf: msgID, From: a.To, Status: "accepted",
		Implicit: true,
	})
	s.applyAck(*a)
}

// stopAwaiting ends the wait for an ack. If the ack was late, the hold of its ack_timeout ends too
// (TSK-44).
func (s *step) stopAwaiting(msgID string) {
	s.t.Awaiting = slices.DeleteFunc(s.t.Awaiting, func(a Awaited) bool { return a.MsgID == msgID })
	s.out.Acked = append(s.out.Acked, msgID)
	for _, h := range slices.Clone(s.t.Holds) {
		if h.AutoClear == ClearLateAck && h.About == msgID {
			s.close(h.Cause, ClearLateAck)
		}
	}
}

// Tick does what is due: it escalates acks and heartbeats that are late, and ends
// the leases of the silent. Each deadline fires once; a late message stays awaited.
func (p Policy) Tick(t *Task, w World) (*Task, Outcome) {
	s := p.begin(t, t.ID, w, "")
	if t.over() {
		return s.t, s.out
	}
	for i := range s.t.Awaiting {
		a := &s.t.Awaiting[i]
		if a.Due == 0 || a.Due > s.now {
			continue
		}
		// The deadline fires once. The message stays in the inbox, and a late ack is accepted (TSK-44).
		a.Due, a.Late = 0, true
		s.endLease(a.To)
		s.raise("ack_timeout", "warning", "ack "+a.MsgID,
			fmt.Sprintf("The %s has not acknowledged %s in time. The task is suspended until it does, or until you resume it.",
				a.To, a.MsgID),
			Hold{Kind: HoldSuspended, Scope: ScopeTask, AutoClear: ClearLateAck, About: a.MsgID}, a.MsgID)
	}
	for _, role := range AgentRoles {
		if due := s.t.Beats[role]; due == 0 || due > s.now {
			continue
		}
		delete(s.t.Beats, role)
		s.endLease(role)
		s.reopen(role)
		s.raise("heartbeat_timeout", "warning", "heartbeat "+string(role),
			"The "+string(role)+" has not written anything for "+strconv.FormatInt(p.Heartbeat/60, 10)+
				" minutes. The task is suspended until it does, or until you resume it.",
			Hold{Kind: HoldSuspended, Scope: ScopeTask, AutoClear: ClearHeartbeat, About: string(role)}, s.t.Last)
	}
	return s.end()
}

// reopen puts what a silent role had begun back into the inbox of all who play it: an ack claims it.
func (s *step) reopen(role Role) {
	if s.w.BySeat {
		return
	}
	for i := range s.t.Subtasks {
		switch sub := &s.t.Subtasks[i]; {
		case role == Executor && sub.State == Executing:
			s.out.Reopened = append(s.out.Reopened, sub.Dispatch)
		case role == Reviewer && sub.State == Reviewing:
			s.out.Reopened = append(s.out.Reopened, s.t.Review)
		}
	}
}
