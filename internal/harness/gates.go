package harness

import (
	"context"
	"database/sql"
	"encoding/json"
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

// approval is the gate that was opened for an event of a session.
type approval struct {
	gate    string
	goodFor time.Duration // after the decision; zero when it counts by uses only
	once    bool
	used    bool
}

// good reports whether an approval still is one at the moment.
func (a approval) good(decided, now time.Time) bool {
	return (!a.used || !a.once) && (a.goodFor == 0 || now.Before(decided.Add(a.goodFor)))
}

const selectApproval = "SELECT gate, good_for, once, used FROM harness_gate WHERE agent = $1 AND session = $2 AND digest = $3"

func scanApproval(query func(text string, args []any, dest ...any) error, args ...any) (a approval, err error) {
	var micros int64
	err = query(selectApproval, args, &a.gate, &micros, &a.once, &a.used)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	a.goodFor = time.Duration(micros) * time.Microsecond
	return a, err
}

// asking is one call that a person has to decide.
type asking struct {
	*Event
	who      roster.Identity
	key      string // of the session
	sum      string // the digest
	decision rulebook.Decision
	conn     *Conn
}

// held finds or opens the gate of an event, waits for it as long as the call may be held,
// and answers with its outcome. The same call asked again finds the same gate.
func (h *Harness) held(ctx context.Context, c *Conn, who roster.Identity, e *Event, d rulebook.Decision) (wire.Raw, error) {
	a := &asking{e, who, keyOf(e.Session), e.digest(), d, c}
	waiting, end := wire.UntilStop(ctx)
	defer end()
	for {
		known, err := scanApproval(func(text string, args []any, dest ...any) error {
			return h.core.DB.QueryRow(ctx, text, args, dest...)
		}, who.ID, a.key, a.sum)
		if err != nil {
			return nil, err
		}
		if known.gate == "" {
			if err := h.open(ctx, a, known); err != nil {
				return nil, err
			}
			continue
		}
		g, err := h.core.Gates.Wait(waiting, known.gate)
		if err != nil {
			return nil, err
		}
		if g.Status == gate.Pending {
			reason := "A person has to decide this (gate " + g.ID + "). " + d.Reason
			return postponed(e.Type, reason, retryPending).encode(e, nil)
		}
		if g.Status == gate.Approved && !known.good(*g.ResolvedAt, h.core.Now()) {
			// It was used, or is too old: the same is asked for anew.
			if err := h.open(ctx, a, known); err != nil {
				return nil, err
			}
			continue
		}
		answer, err := h.settle(ctx, a, known, g)
		if !errors.Is(err, errUsed) {
			return answer, err
		}
	}
}

// errUsed says that another call has used an approval up meanwhile.
var errUsed = errors.New("the approval was used meanwhile")

// open opens a gate in place of the one that is known, unless another call has done so.
func (h *Harness) open(ctx context.Context, a *asking, known approval) error {
	spec := a.decision.Gate
	s := h.stepOf(a.conn, a.who, a.Event, a.decision)
	s.Gate, s.Digest, s.GoodFor, s.Once = gate.NewID(), a.sum, spec.Window.Microseconds(), spec.Window == 0 || spec.SingleUse
	body, err := s.encode(a.Raw)
	if err != nil {
		return err
	}
	due, err := gate.Prepare(a.opening())
	if err != nil {
		return err
	}
	trace := traceOf(a.who.ID, a.key)
	return h.commit(ctx, func(tx *ledger.Tx) error {
		now, err := scanApproval(tx.QueryRow, a.who.ID, a.key, a.sum)
		if err != nil || now.gate != known.gate {
			return err
		}
		tx.Append(ledger.Event{Workspace: a.who.Workspace, Kind: kindHeld, Actor: a.who.Actor(), Subject: a.about(), Trace: trace, Body: body})
		due.Open(tx, s.Gate, a.who.Workspace, trace)
		return nil
	})
}

// settle answers with the outcome of a gate, and notes that an approval was used.
func (h *Harness) settle(ctx context.Context, a *asking, known approval, g gate.Gate) (wire.Raw, error) {
	v := policy.Verdict{Action: policy.Block, Rule: a.decision.Rule, Reason: outcomeText(g)}
	if g.Status == gate.Approved {
		v.Action = policy.Allow
	}
	answer, err := h.outcome(ctx, a, v, g)
	if err != nil {
		return nil, err
	}
	body := settled{Agent: a.who.ID, Digest: a.sum, Gate: g.ID, Used: g.Status == gate.Approved, Answer: answer}
	err = h.commit(ctx, func(tx *ledger.Tx) error {
		now, err := scanApproval(tx.QueryRow, a.who.ID, a.key, a.sum)
		if err != nil {
			return err
		}
		if g.Status == gate.Approved && (now.gate != known.gate || !now.good(*g.ResolvedAt, tx.Now())) {
			return errUsed
		}
		tx.Append(ledger.Event{Workspace: a.who.Workspace, Kind: kindSettled, Actor: a.who.Actor(), Subject: a.about(), Trace: traceOf(a.who.ID, a.key), Body: body})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// outcome is a resolved gate in the words of the event's kind. What an operator put in
// place of the payload is what the agent goes on with.
func (h *Harness) outcome(ctx context.Context, a *asking, v policy.Verdict, g gate.Gate) (wire.Raw, error) {
	if v.Action == policy.Allow && len(g.Modified) > 0 && !a.kind.typed() {
		return Answer{Decision: "modify", ModifiedPayload: g.Modified}.encode(a.Event, nil)
	}
	answer, _, err := h.words(ctx, a.who, a.Event, v)
	return answer, err
}

// outcomeText says who decided, and what they wrote.
func outcomeText(g gate.Gate) string {
	switch {
	case g.Cause == gate.ByExpiry:
		return "Nobody decided in time; the gate " + g.ID + " has expired."
	case g.Note != "":
		return "Rejected by an operator: " + g.Note
	}
	return "Rejected by an operator."
}

// opening is what an operator is shown: exactly what the approval is good for.
func (a *asking) opening() gate.Opening {
	asked := a.asked("")
	title := string(a.Type)
	switch {
	case asked.Command != "":
		title = asked.Tool + ": " + asked.Command
	case asked.Tool != "":
		title = asked.Tool
	case asked.Text != "":
		title = asked.Text
	}
	facts := []gate.Fact{{Name: "event", Value: string(a.Type)}, {Name: "session", Value: a.key}}
	if asked.CWD != "" {
		facts = append(facts, gate.Fact{Name: "folder", Value: asked.CWD})
	}
	shown := a.Payload
	if len(shown) > maxShown { // an operator reads the beginning, and the digest binds all of it
		shown, _ = json.Marshal(strings.ToValidUTF8(string(shown[:maxShown]), "") + "…") // a text
	}
	v := a.decision.Verdict
	return gate.Opening{
		Agent: a.who.ID, AgentName: a.who.Name, Requester: a.who.Actor(), Risk: v.Gate.Risk, Digest: a.sum,
		Origin: gate.Origin{Protocol: Name, Reference: a.key},
		Shown: gate.Shown{
			Title: gate.Title(title), Summary: asked.Text, ProposedAction: title, Facts: facts,
			Artifacts: []wire.Raw{shown}, Rule: v.Rule, Reason: v.Reason,
		},
		Rules: gate.RulesOf(v.Gate),
	}
}

const maxShown = 64 << 10 // bytes of a payload
