package signal

import (
	"context"
	"strings"
	"sync"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Name is the protocol's name in rules, and in the origin of gates.
const Name = "amp"

// Protocol is AMP v1.0 signals, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Signals", Origins: map[string]string{registrations: "Registrations"},
		Migrations: Migrations, Projection: Projection(), Readers: Readers(), Counters: Counters(),
	}
}

// Options are what an operator sets.
type Options struct {
	Strict bool // unknown fields are errors
}

// Signals receives signals and answers for their gates.
type Signals struct {
	Options
	core protocol.Core

	hooks ledger.View[Webhook] // by the agent's id
	seen  *seen

	mu     sync.RWMutex
	prices *PriceTable
}

// New makes the service over a core whose ledger has Projection.
func New(core protocol.Core, o Options) (*Signals, error) {
	s := &Signals{Options: o, core: core, seen: newSeen()}
	var err error
	s.prices, err = ownPrices()
	core.Gates.OnResolved(Name, s.resolved)
	core.Gates.OnResolved(registrations, s.granted)
	return s, err
}

// Answer is what an agent hears: exactly these three fields.
type Answer struct {
	Status  gate.Status `json:"status"`
	GateID  *string     `json:"gate_id"`
	Message string      `json:"message"`
}

func answer(gateID string, o outcome) Answer {
	a := Answer{Status: o.status, Message: o.message}
	if gateID != "" {
		a.GateID = &gateID
	}
	return a
}

// received is the body of signal.received, with the payload as it came.
type received struct {
	Agent    string         `json:"agent"` // the agent's id
	Type     Type           `json:"type"`
	RunID    string         `json:"run_id"`
	Request  string         `json:"request,omitzero"`
	Project  string         `json:"project"`
	Gate     string         `json:"gate,omitzero"`
	Status   gate.Status    `json:"status"` // of the answer
	Message  string         `json:"message"`
	Cost     *CostCheck     `json:"cost,omitzero"`
	Decision rulebook.Plain `json:"decision"`
	Signal   wire.Raw       `json:"signal,omitzero"` // see encode

	parsed *Signal // what Signal amounts to, where it is known
}

// encode writes the body with the payload byte for byte: an encoder would rewrite it.
func (r *received) encode(raw []byte) ([]byte, error) {
	r.Signal = nil
	text, err := wire.Marshal(r)
	r.Signal = raw
	if err != nil {
		return nil, err
	}
	return wire.Splice(text, wire.Member{Name: "signal", Value: raw}), nil
}

// request is the part of a signal's key beside its run: completions and failures have
// none, since a run ends once.
func (s *Signal) request() string {
	if s.Type != GateRequest {
		return ""
	}
	return string(GateRequest) + ":" + s.RequestID
}

// Received is an answer, and what else the caller should know.
type Received struct {
	Answer
	Duplicate bool
	Warnings  []string
}

// Receive takes a payload of the type. It is recorded, decided and perhaps held, or
// nothing happens.
func (s *Signals) Receive(ctx context.Context, who roster.Identity, t Type, body []byte) (Received, error) {
	if err := wire.Fits(body, maxBody); err != nil {
		return Received{}, err
	}
	f, err := readFields(body, t)
	if err != nil {
		return Received{}, err
	}
	switch f.typ {
	case Registration:
		return s.register(ctx, who, f)
	case Receipt:
		return s.receipt(ctx, who, f)
	case Heartbeat:
		return Received{},
			fault.New(fault.InvalidPayload,
				"A heartbeat is sent to /amp/heartbeat, and answered in a form of its own.").About("type")
	default:
	}
	sig, err := f.signal(s.core.Now())
	if err != nil {
		return Received{}, err
	}
	if err := s.admit(ctx, who, sig); err != nil {
		return Received{}, err
	}
	d := s.core.Book.Decide(ctx, who, sig.event())
	if d.Action == policy.Defer || s.seen.has(trace(who, sig.RunID)) {
		if found, err := s.find(ctx, who, sig); err != nil || found != nil {
			return s.repeated(ctx, who, sig, found, err)
		}
	}
	if d.Action == policy.Defer {
		return Received{}, s.deferred(ctx, who, sig, d)
	}
	r, err := s.record(ctx, who, sig, d)
	if store.IsUnique(err) { // the same run at the same moment, or long ago
		s.seen.add(trace(who, sig.RunID))
		found, err := s.find(ctx, who, sig)
		return s.repeated(ctx, who, sig, found, err)
	}
	return r, err
}

// admit checks what the payload says against who sent it.
func (s *Signals) admit(ctx context.Context, who roster.Identity, sig *Signal) error {
	if err := inScope(who, sig.AgentID); err != nil {
		return err
	}
	if s.Strict {
		for _, w := range sig.Warnings {
			if strings.HasSuffix(w, "is not known") {
				return fault.New(fault.InvalidPayload, "In strict mode %s. Leave it out, or put it into metadata.", w)
			}
		}
	}
	return s.chooseWebhook(ctx, who, sig)
}

// inScope refuses what a key says of another agent than its own.
func inScope(who roster.Identity, agentID string) error {
	if agentID != who.Name {
		return fault.New(fault.AgentScope,
			"This key is for the agent %q, and the signal says %q. Send it with that agent's own key.", who.Name,
			agentID).About("agent_id")
	}
	return nil
}
