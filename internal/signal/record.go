package signal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// event is what rules see of a signal. Data that few rules read is decoded on demand (fill).
func (s *Signal) event() policy.Event {
	return policy.Event{
		Point: policy.OnSignal, Protocol: Name, Kind: string(s.Type),
		Summary: s.Summary, ProposedAction: s.ProposedAction, Declared: s.GateRequired,
		Model: s.Model, Project: s.ProjectID, Status: s.Status, Run: s.RunID,
		CostUSD: float64(s.CostNano) / 1e9, Tokens: s.InputTokens + s.OutputTokens, InputTokens: s.InputTokens,
		OutputTokens: s.OutputTokens, User: s.Named.User, UserToken: s.Named.UserToken, Workspace: s.Named.Workspace,
		Claim: s.Named.Claim, Fill: s.fill,
	}
}

// fill decodes payload, metadata and artifacts for rules that read them. It cannot fail: Parse
// has read the same bytes.
func (s *Signal) fill(e *policy.Event) {
	_ = policy.DecodeData(s.Raw, &e.Payload)
	e.Metadata, _ = e.Payload["metadata"].(map[string]any)
	e.Artifacts, _ = e.Payload["artifacts"].([]any)
}

// trace is the ledger's trace of a run; signals, gates, webhooks and heartbeats of the run have
// the same. A run_id of 128 characters may have 512 bytes, which with the prefix is more than a
// trace takes; such an id is replaced by its hash.
func trace(agentID, runID string) string { return "run:" + agentID + ":" + traced(runID) }

// traced is the id of a run as traces and timers have it: its digest if it is long.
func traced(runID string) string {
	if len(runID) <= maxTraced {
		return runID
	}
	sum := sha256.Sum256([]byte(runID))
	return digested + hex.EncodeToString(sum[:])
}

// digested stands before the digest of an id.
const digested = "sha256:"

const maxTraced = 256 // bytes

// recordSignal writes the signal and opens its gate, if one is due, in one transaction and in that
// order (SIG-14). What needs no transaction (encoding, the gate's digest) is done before,
// since transactions run one after another. It fails with store.IsUnique if the run was
// signalled before; nothing is written then.
func (s *Signals) recordSignal(
	ctx context.Context, who roster.Identity, sig *Signal, d rulebook.Decision,
) (Received, error) {
	o := settle(sig.GateRequired, d.Verdict)
	body := received{
		Agent: who.ID, Type: sig.Type, RunID: sig.RunID, Request: sig.request(), Project: sig.ProjectID,
		Status: o.status, Message: o.message, Decision: rulebook.Plain(d.Record),
		parsed: sig,
	}
	body.Decision.Event = nil // readDecision makes it again from the payload
	// A gate request has no tokens yet, and so no cost.
	if sig.Type != GateRequest {
		cost := checkCost(s.core.Prices.InForce(), sig)
		if s.Carried != nil {
			var err error
			if cost.Beside, err = s.Carried(ctx, who.ID, sig.RunID); err != nil {
				return Received{}, err
			}
		}
		body.Cost = &cost
	}
	if o.status == gate.Pending {
		body.Gate = gate.NewID()
	}
	text, err := body.encode(sig.Raw)
	if err != nil {
		return Received{}, err
	}
	recorded := ledger.Body{Value: &body, JSON: text}
	var due gate.Prepared
	if body.Gate != "" {
		if due, err = gate.Prepare(opening(who, sig, d, body.Cost, s.core.AskedBy(ctx, d.Record.Behalf(), who, sig.RunID))); err != nil {
			return Received{}, err
		}
	}
	run := trace(who.ID, sig.RunID)
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		recorded, err := d.Body(tx, recorded, func(exact rulebook.Record) (ledger.Body, error) {
			now := body // a function may run twice
			now.Decision = rulebook.Plain(exact)
			now.Decision.Event = nil
			text, err := now.encode(sig.Raw)
			return ledger.Body{Value: &now, JSON: text}, err
		})
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindReceived, Actor: who.Actor(), Subject: sig.RunID,
			Trace: run, Body: recorded,
		})
		if body.Gate != "" {
			due.Open(tx, body.Gate, who.Workspace, run)
		}
		return nil
	})
	if err != nil {
		return Received{}, err
	}
	return Received{Answer: answer(body.Gate, o), Warnings: sig.Warnings}, nil
}

// opening is the gate of a signal: what the operator is shown, and the rule's conditions. A
// gate that a rule forces (SIG-21) may lack a proposed action, and says so (SIG-11).
func opening(who roster.Identity, sig *Signal, d rulebook.Decision, cost *CostCheck, run string) gate.Opening {
	v, about := d.Verdict, gate.OnBehalf(&d.Record, sig.event().User)
	title := sig.ProposedAction
	if title == "" {
		title = "(no action proposed) " + sig.Summary
	}
	return gate.Opening{
		Project: sig.ProjectID, Agent: who.ID, AgentName: who.Name, Requester: who.Actor(), Risk: v.Gate.Risk,
		Of: d.Record.Behalf(),
		Origin: gate.Origin{
			Protocol: Name, Reference: sig.RunID, Run: run, Callback: sig.WebhookURL,
		},
		Shown: gate.Shown{
			Title: gate.Title(title), Summary: sig.Summary, ProposedAction: sig.ProposedAction,
			Facts:     append(about, facts(sig, cost)...),
			Artifacts: sig.Artifacts, Rule: v.Rule, Reason: v.Reason,
		},
		Rules: gate.RulesOf(v.Gate),
	}
}

