package amp

import (
	"maps"
	"slices"

	"signalbox/internal/wire"
)

// Phase is how far a task as a whole has come.
type Phase string

// The phases. The last two are for ever.
const (
	Planning   Phase = "planning"
	Active     Phase = "active"
	Completed  Phase = "completed"
	Terminated Phase = "terminated"
)

// State is how far a subtask has come.
type State string

// The states of a subtask.
const (
	Queued          State = "queued"
	Rework          State = "rework"
	Dispatched      State = "dispatched"
	Executing       State = "executing"
	Reported        State = "reported"
	Triage          State = "triage"
	ReviewRequested State = "review_requested"
	Reviewing       State = "reviewing"
	VerdictReported State = "verdict_reported"
	Approved        State = "approved"
)

// furthest orders the states, the least far along first; approved comes before them all,
// since it is what remains that tells how a task stands.
var furthest = []State{
	Approved, Queued, Rework, Dispatched, Executing, Reported, Triage, ReviewRequested, Reviewing,
	VerdictReported,
}

// Subtask is one piece of a task, and what was last said of it.
type Subtask struct {
	ID       string `json:"subtask_id"`
	State    State  `json:"state"`
	Dispatch string `json:"dispatch_ref,omitzero"`
	Result   string `json:"last_result_ref,omitzero"`
	Complete bool   `json:"complete,omitzero"` // what that result says
	Verdict  string `json:"last_verdict_ref,omitzero"`
	Decision string `json:"decision,omitzero"`      // of that verdict, or of the admin in its place
	Heard    bool   `json:"verdict_heard,omitzero"` // the coordinator has acknowledged it
	Commit   string `json:"pinned_commit,omitzero"`
	Head     string `json:"pinned_head,omitzero"` // where the branch was then, where git was asked
}

// The kinds of holds, the strongest first.
const (
	HoldLocked    = "locked"
	HoldSuspended = "suspended"
	HoldAdmin     = "admin_hold"
)

// ScopeTask is the scope of a hold that stops everybody.
const ScopeTask = "task"

// Hold stops a task, or one party on it.
type Hold struct {
	Kind      string `json:"kind"`
	Cause     string `json:"cause"` // the escalation that it belongs to
	Scope     string `json:"scope"` // ScopeTask, or party:ROLE
	AutoClear string `json:"auto_clear,omitzero"`
	Since     int64  `json:"since"`          // microseconds
	Critical  bool   `json:"critical"`       // deadlines stand still
	About     string `json:"about,omitzero"` // the message or role whose word clears it
}

// What clears a hold without the admin.
const (
	ClearLateAck   = "late_ack"
	ClearHeartbeat = "heartbeat"
)

// Opened is an escalation that the admin has not answered.
type Opened struct {
	ID       string `json:"msg_id"`
	Type     string `json:"escalation_type"`
	Severity string `json:"severity"`
	By       Role   `json:"by"`
	Why      string `json:"why,omitzero"` // what made the server raise it
}

// Awaited is a message that has not been acknowledged.
type Awaited struct {
	MsgID string `json:"msg_id"`
	Type  Type   `json:"type"`
	To    Role   `json:"to"`
	Due   int64  `json:"due,omitzero"`  // microseconds; 0 while nothing is due
	Left  int64  `json:"left,omitzero"` // what was left when the deadlines were stopped
	Late  bool   `json:"late,omitzero"` // the deadline has passed once
}

// Seat is who plays a role in a task: a lease, which is lost when its holder is silent
// or when the admin gives the role to another.
type Seat struct {
	Agent      string `json:"agent"` // its id
	Generation int64  `json:"generation"`
	Lost       bool   `json:"lost,omitzero"`
}

// Held is a verdict that waits for the admin.
type Held struct {
	Verdict    string `json:"verdict"`
	Subtask    string `json:"subtask_id"`
	Escalation string `json:"escalation"`
}

