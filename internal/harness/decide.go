package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// step is the body of the entries about decisions of the policy.
type step struct {
	stepHead
	Decision rulebook.Record `json:"decision"`
	Event    wire.Raw        `json:"event"`
}

// stepHead is a step without what is copied into its body.
type stepHead struct {
	Agent       string   `json:"agent"`
	AgentID     string   `json:"agent_id"` // what the agent calls itself
	Type        Type     `json:"type"`
	Query       bool     `json:"query,omitzero"` // it came as a query
	Transport   string   `json:"transport"`
	Compat      bool     `json:"compat,omitzero"`
	NoHandshake bool     `json:"no_handshake,omitzero"`
	Handler     bool     `json:"handler,omitzero"` // an external handler answered
	Gate        string   `json:"gate,omitzero"`
	Digest      string   `json:"digest,omitzero"`
	GoodFor     int64    `json:"good_for,omitzero"` // how long an approval is good, in microseconds
	Once        bool     `json:"once,omitzero"`
	Answer      wire.Raw `json:"answer,omitzero"` // none yet when a gate was opened
}

// stepText is a step as it is written, but for its event.
type stepText struct {
	*stepHead
	Decision *rulebook.Plain `json:"decision"`
}

// encode writes the body with the event byte for byte: an encoder would rewrite it.
func (s *step) encode(raw []byte) (ledger.Body, error) {
	s.Event, s.Decision.Event = raw, nil // what rules saw follows from the event
	head, err := wire.Marshal(&stepText{&s.stepHead, (*rulebook.Plain)(&s.Decision)})
	if err != nil {
		return ledger.Body{}, err
	}
	return ledger.Body{Value: s, JSON: wire.Splice(head, wire.Member{Name: "event", Value: raw})}, nil
}

// check looks at everything about an event that is wrong whoever decides.
func (h *Harness) check(c *Conn, e *Event) *rpcError {
	if e.Depth > h.Config.MaxDepth {
		return refuse(codeParams, "Invalid event: Protocol error: Event depth %d exceeds configured max depth %d", e.Depth, h.Config.MaxDepth)
	}
	if e.kind.contract {
		if err := e.kind.payload(e.Payload); err != nil {
			return refuse(codeParams, "Invalid event: Serialization error: payload %s", err.Error())
		}
	}
	if c.compat && e.kind.typed() {
		e.adapt()
	}
	return nil
}

// event decides about one event.
func (h *Harness) event(ctx context.Context, c *Conn, who roster.Identity, m *message) (wire.Raw, *rpcError) {
	e, err := parseEvent(m.params, m.inside)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if err := h.check(c, e); err != nil {
		return nil, err
	}
	if !e.kind.blocking() {
		return nil, refuse(codeParams, "Fire-and-forget event %s must be sent as a notification", e.Type)
	}
	if e.kind.typed() {
		if err := e.kind.payload(e.Payload); err != nil {
			return nil, refuse(codeHandler, "Handler error: Serialization error: payload %s", err.Error())
		}
	}
	if err := h.greeted(ctx, c, who, e.Session); err != nil {
		return nil, err
	}
	answer, failure := h.decide(ctx, c, who, e)
	if failure != nil && h.Config.OnFailure == ErrorOnFailure {
		return nil, refuse(codeHandler, "Handler error: %s", failure.Error())
	}
	return answer, nil
}

// greeted asks for a handshake where the configuration does so for POSTs.
func (h *Harness) greeted(ctx context.Context, c *Conn, who roster.Identity, session string) *rpcError {
	key := ""
	switch {
	case c.stream || h.Config.HTTPHandshake == HandshakeOff || h.Config.HTTPHandshake == "":
		return nil
	case h.Config.HTTPHandshake == HandshakeSession:
		key = keyOf(session)
		if h.shaken.has(who.ID + " " + key) {
			return nil
		}
	case h.shaken.has(who.ID):
		return nil
	}
	var one int
	if h.core.DB.QueryRow(ctx, "SELECT 1 FROM harness_session WHERE agent = $1 AND ($2 = '' OR session = $2) AND greeted = $3 LIMIT 1", []any{who.ID, key, true}, &one) != nil {
		return refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	h.shaken.add(who.ID, key)
	return nil
}

// decide evaluates an event, within the time that its client has. When that fails or
// takes too long the answer is a refusal that can be decoded, together with the error:
// the first client there is takes an error for a yes.
func (h *Harness) decide(ctx context.Context, c *Conn, who roster.Identity, e *Event) (wire.Raw, error) {
	holding, cancel := context.WithTimeout(ctx, h.hold())
	defer cancel()
	answer, err := h.guarded(holding, c, who, e)
	if err != nil {
		h.core.Log.Error("an event could not be decided about and was refused", "type", string(e.Type), "agent", who.Name, "error", err.Error())
		// Whatever was about to be answered: only a refusal that was recorded stands.
		if _, recorded := errors.AsType[*failure](err); !recorded {
			answer, _ = failed(e, err.Error()).encode(e, nil) // texts only
		}
	}
	return answer, err
}

// guarded makes a panic an error.
func (h *Harness) guarded(ctx context.Context, c *Conn, who roster.Identity, e *Event) (answer wire.Raw, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.core.Log.Error("deciding about an event panicked", "type", string(e.Type), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, err = nil, fmt.Errorf("internal error")
		}
	}()
	return h.evaluate(ctx, c, who, e)
}

