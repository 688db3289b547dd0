// Package handon is how agents that speak AHP hand work on: by asking (ahp/query of the type delegate), and by starting
// a subagent, which their hooks report.
//
// It owns the answer to the question, and which steps start and end subagents. What a handoff is, and whether the policy
// allows it, is the core's. It must not know how AHP is carried.
package handon

import (
	"cmp"
	"context"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/delegate"
	"signalbox/internal/facts"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Query is the type of the query by which an agent hands work on (AHP-63).
const Query = delegate.Tool

// Desk answers agents that hand work on, and follows their subagents. It is safe for concurrent use.
type Desk struct {
	core protocol.Core
	desk *delegate.Desk
}

// New makes a desk over a core.
func New(core protocol.Core) *Desk {
	return &Desk{core, delegate.New(core.Ledger, core.Book, core.Handoffs)}
}

// reply is the answer to the query: yes with the handoff and its token, no with the reason, or later.
type reply struct {
	Answer  string           `json:"answer"`
	Reason  string           `json:"reason,omitzero"`
	Handoff *handoff.Handoff `json:"handoff,omitzero"`
	Token   string           `json:"token,omitzero"`
}

// Answer answers the query. The error is one of the server's; whatever is wrong with the question is a no.
func (d *Desk) Answer(ctx context.Context, who roster.Identity, protocolName, session string, n behalf.Named,
	payload wire.Raw,
) (wire.Raw, error) {
	var r delegate.Request
	if err := wire.Unmarshal(payload, &r); err != nil {
		return wire.Marshal(reply{Answer: "no", Reason: fault.From(err).Message})
	}
	r.Session, r.User, r.Delegation = session, cmp.Or(r.User, n.User), cmp.Or(r.Delegation, n.Claim.Token)
	given, err := d.desk.Give(ctx, who, protocolName, n.Claim, r)
	switch f := fault.From(err); {
	case err == nil:
		return wire.Marshal(reply{Answer: "yes", Handoff: &given.Handoff, Token: given.Token})
	case f.Code == fault.RateLimited:
		return wire.Marshal(reply{Answer: "later", Reason: f.Message})
	case f.Code == fault.Forbidden, f.Code == fault.InvalidPayload, f.Code == fault.NotFound:
		return wire.Marshal(reply{Answer: "no", Reason: f.Message})
	}
	return nil, err
}

// Step is a step as a hook reports it.
type Step struct {
	Acts      bool // it is about to happen
	Tool      string
	Arguments map[string]wire.Raw
	Metadata  wire.Raw
}

// call is what the metadata of a hook says of the call.
type call struct {
	Hook string `json:"hook"`
	ID   string `json:"tool_use_id"`
}

// subagent is the call of a tool that starts a subagent, ok if the step is one. A client without our hooks does not tell
// which calls are a subagent's, so that nothing could be bound to it.
func (s Step) subagent() (c call, ok bool) {
	if facts.ClassOf(s.Tool) != facts.Agent {
		return c, false
	}
	_ = wire.UnmarshalPart(s.Metadata, &c) // of another form it says nothing
	return c, c.Hook != "" && c.ID != ""
}

// lasts is how long a subagent may work at the most.
const lasts = 24 * time.Hour

// ofNoType is what Claude Code calls a subagent whose type the call does not name.
const ofNoType = "general-purpose"

// Start opens the handoff of a step that starts a subagent, in the transaction that records it as allowed. The first
// call of a subagent of that type in the session takes it.
func (d *Desk) Start(ctx context.Context, tx *ledger.Tx, by handoff.By, s Step) error {
	c, ok := s.subagent()
	if !ok || !s.Acts {
		return nil
	}
	typ, _ := wire.Text(s.Arguments["subagent_type"])
	_, err := d.core.Handoffs.OpenIn(ctx, tx, by, handoff.Opening{
		To: by.Who.ID, Bound: true, Subagent: cmp.Or(typ, ofNoType), Work: workOf(by.Session, c.ID),
		Seconds: int64(lasts / time.Second),
	})
	return err
}

// End ends the handoff of a subagent whose call has returned, unless it goes on in the background. One that cannot be
// ended now ends with its time.
func (d *Desk) End(ctx context.Context, who roster.Identity, session string, s Step) {
	c, ok := s.subagent()
	if !ok || string(s.Arguments["run_in_background"]) == "true" {
		return
	}
	if err := d.core.Handoffs.EndWork(ctx, who, workOf(session, c.ID), "the subagent has returned"); err != nil {
		d.core.Log.Warn("the handoff of a subagent could not be ended", "agent", who.Name, "error", err.Error())
	}
}

// workOf is what the handoff of a subagent is for.
func workOf(session, callID string) string {
	const most = 90 // bytes of each: work has a limit
	return "call:" + session[:min(len(session), most)] + ":" + callID[:min(len(callID), most)]
}
