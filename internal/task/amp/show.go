package amp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// Record is a task as others see it: the protocol's task file, with our own additions under x_. It
// is made from a Task by Show and never read back.
type Record struct {
	Record       string                   `json:"record"`
	TaskID       string                   `json:"task_id"`
	Phase        Phase                    `json:"phase"`
	Status       string                   `json:"task_status"`
	Risk         string                   `json:"risk_level,omitempty"`
	PlanApproved bool                     `json:"plan_approved"`
	Dispatch     *string                  `json:"governing_dispatch"`
	Subtasks     map[string]SubtaskRecord `json:"subtasks"`
	Count        int64                    `json:"reject_count"`
	Streak       int64                    `json:"reject_streak"`
	Lifetime     int64                    `json:"reject_lifetime"`
	Holds        []HoldRecord             `json:"holds"`
	Last         *string                  `json:"last_successful_msg_id"`
	UpdatedAt    time.Time                `json:"updated_at"`

	Repo      string             `json:"x_repo,omitempty"`
	Branch    string             `json:"x_branch,omitempty"`
	Git       string             `json:"x_git,omitempty"` // how branches and commits are watched
	Criteria  []string           `json:"x_acceptance_criteria,omitempty"`
	Open      []Opened           `json:"x_open_escalations"`
	Awaiting  []AwaitedRecord    `json:"x_awaiting"`
	Beats     map[Role]time.Time `json:"x_heartbeats_due"`
	Seats     map[Role]Seat      `json:"x_seats"`
	CI        map[string]string  `json:"x_ci_status,omitempty"`
	Plans     []Plan             `json:"x_plans,omitempty"`
	Waits     string             `json:"x_waits_for"` // why nothing happens, in a sentence
	Workspace string             `json:"x_workspace"`
	Messages  []Stored           `json:"x_messages,omitempty"`
	User      string             `json:"x_user,omitempty"`         // the id of who it is on behalf of
	Claimed   string             `json:"x_user_claimed,omitempty"` // whom its first document named without proof
}

// SubtaskRecord is a subtask in a Record.
type SubtaskRecord struct {
	State    State   `json:"state"`
	Dispatch string  `json:"dispatch_ref,omitempty"`
	Result   *string `json:"last_result_ref"`
	Verdict  *string `json:"last_verdict_ref"`
	Commit   *string `json:"pinned_commit"`
	Claim    *Look   `json:"x_claim,omitempty"` // what the server has found out about the commits of the last result
	Bound    *Look   `json:"x_bound,omitempty"` // and of the last verdict, with the commit that it is bound to
}

// HoldRecord is a hold in a Record.
type HoldRecord struct {
	Kind      string    `json:"kind"`
	Cause     string    `json:"cause"`
	Scope     string    `json:"scope"`
	AutoClear *string   `json:"auto_clear"`
	Since     time.Time `json:"since"`
}

// AwaitedRecord is a message in a Record that waits for its ack.
type AwaitedRecord struct {
	MsgID string     `json:"msg_id"`
	To    Role       `json:"to"`
	Due   *time.Time `json:"due_at"` // nil while deadlines stand still
	Late  bool       `json:"late"`
}

// Stored is a message as it was accepted, with what its receiver should know.
type Stored struct {
	Seq        int64     `json:"seq"` // of its entry in the ledger
	ReceivedAt time.Time `json:"received_at"`
	Acked      bool      `json:"acked"`
	Notice     string    `json:"notice,omitempty"` // what the receiver should know
	Generation int64     `json:"generation,omitempty"`
	Message    wire.Raw  `json:"message"`
	Agent      string    `json:"-"` // the id of the agent that alone it is for, "" for all of the role
}

