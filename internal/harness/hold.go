package harness

import (
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

// heldStep is a step that a person has to decide about.
type heldStep struct {
	*Event
	conn     *Conn
	who      roster.Identity
	session  string // its key
	asked    gate.Asked
	decision rulebook.Decision
}

// askedIn is what an approval is good for: what has this digest, in this session of the agent.
func askedIn(agentID, session, digest string) gate.Asked {
	return gate.Asked{Agent: agentID, Key: Name + ":" + session, Digest: digest}
}

// holdStep finds or opens the gate of a step, waits for it as long as the call may be held, and
// answers with its outcome. The same step asked again finds the same gate.
func (h *Harness) holdStep(ctx context.Context, c *Conn, who roster.Identity, e *Event, d rulebook.Decision) (wire.Raw,
	error,
) {
	s := &heldStep{Event: e, conn: c, who: who, session: keyOf(e.Session), decision: d}
	s.asked = askedIn(who.ID, s.session, e.digest())
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
		case g.Status == gate.Pending:
			return postponement(e.Type, g.Outcome()+" "+d.Reason, retryPending).encode(e, nil)
		case g.Status == gate.Approved && known.Spent(*g.ResolvedAt, h.core.Now()):
			if _, err := h.openGate(ctx, s, g.ID); err != nil {
				return nil, err
			}
		default:
			answer, err := h.settleStep(ctx, s, &g)
			if !errors.Is(err, gate.ErrSpent) {
				return answer, err
			}
		}
	}
}

// openGate opens a gate in place of the past one, unless another call has done so, and answers
// with the approval that stands.
func (h *Harness) openGate(ctx context.Context, s *heldStep, past string) (*gate.Approval, error) {
	spec := s.decision.Gate
	b := h.stepOf(s.conn, s.who, s.Event, s.decision)
	b.Gate, b.Digest, b.GoodFor, b.Once = gate.NewID(), s.asked.Digest, spec.Window.Microseconds(), spec.Window == 0 ||
		spec.SingleUse
	body, err := b.encode(s.Raw)
	if err != nil {
		return nil, err
	}
	due, err := gate.Prepare(s.opening())
	if err != nil {
		return nil, err
	}
	trace := traceOf(s.who.ID, s.session)
	var stands *gate.Approval
	err = h.commit(ctx, func(tx *ledger.Tx) (err error) {
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

// approval is what a step that was held waits for.
func (s *stepHead) approval(session string) *gate.Approval {
	a := &gate.Approval{
		Asked: askedIn(s.Agent, session, s.Digest), Gate: s.Gate,
		Window: time.Duration(s.GoodFor) * time.Microsecond, Uses: gate.Unlimited,
	}
	if s.Once {
		a.Uses = 1
	}
	return a
}

// settleStep answers with the outcome of a gate, and uses an approval.
func (h *Harness) settleStep(ctx context.Context, s *heldStep, g *gate.Gate) (wire.Raw, error) {
	v := policy.Verdict{Action: policy.Block, Rule: s.decision.Rule, Reason: g.Outcome()}
	if g.Status == gate.Approved {
		v.Action = policy.Allow
	}
	answer, err := h.outcomeAnswer(ctx, s, v, g)
	if err != nil {
		return nil, err
	}
	body := settled{
		Agent: s.who.ID, Digest: s.asked.Digest, Gate: g.ID, Used: g.Status == gate.Approved, Answer: answer,
	}
	err = h.commit(ctx, func(tx *ledger.Tx) error {
		record := func() {
			tx.Append(ledger.Event{
				Workspace: s.who.Workspace, Kind: kindSettled, Actor: s.who.Actor(), Subject: s.subject(),
				Trace: traceOf(s.who.ID, s.session), Body: body,
			})
		}
		if body.Used {
			return s.asked.Use(tx, g, record)
		}
		record()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// outcomeAnswer is a resolved gate in the words of the event's kind. What an operator put in
// place of the payload is what the agent goes on with.
func (h *Harness) outcomeAnswer(ctx context.Context, s *heldStep, v policy.Verdict, g *gate.Gate) (wire.Raw, error) {
	if v.Action == policy.Allow && len(g.Modified) > 0 && !s.kind.typed() {
		return Answer{Decision: "modify", ModifiedPayload: g.Modified}.encode(s.Event, nil)
	}
	answer, _, err := h.answerVerdict(ctx, s.who, s.Event, v)
	return answer, err
}

// opening is what an operator is shown: exactly what the approval is good for.
func (s *heldStep) opening() gate.Opening {
	e := s.policyEvent("")
	title := string(s.Type)
	switch {
	case e.Command != "":
		title = e.Tool + ": " + e.Command
	case e.Tool != "":
		title = e.Tool
	case e.Text != "":
		title = e.Text
	}
	facts := []gate.Fact{{Name: "event", Value: string(s.Type)}, {Name: "session", Value: s.session}}
	if e.CWD != "" {
		facts = append(facts, gate.Fact{Name: "folder", Value: e.CWD})
	}
	shown := s.Payload
	if len(shown) > maxShown { // an operator reads the beginning, and the digest binds all of it
		shown = wire.AppendText(nil, strings.ToValidUTF8(string(shown[:maxShown]), "")+"…")
	}
	v := s.decision.Verdict
	return gate.Opening{
		Agent: s.who.ID, AgentName: s.who.Name, Requester: s.who.Actor(), Risk: v.Gate.Risk, Digest: s.asked.Digest,
		Origin: gate.Origin{Protocol: Name, Reference: s.session},
		Shown: gate.Shown{
			Title: gate.Title(title), Summary: e.Text, ProposedAction: title, Facts: facts,
			Artifacts: []wire.Raw{shown}, Rule: v.Rule, Reason: v.Reason,
		},
		Rules: gate.RulesOf(v.Gate),
	}
}

const maxShown = 64 << 10 // bytes of a payload
