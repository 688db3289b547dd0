package proxy

import (
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// queueCallback queues the webhook in the transaction that resolves the gate.
func (p *Proxy) queueCallback(tx *ledger.Tx, g gate.Gate) error {
	if g.Origin.Callback == "" {
		return nil
	}
	by := "rule"
	if g.Cause == gate.ByVote {
		by = "operator"
	}
	payload, err := wire.Marshal(callback{g.ID, g.Status, g.Origin.Reference, g.Agent, *g.ResolvedAt, by})
	if err != nil {
		return err
	}
	_, generation := p.Webhook(g.AgentID())
	_, err = deliver.Queue(tx, deliver.Delivery{Workspace: g.Workspace, Target: g.Origin.Callback, Payload: payload, Receiver: g.AgentID(), Generation: generation, Trace: g.Trace})
	return err
}

// callback is what is POSTed to an agent's webhook: exactly these fields.
type callback struct {
	GateID     string      `json:"gate_id"`
	Status     gate.Status `json:"status"`
	RunID      string      `json:"run_id"`
	AgentID    string      `json:"agent_id"`
	ResolvedAt time.Time   `json:"resolved_at"`
	ResolvedBy string      `json:"resolved_by"`
}