// commit writes to the ledger for somebody who waits for an answer. All else in an
// evaluation ends with ctx; a commit that is under way does not, and is waited for only a
// little longer.
func (h *Harness) commit(ctx context.Context, fn func(*ledger.Tx) error) error {
	done := make(chan error, 1)
	go func() { done <- h.core.Ledger.Write(ctx, fn) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(h.hold() / 8)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("the decision could not be recorded in time")
	}
}

// evaluate asks the policy and records what it says. The answer is on disk, as an entry
// or as a gate, before it is given.
func (h *Harness) evaluate(ctx context.Context, c *Conn, who roster.Identity, e *Event) (wire.Raw, error) {
	key := keyOf(e.Session)
	h.sees(who, key)
	d := h.core.Book.Decide(ctx, who, e.asked(traceOf(who.ID, key)))
	v := d.Verdict
	if v.Action == policy.Gate {
		switch {
		case e.Type == IntentDetection:
			v.Action = policy.Block
		case e.Type == RateLimit, e.asking:
			v.Action = policy.Defer
		default:
			return h.holdStep(ctx, c, who, e, d)
		}
	}
	s := h.stepOf(c, who, e, d)
	answer, byHandler, err := h.words(ctx, who, e, v)
	if err != nil {
		return nil, err
	}
	s.Answer, s.Handler = answer, byHandler
	body, err := s.encode(e.Raw)
	if err != nil {
		return nil, err
	}
	err = h.commit(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: who.Workspace, Kind: kindOf(v.Action), Actor: who.Actor(), Subject: e.about(), Trace: traceOf(who.ID, key), Body: body})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.Failed {
		return answer, &failure{v.Reason}
	}
	return answer, nil
}

// failure is a policy that could not be evaluated. The answer that comes with it is a
// refusal, and is recorded.
type failure struct{ reason string }

func (f *failure) Error() string { return f.reason }

func (h *Harness) stepOf(c *Conn, who roster.Identity, e *Event, d rulebook.Decision) *step {
	return &step{Decision: d.Record, stepHead: stepHead{
		Agent: who.ID, AgentID: e.AgentID, Type: e.Type, Query: e.asking, Transport: c.transport, Compat: c.compat,
		NoHandshake: !c.shaken.Load() && !h.shaken.has(who.ID),
	}}
}

func kindOf(a policy.Action) string {
	switch a {
	case policy.Allow:
		return kindAllowed
	case policy.Modify:
		return kindModified
	case policy.Defer:
		return kindDeferred
	}
	return kindBlocked
}

// words is a verdict in the words of the event's kind.
func (h *Harness) words(ctx context.Context, who roster.Identity, e *Event, v policy.Verdict) (answer wire.Raw, byHandler bool, err error) {
	if v.Action == policy.Allow && !e.asking && h.Config.Handlers[e.Type] != "" {
		answer, err = h.elsewhere(ctx, e)
		return answer, true, err
	}
	if e.asking {
		answer, err = h.reply(ctx, who, e, v)
		return answer, false, err
	}
	var a Answer
	switch v.Action {
	case policy.Allow:
		a, err = h.yes(ctx, who, e, v)
	case policy.Modify:
		a, err = changed(e, v.Set)
	case policy.Defer:
		a = postponed(e.Type, v.Reason, v.RetryAfter)
	default:
		a = refusal(e, v.Reason)
	}
	if err != nil {
		return nil, false, err
	}
	if v.Failed {
		a.Metadata = failClosed
	}
	var set map[string]any
	if (v.Action == policy.Allow || v.Action == policy.Modify) && a.Decision != "block" {
		set = v.Set
	}
	answer, err = a.encode(e, set)
	return answer, false, err
}

// Readers find the decisions in steps.
func Readers() map[string]rulebook.Reader {
	readers := map[string]rulebook.Reader{}
	for _, kind := range stepKinds {
		readers[kind] = readDecision
	}
	return readers
}

// readDecision finds the decision, with the event that it was about.
func readDecision(entry *ledger.Entry) (rulebook.Reading, error) {
	reading, err := rulebook.ReadDecision(entry)
	if err != nil {
		return reading, err
	}
	var b struct {
		Query  bool     `json:"query"`
		Compat bool     `json:"compat"`
		Event  wire.Raw `json:"event"`
	}
	if err := wire.UnmarshalPart(entry.Body, &b); err != nil {
		return reading, err
	}
	var e *Event
	if b.Query {
		e, err = parseQuery(b.Event)
	} else {
		e, err = parseEvent(b.Event, nil)
	}
	if err != nil {
		return reading, err
	}
	if b.Compat && e.kind.typed() {
		e.adapt()
	}
	event := e.asked(entry.Trace)
	reading.Decision.Event = &event
	return reading, nil
}
