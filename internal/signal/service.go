package signal

import (
	"context"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/recall"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Name is the protocol's name in rules (event.protocol) and the value of gate.Origin.Protocol.
const Name = "amp"

// Protocol describes AMP v1.0 signals to the server: tables, projections, counters. It makes
// no service; New does.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Signals", Origins: map[string]string{registrations: "Registrations"},
		Migrations: Migrations, Projection: Projection(), Readers: Readers(), Counters: Counters(),
		Said: []string{kindReceived, kindRepeated},
	}
}

// Options are the settings of the protocol.
type Options struct {
	Strict bool // signals.strict: unknown fields are errors, not warnings
	// Carried reports whether the model proxy counts what a run of an agent takes; nil if there is no proxy.
	Carried func(ctx context.Context, agentID, run string) (bool, error)
}

// Signals is the service: it receives the messages of agents and answers for their gates. The
// server makes one per process with New and calls Run, which returns when its context ends.
// All methods may be called concurrently, before Run too: until Run has loaded them, no webhook is registered.
type Signals struct {
	Options
	core protocol.Core

	hooks  recall.View[Webhook] // by the agent's id
	recent *recentRuns
}

// New makes the service over a core whose ledger has Projection, and registers what follows
// from the resolution of its gates. Call it before the ledger takes writes.
func New(core protocol.Core, o Options) *Signals {
	s := &Signals{Options: o, core: core, recent: newRecentRuns()}
	core.Gates.OnResolved(Name, s.queueCallback)
	core.Gates.OnResolved(registrations, s.grantTrust)
	return s
}

// Run keeps webhooks and recent runs up to date by following the ledger, until ctx ends. An entry that cannot be read is
// logged and skipped: the value before it stays, which is better than a server without webhooks.
func (s *Signals) Run(ctx context.Context) error {
	load := func(ctx context.Context) error {
		return s.hooks.Load(ctx, s.core.Ledger, "JOIN agent_webhook h ON h.seq = e.seq")
	}
	for e := range s.core.Ledger.FollowNow(ctx, load) {
		var err error
		switch e.Kind {
		case kindReceived:
			s.recent.add(e.Trace)
		case kindHooked:
			err = s.hooks.Follow(&e)
		}
		if err != nil {
			s.core.Log.Error("cannot read ledger entry; the previous value stays", "kind", e.Kind, "error", err.Error())
		}
	}
	return nil
}

// Answer is what an agent is answered about a signal or a gate. It has exactly these three
// fields, and one of three statuses (SIG-1). A pending answer always has a gate; approved and
// rejected have one if a person decided, and null if a rule did.
type Answer struct {
	Status  gate.Status `json:"status"`
	GateID  *string     `json:"gate_id"`
	Message string      `json:"message"`
}

// answer makes an Answer. gateID is "" if there is no gate, which is null on the wire.
func answer(gateID string, o outcome) Answer {
	a := Answer{Status: o.status, Message: o.message}
	if gateID != "" {
		a.GateID = &gateID
	}
	return a
}

// received is the body of signal.received: the payload byte for byte, what was decided, and
// the answer. Polls and repetitions are answered from it, so it must hold everything that an
// answer needs.
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

	// parsed saves counters from parsing Signal again. It is set in the process that received
	// the signal and nil where the entry was read from the database.
	parsed *Signal
}

// encode makes the body as JSON with the payload byte for byte. An encoder would rewrite its
// spacing and numbers, and the agent's bytes are what is proved later.
func (r *received) encode(raw []byte) ([]byte, error) {
	r.Signal = nil
	text, err := wire.Marshal(r)
	r.Signal = raw
	if err != nil {
		return nil, err
	}
	return wire.Splice(text, wire.Member{Name: "signal", Value: raw}), nil
}

// request is the part of a signal's key beside agent and run. It is "" for completions and
// failures, which share one place, since a run ends once (SIG-15); a gate request has a place
// of its own for each request_id (SIG-41).
func (s *Signal) request() string {
	if s.Type != GateRequest {
		return ""
	}
	return string(GateRequest) + ":" + s.RequestID
}

// Received is the outcome of Receive: the answer, and what goes into headers beside it.
type Received struct {
	Answer
	Duplicate bool     // the same message was received before; nothing new was recorded of it
	Warnings  []string // what is odd and no reason to refuse it
}

// Receive takes a message of type t, or with "" of the type that it names itself. When it
// returns without an error, message, decision and gate are on disk; after an error nothing of
// the message was recorded.
//
// The order matters. The policy is asked before it is known whether the run is new, since
// looking it up costs a query that almost no signal needs: the table refuses a run that is
// there (IsUnique), and only runs that were seen lately are looked up first. A deferred signal
// is looked up too, so that a poll of a recorded run is answered and not deferred.
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
		return s.takeRegistration(ctx, who, f)
	case Receipt:
		return s.takeReceipt(ctx, who, f)
	case Heartbeat:
		return Received{},
			fault.New(fault.InvalidPayload,
				"Send heartbeats to /amp/heartbeat; they have an answer of their own form.").About("type")
	default:
	}
	sig, err := f.parseSignal(s.core.Now())
	if err != nil {
		return Received{}, err
	}
	if err := s.checkSender(ctx, who, sig); err != nil {
		return Received{}, err
	}
	var r Received
	err = rulebook.Settle(s.core.Book.Decide(ctx, who, sig.event()), func(d rulebook.Decision) (err error) {
		r, err = s.takeDecided(ctx, who, sig, d)
		return err
	})
	return r, err
}

// takeDecided records a signal as the policy has decided, or answers that it was received before. With
// *rulebook.StaleError nothing was written.
func (s *Signals) takeDecided(ctx context.Context, who roster.Identity, sig *Signal, d rulebook.Decision) (Received,
	error,
) {
	if d.Action == policy.Defer || s.recent.has(trace(who.ID, sig.RunID)) {
		if found, err := s.findSignal(ctx, who, sig); err != nil || found != nil {
			return s.answerRepeated(ctx, who, sig, found, err)
		}
	}
	if d.Action == policy.Defer {
		return Received{}, s.recordDeferral(ctx, who, sig, d)
	}
	r, err := s.recordSignal(ctx, who, sig, d)
	if store.IsUnique(err) { // the same run a moment ago on any node, or too long ago for recent
		s.recent.add(trace(who.ID, sig.RunID))
		found, err := s.findSignal(ctx, who, sig)
		return s.answerRepeated(ctx, who, sig, found, err)
	}
	return r, err
}

// checkSender checks the payload against its sender, and settles where the resolution is sent.
func (s *Signals) checkSender(ctx context.Context, who roster.Identity, sig *Signal) error {
	if err := inScope(who, sig.AgentID); err != nil {
		return err
	}
	if s.Strict {
		for _, w := range sig.Warnings {
			if strings.HasPrefix(w, unknownField) {
				return fault.New(fault.InvalidPayload,
					"Strict mode refuses the %s. Leave it out, or put it into metadata.", w)
			}
		}
	}
	return s.chooseWebhook(ctx, who, sig)
}

// inScope refuses a message that names another agent than the key's own (SIG-9).
func inScope(who roster.Identity, agentID string) error {
	if agentID != who.Name {
		return fault.New(fault.AgentScope,
			"This key belongs to the agent %q, and agent_id is %q. Use the key of the agent that signals.",
			who.Name, agentID).About("agent_id")
	}
	return nil
}
