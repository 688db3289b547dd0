package amp

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"signalbox/internal/wire"
)

// Ref is what is known of a message that another refers to.
type Ref struct {
	TaskID string
	To     Role
	Acked  bool
	Hash   string // of its content
}

// World is what a step depends on beside the task and what came.
type World struct {
	Now   int64  // microseconds
	Agent string // the id of the agent that writes, "" for the admin and the server
	// Refs are the messages there are among those that what came refers to, and the one
	// that has its own id.
	Refs map[string]Ref
	Hash string // of what came
	// Taken reports whether a message has the id.
	Taken func(msgID string) bool
	// AskPlan and PlanOK are what the operator's policy says of a dispatch: a person
	// approves the plan, or a rule does.
	AskPlan, PlanOK bool
	Git             *GitFacts
}

// GitFacts are what a look into the repository has shown.
type GitFacts struct {
	Problems []Problem `json:"problems,omitempty"`
	Warnings []Problem `json:"warnings,omitempty"`
	Commit   string    `json:"commit,omitzero"` // of a result the whole hash of its commit; of a dispatch where it begins
	Head     string    `json:"head,omitzero"`   // where the branch is
}

// Outcome is what follows from a step beside the task's new state.
type Outcome struct {
	Duplicate bool
	Warnings  []Problem
	Raised    []*Message // escalations of the server
	Acks      []Ack      // that the server writes because an answer came
	Acked     []string   // messages that nobody has to acknowledge any more
	Reopened  []string   // messages that have to be acknowledged again
	Closed    []Closed   // escalations that are answered
	AskPlan   bool       // the admin is to approve the plan
	PlanDone  string     // how the plan was decided, "" if it was not
}

// Closed is an escalation that is answered.
type Closed struct {
	ID string `json:"msg_id"`
	By string `json:"resolved_by"` // late_ack, heartbeat, or what the admin did
}

// minLeft is what is left of a deadline at least when a task goes on.
const minLeft = 60 * 1_000_000

// step is one change of a task under way.
type step struct {
	Policy
	t      *Task
	w      World
	now    int64
	writer Role
	out    Outcome
}

// begin prepares a step on a task, or on a new one if there is none.
func (p Policy) begin(t *Task, id string, w World, writer Role) *step {
	next := &Task{ID: id, Phase: Planning}
	if t != nil {
		next = t.clone()
	}
	if next.Beats == nil {
		next.Beats = map[Role]int64{}
	}
	if next.Seats == nil {
		next.Seats = map[Role]Seat{}
	}
	// A clock that was set back does not move a task back.
	return &step{Policy: p, t: next, w: w, now: max(w.Now, next.Updated), writer: writer}
}

// end sets the deadlines that follow from where the task has come.
func (s *step) end() (*Task, Outcome) {
	t := s.t
	critical := t.critical()
	for i := range t.Awaiting {
		a := &t.Awaiting[i]
		switch {
		case critical && a.Due > 0:
			a.Left, a.Due = max(a.Due-s.now, 1), 0
		case !critical && a.Left > 0:
			a.Due, a.Left = s.now+max(a.Left, minLeft), 0
		}
	}
	for _, role := range AgentRoles {
		switch {
		case !t.hasBall(role) || t.stops(role) != nil:
			delete(t.Beats, role)
		case t.Beats[role] == 0 || s.writer == role:
			t.Beats[role] = s.now + seconds(s.Heartbeat)
		}
	}
	t.Updated = s.now
	return t, s.out
}

// await has a deadline run until the message is acknowledged.
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

// ackTimeouts are in seconds.
var ackTimeouts = map[Type]int64{TypeDispatch: 300, TypeResult: 120, TypeRequest: 600, TypeVerdict: 60}

