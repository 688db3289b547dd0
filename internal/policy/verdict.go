package policy

import "time"

// Action is what a verdict says to do.
type Action string

// The actions.
const (
	Allow  Action = "allow"
	Block  Action = "block"
	Modify Action = "modify" // go on with Verdict.Changes applied to the payload
	Defer  Action = "defer"  // ask again after Verdict.RetryAfter
	Gate   Action = "gate"   // ask a person, as Verdict.Gate says
)

// Actions are the values of then, in the order in which messages list them.
var Actions = []string{string(Allow), string(Block), string(Modify), string(Defer), string(Gate)}

// DefaultRule is the name of what decides when no rule matches.
const DefaultRule = "default"

// UnreadableRule is the name in place of a rule's for the block of a tool call whose command is
// there and cannot be read: no rule could see what it does.
const UnreadableRule = "unreadable"

// defaultRetryAfter is how long a defer waits that does not say.
const defaultRetryAfter = 30 * time.Second

// Verdict is the answer of a policy to one Input. Decide makes it, a protocol acts on it, and
// rulebook records it. Its maps and slices belong to the policy and must not be changed.
//
// What always holds: Rule is never empty. Reason is not empty unless Action is Allow. Gate is
// set if and only if Action is Gate. If Failed is set, Action is Block. A gate may have changes:
// then the person is asked about the changed payload, and that is what goes on.
type Verdict struct {
	Action     Action
	Rule       string  // the rule that decided, or "default"
	Layer      string  // the layer that the rule is of, "" for the server's
	Reason     string  // for whoever is refused or asked; never empty unless allowed
	Changes    Changes // what a modify changes, and hints of an allow; see Changes.Apply
	RetryAfter time.Duration
	Gate       *GateSpec // there when Action is Gate
	Failed     bool      // the rule could not be evaluated; Action is Block
	Shadow     []Shadow  // the rules on trial that matched, in order
}

// Rewrites reports whether what goes on is not what was judged, but for credentials that are replaced by their kind.
func (v *Verdict) Rewrites() bool {
	return v.Action != Allow && (len(v.Changes.Set) > 0 || len(v.Changes.Replace) > 0)
}

// RetrySeconds is RetryAfter in whole seconds, at least one, as headers and errors say it.
func (v *Verdict) RetrySeconds() int {
	return max(1, int(v.RetryAfter.Round(time.Second)/time.Second))
}

// Shadow is what a rule with mode: shadow would have done.
type Shadow struct {
	Rule   string `json:"rule"`
	Action Action `json:"then"`
	Failed bool   `json:"failed,omitempty"`
	Layer  string `json:"layer,omitempty"` // "" for the server's
}

// GateSpec says how a person is asked, with every default filled in. gate.RulesOf turns it
// into the rules of a gate; Uses and GoodFor are for the protocol, which knows what an approval
// is used for.
type GateSpec struct {
	Expires          time.Duration    // zero: it waits for as long as it takes
	OnExpiry         string           // ExpiryReject or ExpiryApprove
	Approvers        []string         // roles, or names of operators
	Quorum           int              // how many approvals resolve it
	RejectNeeds      int              // how many rejections resolve it
	RemindAfter      time.Duration    // zero: nobody is reminded
	Escalation       []EscalationStep // in the order of After
	EvenIfUndeclared bool
	Uses             int           // how often an approval can be used; AnyUses for any number
	GoodFor          time.Duration // how long an approval can be used; zero: the protocol's own
	Risk             string        // low, medium or high
	Presence         string        // PresencePasskey if every vote is signed with a passkey
}

// What becomes of a gate that nobody answers.
const (
	ExpiryReject  = "reject"
	ExpiryApprove = "approve"
)

// PresencePasskey asks for votes that are signed by a passkey, which shows that a person was there.
const PresencePasskey = "passkey"

// EscalationStep asks others when a gate has been open for a while.
type EscalationStep struct {
	After time.Duration
	To    []string
}

// AnyUses is how often an approval can be used that only time ends. It is gate.Unlimited.
const AnyUses = -1

// DefaultGate is how a person is asked if nothing is said.
func DefaultGate() *GateSpec {
	return &GateSpec{
		OnExpiry: ExpiryReject, Approvers: []string{"operator"}, Quorum: 1, RejectNeeds: 1, Uses: 1, Risk: "medium",
	}
}