// Task is everything that decides what may happen next. Moments are microseconds of the
// server's clock.
type Task struct {
	ID           string   `json:"task_id"`
	Phase        Phase    `json:"phase"`
	Risk         string   `json:"risk_level,omitzero"`
	Repo         string   `json:"repo,omitzero"`
	Branch       string   `json:"branch,omitzero"`
	Criteria     []string `json:"acceptance_criteria,omitempty"`
	PlanApproved bool     `json:"plan_approved"`
	PlanRisk     string   `json:"plan_risk,omitzero"` // the risk that was approved, or is asked for
	PlanAsked    bool     `json:"plan_asked,omitzero"`
	Dispatch     string   `json:"governing_dispatch,omitzero"`
	// where the branch was when it was dispatched, where git was asked
	Base     string            `json:"base_commit,omitzero"`
	Subtasks []Subtask         `json:"subtasks,omitempty"`
	Count    int64             `json:"reject_count"`    // since the admin reset it; what messages carry
	Streak   int64             `json:"reject_streak"`   // in a row; what locks
	Lifetime int64             `json:"reject_lifetime"` // ever
	Holds    []Hold            `json:"holds,omitempty"`
	Open     []Opened          `json:"open_escalations,omitempty"`
	Awaiting []Awaited         `json:"awaiting,omitempty"`
	Beats    map[Role]int64    `json:"heartbeats,omitempty"` // when a write of the role is due
	Seats    map[Role]Seat     `json:"seats,omitempty"`
	Review   string            `json:"open_review,omitzero"` // the request
	Reviewed string            `json:"reviewed,omitzero"`    // the subtask that it is about
	Held     *Held             `json:"held_verdict,omitzero"`
	CI       map[string]string `json:"ci_status,omitempty"`
	CIFixes  int               `json:"ci_fixes,omitzero"` // dispatches since a build first failed
	Last     string            `json:"last_successful_msg_id,omitzero"`
	Updated  int64             `json:"updated_at"`
}

// clone copies a task so that a step can change it.
func (t *Task) clone() *Task {
	c := *t
	c.Criteria, c.Subtasks, c.Holds, c.Open, c.Awaiting = slices.Clone(t.Criteria), slices.Clone(t.Subtasks), slices.Clone(t.Holds), slices.Clone(t.Open), slices.Clone(t.Awaiting)
	c.Beats, c.Seats, c.CI = maps.Clone(t.Beats), maps.Clone(t.Seats), maps.Clone(t.CI)
	if t.Held != nil {
		held := *t.Held
		c.Held = &held
	}
	return &c
}

// Status is how the task stands, in one word: a hold first, then the subtask that is
// furthest along, then the phase.
func (t *Task) Status() string {
	for _, kind := range []string{HoldLocked, HoldSuspended, HoldAdmin} {
		if slices.ContainsFunc(t.Holds, func(h Hold) bool { return h.Kind == kind }) {
			return kind
		}
	}
	if t.over() || len(t.Subtasks) == 0 {
		return string(t.Phase)
	}
	most := Approved
	for _, s := range t.Subtasks {
		if slices.Index(furthest, s.State) > slices.Index(furthest, most) {
			most = s.State
		}
	}
	return string(most)
}

// over reports whether nothing can happen any more.
func (t *Task) over() bool { return t.Phase == Completed || t.Phase == Terminated }

// Due is when something is due next, 0 for nothing.
func (t *Task) Due() (due int64) {
	earlier := func(moment int64) {
		if moment > 0 && (due == 0 || moment < due) {
			due = moment
		}
	}
	for _, a := range t.Awaiting {
		earlier(a.Due)
	}
	for _, moment := range t.Beats {
		earlier(moment)
	}
	return due
}

// critical reports whether deadlines stand still.
func (t *Task) critical() bool {
	return slices.ContainsFunc(t.Holds, func(h Hold) bool { return h.Critical })
}

// stops is the hold that keeps a role from going on, nil if none does.
func (t *Task) stops(role Role) *Hold {
	var found *Hold
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Scope != ScopeTask && h.Scope != "party:"+string(role) {
			continue
		}
		if h.Kind == HoldLocked {
			return h
		}
		found = h
	}
	return found
}

// hasBall reports whether it is the role's turn to do something.
func (t *Task) hasBall(role Role) bool {
	return !t.over() && slices.ContainsFunc(t.Subtasks, func(s Subtask) bool {
		switch role {
		case Executor:
			return s.State == Executing
		case Coordinator:
			return s.State == Triage || s.State == Rework
		case Reviewer:
			return s.State == Reviewing
		}
		return false
	})
}

// subtask finds a subtask, nil if there is none.
func (t *Task) subtask(is func(*Subtask) bool) *Subtask {
	for i := range t.Subtasks {
		if is(&t.Subtasks[i]) {
			return &t.Subtasks[i]
		}
	}
	return nil
}

func (t *Task) awaits(msgID string) *Awaited {
	for i := range t.Awaiting {
		if t.Awaiting[i].MsgID == msgID {
			return &t.Awaiting[i]
		}
	}
	return nil
}

func (t *Task) opened(escalation string) *Opened {
	for i := range t.Open {
		if t.Open[i].ID == escalation {
			return &t.Open[i]
		}
	}
	return nil
}

// text is the whole state, to compare.
func (t *Task) text() string {
	text, _ := wire.Marshal(t) // plain fields always encode
	return string(text)
}
