package amp

import (
	"maps"
	"slices"

	"signalbox/internal/wire"
)

// Phase is how far a task as a whole has come. A task begins in Planning, and becomes Active with
// its first accepted dispatch.
type Phase string

// The phases. Completed and Terminated are final: afterwards only escalations are accepted.
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
	// In the order in which a subtask usually passes through them, apart from Rework.
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

// furthest orders the states for Task.Status, least advanced first. Approved comes before all
// others, because the status should say what is left to do (TSK-31).
var furthest = []State{
	Approved, Queued, Rework, Dispatched, Executing, Reported, Triage, ReviewRequested, Reviewing,
	VerdictReported,
}

// Subtask is one piece of a task: the unit that is executed and reviewed (TSK-7). It is made by
// the first dispatch that names it, keeps references to the last message of each kind, and ends
// Approved. Result and Commit are what an open review is pinned to (TSK-21).
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
	// What the server has found out about the commits of the last result, also of one that it has refused, and of the
	// last verdict, which is bound to the commit that it names.
	Claim *Look `json:"claim,omitzero"`
	Bound *Look `json:"bound,omitzero"`
}

// The kinds of holds, strongest first.
const (
	HoldLocked    = "locked"
	HoldSuspended = "suspended"
	HoldAdmin     = "admin_hold"
)

// ScopeTask is the scope of a hold that stops everybody on the task.
const ScopeTask = "task"

// Hold stops a task, or one party on it. Every hold belongs to exactly one open escalation, its
// Cause, and ends when that is closed: by the admin, or by what AutoClear says. While any hold is
// Critical all deadlines stand still (TSK-43).
type Hold struct {
	Kind      string `json:"kind"`
	Cause     string `json:"cause"` // the escalation that it belongs to
	Scope     string `json:"scope"` // ScopeTask, or party:ROLE
	AutoClear string `json:"auto_clear,omitzero"`
	Since     int64  `json:"since"`          // microseconds
	Critical  bool   `json:"critical"`       // deadlines stand still
	About     string `json:"about,omitzero"` // the message or role whose word clears it
}

// The values of Hold.AutoClear: what clears a hold without the admin.
const (
	ClearLateAck   = "late_ack"
	ClearHeartbeat = "heartbeat"
)

// Opened is an escalation that nobody has answered. Why tells the server's own escalations apart,
// so that the same cause does not raise a second one while the first is open.
type Opened struct {
	ID       string `json:"msg_id"`
	Type     string `json:"escalation_type"`
	Severity string `json:"severity"`
	By       Role   `json:"by"`
	Why      string `json:"why,omitzero"` // what made the server raise it
}

// Awaited is a message that nobody has acknowledged. Exactly one of Due and Left is set, or
// neither once the deadline has passed (Late).
type Awaited struct {
	MsgID string `json:"msg_id"`
	Type  Type   `json:"type"`
	To    Role   `json:"to"`
	Due   int64  `json:"due,omitzero"`  // microseconds; 0 while nothing is due
	Left  int64  `json:"left,omitzero"` // what was left when the deadlines were stopped
	Late  bool   `json:"late,omitzero"` // the deadline has passed once
}

// Seat is who plays a role in a task: a lease (TSK-39). The first agent of the role that writes
// takes it. It is lost when its holder misses a deadline or when the admin reassigns the role. The
// next holder gets a higher generation, so that a holder that comes back cannot write.
type Seat struct {
	Agent      string `json:"agent"` // its id
	Generation int64  `json:"generation"`
	Lost       bool   `json:"lost,omitzero"`
	// Claim is the x_claim of the ack that claimed it, or else its id: two processes of one agent know by it whose it is.
	Claim string `json:"claim,omitzero"`
	// Reassigned says that the admin took it from its holder, and For to whom it was given, "" for anybody else.
	Reassigned bool   `json:"reassigned,omitzero"`
	For        string `json:"for,omitzero"`
}

// Held is a verdict that waits for the admin (R-408, TSK-6, TSK-49). Its reject does not count
// until it is upheld (TSK-24).
type Held struct {
	Verdict    string `json:"verdict"`
	Subtask    string `json:"subtask_id"`
	Escalation string `json:"escalation"`
}

