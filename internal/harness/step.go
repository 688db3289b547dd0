package harness

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"signalbox/internal/harness/spool"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// step is the body of the entries about decisions: what was asked, what the policy said
// and why, and what was answered. It is written once, before the answer goes out, and
// never changes. The event is kept byte for byte, so that policy replay decides about
// exactly what the agent sent.
type step struct {
	stepHead
	Decision rulebook.Record `json:"decision"`
	Event    wire.Raw        `json:"event"`
}

// stepHead is a step without its decision and its event. Its JSON names are stored:
// never rename one.
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
	Uses        int64    `json:"uses,omitzero"`     // how often; 0 in older entries, where Once says whether once
	Once        bool     `json:"once,omitzero"`
	Answer      wire.Raw `json:"answer,omitzero"` // none yet when a gate was opened
}

// stepText is what the encoder writes of a step. The event is spliced in afterwards.
type stepText struct {
	*stepHead
	Decision *rulebook.Plain `json:"decision"`
}

// encode writes the body with the event byte for byte. An encoder would write the same
// JSON with other bytes, and an agent's own log could then not be compared with ours.
func (s *step) encode(raw []byte) (ledger.Body, error) {
	s.Event, s.Decision.Event = raw, nil // what rules saw follows from the event
	head, err := wire.Marshal(&stepText{&s.stepHead, (*rulebook.Plain)(&s.Decision)})
	if err != nil {
		return ledger.Body{}, err
	}
	return ledger.Body{Value: s, JSON: wire.Splice(head, wire.Member{Name: "event", Value: raw})}, nil
}

// with is the body of the step with another record of its decision.
func (s *step) with(r rulebook.Record) (ledger.Body, error) {
	now := *s // what was recorded before a batch ran again is not changed
	now.Decision = r
	return now.encode(s.Event)
}

// recordStep writes a step. When it returns nil, the step is on disk; with *rulebook.StaleError nothing was written.
func (h *Harness) recordStep(ctx context.Context, who roster.Identity, e *Event, kind string, s *step,
	d rulebook.Decision,
) error {
	encoded, err := s.encode(e.Raw)
	if err != nil {
		return err
	}
	return h.commit(ctx, func(tx *ledger.Tx) error {
		body, err := d.Body(tx, encoded, s.with)
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kind, Actor: who.Actor(), Subject: e.subject(),
			Trace: traceOf(who.ID, keyOf(e.Session)), Body: body,
		})
		if kind != kindOf(policy.Allow) && kind != kindOf(policy.Modify) {
			return nil
		}
		return h.handOn.Start(ctx, tx, d.By(who, e.Session), e.asStep())
	})
}

// stepOf makes the step of an event that has no answer yet.
func (h *Harness) stepOf(c *Conn, who roster.Identity, e *Event, d rulebook.Decision) *step {
	return &step{Decision: d.Record, stepHead: stepHead{
		Agent: who.ID, AgentID: e.AgentID, Type: e.Type, Query: e.asking, Transport: c.transport, Compat: e.compat,
		// AHP-21: noted, not refused.
		NoHandshake: !c.greeted.Load() && !h.handshakes.has(who.ID),
	}}
}

// kindOf is the kind of the entry for a verdict. Whatever is not one of the three is a
// block, so that a new action cannot be recorded as a permission.
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

// commit writes to the ledger for a client that waits. Everything else in an evaluation
// ends with ctx; a commit that is under way goes on, and the client waits for it an
// eighth of the holding time longer (AHP-34). After that the write may still succeed:
// the ledger then has a decision that the client never heard, and the client a refusal.
// The other way round cannot happen.
func (h *Harness) commit(ctx context.Context, fn func(*ledger.Tx) error) error {
	done := make(chan error, 1)
	go func() { done <- h.core.Ledger.Write(ctx, fn) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(h.holdTime() / 8)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("the decision could not be recorded in time")
	}
}

// Readers find the decisions in the entries of steps, for policy replay and for
// counters.
func Readers() map[string]rulebook.Reader {
	readers := map[string]rulebook.Reader{}
	for _, kind := range stepKinds {
		readers[kind] = readDecision
	}
	readers[kindNoted] = readUsage
	maps.Copy(readers, spool.Readers())
	return readers
}

// readUsage counts the tokens and the cost that an agent reports in its notifications, so that rules
// about budgets know them. Agents name them as their provider does.
func readUsage(entry *ledger.Entry) (rulebook.Reading, error) {
	var b notes
	err := wire.UnmarshalPart(entry.Body, &b)
	of := rulebook.Belongs{Agent: b.Agent, Session: sessionOf(entry.Trace, b.Agent)}
	var facts []rulebook.Fact
	for _, n := range b.Notes {
		var said struct {
			Payload struct {
				Usage map[string]wire.Raw `json:"usage"`
			} `json:"payload"`
		}
		_ = wire.UnmarshalPart(n.Event, &said) // one of another form says nothing
		used := func(name string) float64 {
			n, _ := strconv.ParseFloat(string(said.Payload.Usage[name]), 64)
			return max(n, 0)
		}
		of.Tier = policy.Interactive
		if e, err := parseEvent(n.Event, nil); err == nil {
			of.Tier = e.tier()
		}
		facts = append(facts, rulebook.Fact{Belongs: of, What: "cost", N: used("cost_usd")},
			rulebook.Fact{Belongs: of, What: "tokens", N: max(used("total_tokens"), used("input_tokens")+used("output_tokens"),
				used("prompt_tokens")+used("completion_tokens"))})
	}
	return rulebook.Reading{Facts: facts}, err
}

// readDecision reads the decision of an entry, and makes the policy's view of the event
// again. The entry holds the event and not the view, which follows from it.
func readDecision(entry *ledger.Entry) (rulebook.Reading, error) {
	var b struct {
		Query  bool     `json:"query"`
		Compat bool     `json:"compat"`
		Event  wire.Raw `json:"event"`
	}
	reading, err := rulebook.ReadDecisionAnd(entry, &b)
	if err != nil {
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
	event := e.policyEvent(entry.Trace)
	reading.Decision.Event = &event
	return reading, nil
}
