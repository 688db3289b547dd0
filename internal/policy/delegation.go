package policy

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"signalbox/internal/policy/recent"
)

// HandoffRule is the name in place of a rule's for the block of a call that a handoff does not cover: its token is
// not valid, the tool is not among those that were handed on, or the budget is spent.
const HandoffRule = "handoff"

// Delegation is under which handoff a call happens, as the server knows it. It is empty for an agent that acts for
// itself. What a call only claims is Unverified: it gives no power, and rules decide what becomes of it.
type Delegation struct {
	ID         string   `json:"id,omitempty"` // of the handoff
	Verified   bool     `json:"verified,omitempty"`
	Unverified bool     `json:"unverified,omitempty"` // a handoff is claimed, or was left out, and nothing proves it
	Reason     string   `json:"reason,omitempty"`     // why it is unverified, or the call refused
	Refused    bool     `json:"refused,omitempty"`    // the token is not valid here
	Depth      int64    `json:"depth,omitempty"`      // how many agents have handed the work on
	From       string   `json:"from,omitempty"`       // the agent or person who handed it to this agent
	Root       string   `json:"root,omitempty"`       // the one who was the first to hand it on
	Work       string   `json:"work,omitempty"`       // what it is for: the id of a task, a run, a message
	Scopes     []string `json:"scopes,omitzero"`      // what every hop allows, nil for everything
	Tools      []string `json:"tools,omitzero"`       // the tools that were handed on, nil for all
	Hops       []Hop    `json:"hops,omitempty"`       // the first one first
}

// noDelegation is that of an agent that acts for itself. Nobody changes it.
var noDelegation Delegation

// delegation is the handoff as rules see it.
func (in *Input) delegation() *Delegation {
	if in.Delegation == nil {
		return &noDelegation
	}
	return in.Delegation
}

// Hop is one handoff of a chain. Spent is what was used of its budget before the call.
type Hop struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Budget Budget `json:"budget,omitzero"`
	Spent  Budget `json:"spent,omitzero"`
	// Reserved is how much of Spent is reserved for calls under way.
	Reserved Budget `json:"reserved,omitzero"`
}

// Budget is how much a handoff allows at the most, or what was used of it. Of a limit, zero is none.
type Budget struct {
	Calls   int64   `json:"calls,omitempty"`
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// spent says what of the budget is used up, "" for nothing. A call needs one call, and something of the rest. What is
// reserved does not count if it is settled.
func (h *Hop) spent(settled bool) string {
	b, s := h.Budget, h.Spent
	if settled {
		s.Tokens, s.CostUSD = s.Tokens-h.Reserved.Tokens, recent.Less(s.CostUSD, h.Reserved.CostUSD)
	}
	switch {
	case b.Calls > 0 && s.Calls >= b.Calls:
		return fmt.Sprintf("%d calls", b.Calls)
	case b.Tokens > 0 && s.Tokens >= b.Tokens:
		return fmt.Sprintf("%d tokens", b.Tokens)
	case b.CostUSD > 0 && s.CostUSD >= b.CostUSD:
		return fmt.Sprintf("%g dollars", b.CostUSD)
	}
	return ""
}

// outside is the block of a call that its handoff does not cover, ok if there is one. Questions of an agent about its
// context and the like use nothing up.
func (d *Delegation) outside(e *Event, settled bool) (v Verdict, ok bool) {
	reason := ""
	switch {
	case d.Refused:
		reason = d.Reason
	case !d.Verified:
		return v, false
	case e.Tool != "" && d.Tools != nil && !FitsTool(d.Tools, e.Tool):
		reason = fmt.Sprintf("The handoff %s does not include the tool %s. Ask %s to hand on work with it.", d.ID, e.Tool,
			d.From)
	default:
		for i := range d.Hops {
			if used := d.Hops[i].spent(settled); used != "" && e.Point.counted() {
				reason = fmt.Sprintf("The budget of the handoff %s is spent: %s. Ask %s for more.", d.Hops[i].ID, used,
					d.Hops[i].From)
			}
		}
	}
	return Verdict{Action: Block, Rule: HandoffRule, Reason: reason}, reason != ""
}

// counted reports whether what happens at the point is something that an agent does.
func (p Point) counted() bool {
	switch p {
	case OnAction, OnPrompt, OnToolCall, OnSignal, OnMessage, OnTask:
		return true
	}
	return false
}

var delegationType = cel.ObjectType("Delegation")

// delegationFields are what rules see of the handoff.
var delegationFields = map[string]field[Delegation]{
	"id":         {cel.StringType, func(d *Delegation) any { return types.String(d.ID) }},
	"verified":   {cel.BoolType, func(d *Delegation) any { return types.Bool(d.Verified) }},
	"unverified": {cel.BoolType, func(d *Delegation) any { return types.Bool(d.Unverified) }},
	"reason":     {cel.StringType, func(d *Delegation) any { return types.String(d.Reason) }},
	"depth":      {cel.IntType, func(d *Delegation) any { return types.Int(d.Depth) }},
	"from":       {cel.StringType, func(d *Delegation) any { return types.String(d.From) }},
	"root":       {cel.StringType, func(d *Delegation) any { return types.String(d.Root) }},
	"work":       {cel.StringType, func(d *Delegation) any { return types.String(d.Work) }},
	"scopes":     {texts, func(d *Delegation) any { return d.Scopes }},
	"tools":      {texts, func(d *Delegation) any { return d.Tools }},
}