// Task is everything that decides what may happen next to a task. Only Policy.Step makes a new
// one, from an old one and an input; a Task is never changed in place. It is stored as JSON in
// each entry and in its row, so field names never change.
//
// What always holds: at most one review is open; every hold has an open escalation; a counted
// reject has exactly one verdict; counters fall only with an approval or by the admin; a task that
// is over has no holds and awaits nothing.
//
// Moments are microseconds of the server's clock. The timestamps in messages decide nothing
// (TSK-52).
type Task struct {
	ID    string `json:"task_id"`
	Phase Phase  `json:"phase"`
	// What the last accepted dispatch says; only the admin lowers or replaces it (TSK-20).
	Risk     string   `json:"risk_level,omitzero"`
	Repo     string   `json:"repo,omitzero"`
	Branch   string   `json:"branch,omitzero"`
	Criteria []string `json:"acceptance_criteria,omitempty"`
	// whether a dispatch was approved, and what the approval covers: its risk, its coordinator
	// and its limits. PlanAsked is a question of version 0.1, which kept no dispatch.
	PlanApproved bool   `json:"plan_approved"`
	PlanRisk     string `json:"plan_risk,omitzero"`
	PlanAsked    bool   `json:"plan_asked,omitzero"`
	PlanAgent    string `json:"plan_agent,omitzero"`  // its id
	PlanLimits   string `json:"plan_limits,omitzero"` // a digest; see Dispatch.limits
	Plans        []Plan `json:"plans,omitempty"`      // dispatches that wait for the admin, or are about to go out
	// The newest dispatch, and the commit of the branch when it was sent.
	Dispatch string `json:"governing_dispatch,omitzero"`
	// Base is the commit of the branch when it was dispatched, "" where git was not asked.
	Base string `json:"base_commit,omitzero"`
	// What git showed at the dispatch, so that the repository cannot become another one, or none, unnoticed: Root is the
	// commit at which the task began, Place the folder of the repository, Protected where its protected branches are.
	Root      string            `json:"root_commit,omitzero"`
	Place     string            `json:"git_dir,omitzero"`
	Protected map[string]string `json:"protected,omitempty"`
	// Pin is where the branch has to be while nobody may move it, and Told where else a person knows it to be.
	Pin      string    `json:"pin,omitzero"`
	Told     string    `json:"told_head,omitzero"`
	Subtasks []Subtask `json:"subtasks,omitempty"`
	// TSK-2: three counters. Only Streak locks.
	Count    int64 `json:"reject_count"`    // since the admin reset it; what messages carry
	Streak   int64 `json:"reject_streak"`   // in a row; what locks
	Lifetime int64 `json:"reject_lifetime"` // ever
	// What stops the task, and the questions that the admin has not answered.
	Holds []Hold   `json:"holds,omitempty"`
	Open  []Opened `json:"open_escalations,omitempty"`
	// Deadlines: acks that are due, and writes of roles that have the turn.
	Awaiting []Awaited      `json:"awaiting,omitempty"`
	Beats    map[Role]int64 `json:"heartbeats,omitempty"` // when a write of the role is due
	Seats    map[Role]Seat  `json:"seats,omitempty"`
	// Worked are the ids of all who have held the seats of executor and reviewer: nobody holds both.
	Worked map[Role][]string `json:"worked,omitempty"`
	// At most one review is open (TSK-8), and at most one verdict is held.
	Review   string `json:"open_review,omitzero"` // the request
	Reviewed string `json:"reviewed,omitzero"`    // the subtask that it is about
	Held     *Held  `json:"held_verdict,omitzero"`
	// Checks of the branch since the last dispatch, and how many dispatches tried to fix a failed
	// one.
	CI      map[string]string `json:"ci_status,omitempty"`
	CIFixes int               `json:"ci_fixes,omitzero"` // dispatches since a build first failed
	// The last message that was accepted, other than escalations.
	Last    string `json:"last_successful_msg_id,omitzero"`
	Updated int64  `json:"updated_at"`
	// On whose behalf the task is, from its first document on.
	User    string `json:"user,omitzero"`         // their id
	Claimed string `json:"user_claimed,omitzero"` // whom that document named, if that is not proved
}

// clone copies a task so that a step can change it. Slices, maps and Held are copied too: the
// original may be in use elsewhere, and a refused step must leave it as it was.
func (t *Task) clone() *Task {
	c := *t
	c.Criteria, c.Subtasks, c.Plans = slices.Clone(t.Criteria), slices.Clone(t.Subtasks), slices.Clone(t.Plans)
	c.Holds, c.Open, c.Awaiting = slices.Clone(t.Holds), slices.Clone(t.Open), slices.Clone(t.Awaiting)
	c.Beats, c.Seats, c.CI = maps.Clone(t.Beats), maps.Clone(t.Seats), maps.Clone(t.CI)
	c.Worked = maps.Clone(t.Worked)
	if t.Held != nil {
		held := *t.Held
		c.Held = &held
	}
	return &c
}

// Status is how the task stands, in one word (TSK-31): the strongest hold, else the most advanced
// subtask that is not approved, else the phase.
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

// over reports whether the task has ended.
func (t *Task) over() bool { return t.Phase == Completed || t.Phase == Terminated }

// Due is the earliest deadline of the task, 0 if nothing is due. It becomes the task's one timer.
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

// critical reports whether deadlines stand still (TSK-43).
func (t *Task) critical() bool {
	return slices.ContainsFunc(t.Holds, func(h Hold) bool { return h.Critical })
}

// stops is the hold that keeps a role from going on, nil if none does. A lock is preferred, since
// it is refused with a code of its own.
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

// hasTurn reports whether it is the role's turn to act. Only the silence of that role counts
// (TSK-18). While a message waits for its ack, the ack deadline runs instead.
func (t *Task) hasTurn(role Role) bool {
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

// find is the first of a list for which is holds, nil if there is none. The pointer is into the list,
// so appending to that invalidates it.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// findSubtask finds the first subtask for which is holds, nil if there is none.
func (t *Task) findSubtask(is func(*Subtask) bool) *Subtask { return find(t.Subtasks, is) }

// findAwaited finds a message that waits for its ack, nil if it does not wait.
func (t *Task) findAwaited(msgID string) *Awaited {
	return find(t.Awaiting, func(a *Awaited) bool { return a.MsgID == msgID })
}

// findEscalation finds an open escalation, nil if there is none with the id.
func (t *Task) findEscalation(escalation string) *Opened {
	return find(t.Open, func(o *Opened) bool { return o.ID == escalation })
}

// text is the whole state as JSON, to compare two states.
func (t *Task) text() string {
	text, _ := wire.Marshal(t) // plain fields always encode
	return string(text)
}
