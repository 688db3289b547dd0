package signal

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// takeReceipt records what became of an approved action (SIG-47). A gate takes one receipt from this
// protocol: the same again is a duplicate, another is refused. A gate that is not approved
// refuses any (gate.AddReceipt). Read and write are one transaction, so that two receipts at
// once are not both taken.
func (s *Signals) takeReceipt(ctx context.Context, who roster.Identity, f *fields) (Received, error) {
	name, gateID := f.kebabName("agent_id", "resume-tailor"), f.Text("gate_id", maxRunID, "gate_01jt4k")
	status := f.Word("status", "succeeded", "failed")
	summary := f.Text("summary", maxText, "Sent it")
	f.artifacts()
	f.metadata()
	if err := f.err(); err != nil {
		return Received{}, err
	}
	if err := inScope(who, name); err != nil {
		return Received{}, err
	}
	g, err := s.ownGate(ctx, who, gateID)
	if err != nil {
		return Received{}, err
	}
	duplicate := false
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		before, err := gate.Receipts(tx, g.ID)
		if err != nil {
			return err
		}
		if duplicate = len(before) > 0; !duplicate {
			return gate.AddReceipt(tx, g.ID, who.Actor(),
				gate.Receipt{Succeeded: status == "succeeded", Summary: summary, Detail: f.body})
		}
		if !wire.Same(before[0].Detail, f.body) {
			return fault.New(fault.Conflict,
				"The gate %s already has a receipt with other content, which stands.", g.ID).About("gate_id")
		}
		return nil
	})
	if err != nil {
		return Received{}, err
	}
	return Received{Answer: answer(g.ID, outcome{g.Status, "Receipt recorded"}), Duplicate: duplicate}, nil
}

// ownGate finds a gate of the agent that asks. A gate of another agent gets the same error as
// one that does not exist, so that ids cannot be probed (SIG-26).
func (s *Signals) ownGate(ctx context.Context, who roster.Identity, gateID string) (gate.Gate, error) {
	g, err := s.core.Gates.Get(ctx, gateID)
	if fault.Is(err, fault.NotFound) || err == nil && g.AgentID() != who.ID {
		return g, fault.New(fault.NotFound,
			"There is no gate %.80q of this agent. Use the gate_id that the signal was answered with.", gateID)
	}
	return g, err
}