// facts are what an operator should know beside the agent's own words: that the run did not
// end well, and what it cost.
func facts(sig *Signal, cost *CostCheck) (list []gate.Fact) {
	if sig.Status == Failed || sig.Status == Interrupted {
		list = append(list, gate.Fact{
			Name: "status",
			Value: strings.Join(slices.DeleteFunc([]string{sig.Status, sig.ErrorCode, sig.ErrorMessage}, func(s string) bool {
				return s == ""
			}), ": "),
		})
	}
	if cost != nil {
		list = append(list, gate.Fact{Name: "cost", Value: cost.describe(sig)})
	}
	return list
}

// recordDeferral records the decision and returns the error that asks the agent to come again. The
// run stays unknown, so that the same signal is welcome later (SIG-19).
func (s *Signals) recordDeferral(ctx context.Context, who roster.Identity, sig *Signal, d rulebook.Decision) error {
	if err := d.Write(ctx, s.core.Ledger, who, sig.RunID, trace(who.ID, sig.RunID)); err != nil {
		return err
	}
	return d.Deferred("the same signal")
}

// stored is a signal that was received before.
type stored struct {
	gate  string
	entry ledger.Entry
	body  received
}

// findSignal looks a signal up by its key. It is nil without an error if there is none.
func (s *Signals) findSignal(ctx context.Context, who roster.Identity, sig *Signal) (*stored, error) {
	var f stored
	var seq int64
	err := s.core.DB.QueryRow(ctx, "SELECT seq, gate FROM signal WHERE agent = $1 AND run_id = $2 AND request = $3",
		[]any{who.ID, sig.RunID, sig.request()}, &seq, &f.gate)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := s.core.Ledger.Prover(ctx)
	if f.entry, err = p.At(seq); err != nil {
		return nil, err
	}
	if f.entry.Kind == kindReceived {
		err = f.entry.Decode(&f.body)
	}
	if b := &f.body; err == nil && (b.Agent != who.ID || b.RunID != sig.RunID || b.Request != sig.request() ||
		b.Gate != f.gate) {
		err = p.Contradicts("signal", sig.RunID, "entry %d is not the signal of the run %.80q", seq, sig.RunID)
	}
	return &f, err
}

// answerRepeated answers a signal whose run was received before. The same JSON value is a poll and is
// answered with the current state (SIG-16); other content is refused (SIG-17). Both are
// recorded (SIG-18). found and err are those of find.
func (s *Signals) answerRepeated(ctx context.Context, who roster.Identity, sig *Signal, f *stored, err error) (Received,
	error,
) {
	if err != nil {
		return Received{}, err
	}
	same := wire.Same(f.body.Signal, sig.Raw)
	if !same { // credentials, such as the token of a handoff, are stored as marks
		clean, _ := s.core.Secrets.JSON(sig.Raw)
		same = wire.Same(f.body.Signal, clean)
	}
	sum := sha256.Sum256(sig.Raw)
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindRepeated, Actor: who.Actor(), Subject: sig.RunID, Trace: trace(who.ID, sig.RunID),
			Body: repetition{(*rulebook.Record)(&f.body.Decision).Behalf(), f.entry.Seq, same, hex.EncodeToString(sum[:])},
		})
		return nil
	})
	if err != nil {
		return Received{}, err
	}
	if !same {
		return Received{}, fault.New(fault.DuplicateRun,
			"The run %q was already signalled with other content, at %s. That signal stands; "+
				"use a new run_id for a new run.",
			sig.RunID, f.entry.At.Format(time.RFC3339)).About("run_id")
	}
	r := Received{Answer: answer("", outcome{f.body.Status, f.body.Message}), Duplicate: true, Warnings: sig.Warnings}
	if f.gate != "" {
		g, err := s.core.Gates.Get(ctx, f.gate)
		if err != nil {
			return Received{}, err
		}
		r.Answer = answer(g.ID, gateOutcome(g))
	}
	return r, nil
}

// repetition is the body of signal.repeated.
type repetition struct {
	behalf.Of        // that of the signal that counts
	First     int64  `json:"first"` // the entry of the signal that counts
	Same      bool   `json:"same"`
	SHA256    string `json:"sha256"` // of the repetition's bytes
}

// queueCallback queues the webhook in the transaction that resolves the gate, so that no crash can
// come between the two (SIG-31). The generation is that of the secret at this moment.
func (s *Signals) queueCallback(tx *ledger.Tx, g gate.Gate) error {
	return deliver.QueueCallback(tx, g, s.WebhookOf(g.AgentID()).Generation)
}

// Readers let the rulebook count and replay the decisions that are recorded in signals.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindReceived: readDecision}
}

// readDecision reads the decision in signal.received, and makes its event again from the
// payload, which is stored once and not a second time as an event.
func readDecision(e *ledger.Entry) (rulebook.Reading, error) {
	var b struct {
		Type   Type      `json:"type"`
		Cost   CostCheck `json:"cost"`
		Signal wire.Raw  `json:"signal"`
	}
	reading, err := rulebook.ReadDecisionAnd(e, &b)
	if err != nil {
		return reading, err
	}
	sig, err := Parse(b.Signal, b.Type, e.At)
	if err != nil {
		return reading, err
	}
	event := sig.event()
	reading.Decision.Event, reading.Beside = &event, b.Cost.Beside
	return reading, nil
}
