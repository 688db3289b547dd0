package deliver

import (
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Callback is the body of the POST to an agent's webhook when a gate is resolved. Agents depend on
// exactly these fields.
type Callback struct {
	GateID     string      `json:"gate_id"`
	Status     gate.Status `json:"status"`
	RunID      string      `json:"run_id"`
	AgentID    string      `json:"agent_id"` // its name
	ResolvedAt time.Time   `json:"resolved_at"`
	ResolvedBy string      `json:"resolved_by"`
}

// QueueCallback queues the callback of a gate in the transaction that resolves it, if the gate has
// an address for it. generation is that of the agent's secret.
func QueueCallback(tx *ledger.Tx, g gate.Gate, generation int) error {
	// Most agents ask for the outcome instead.
	if g.Origin.Callback == "" {
		return nil
	}
	payload, err := wire.Marshal(Callback{g.ID, g.Status, g.Origin.Reference, g.Agent, *g.ResolvedAt, g.Cause.Decider()})
	if err != nil {
		return err
	}
	_, err = Queue(tx, Delivery{
		Workspace: g.Workspace, Target: g.Origin.Callback, Payload: payload, Receiver: g.AgentID(),
		Generation: generation, Trace: g.Trace,
	})
	return err
}

// Registration is where a receiver wants to be called, "" for nowhere, and how often the secret
// that signs the calls was changed; see Outbox.SecretFor. The owner of the receiver stores it.
type Registration struct {
	URL        string
	Generation int
}

// Register checks a new address and returns the registration that replaces the one before. rotate
// changes the secret; calls that are queued already are signed with the old one.
func (o *Outbox) Register(ctx context.Context, before Registration, address string, rotate bool) (Registration, error) {
	if address != "" {
		if err := o.CheckTarget(ctx, address); err != nil {
			return before, fault.From(err).About("url")
		}
	}
	before.URL = address
	if rotate {
		before.Generation++
	}
	return before, nil
}
