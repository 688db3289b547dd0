package gate

import (
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// kindReceipt may be erased: a receipt without its body is still counted.
const kindReceipt = "receipt.recorded"

// Receipt says what became of an action that was approved.
type Receipt struct {
	Succeeded bool      `json:"succeeded"`
	Summary   string    `json:"summary"`
	Detail    wire.Raw  `json:"detail,omitzero"` // as the protocol has it
	Actor     string    `json:"actor"`
	At        time.Time `json:"at"`
}

// receipt is the body of the entry.
type receipt struct {
	Succeeded bool     `json:"succeeded"`
	Summary   string   `json:"summary"`
	Detail    wire.Raw `json:"detail,omitzero"`
}

func applyReceipt(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO gate_receipt (gate, seq) VALUES ($1, $2)", e.Subject, e.Seq)
	return nil
}

// AddReceipt binds what became of an action to the gate that approved it, in the
// caller's transaction. A gate may have several, as when an action is repeated within the
// window of its approval. A receipt for a gate that was not approved is refused.
func AddReceipt(tx *ledger.Tx, gateID, actor string, r Receipt) error {
	found, err := load(tx, gateID)
	if err != nil {
		return err
	}
	if found.Status != Approved {
		return fault.New(fault.Conflict, "The gate %s is %s, and a receipt is for an action that was approved.", gateID,
			found.Status)
	}
	tx.Append(ledger.Event{
		Workspace: found.Workspace, Kind: kindReceipt, Actor: actor, Subject: gateID, Trace: found.Trace,
		Body: receipt{r.Succeeded, r.Summary, r.Detail},
	})
	return nil
}

const selectReceipts = "SELECT " + ledger.EntryColumns + " FROM gate_receipt r JOIN " + ledger.EntryTable +
	" ON e.seq = r.seq WHERE r.gate = $1 ORDER BY r.seq"

// Receipts reads what became of a gate's action, the oldest first, in a transaction.
func Receipts(tx *ledger.Tx, gateID string) ([]Receipt, error) {
	return store.All(tx.Query, scanReceipt, selectReceipts, gateID)
}

// Receipts reads what became of a gate's action, the oldest first.
func (g *Gates) Receipts(ctx context.Context, gateID string) ([]Receipt, error) {
	return store.All(g.db.Reading(ctx), scanReceipt, selectReceipts, gateID)
}

// scanReceipt reads a receipt from its entry; one whose body was erased says so.
func scanReceipt(scan store.Scan) (Receipt, error) {
	var row ledger.Row
	if err := scan(row.After()...); err != nil {
		return Receipt{}, err
	}
	e, err := row.Entry()
	if err != nil {
		return Receipt{}, err
	}
	var b receipt
	if e.Body == nil {
		b.Summary = "(erased)"
	} else if err := e.Decode(&b); err != nil {
		return Receipt{}, err
	}
	return Receipt{b.Succeeded, b.Summary, b.Detail, e.Actor, e.At}, nil
}