// maybe is nil for "", since the protocol writes null for what is not there.
func maybe(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// moment is a time of the state, which counts microseconds.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// Show is the task as others see it. Lists are never null, so that clients can iterate.
func (t *Task) Show(workspace string) Record {
	r := Record{
		Record: "task", TaskID: t.ID, Phase: t.Phase, Status: t.Status(), Risk: t.Risk, PlanApproved: t.PlanApproved,
		Dispatch: maybe(t.Dispatch),
		Subtasks: map[string]SubtaskRecord{}, Count: t.Count, Streak: t.Streak, Lifetime: t.Lifetime, Holds: []HoldRecord{},
		Last: maybe(t.Last), UpdatedAt: moment(t.Updated),
		Repo: t.Repo, Branch: t.Branch, Criteria: t.Criteria, Open: t.Open, Awaiting: []AwaitedRecord{},
		Beats: map[Role]time.Time{}, Seats: t.Seats, CI: t.CI,
		Git:   t.watched(),
		Plans: t.Plans, Waits: t.waitsFor(), Workspace: workspace, User: t.User, Claimed: t.Claimed,
	}
	for _, s := range t.Subtasks {
		r.Subtasks[s.ID] = SubtaskRecord{
			s.State, s.Dispatch, maybe(s.Result), maybe(s.Verdict), maybe(s.Commit), s.Claim, s.Bound,
		}
	}
	for _, h := range t.Holds {
		r.Holds = append(r.Holds, HoldRecord{h.Kind, h.Cause, h.Scope, maybe(h.AutoClear), moment(h.Since)})
	}
	for _, a := range t.Awaiting {
		one := AwaitedRecord{MsgID: a.MsgID, To: a.To, Late: a.Late}
		if a.Due > 0 {
			due := moment(a.Due)
			one.Due = &due
		}
		r.Awaiting = append(r.Awaiting, one)
	}
	for role, due := range t.Beats {
		r.Beats[role] = moment(due)
	}
	if r.Open == nil {
		r.Open = []Opened{}
	}
	if r.Seats == nil {
		r.Seats = map[Role]Seat{}
	}
	return r
}

// watched says how the server learns what happens in the repository, "" before anything was dispatched.
func (t *Task) watched() string {
	switch {
	case t.Place != "":
		return "read with every message and twice a minute"
	case t.Dispatch != "":
		return "not read"
	}
	return ""
}

// waitsFor says in sentences what has to happen next, for people who ask why a task is stuck.
func (t *Task) waitsFor() string {
	var waits []string
	for _, h := range t.Holds {
		waits = append(waits, fmt.Sprintf("The admin has to answer %s (%s).", h.Cause, h.Kind))
	}
	if t.PlanAsked {
		waits = append(waits, "The admin has to approve the plan.")
	}
	for _, p := range t.Plans {
		if p.Approved {
			waits = append(waits, p.MsgID+" is approved and about to go out.")
		} else {
			waits = append(waits, fmt.Sprintf("The admin has to approve %s (%s).", p.MsgID, cmp.Or(p.Gate, "no gate")))
		}
	}
	for _, a := range t.Awaiting {
		waits = append(waits, fmt.Sprintf("The %s has to acknowledge %s.", a.To, a.MsgID))
	}
	switch {
	case t.Unlooked() && t.Told != "" && t.Told != t.Pin:
		waits = append(waits, fmt.Sprintf(
			"The branch has to be at %.12s again, or the coordinator dispatches the work again.", t.Pin))
	case t.Unlooked():
		waits = append(waits, "The server has to look at the branch before the task is completed.")
	}
	for _, role := range AgentRoles {
		if t.hasTurn(role) {
			waits = append(waits, fmt.Sprintf("It is the %s's turn.", role))
		}
	}
	if len(waits) == 0 && t.Phase == Planning {
		return "The coordinator has to dispatch it."
	}
	return strings.Join(waits, " ")
}

// Unanswered reports whether a role has the turn because of a message, and has neither answered nor escalated. An
// escalation that holds nothing says that its sender goes on, so it is no answer.
func (r Record) Unanswered(role Role, msgID string) bool {
	if slices.ContainsFunc(r.Open, func(o Opened) bool { return o.By == role && o.Severity != "info" }) {
		return false
	}
	begun, reported := false, false
	for _, s := range r.Subtasks {
		is := func(ref *string) bool { return ref != nil && *ref == msgID }
		switch {
		case role == Executor && s.Dispatch == msgID:
			begun = begun || s.State == Executing
			reported = reported || s.State != Executing && s.State != Queued && s.State != Dispatched
		case role == Reviewer && s.State == Reviewing,
			role == Coordinator && is(s.Result) && s.State == Triage,
			role == Coordinator && is(s.Verdict) && s.State == Rework:
			return true
		}
	}
	return begun && !reported || role == Coordinator && r.Phase == Planning && r.Last != nil && *r.Last == msgID
}
