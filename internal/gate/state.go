package gate

import (
	"cmp"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Status says whether a gate waits, and how it was decided.
type Status string

// The statuses. Approved and Rejected are final.
const (
	Pending  Status = "pending"
	Approved Status = "approved"
	Rejected Status = "rejected"
)

// Cause says what resolved a gate.
type Cause string

// The causes.
const (
	ByVote   Cause = "vote"
	ByExpiry Cause = "expiry"
	ByRule   Cause = "rule"      // the protocol that opened it settled it, by a rule
	ByEnd    Cause = "withdrawn" // the run that asked has ended, so that nobody would take an approval
)

// Rules say how a gate is decided. They are part of gate.opened, so a change of the policy
// does not change gates that wait. A zero value stands for the default; see Normal.
type Rules struct {
	Quorum      int      `json:"quorum"`       // approvals needed, by different operators
	RejectNeeds int      `json:"reject_needs"` // rejections needed
	Approvers   []string `json:"approvers"`    // roles, or names of operators
	OnExpiry    Status   `json:"on_expiry"`
	Expires     int64    `json:"expires,omitzero"` // microseconds after opening; 0 is never
	Ladder      []Step   `json:"ladder,omitzero"`
	Presence    string   `json:"presence,omitzero"` // Passkey if every vote is signed with one
}

// Step is what happens to a gate that waits for a while: its approvers are reminded, or
// others are notified. It does not change who may decide.
type Step struct {
	After int64    `json:"after"` // microseconds after opening
	Do    string   `json:"do"`    // Remind or Notify
	Whom  []string `json:"whom,omitzero"`
}

// Normal fills in the defaults and orders the ladder. Applying it twice changes nothing.
func (r Rules) Normal() Rules {
	r.Quorum, r.RejectNeeds = max(r.Quorum, 1), max(r.RejectNeeds, 1)
	if len(r.Approvers) == 0 {
		r.Approvers = []string{string(roster.Operator)}
	}
	if r.OnExpiry != Approved || r.Presence != "" { // which silence is not
		r.OnExpiry = Rejected
	}
	r.Ladder = slices.Clone(r.Ladder)
	slices.SortStableFunc(r.Ladder, func(a, b Step) int { return cmp.Compare(a.After, b.After) })
	for i := 1; i < len(r.Ladder); i++ {
		// A gate has one timer for its ladder, which tells steps apart by their time.
		r.Ladder[i].After = max(r.Ladder[i].After, r.Ladder[i-1].After+1)
	}
	return r
}

// RulesOf turns what a policy's rule says into the rules of a gate.
func RulesOf(spec *policy.GateSpec) Rules {
	r := Rules{
		Quorum: spec.Quorum, RejectNeeds: spec.RejectNeeds, Approvers: spec.Approvers, OnExpiry: Rejected,
		Expires: spec.Expires.Microseconds(), Presence: spec.Presence,
	}
	if spec.OnExpiry == policy.ExpiryApprove {
		r.OnExpiry = Approved
	}
	if spec.RemindAfter > 0 {
		r.Ladder = append(r.Ladder, Step{After: spec.RemindAfter.Microseconds(), Do: Remind, Whom: spec.Approvers})
	}
	for _, step := range spec.Escalation {
		r.Ladder = append(r.Ladder, Step{After: step.After.Microseconds(), Do: Notify, Whom: step.To})
	}
	return r.Normal()
}

// What a step of the ladder does.
const (
	Remind = "remind" // those who may decide
	Notify = "notify" // others
)

// Vote is one operator's say. CastBy is another name when a delegate cast it.
type Vote struct {
	Operator string    `json:"operator"`
	CastBy   string    `json:"cast_by"`
	Approve  bool      `json:"approve"`
	Note     string    `json:"note,omitempty"`
	Modified wire.Raw  `json:"modified,omitzero"` // what to do instead
	Digest   string    `json:"digest,omitempty"`  // of what was shown; of a button, the beginning of it
	Passkey  string    `json:"passkey,omitempty"` // the credential that signed it; the entry has the signature
	At       time.Time `json:"at"`
}

// Tally is the status that votes amount to. Rejections count first: no number of
// approvals outweighs them.
func (r Rules) Tally(votes []Vote) Status {
	r = r.Normal()
	switch {
	case People(votes, false) >= r.RejectNeeds:
		return Rejected
	case People(votes, true) >= r.Quorum:
		return Approved
	}
	return Pending
}

// People is how many people have approved, or rejected. A vote is that of an operator, and who
// casts it is a person: one who votes for a colleague and for themselves is one.
func People(votes []Vote, approve bool) int {
	operators, casters := map[string]bool{}, map[string]bool{}
	for _, v := range votes {
		if v.Approve == approve {
			operators[v.Operator], casters[cmp.Or(v.CastBy, v.Operator)] = true, true
		}
	}
	return min(len(operators), len(casters))
}

// MayDecide reports whether an operator may vote: by role or by name. A viewer may
// only if named.
func (r Rules) MayDecide(p roster.Person) bool {
	return slices.ContainsFunc(r.Normal().Approvers, func(a string) bool {
		if a == p.Name {
			return true
		}
		return slices.Contains(roster.Roles, a) && a != string(roster.Viewer) && p.Role.Allows(roster.Role(a))
	})
}

// next is the step of the ladder that comes after those done, nil when none is left.
func (r Rules) next(done int) *Step {
	if done >= len(r.Ladder) {
		return nil
	}
	return &r.Ladder[done]
}

// Risks are the levels of risk, the least first.
var Risks = []string{"low", "medium", "high"}

// riskRank is the position of a risk in Risks, by which the inbox is sorted. Empty is medium.
func riskRank(risk string) (int64, error) {
	if risk == "" {
		risk = "medium"
	}
	i := slices.Index(Risks, risk)
	if i < 0 {
		return 0, fault.New(fault.InvalidPayload, "The risk should be low, medium or high, and is %.40q.", risk).About("risk")
	}
	return int64(i), nil
}
