package rulebook

import (
	"bytes"
	"cmp"
	"encoding/json" // it knows json.Number, which the maps of an event hold
	"fmt"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/policy/layer"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Record is a decision as it is stored in the ledger: what was decided, by which rule of
// which version, and everything it depended on. Book.Decide makes it, a protocol appends it,
// counters and replays read it back. Its JSON is stored for ever: members are only added.
type Record struct {
	Policy  int64           `json:"policy"` // the number of the version of the server's layer
	Then    policy.Action   `json:"then"`
	Rule    string          `json:"rule"`
	Layer   string          `json:"layer,omitzero"` // the layer that the rule is of, absent for the server's
	Reason  string          `json:"reason,omitzero"`
	Failed  bool            `json:"failed,omitzero"`
	Shadow  []policy.Shadow `json:"shadow,omitzero"`
	AgentID string          `json:"agent_id"`
	Agent   policy.Agent    `json:"agent"`
	User    policy.User     `json:"user,omitzero"`         // on whose behalf
	Claimed string          `json:"user_claimed,omitzero"` // whom the call named, if that is not proved
	Scopes  []string        `json:"scopes,omitzero"`       // what both and every hop allow, absent for everything
	// Delegation is the handoff under which it is.
	Delegation policy.Delegation `json:"delegation,omitzero"`
	// Within is the id of the handoff to a process that has made the call as another agent.
	Within string      `json:"within,omitzero"`
	Tier   policy.Tier `json:"tier,omitzero"` // that of the event, where the event is left out
	Now    int64       `json:"now"`           // microseconds
	// Refused is the name in place of a rule's if the call was refused for what it says of itself.
	Refused string        `json:"refused,omitzero"`
	Recent  policy.Counts `json:"recent,omitzero"` // the counters that rules looked at
	// Reserved is how much of Recent was reserved for calls under way, and Reserve what is for this one; nil for nothing.
	Reserved policy.Counts `json:"reserved,omitzero"`
	Reserve  *Reservation  `json:"reserve,omitzero"`
	// The versions of the narrower layers that were in force: that of Agent.Workspace, and that of User. 0 for none.
	WorkspacePolicy int64 `json:"workspace_policy,omitzero"`
	UserPolicy      int64 `json:"user_policy,omitzero"`
	// Event is left out where the entry's body holds it in another form, which a
	// Reader knows. What it points to is shared with Recheck, and not to be changed.
	Event *policy.Event `json:"event,omitzero"`
}

// Behalf is for whom the decision was made, for entries that follow from it.
func (r *Record) Behalf() behalf.Of {
	of := behalf.Of{User: r.User.ID, Claimed: r.Claimed, Within: r.Within}
	if r.Delegation.Verified {
		of.Handoff = r.Delegation.ID
	}
	return of
}

// Of is for whom a call is about which no rule is asked.
func Of(found roster.Behalf, under handoff.Standing) behalf.Of {
	of := behalf.Found(found)
	of.Within = under.Within
	if under.Verified {
		of.Handoff = under.ID
	}
	return of
}

// Plain is a Record without its MarshalJSON, for an entry whose body holds the event in
// another form. Its Event is nil.
type Plain Record

// MarshalJSON keeps the digits of numbers: the maps of an event hold json.Number, which wire
// does not know.
func (r Record) MarshalJSON() ([]byte, error) {
	if r.Event == nil {
		return wire.Marshal(Plain(r))
	}
	r.Event.Complete()
	r.Tier = "" // the event has it
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(Plain(r))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Decision is a verdict with its record. The caller acts on the one and appends the other, after Recheck in the same
// transaction.
type Decision struct {
	policy.Verdict
	Record Record
	// Recorded is set by a caller that has written the record before anything follows from it.
	Recorded bool
	basis    *basis // nil if no rule has looked at a counter, and there is no handoff
	behalf   roster.Behalf
}

// Outside is the decision when it comes out only while the work is done that the handoff does not cover what is asked: a
// block, of which a replay says the same.
func (d Decision) Outside(reason string) Decision {
	d.Verdict = policy.Verdict{Action: policy.Block, Rule: policy.HandoffRule, Reason: reason}
	r := &d.Record
	r.Then, r.Rule, r.Layer, r.Reason, r.Failed = policy.Block, policy.HandoffRule, "", reason, false
	r.Delegation.Refused, r.Delegation.Reason = true, reason
	return d
}

// By is who hands work on with this decision: the agent, with what its user and its own handoff allow.
func (d Decision) By(who roster.Identity, session string) handoff.By {
	by := handoff.By{Who: who, User: d.behalf.User, Proof: d.behalf.Proof, Session: session}
	if d.basis != nil && d.basis.under != nil {
		by.Under = *d.basis.under
	}
	return by
}

// Deferred is the error for a request that the policy defers. what names what to send again,
// such as "the same signal"; the details say after how many seconds.
func (d Decision) Deferred(what string) error {
	seconds := d.RetrySeconds()
	return fault.New(fault.RateLimited, "%s Send %s again in %d seconds.", d.Reason, what, seconds).With(wire.RetryAfter,
		seconds)
}

// Entry is the decision as an entry of its own, of the kind signal.decided, action.decided
// and so on.
func (d Decision) Entry(who roster.Identity, subject, trace string) ledger.Event {
	return ledger.Event{
		Workspace: who.Workspace, Kind: kindOf(d.Record.Event.Point), Actor: who.Actor(), Subject: subject, Trace: trace,
		Body: map[string]asItWas{"decision": {&d.Record}},
	}
}

// asItWas lets a record hold whatever text the agent sent: a NUL, which ledger.Encode refuses
// in the fields of other bodies, is kept here, since a decision has to be recorded.
type asItWas struct{ record *Record }

// MarshalJSON writes the record.
func (a asItWas) MarshalJSON() ([]byte, error) { return a.record.MarshalJSON() }

// kindOf is the kind of an entry that is nothing but a decision at the point.
func kindOf(p policy.Point) string { return string(p) + ".decided" }

// Reading is what a Reader finds in an entry.
type Reading struct {
	Decision *Record // with its event; nil when the entry holds none
	Facts    []Fact  // what else it adds to what an agent did recently
	// Beside says that the tokens and the cost of the decision's event are counted elsewhere.
	Beside bool
}

// Fact adds N to a counter, or says that a call is under way, or that one is over.
type Fact struct {
	Belongs
	What string // the name of a counter
	N    float64
	// Reserve is what may be used by a call that is under way; nil for none. Where an entry holds a decision with a
	// reservation, that is found without it.
	Reserve *Reservation
	// Release is the id of a reservation of the same agent that ends, since its call is over; "" for none. What the
	// call has used are other facts of the same entry, so that nothing is free in between.
	Release string
}

// Reader finds what entries of one kind say of decisions.
type Reader func(e *ledger.Entry) (Reading, error)

// stored is a decision as it is read back. Data that few rules look at stays encoded until one
// does.
type stored struct {
	Plain
	Event *struct {
		policy.Event
		Arguments wire.Raw `json:"arguments"`
		Payload   wire.Raw `json:"payload"`
		Metadata  wire.Raw `json:"metadata"`
		Artifacts wire.Raw `json:"artifacts"`
	} `json:"event"`
}

// record decodes the head of a decision and leaves the data for Fill.
func (s *stored) record() *Record {
	r := Record(s.Plain)
	if s.Event == nil {
		return &r
	}
	data := s.Event
	r.Event = &data.Event
	r.Event.Fill = func(e *policy.Event) {
		// It was found to be JSON; what is absent stays so.
		_ = policy.DecodeData(data.Arguments, &e.Arguments)
		_ = policy.DecodeData(data.Payload, &e.Payload)
		_ = policy.DecodeData(data.Metadata, &e.Metadata)
		_ = policy.DecodeData(data.Artifacts, &e.Artifacts)
	}
	return &r
}

// ReadDecision reads the member "decision" of a body. Other members are left alone.
func ReadDecision(e *ledger.Entry) (Reading, error) {
	var b struct {
		Decision *stored `json:"decision"`
	}
	if err := wire.UnmarshalPart(e.Body, &b); err != nil {
		return Reading{}, fmt.Errorf("read the decision in entry %d (%s): %w", e.Seq, e.Kind, err)
	}
	if b.Decision == nil {
		return Reading{}, nil
	}
	return Reading{Decision: b.Decision.record()}, nil
}

// ReadDecisionAnd reads the decision, and into rest the other members that its event is made from.
func ReadDecisionAnd(e *ledger.Entry, rest any) (Reading, error) {
	reading, err := ReadDecision(e)
	if err != nil {
		return reading, err
	}
	return reading, wire.UnmarshalPart(e.Body, rest)
}

// Kinds are the kinds of entries that are nothing but a decision.
func Kinds() (all []string) {
	for _, p := range policy.Points {
		all = append(all, kindOf(p))
	}
	return all
}

// ownKinds are the entries that are nothing but a decision.
func ownKinds() map[string]Reader {
	readers := map[string]Reader{}
	for _, p := range policy.Points {
		readers[kindOf(p)] = ReadDecision
	}
	return readers
}

// counted is the counter of what happens at each point; other points have none.
var counted = map[policy.Point]string{
	policy.OnAction: "actions", policy.OnPrompt: "prompts", policy.OnToolCall: "tool_calls",
	policy.OnSignal: "signals", policy.OnMessage: "messages", policy.OnTask: "tasks",
}

// outcomes are the counters of decisions by what came of them. What is allowed counts only where the call itself
// does: nobody means an agent's question about its context by "60 calls".
var outcomes = map[policy.Action]string{
	policy.Block: "blocks", policy.Defer: "defers", policy.Gate: "gates", policy.Allow: allowed, policy.Modify: allowed,
}

const allowed = "allowed"

// outcome is the counter of what came of the decision, "" for none.
func (r *Record) outcome() string {
	what := outcomes[r.Then]
	if what == allowed && counted[r.Event.Point] == "" {
		return ""
	}
	return what
}

// read finds what an entry says of decisions. A decision without an event is an error of the
// reader; it is found here, before anything relies on the event.
func (b *Book) read(e *ledger.Entry) (Reading, error) {
	r, err := b.readers[e.Kind](e)
	if err != nil {
		return Reading{}, err
	}
	if r.Decision != nil && r.Decision.Event == nil {
		return Reading{}, fmt.Errorf("the decision in entry %d (%s) has no event", e.Seq, e.Kind)
	}
	if d := r.Decision; d != nil {
		d.Event.Tier = cmp.Or(d.Tier, d.Event.Tier, policy.API)
	}
	for i := range r.Facts {
		f := &r.Facts[i]
		f.Workspace = cmp.Or(f.Workspace, e.Workspace)
		if f.User == "" {
			f.User = b.userOf(f.Agent)
		}
		if f.Handoff != "" {
			if f.Handoffs, err = b.handoff.Above(f.Handoff); err != nil {
				return Reading{}, err
			}
		}
	}
	return r, nil
}

// input is what the decision depended on, with the counters on record.
func (r *Record) input() policy.Input {
	in := policy.Input{
		Event: r.Event, Agent: r.Agent, User: r.User, Scopes: r.Scopes,
		Now: time.UnixMicro(r.Now).UTC(), Counts: r.Recent, Reserved: r.Reserved,
	}
	if d := &r.Delegation; d.ID != "" || d.Unverified || d.Refused {
		own := *d
		in.Delegation = &own
	}
	if r.Delegation.Depth > in.Event.Depth { // a call that is silent about it is as deep
		deep := *in.Event
		deep.Depth, in.Event = r.Delegation.Depth, &deep
	}
	if r.Refused != "" {
		in.Refused = &policy.Verdict{Action: policy.Block, Rule: r.Refused, Reason: r.Reason}
	}
	return in
}

// belongs is whose counters the decision reads, and adds to.
func (r *Record) belongs() Belongs {
	b := Belongs{
		Agent: r.AgentID, Tool: r.Event.Tool, Session: r.Event.Session, User: r.User.ID, Tier: r.Event.Tier,
		Project: r.Event.Project, Run: r.Event.Run, Workspace: r.Agent.Workspace,
	}
	for i := range r.Delegation.Hops {
		b.Handoffs = append(b.Handoffs, r.Delegation.Hops[i].ID)
	}
	return b
}

// layerVersion is a version of a layer.
type layerVersion struct {
	Layer
	number int64
}

// layers are the versions that were in force, in the order in which they were tried.
func (r *Record) layers() []layerVersion {
	all := []layerVersion{{Layer{}, r.Policy}}
	if r.UserPolicy > 0 {
		all = append(all, layerVersion{Layer{r.Agent.Workspace, r.User.ID}, r.UserPolicy})
	}
	if r.WorkspacePolicy > 0 {
		all = append(all, layerVersion{Layer{Workspace: r.Agent.Workspace}, r.WorkspacePolicy})
	}
	return all
}

// ruleCount is the counter of what the rule decides: rules of another layer may have the same name.
func (r *Record) ruleCount() string {
	return layer.Counter(countsOf(r.Layer, r.User.ID), policy.RuleCount(r.Rule))
}

// maxFact is the most that one entry adds to a counter, far above any real number. It keeps
// sums finite: JSON has no form for infinity, and a record has to be stored.
const maxFact = 1e15

// facts is what the reading adds to the counters. Agents report costs themselves, so a
// negative number must not lower a counter.
func (r Reading) facts() []Fact {
	facts := r.Facts
	if d := r.Decision; d != nil {
		for what, n := range map[string]float64{
			counted[d.Event.Point]: 1, d.outcome(): 1, d.ruleCount(): 1,
			"tokens": float64(d.Event.Tokens), "cost": d.Event.CostUSD,
		} {
			if r.Beside && (what == "tokens" || what == "cost") {
				continue
			}
			facts = append(facts, Fact{Belongs: d.belongs(), What: what, N: n})
		}
		if d.Reserve != nil {
			facts = append(facts, Fact{Belongs: d.belongs(), Reserve: d.Reserve})
		}
	}
	var counting []Fact
	for _, f := range facts {
		if f.N = min(f.N, maxFact); !(f.N > 0) || f.What == "" { // not a number is nothing
			f.What, f.N = "", 0
		}
		if f.N > 0 || f.Reserve != nil || f.Release != "" {
			counting = append(counting, f)
		}
	}
	return counting
}
