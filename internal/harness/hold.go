package harness

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// heldStep is one call whose step a person has to decide about. It lives as long as the
// call; the gate and its approval live on, and the next call with the same digest finds
// them.
type heldStep struct {
	*Event
	conn     *Conn
	who      roster.Identity
	session  string // its key
	asked    gate.Asked
	decision rulebook.Decision
	changed  wire.Raw // the payload as the rule changes it, nil if it does not
}

// askedIn is what an approval is bound to: this agent, this session, this digest
// (AHP-41).
func askedIn(agentID, session, digest string) gate.Asked {
	return gate.Asked{Agent: agentID, Key: Name + ":" + session, Digest: digest}
}

// holdStep finds or opens the gate of a step, waits for it as long as the call may be
// held, and answers with the outcome. It goes round again when somebody was faster:
// another call has opened the gate, or has used the approval up. Each round sees
// committed state only, and ends with an answer or with a gate that is newer than the
// one before, so it ends.
func (h *Harness) holdStep(ctx context.Context, c *Conn, who roster.Identity, e *Event, d rulebook.Decision) (wire.Raw,
	error,
) {
	s := &heldStep{Event: e, conn: c, who: who, session: keyOf(e.Session), decision: d}
	s.asked = askedIn(who.ID, s.session, e.actKey())
	if d.Changes.Any() {
		var err error
		if s.changed, err = h.changed(e.Payload, d.Changes); err != nil {
			return nil, err
		}
	}
	// A server that stops answers "not decided yet" at once instead of holding its
	// listeners open.
	waiting, end := wire.UntilStop(ctx)
	defer end()
	for {
		known, err := h.core.Gates.Find(ctx, s.asked)
		if err == nil && known == nil {
			known, err = h.openGate(ctx, s, "")
		}
		if err != nil {
			return nil, err
		}
		g, err := h.core.Gates.Wait(waiting, known.Gate)
		switch {
		case err != nil:
			return nil, err
		// AHP-40: the gate stays open. The agent asks again and finds it.
		case g.Status == gate.Pending || waiting.Err() != nil:
			return postponement(e.Type, g.Outcome()+" "+d.Reason, retryPending).encode(e, nil)
		// AHP-43: an approval that was used up, or whose window is over, permits nothing. A new
		// gate opens in its place.
		case g.Status == gate.Approved && known.Spent(*g.ResolvedAt, h.core.Now()):
			if _, err := h.openGate(ctx, s, g.ID); err != nil {
				return nil, err
			}
		default:
			answer, err := h.settleStep(ctx, s, &g)
			// Another call used the approval between our look and our write. Ask again from the
			// start.
			if !errors.Is(err, gate.ErrSpent) {
				return answer, err
			}
		}
	}
}

// openGate opens a gate for the step in place of the past one ("" for none), unless
// another call has done so meanwhile. It returns the approval that then stands, which
// may be the other call's.
func (h *Harness) openGate(ctx context.Context, s *heldStep, past string) (*gate.Approval, error) {
	spec := s.decision.Gate
	b := h.stepOf(s.conn, s.who, s.Event, s.decision)
	b.Gate, b.Digest, b.GoodFor, b.Uses = gate.NewID(), s.asked.Digest, spec.GoodFor.Microseconds(), int64(spec.Uses)
	encoded, err := b.encode(s.Raw)
	if err != nil {
		return nil, err
	}
	run := h.core.AskedBy(ctx, s.decision.Record.Behalf(), s.who, cmp.Or(s.metadata().Run, s.text("run_id")))
	o := s.opening(run)
	if o.Context, err = h.contextOf(ctx, s); err != nil {
		return nil, err
	}
	due, err := gate.Prepare(o)
	if err != nil {
		return nil, err
	}
	trace := traceOf(s.who.ID, s.session)
	var stands *gate.Approval
	err = h.commit(ctx, func(tx *ledger.Tx) error {
		body, err := s.decision.Body(tx, encoded, b.with)
		if err != nil {
			return err
		}
		stands, err = b.approval(s.session).Open(tx, past, func() {
			tx.Append(ledger.Event{
				Workspace: s.who.Workspace, Kind: kindHeld, Actor: s.who.Actor(), Subject: s.subject(),
				Trace: trace, Body: body,
			})
			due.Open(tx, b.Gate, s.who.Workspace, trace)
		})
		return err
	})
	if err != nil { // a commit that is still under way may yet set stands
		return nil, err
	}
	return stands, nil
}

// approval is the approval that a held step waits for. It is made here before the
// write, and by applyHeld from the stored body, so it must follow from the body and the
// trace alone.
func (s *stepHead) approval(session string) *gate.Approval {
	return &gate.Approval{
		Asked: askedIn(s.Agent, session, s.Digest), Gate: s.Gate,
		Window: time.Duration(s.GoodFor) * time.Microsecond, Uses: gate.UsesOf(s.Uses, s.Once),
	}
}

