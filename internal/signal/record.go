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

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// event is what rules see of a signal.
func (s *Signal) event() policy.Event {
	return policy.Event{
		Point: policy.OnSignal, Protocol: Name, Kind: string(s.Type),
		Summary: s.Summary, ProposedAction: s.ProposedAction, Declared: s.GateRequired,
		Model: s.Model, Project: s.ProjectID, Status: s.Status, Run: s.RunID,
		CostUSD: float64(s.CostNano) / 1e9, Tokens: s.InputTokens + s.OutputTokens, InputTokens: s.InputTokens,
		OutputTokens: s.OutputTokens,
		Fill:         s.fill,
	}
}

// fill decodes what rules see as data. Parse has read it all, so it decodes.
func (s *Signal) fill(e *policy.Event) {
	_ = policy.DecodeData(s.Raw, &e.Payload)
	e.Metadata, _ = e.Payload["metadata"].(map[string]any)
	e.Artifacts, _ = e.Payload["artifacts"].([]any)
}

// trace ties together everything of one run. An id that is too long for a trace, since
// its characters are, stands in it as its hash.
func trace(who roster.Identity, runID string) string {
	if len(runID) > maxTraced {
		sum := sha256.Sum256([]byte(runID))
		runID = "sha256:" + hex.EncodeToString(sum[:])
	}
	return "run:" + who.ID + ":" + runID
}

const maxTraced = 256 // bytes

// record writes the signal, and opens a gate if one is due: first what came, then what
// follows from it.
func (s *Signals) record(ctx context.Context, who roster.Identity, sig *Signal, d rulebook.Decision) (Received, error) {
	o := settle(sig.GateRequired, d.Verdict)
	body := received{
		Agent: who.ID, Type: sig.Type, RunID: sig.RunID, Request: sig.request(), Project: sig.ProjectID,
		Status: o.status, Message: o.message, Decision: rulebook.Plain(d.Record),
		parsed: sig,
	}
	body.Decision.Event = nil // it follows from the payload
	if sig.Type != GateRequest {
		cost := s.Prices().check(sig)
		body.Cost = &cost
	}
	if o.status == gate.Pending {
		body.Gate = gate.NewID()
	}
	text, err := body.encode(sig.Raw)
	if err != nil {
		return Received{}, err
	}
	var due gate.Prepared
	if body.Gate != "" {
		if due, err = gate.Prepare(opening(who, sig, d.Verdict, body.Cost)); err != nil {
			return Received{}, err
		}
	}
	run := trace(who, sig.RunID)
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindReceived, Actor: who.Actor(), Subject: sig.RunID,
			Trace: run, Body: ledger.Body{Value: &body, JSON: text},
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

// opening is what an operator is shown.
func opening(who roster.Identity, sig *Signal, v policy.Verdict, cost *CostCheck) gate.Opening {
	title := sig.ProposedAction
	if title == "" {
		title = "(no action proposed) " + sig.Summary
	}
	return gate.Opening{
		Project: sig.ProjectID, Agent: who.ID, AgentName: who.Name, Requester: who.Actor(), Risk: v.Gate.Risk,
		Origin: gate.Origin{Protocol: Name, Reference: sig.RunID, Callback: sig.WebhookURL},
		Shown: gate.Shown{
			Title: gate.Title(title), Summary: sig.Summary, ProposedAction: sig.ProposedAction, Facts: facts(sig, cost),
			Artifacts: sig.Artifacts, Rule: v.Rule, Reason: v.Reason,
		},
		Rules: gate.RulesOf(v.Gate),
	}
}

// facts are what an operator should know beside what the agent says: that the run did
// not end well, and what it cost.
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
		list = append(list, gate.Fact{Name: "cost", Value: cost.text(sig)})
	}
	return list
}

// deferred records the decision and asks to come again: the run is as if it had not
// been signalled.
func (s *Signals) deferred(ctx context.Context, who roster.Identity, sig *Signal, d rulebook.Decision) error {
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(d.Entry(who, sig.RunID, trace(who, sig.RunID)))
		return nil
	})
	if err != nil {
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

// find looks a signal up by its key, nil when there is none.
func (s *Signals) find(ctx context.Context, who roster.Identity, sig *Signal) (*stored, error) {
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
	if f.entry, err = s.core.Ledger.Entry(ctx, seq); err != nil {
		return nil, err
	}
	return &f, f.entry.Decode(&f.body)
}

// repeated answers a signal that was received before: the same content is a poll, and
// other content is refused. Both are noted.
func (s *Signals) repeated(ctx context.Context, who roster.Identity, sig *Signal, f *stored, err error) (Received,
	error,
) {
	if err != nil {
		return Received{}, err
	}
	same := wire.Same(f.body.Signal, sig.Raw)
	sum := sha256.Sum256(sig.Raw)
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindRepeated, Actor: who.Actor(), Subject: sig.RunID, Trace: trace(who, sig.RunID),
			Body: repetition{f.entry.Seq, same, hex.EncodeToString(sum[:])},
		})
		return nil
	})
	if err != nil {
		return Received{}, err
	}
	if !same {
		return Received{}, fault.New(fault.DuplicateRun,
			"The run %q was signalled already, at %s, with other content, which stays as it is. Use a new run_id for a new run.",
			sig.RunID, f.entry.At.Format(time.RFC3339)).About("run_id")
	}
	r := Received{Answer: answer("", outcome{f.body.Status, f.body.Message}), Duplicate: true, Warnings: sig.Warnings}
	if f.gate != "" {
		g, err := s.core.Gates.Get(ctx, f.gate)
		if err != nil {
			return Received{}, err
		}
		r.Answer = answer(g.ID, resolution(g))
	}
	return r, nil
}

// repetition is the body of signal.repeated.
type repetition struct {
	First  int64  `json:"first"` // the entry of the signal that counts
	Same   bool   `json:"same"`
	SHA256 string `json:"sha256"` // of what came
}

// resolved queues the webhook in the transaction that resolves the gate.
func (s *Signals) resolved(tx *ledger.Tx, g gate.Gate) error {
	return deliver.QueueCallback(tx, g, s.WebhookOf(g.AgentID()).Generation)
}

// Readers find the decisions in signals.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindReceived: readDecision}
}

// readDecision finds the decision in signal.received, with the event that the payload
// amounts to.
func readDecision(e *ledger.Entry) (rulebook.Reading, error) {
	reading, err := rulebook.ReadDecision(e)
	if err != nil {
		return reading, err
	}
	var b struct {
		Type   Type     `json:"type"`
		Signal wire.Raw `json:"signal"`
	}
	if err := wire.UnmarshalPart(e.Body, &b); err != nil {
		return reading, err
	}
	sig, err := Parse(b.Signal, b.Type, e.At)
	if err != nil {
		return reading, err
	}
	event := sig.event()
	reading.Decision.Event = &event
	return reading, nil
}