// raise has the server escalate, with the hold that goes with it; a hold without a kind
// is none. What was raised for the same reason and is still open is not raised again.
func (s *step) raise(kind, severity, why, description string, hold Hold, affected ...string) string {
	for _, o := range s.t.Open {
		if o.Why == why {
			return o.ID
		}
	}
	id := s.freshID()
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

// freshID is the id of an escalation that nobody has used.
func (s *step) freshID() string {
	for ms := s.now / 1000; ; ms++ {
		id := fmt.Sprintf("%s-%s-%013d", TypeEscalation, s.t.ID, ms)
		used := s.t.opened(id) != nil || s.w.Taken != nil && s.w.Taken(id) ||
			slices.ContainsFunc(s.out.Raised, func(m *Message) bool {
				return m.MsgID == id
			})
		if !used {
			return id
		}
	}
}

func (t *Task) snapshot() Snapshot {
	snap := Snapshot{Status: t.Status(), RejectCount: t.Count}
	if t.Last != "" {
		last := t.Last
		snap.Last = &last
	}
	return snap
}

// close answers an escalation, and takes away what it held.
func (s *step) close(escalation, by string) {
	s.t.Open = slices.DeleteFunc(s.t.Open, func(o Opened) bool { return o.ID == escalation })
	s.t.Holds = slices.DeleteFunc(s.t.Holds, func(h Hold) bool { return h.Cause == escalation })
	s.out.Closed = append(s.out.Closed, Closed{escalation, by})
}

// wrote notes a sign of life, which clears what its absence caused.
func (s *step) wrote(role Role) {
	for _, h := range slices.Clone(s.t.Holds) {
		if h.AutoClear == ClearHeartbeat && h.About == string(role) {
			s.close(h.Cause, ClearHeartbeat)
		}
	}
}

// claim gives the seat of the role to who writes, or refuses one who does not hold it.
func (s *step) claim(role Role, generation *whole) *Refusal {
	if !slices.Contains(AgentRoles, role) {
		return nil
	}
	seat, taken := s.t.Seats[role]
	switch {
	case !taken:
		s.t.Seats[role] = Seat{Agent: s.w.Agent, Generation: 1}
	case generation != nil && int64(*generation) != seat.Generation || generation != nil && seat.Lost:
		return refuse(LayerAuth, AuthRole, "/x_generation",
			fmt.Sprintf("The lease of generation %d on this task is over; the %s's is now generation %d.", *generation, role,
				seat.Generation)).
			expecting("stop working on this task; if it is given to you again, you hear the new "+
				"generation with the answer to your ack", nil)
	case seat.Lost:
		s.t.Seats[role] = Seat{Agent: s.w.Agent, Generation: seat.Generation + 1}
	case seat.Agent != s.w.Agent:
		return refuse(LayerAuth, AuthRole, "/from", "Another agent holds the role of "+string(role)+" in this task.").
			expecting("a message from the agent that holds it; the admin can reassign the role", nil)
	}
	return nil
}

// lose ends the lease of a role.
func (s *step) lose(role Role) {
	if seat, ok := s.t.Seats[role]; ok {
		seat.Lost = true
		s.t.Seats[role] = seat
	}
}

// answered writes the ack that an answer amounts to.
func (s *step) answered(msgID string) {
	a := s.t.awaits(msgID)
	if a == nil {
		return
	}
	s.out.Acks = append(s.out.Acks, Ack{
		Record: "ack", AckID: fmt.Sprintf("ack-%s-%013d", s.t.ID, s.now/1000), Version: Version, TaskID: s.t.ID,
		Timestamp: time.UnixMicro(s.now).UTC().Format(time.RFC3339Nano), AckOf: msgID, From: a.To, Status: "accepted",
		Implicit: true,
	})
	s.accept(*a)
}

// drop ends the wait for an ack.
func (s *step) drop(msgID string) {
	s.t.Awaiting = slices.DeleteFunc(s.t.Awaiting, func(a Awaited) bool { return a.MsgID == msgID })
	s.out.Acked = append(s.out.Acked, msgID)
	for _, h := range slices.Clone(s.t.Holds) {
		if h.AutoClear == ClearLateAck && h.About == msgID {
			s.close(h.Cause, ClearLateAck)
		}
	}
}

// Tick does what is due.
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
		a.Due, a.Late = 0, true
		s.lose(a.To)
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
		s.lose(role)
		s.raise("heartbeat_timeout", "warning", "heartbeat "+string(role),
			"The "+string(role)+" has not written anything for "+strconv.FormatInt(p.Heartbeat/60, 10)+
				" minutes. The task is suspended until it does, or until you resume it.",
			Hold{Kind: HoldSuspended, Scope: ScopeTask, AutoClear: ClearHeartbeat, About: string(role)}, s.t.Last)
	}
	return s.end()
}