// readApproval reads the approval of a step from the entries of its session.
func readApproval(p ledger.Prover, a gate.Asked, by *gate.Gate) (found *gate.Approval, err error) {
	session := strings.TrimPrefix(a.Key, Name+":")
	entries, err := p.Entries(ledger.Query{
		After: by.Held(), Trace: traceOf(a.Agent, session), Kinds: []string{kindHeld, kindSettled},
	})
	for i := 0; i < len(entries) && err == nil; i++ {
		if entries[i].Kind == kindHeld {
			var held *step
			if held, err = ledger.Read[step](&entries[i]); err == nil && held.Gate == by.ID {
				found = held.approval(session)
			}
			continue
		}
		var used *settled
		if used, err = ledger.Read[settled](&entries[i]); err == nil && used.Gate == by.ID && used.Used && found != nil {
			found = found.Used()
		}
	}
	return found, err
}

// settleStep answers with the outcome of a gate. The use of an approval and the record
// of the answer are one transaction (AHP-43); with gate.ErrSpent neither has happened.
func (h *Harness) settleStep(ctx context.Context, s *heldStep, g *gate.Gate) (wire.Raw, error) {
	v := policy.Verdict{Action: policy.Block, Rule: s.decision.Rule, Reason: g.Outcome()}
	if g.Status == gate.Approved {
		v.Action = policy.Allow
	}
	answer, err := h.outcomeAnswer(ctx, s, v, g)
	if err != nil {
		return nil, err
	}
	body := settled{g.Of, s.who.ID, s.asked.Digest, g.ID, g.Status == gate.Approved, answer}
	err = h.commit(ctx, func(tx *ledger.Tx) error {
		record := func() {
			tx.Append(ledger.Event{
				Workspace: s.who.Workspace, Kind: kindSettled, Actor: s.who.Actor(), Subject: s.subject(),
				Trace: traceOf(s.who.ID, s.session), Body: body,
			})
		}
		if !body.Used {
			record()
			return nil
		}
		if err := s.decision.StillUnder(tx); err != nil {
			return err
		}
		if err := h.core.Gates.Use(tx, s.asked, g, record); err != nil {
			return err
		}
		return h.handOn.Start(ctx, tx, s.decision.By(s.who, s.Event.Session), s.asStep())
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// outcomeAnswer translates the outcome of a gate into a decision. A payload that the
// operator or the rule put in place of the agent's goes out as modify (AHP-45); typed
// decisions have no place for one.
func (h *Harness) outcomeAnswer(ctx context.Context, s *heldStep, v policy.Verdict, g *gate.Gate) (wire.Raw, error) {
	instead := s.changed
	if len(g.Modified) > 0 {
		instead = g.Modified
	}
	// Who approved is told: a client may take a person's word for more than a rule's (AHP-57).
	var by map[string]any
	if g.Status == gate.Approved && g.Cause == gate.ByVote {
		by = map[string]any{"approved_by": g.ResolvedBy, "gate": g.ID}
	}
	switch {
	case v.Action == policy.Allow && len(instead) > 0 && !s.kind.typed():
		return Answer{Decision: "modify", ModifiedPayload: instead, Metadata: by}.encode(s.Event, nil)
	case by != nil && s.Type == PreAction && h.Config.Handlers[PreAction] == "":
		return Answer{Decision: "allow", Metadata: by}.encode(s.Event, nil)
	}
	answer, _, err := h.answerVerdict(ctx, s.who, s.Event, v)
	return answer, err
}

// opening is what the operator is shown. It shows exactly what the approval is bound
// to: the payload, under its digest. Everything in it was written by an agent and is
// displayed as data.
func (s *heldStep) opening(run string) gate.Opening {
	e, shown, v := s.policyEvent(""), s.Payload, s.decision.Verdict
	if s.changed != nil { // what will run
		shown, e.Fill = s.changed, nil
		_ = policy.DecodeData(s.changed, &e.Payload) // we have encoded it
		e.Arguments, _ = e.Payload["arguments"].(map[string]any)
	}
	e.Read()
	title := titleOf(s.Type, &e)
	facts := append(gate.OnBehalf(&s.decision.Record, s.User), gate.Fact{Name: "event", Value: string(s.Type)},
		gate.Fact{Name: "session", Value: s.session})
	if e.CWD != "" {
		facts = append(facts, gate.Fact{Name: "folder", Value: e.CWD})
	}
	return gate.Opening{
		Agent: s.who.ID, AgentName: s.who.Name, Requester: s.who.Actor(), Risk: v.Gate.Risk, Digest: s.digest(),
		Of:     s.decision.Record.Behalf(),
		Origin: gate.Origin{Protocol: Name, Reference: s.session, Run: run},
		Shown: gate.Shown{
			Title: gate.Title(title), Summary: gate.Excerpt(e.Text), ProposedAction: gate.Excerpt(title), Facts: facts,
			Artifacts: []wire.Raw{shown}, Rule: v.Rule, Reason: v.Reason,
		},
		Rules: gate.RulesOf(v.Gate), Uses: v.Gate.Uses,
	}
}
